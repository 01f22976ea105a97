"""Graph + plan → C text: one readable call per node."""

from smidgen.codegen.generating import Sources, check_kernels, generate, hearing_usage, interface
from smidgen.codegen.linking import link_files, link_header, serves
from smidgen.codegen.packages import Kind, package_files
from smidgen.codegen.project import check_project, listed, write_project
from smidgen.codegen.runtime import PORTABLE, RUNTIME, is_source, render, runtime_files
from smidgen.codegen.storing import store_files, store_usage

__all__ = [
    "PORTABLE",
    "RUNTIME",
    "Kind",
    "Sources",
    "check_kernels",
    "check_project",
    "generate",
    "hearing_usage",
    "interface",
    "is_source",
    "link_files",
    "link_header",
    "listed",
    "package_files",
    "render",
    "runtime_files",
    "serves",
    "store_files",
    "store_usage",
    "write_project",
]
