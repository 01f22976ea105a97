"""The store in C: what was learned, and examples to learn from again, kept in flash; drivers for chips in `flash/`."""
