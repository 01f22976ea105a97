"""Anomalies in the sound of a machine."""
