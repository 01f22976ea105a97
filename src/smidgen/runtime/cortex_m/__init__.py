"""Kernels of Cortex-M cores with packed arithmetic (the DSP extension)."""
