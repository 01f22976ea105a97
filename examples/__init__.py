"""Examples to start from, each a folder with one command."""
