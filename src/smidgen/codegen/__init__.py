"""Graph + plan → C text: one readable call per node."""

from smidgen.codegen.generating import Sources, generate, interface
from smidgen.codegen.runtime import PORTABLE, RUNTIME, is_source, render, runtime_files

__all__ = ["PORTABLE", "RUNTIME", "Sources", "generate", "interface", "is_source", "render", "runtime_files"]
