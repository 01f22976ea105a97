"""Other people's tools: a test that needs one skips where it is absent, and names the Debian package to install."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import pytest

from smidgen.errors import TargetError
from smidgen.targets.boards import M7, RV32IMC, Core, Isa
from smidgen.targets.toolchain import GCC, Toolchain, find

PACKAGES: Mapping[str, str] = {  # by program
    "arduino-builder": "arduino-builder",
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "avr-gcc": "gcc-avr avr-libc",
    "node": "nodejs",
    "npm": "npm",
    "qemu-system-arm": "qemu-system-arm",
    "qemu-system-riscv32": "qemu-system-misc",
    "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
}
CORES: Mapping[Isa, Core] = {"thumb": M7, "riscv": RV32IMC}  # any core of an instruction set


def absent(program: str) -> str:
    """Return why a program cannot be used here; nothing where it can."""
    if not shutil.which(program):
        package = PACKAGES.get(program)
        return f"{program} is not installed" + (f": apt install {package}" if package else "")
    for isa, gcc in GCC.items():
        if program == gcc:
            try:
                find("gcc", CORES[isa])
            except TargetError as error:
                return str(error)
    return ""


def need(*programs: str) -> None:
    """Skip the test unless every program is installed, and a compiler has its C library."""
    for program in programs:
        if reason := absent(program):
            pytest.skip(reason)


def need_compiler(toolchain: Toolchain | str, isa: Isa = "thumb") -> None:
    """Skip the test unless this compiler for boards is installed; zig's always is."""
    if toolchain == "gcc":
        need(GCC[isa])


def need_emulator(core: Core) -> None:
    """Skip the test unless this core can be emulated: QEMU alone has Helium."""
    if core.helium:
        need("qemu-system-arm")


def needs(*programs: str) -> pytest.MarkDecorator:
    """Return the mark of tests that skip unless every program can be used."""
    reason = next(filter(None, map(absent, programs)), "")
    return pytest.mark.skipif(bool(reason), reason=reason)
