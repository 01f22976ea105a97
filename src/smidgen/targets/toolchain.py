"""Compilers for boards (the ziglang wheel's, or gcc where the user prefers it) and the files a program starts from."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from smidgen.codegen import render
from smidgen.compiler import Compiler, cross
from smidgen.errors import TargetError
from smidgen.targets.boards import Board, Core, Isa

Toolchain = Literal["zig", "gcc"]
TOOLCHAINS: tuple[Toolchain, ...] = get_args(Toolchain)

GCC: Mapping[Isa, str] = {"thumb": "arm-none-eabi-gcc", "riscv": "riscv64-unknown-elf-gcc"}
# The C library that gives gcc memcpy and the like, and the Debian package it comes in; zig has its own.
LIBRARY: Mapping[Isa, str] = {"thumb": "nano.specs", "riscv": "picolibc.specs"}
PACKAGE: Mapping[Isa, str] = {"thumb": "libnewlib-arm-none-eabi", "riscv": "picolibc-riscv64-unknown-elf"}
# Contraction and errno would change bytes and cost calls; sections let the linker drop what nobody calls.
FLAGS = (
    "-std=c99", "-O3", "-g0", "-ffp-contract=off", "-fno-math-errno", "-fomit-frame-pointer", "-ffreestanding",
    "-ffunction-sections", "-fdata-sections", "-fno-unwind-tables", "-Wall", "-Wextra", "-Werror",
)  # fmt: skip
LINK = ("-Wl,--gc-sections", "-Wl,--entry=reset")


def find(toolchain: Toolchain, core: Core) -> Compiler:
    """Return the compiler for a core; TargetError names the package to install where it is missing."""
    if toolchain == "zig":
        if importlib.util.find_spec("ziglang") is None:
            raise TargetError(f"no compiler for {core.title} was found; run: pip install ziglang")
        return cross((sys.executable, "-m", "ziglang", "cc"), (*core_flags(toolchain, core), *FLAGS))
    path = shutil.which(GCC[core.isa])
    if path is None:
        raise TargetError(
            f"{GCC[core.isa]} was not found; install it, or use the compiler that comes with: pip install ziglang"
        )
    if not _has_library(path, LIBRARY[core.isa]):
        raise TargetError(
            f"{GCC[core.isa]} has no C library: {LIBRARY[core.isa]} is missing; run: apt install {PACKAGE[core.isa]}, "
            "or use the compiler that comes with: pip install ziglang"
        )
    return cross((path,), (*core_flags(toolchain, core), *FLAGS))


@cache
def _has_library(gcc: str, specs: str) -> bool:
    """Return whether gcc finds a library's specs file; it answers with the bare name where it does not."""
    command = (gcc, f"-print-file-name={specs}")
    result = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    return result.returncode != 0 or Path(result.stdout.strip()).is_absolute()  # a gcc that fails gives its own error


def core_flags(toolchain: Toolchain, core: Core) -> tuple[str, ...]:
    """Return the flags for a core: its name, its floating-point registers, and whether words must be aligned."""
    return _FLAGS[core.isa](toolchain, core)


def _thumb_flags(toolchain: Toolchain, core: Core) -> tuple[str, ...]:
    """Kernels for DSPs do several elements per turn as they are written: unrolling them again would take a third more
    code and save half a percent of the instructions. `unroll.h` names the loops for which it pays.
    """
    unrolled = ("-fno-unroll-loops",) if core.dsp and not core.helium else ()
    if toolchain == "zig":
        abi = "eabihf" if core.fpu else "eabi"
        cpu = core.zig if core.unaligned else f"{core.zig}+strict_align"
        return ("-target", f"thumb-freestanding-{abi}", f"-mcpu={cpu}", "-fno-sanitize=undefined", *unrolled)
    aligned = () if core.unaligned else ("-mno-unaligned-access",)
    floats = ("-mfloat-abi=hard", f"-mfpu={core.fpu}") if core.fpu else ("-mfloat-abi=soft",)
    return (f"-mcpu={core.name}", "-mthumb", *floats, *aligned, *unrolled)


def _riscv_flags(toolchain: Toolchain, core: Core) -> tuple[str, ...]:
    """Return flags without jump tables: a bound of the stack takes a jump through a register for a call."""
    if toolchain == "zig":
        machine = f"-mcpu={core.zig}"
        return ("-target", "riscv32-freestanding-none", machine, "-fno-sanitize=undefined", "-fno-jump-tables")
    return (f"-march={core.name}", "-mabi=ilp32", "-mstrict-align", "-fno-jump-tables")


_FLAGS: Mapping[Isa, Callable[[Toolchain, Core], tuple[str, ...]]] = {"thumb": _thumb_flags, "riscv": _riscv_flags}


def link_flags(toolchain: Toolchain, core: Core) -> tuple[str, ...]:
    """Return the flags of the last step, beside the linker script."""
    return (*LINK, *(() if toolchain == "zig" else ("-nostartfiles", f"--specs={LIBRARY[core.isa]}")))


STARTUP: Mapping[Isa, str] = {"thumb": "startup", "riscv": "startup_riscv"}


def render_board(board: Board, name: str, fields: Mapping[str, object]) -> str:
    """Fill in a board's template with its own facts and these fields."""
    own = {"board": board, "startup": STARTUP[board.core.isa], "gcc": GCC[board.core.isa], "kept_bytes": 0}
    return render(f"board/{name}", **{**own, **fields})


def start_files(board: Board, kept: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return a board's start-up and linker script, by name; `kept` are fields on the flash it keeps a state in."""
    templates = {"startup.c": f"{STARTUP[board.core.isa]}.c", "board.ld": "board.ld"}
    return {name: render_board(board, template, kept or {}) for name, template in templates.items()}
