"""Graph + plan → C text: one readable call per node."""

from smidgen.codegen.entries import kept_bytes, kept_examples, least_flash, ring_header
from smidgen.codegen.packages import PackageKind, npm_files, package_files
from smidgen.codegen.project import (
    SECTOR_BYTES,
    check_project,
    kept_fields,
    kept_sectors,
    link_files,
    link_header,
    listed,
    project_fields,
    project_files,
    serves,
    store_files,
    write_project,
)
from smidgen.codegen.runtime import PORTABLE, RUNTIME, is_source, render, runtime_files
from smidgen.codegen.sources import Sources, check_kernels, generate, interface
from smidgen.codegen.wasm import wasm_exports

__all__ = [
    "PORTABLE", "RUNTIME", "SECTOR_BYTES", "PackageKind", "Sources", "check_kernels", "check_project", "generate",
    "interface", "is_source", "kept_bytes", "kept_examples", "kept_fields", "kept_sectors", "least_flash",
    "link_files", "link_header", "listed", "npm_files", "package_files", "project_fields", "project_files", "render",
    "ring_header", "runtime_files", "serves", "store_files", "wasm_exports", "write_project",
]  # fmt: skip
