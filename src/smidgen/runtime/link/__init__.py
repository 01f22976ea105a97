"""Frames over a byte stream in C; a project that serves a link has them beside its kernels."""
