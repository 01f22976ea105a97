"""Graph + plan → C text: one readable call per node."""

from smidgen.codegen.generating import Sources, check_kernels, generate, hearing_usage, interface
from smidgen.codegen.linking import link_files, link_header, serves
from smidgen.codegen.packages import Kind, package_files
from smidgen.codegen.project import check_project, listed, write_project
from smidgen.codegen.replaying import kept_bytes, kept_examples, least_flash, replay_usage, ring_header
from smidgen.codegen.runtime import PORTABLE, RUNTIME, is_source, render, runtime_files
from smidgen.codegen.storing import SECTOR_BYTES, kept_fields, kept_sectors, store_files, store_usage

__all__ = [
    "PORTABLE",
    "RUNTIME",
    "SECTOR_BYTES",
    "Kind",
    "Sources",
    "check_kernels",
    "check_project",
    "generate",
    "hearing_usage",
    "interface",
    "is_source",
    "kept_bytes",
    "kept_examples",
    "kept_fields",
    "kept_sectors",
    "least_flash",
    "link_files",
    "link_header",
    "listed",
    "package_files",
    "render",
    "replay_usage",
    "ring_header",
    "runtime_files",
    "serves",
    "store_files",
    "store_usage",
    "write_project",
]
