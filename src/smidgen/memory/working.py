"""Working memory: the bytes a kernel needs beside its inputs and outputs, which whoever has the kernels knows."""

from __future__ import annotations

from collections.abc import Callable

from smidgen.ir import Node

# Bytes of working memory that the target's kernel of a node needs; the flag: where it computes one row per call.
Working = Callable[[Node, bool], int]
