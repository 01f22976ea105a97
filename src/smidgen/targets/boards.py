"""Boards as data: a core, how compilers and the emulator call it, and the memory around it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from smidgen.errors import InputError, TargetError

KIB = 1024
PAGE = 4 * KIB  # memory is emulated in whole pages
MAP = {"flash": 0x2000_0000, "SRAM": 0x4000_0000}  # where each ends in the memory map of every Cortex-M


@dataclass(frozen=True)
class Core:
    """A processor core."""

    name: str
    title: str
    zig: str  # its name to zig, with the extensions that come with it
    fpu: str  # single precision in hardware, as gcc calls it; empty where floats are computed in software
    dsp: bool  # packed arithmetic: SMLAD, SXTB16 and their like
    model: str  # the emulator's CPU model
    unaligned: bool = True  # words may be read and written wherever they lie, and kernels and compilers do so


@dataclass(frozen=True)
class Region:
    """Memory from `origin` on."""

    origin: int
    bytes: int

    @property
    def end(self) -> int:
        return self.origin + self.bytes

    def __contains__(self, address: int) -> bool:
        return self.origin <= address < self.end


@dataclass(frozen=True)
class Board:
    """A core with flash and SRAM; of the SRAM, `stack` bytes at the bottom are the stack."""

    name: str
    core: Core
    flash: Region
    sram: Region
    stack: int = 4 * KIB

    def __post_init__(self) -> None:
        for what, region in (("flash", self.flash), ("SRAM", self.sram)):
            room = MAP[what] - region.origin
            if not PAGE <= region.bytes <= room or region.bytes % PAGE:
                raise TargetError(
                    f"{region.bytes:,} bytes of {what} cannot be emulated; give a multiple of {PAGE:,}, up to {room:,}"
                )
        if not 0 < self.stack <= self.sram.bytes or self.stack % 8:
            raise TargetError(
                f"a stack of {self.stack:,} bytes does not fit {self.name}; give a multiple of 8, "
                f"up to the {self.sram.bytes:,} bytes of SRAM"
            )


M7 = Core("cortex-m7", "Cortex-M7", "cortex_m7+fp_armv8d16sp", "fpv5-sp-d16", True, "CORTEX_M7")
M4 = Core("cortex-m4", "Cortex-M4", "cortex_m4+vfp4d16sp", "fpv4-sp-d16", True, "CORTEX_M4")
M33 = Core("cortex-m33", "Cortex-M33", "cortex_m33+dsp+fp_armv8d16sp", "fpv5-sp-d16", True, "CORTEX_M33")
M3 = Core("cortex-m3", "Cortex-M3", "cortex_m3", "", False, "CORTEX_M3")
M0PLUS = Core("cortex-m0plus", "Cortex-M0+", "cortex_m0plus", "", False, "CORTEX_M0", unaligned=False)


def _board(name: str, core: Core, flash: int, sram: int, flash_origin: int = 0x0800_0000) -> Board:
    return Board(name, core, Region(flash_origin, flash * KIB), Region(0x2000_0000, sram * KIB))


def parse_size(text: str) -> int:
    """Bytes: 131072, 128KB, 0.5MB or 2GB; a KB has 1,024 bytes."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*(B|KB|MB|GB)?", text.strip(), re.IGNORECASE)
    size = float(found[1]) * {"KB": KIB, "MB": KIB**2, "GB": KIB**3}.get((found[2] or "B").upper(), 1) if found else 0.5
    if size != int(size):
        raise InputError(f"{text!r} is not a size; give bytes, or a number with KB, MB or GB, such as 256KB")
    return int(size)


def resize(board: Board, sram: str | None = None, flash: str | None = None, stack: str | None = None) -> Board:
    """A board with other memory than it is sold with."""
    return replace(
        board,
        sram=replace(board.sram, bytes=parse_size(sram)) if sram else board.sram,
        flash=replace(board.flash, bytes=parse_size(flash)) if flash else board.flash,
        stack=parse_size(stack) if stack else board.stack,
    )


def aligned_only(board: Board) -> Board:
    """A board whose programs read and write no word that is not aligned, as some memories and settings demand."""
    return replace(board, core=replace(board.core, unaligned=False))


_ALL = (
    *(_board(core.name, core, 1024, 256) for core in (M7, M4, M33, M3, M0PLUS)),  # the size the paper set itself
    _board("stm32f746", M7, 1024, 320),
    _board("stm32f446", M4, 512, 128),
    _board("nrf52840", M4, 1024, 256, flash_origin=0),
    _board("stm32u575", M33, 2048, 768),
    _board("stm32f207", M3, 1024, 128),
    _board("stm32g0b1", M0PLUS, 512, 144),
    _board("mps2-an500", M7, 4096, 4096, flash_origin=0),  # Arm's prototyping board; QEMU has one too
)
BOARDS: Mapping[str, Board] = {board.name: board for board in _ALL}
