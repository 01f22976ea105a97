"""Kernels allocate nothing, keep nothing between calls and never recurse: their object files say so.

Generated programs keep their arena, their state and the source of their rows, and call kernels alone. The search for
packings runs on the host and is the only C that recurses, as deep as there are items.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from smidgen.codegen import PORTABLE, RUNTIME, is_source, runtime_files
from smidgen.pipeline import compile
from smidgen.targets.boards import M0PLUS, M7, M55, Core
from smidgen.targets.image import CallGraph, read_calls
from smidgen.targets.toolchain import find
from smidgen.training import Options
from tests.support.native import declarations
from tests.support.networks import CLASSES, inverted_residual

# What compilers themselves call for copies and for arithmetic that the processor lacks; it keeps nothing either.
HELPERS = re.compile(r"smg_\w+|mem(cpy|set|move)|__aeabi_\w+|__[a-z]+[ds][fi]\d?")
WRITABLE = (".data", ".bss")
DECLARED = re.compile(r"^void (smg_\w+)\(", re.MULTILINE)
FOLDERS = {
    "kernels": M7,
    "scalar": M0PLUS,
    "cortex_m": M7,
    "helium": M55,
}  # each takes files' places in those before; by core


def built(path: Path, folder: Path) -> Path:
    includes = (f"-I{RUNTIME / name}" for name in ("", *FOLDERS))
    made = folder / f"{path.name}.o"
    find("zig", FOLDERS.get(path.parent.name, M7))(*includes, "-c", path, "-o", made, folder=folder)
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


@pytest.mark.parametrize("streamed", [False, True], ids=["buffered", "streamed"])
def test_a_generated_program_keeps_its_memory_alone_and_calls_kernels_alone(streamed: bool, tmp_path: Path) -> None:
    program = compile(inverted_residual(3), "last:4", "cortex-m7", options=Options(CLASSES), streamed_input=streamed)
    for name, text in program.sources.files.items():
        (tmp_path / name).write_text(text)
    own = {".bss.arena", ".bss.state", *((".bss.source", ".bss.source_context") if streamed else ())}
    found = set(faults(built(tmp_path / "model.c", tmp_path)))
    assert {name for name in found if not name.startswith("model_")} == own
    assert faults(built(tmp_path / "model_weights.c", tmp_path)) == []


@pytest.mark.slow
def test_no_program_with_these_kernels_recurses(tmp_path: Path) -> None:
    kernels = DECLARED.findall(declarations())
    assert {"smg_conv2d_s8", "smg_depthwise_grad_g8", "smg_conv2d_weight_step"} <= set(kernels)
    for last, core in enumerate(FOLDERS.values(), 1):
        files = filter(is_source, runtime_files(kernels, tuple(FOLDERS)[:last]))
        graph = linked(tuple(files), core, tmp_path)
        for function in graph.functions:
            graph.deepest(function)  # raises where it comes back to itself


def linked(files: tuple[Path, ...], core: Core, folder: Path) -> CallGraph:
    """The calls between all functions of these files, none left out."""
    includes = (f"-I{RUNTIME / name}" for name in ("", *FOLDERS))
    (folder / "reset.c").write_text("void reset(void);\nvoid reset(void) {}\n")
    words = ("-Wl,--no-gc-sections", "-Wl,--entry=reset", "-o", "all.elf", "reset.c")
    find("zig", core)(*includes, *words, *files, folder=folder)
    return read_calls(folder / "all.elf")


def test_what_allocates_or_keeps_state_is_found(tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text(
        "void *malloc(unsigned);\nstatic int count = 3;\nstatic int calls;\n"
        "int smg_bad(void) { calls += 2; return malloc(4) ? count++ : calls; }\n"
    )
    assert set(faults(built(tmp_path / "bad.c", tmp_path))) == {"malloc", ".bss.calls", ".data.count"}


@pytest.mark.parametrize("folders", [(), ("scalar",), ("cortex_m",), ("cortex_m", "helium")], ids=str)
def test_what_a_header_calls_comes_with_it(folders: tuple[str, ...]) -> None:
    found = runtime_files({"smg_conv2d_weight_step"}, (*PORTABLE, *folders))
    assert {"weight_taps.h", "accumulate.c"} <= {path.name for path in found}
