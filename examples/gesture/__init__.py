"""Gestures of a new user, from an accelerometer."""
