"""Kernels for cores without packed arithmetic, one product at a time: the same symbols, in place of others."""
