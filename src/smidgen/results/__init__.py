"""Results of stages, and how they are shown: objects that print themselves, tables and pictures."""
