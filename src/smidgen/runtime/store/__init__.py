"""The store in C: what was learned, kept in flash through power cuts, and drivers for chips in `flash/`."""
