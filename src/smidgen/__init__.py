"""Smidgen trains neural networks on microcontrollers."""
