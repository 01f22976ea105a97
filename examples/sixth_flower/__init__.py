"""A sixth flower for a network that knows five."""
