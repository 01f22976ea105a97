"""Kernels in vectors of sixteen bytes, for cores with Helium (MVE): the same symbols, in place of others."""
