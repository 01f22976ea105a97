"""Portable kernels, C99 for any machine."""
