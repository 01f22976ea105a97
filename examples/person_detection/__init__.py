"""Person detection from 100 pictures."""
