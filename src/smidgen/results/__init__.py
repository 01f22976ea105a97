"""What a stage found, and how it is shown: objects that print themselves, tables and pictures."""
