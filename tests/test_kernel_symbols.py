"""Kernels allocate nothing and keep nothing between calls: their object files say so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from smidgen.codegen import RUNTIME, is_source
from smidgen.targets.boards import M7
from smidgen.targets.toolchain import find

# What compilers themselves call for copies and for arithmetic that the processor lacks; it keeps nothing either.
HELPERS = re.compile(r"smg_\w+|mem(cpy|set|move)|__aeabi_\w+|__[a-z]+[ds][fi]\d?")
WRITABLE = (".data", ".bss")
FOLDERS = ("kernels", "cortex_m")


def built(path: Path, folder: Path) -> Path:
    includes = (f"-I{RUNTIME / name}" for name in ("", *FOLDERS))
    made = folder / f"{path.name}.o"
    find("zig", M7)(*includes, "-c", path, "-o", made, folder=folder)
    return made


def called(elf: ELFFile) -> Iterator[str]:
    """The symbols an object file leaves to others."""
    for symbol in elf.get_section_by_name(".symtab").iter_symbols():
        if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name:
            yield symbol.name


def kept(elf: ELFFile) -> Iterator[str]:
    """Sections of memory that outlives a call and is not empty."""
    for section in elf.iter_sections():
        if section.name.startswith(WRITABLE) and section["sh_size"]:
            yield section.name


def faults(path: Path) -> list[str]:
    with path.open("rb") as file:
        elf = ELFFile(file)
        return [*(name for name in called(elf) if not HELPERS.fullmatch(name)), *kept(elf)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_kernel_calls_for_memory_or_keeps_state(folder: str, tmp_path: Path) -> None:
    files = sorted(filter(is_source, (RUNTIME / folder).iterdir()))
    assert {path.name: found for path in files if (found := faults(built(path, tmp_path)))} == {}


def test_what_allocates_or_keeps_state_is_found(tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text(
        "void *malloc(unsigned);\nstatic int count = 3;\nstatic int calls;\n"
        "int smg_bad(void) { calls += 2; return malloc(4) ? count++ : calls; }\n"
    )
    assert set(faults(built(tmp_path / "bad.c", tmp_path))) == {"malloc", ".bss.calls", ".data.count"}
