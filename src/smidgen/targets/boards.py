"""Boards as data: a core, how compilers and the emulator call it, and the memory around it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from smidgen.errors import InputError, TargetError

KIB = 1024
PAGE = 4 * KIB  # memory is emulated in whole pages
ROOM = 64 * KIB * KIB  # more than any program needs
Isa = Literal["thumb", "riscv"]  # what a core's instructions are


@dataclass(frozen=True)
class Core:
    """A processor core."""

    name: str
    title: str
    zig: str  # its name to zig, with the extensions that come with it
    fpu: str  # single precision in hardware, as gcc calls it; empty where floats are computed in software
    dsp: bool  # packed arithmetic: SMLAD, SXTB16 and their like
    model: str  # the emulator's CPU model
    isa: Isa = "thumb"
    unaligned: bool = True  # words may be read and written wherever they lie, and kernels and compilers do so
    per_cycle: float = 1.0  # instructions retired, as an estimate
    helium: bool = False  # vectors of 16 bytes (MVE); QEMU emulates them, unicorn does not


@dataclass(frozen=True)
class Clock:
    """Assumed speed of a board. Nothing here measures it: an emulator counts instructions, not cycles."""

    mhz: int
    per_cycle: float

    def milliseconds(self, instructions: int) -> float:
        """Return about how long a number of instructions takes."""
        return round(instructions / (1000 * self.mhz * self.per_cycle), 3)

    def __str__(self) -> str:
        return f"at {self.mhz} MHz if it retires {self.per_cycle:g} instructions per cycle"


def shown_time(milliseconds: float) -> str:
    """Return a time in three digits: no estimate is worth more."""
    digits = 0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2
    return f"≈ {milliseconds:,.{digits}f} ms"


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
class Map:
    """Largest extent of flash and SRAM in a chip's memory map, and where code in flash is executed."""

    flash_end: int = 0x2000_0000  # these two in the memory map of every Cortex-M
    sram_end: int = 0x4000_0000
    code: int | None = None  # None: where flash is read
    header: tuple[int, ...] = ()  # words that flash begins with, by which a boot ROM knows a program


@dataclass(frozen=True)
class Board:
    """A core with flash and SRAM; of the SRAM, `stack` bytes at the bottom are the stack."""

    name: str
    core: Core
    flash: Region
    sram: Region
    mhz: int  # the fastest that it is sold for
    stack: int = 4 * KIB
    map: Map = Map()

    def __post_init__(self) -> None:
        for what, region, end in (("flash", self.flash, self.map.flash_end), ("SRAM", self.sram, self.map.sram_end)):
            room = end - region.origin
            if not PAGE <= region.bytes <= room or region.bytes % PAGE:
                raise TargetError(
                    f"{region.bytes:,} bytes of {what} cannot be emulated; give a multiple of {PAGE:,}, up to {room:,}"
                )
        if not 0 < self.stack <= self.sram.bytes or self.stack % 8:
            raise TargetError(
                f"a stack of {self.stack:,} bytes does not fit {self.name}; give a multiple of 8, "
                f"up to the {self.sram.bytes:,} bytes of SRAM"
            )

    @property
    def clock(self) -> Clock:
        return Clock(self.mhz, self.core.per_cycle)

    @property
    def code(self) -> Region:
        """Flash where its code is executed."""
        return self.flash if self.map.code is None else Region(self.map.code, self.flash.bytes)

    def roomy(self) -> Board:
        """Return the same with as much flash and SRAM as its memory map has room for, and any program needs."""
        flash, sram = (
            Region(region.origin, min(ROOM, end - region.origin))
            for region, end in ((self.flash, self.map.flash_end), (self.sram, self.map.sram_end))
        )
        return replace(self, flash=flash, sram=sram)


# Instructions per cycle. The paper measured 546 ms, 118 M cycles, for a step of MCUNet-5FPS on an STM32F746; its
# released C takes 106.4 M instructions for one of a smaller scheme, so a Cortex-M7 retires 0.9 per cycle at least. The
# other cores follow by their CoreMark per MHz: 5.01 (M7), 4.02 (M33), 3.40 (M4), 3.32 (M3), 2.46 (M0+), 2.55 (ESP32-C3,
# from its data sheet).
M7 = Core("cortex-m7", "Cortex-M7", "cortex_m7+fp_armv8d16sp", "fpv5-sp-d16", True, "CORTEX_M7", per_cycle=0.9)
M4 = Core("cortex-m4", "Cortex-M4", "cortex_m4+vfp4d16sp", "fpv4-sp-d16", True, "CORTEX_M4", per_cycle=0.6)
M33 = Core("cortex-m33", "Cortex-M33", "cortex_m33+dsp+fp_armv8d16sp", "fpv5-sp-d16", True, "CORTEX_M33", per_cycle=0.7)
M3 = Core("cortex-m3", "Cortex-M3", "cortex_m3", "", False, "CORTEX_M3", per_cycle=0.6)
M0PLUS = Core("cortex-m0plus", "Cortex-M0+", "cortex_m0plus", "", False, "CORTEX_M0", unaligned=False, per_cycle=0.4)
# Half of its instructions are vectors in the kernels, and each of those takes two cycles.
M55 = Core(
    "cortex-m55", "Cortex-M55", "cortex_m55+mve+fp_armv8d16sp", "auto", True, "cortex-m55", per_cycle=0.6, helium=True
)
# QEMU has no Cortex-M85: its programs run on the Cortex-M55 that it has, whose instructions they use alone. A third
# more per cycle is assumed, for this core issues two at a time.
M85 = Core(
    "cortex-m85", "Cortex-M85", "cortex_m85+mve+fp_armv8d16sp", "auto", True, "cortex-m55", per_cycle=0.8, helium=True
)
# Words that are not aligned are left to no chip: some of these cores fault, others take longer.
RV32IMC = Core(
    "rv32imc", "RISC-V RV32IMC", "generic_rv32+m+c", "", False, "SIFIVE_E31", "riscv", unaligned=False,
    per_cycle=0.45,
)  # fmt: skip


def _board(name: str, core: Core, mhz: int, flash: int, sram: int, flash_origin: int = 0x0800_0000) -> Board:
    return Board(name, core, Region(flash_origin, flash * KIB), Region(0x2000_0000, sram * KIB), mhz)


def parse_size(text: str) -> int:
    """Bytes: 131072, 128KB, 0.5MB or 2GB; a KB has 1,024 bytes."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*(B|KB|MB|GB)?", text.strip(), re.IGNORECASE)
    size = float(found[1]) * {"KB": KIB, "MB": KIB**2, "GB": KIB**3}.get((found[2] or "B").upper(), 1) if found else 0.5
    if size != int(size):
        raise InputError(f"{text!r} is not a size; give bytes, or a number with KB, MB or GB, such as 256KB")
    return int(size)


def resize(board: Board, sram: str | None = None, flash: str | None = None, stack: str | None = None) -> Board:
    """Return a board with other memory than it is sold with."""
    return replace(
        board,
        sram=replace(board.sram, bytes=parse_size(sram)) if sram else board.sram,
        flash=replace(board.flash, bytes=parse_size(flash)) if flash else board.flash,
        stack=parse_size(stack) if stack else board.stack,
    )


def aligned_only(board: Board) -> Board:
    """Return a board whose programs read and write aligned words only, as some memories and settings demand."""
    return replace(board, core=replace(board.core, unaligned=False))


_MHZ = {M7: 216, M4: 180, M33: 160, M3: 120, M0PLUS: 64}  # of the chips below, for cores by themselves
# QEMU's virt machine has memory here: 64 MB of flash, and RAM up to the end.
VIRT = Map(flash_end=0x2400_0000, sram_end=0x1_0000_0000)
# The ESP32-C3 reads flash at one address and executes it at another, through a cache that takes 16 KB of its 400 KB of
# SRAM. Its boot ROM maps 4 MB there and jumps behind this header ("direct boot", from silicon revision 3 on).
ESP32_C3 = Map(flash_end=0x3C80_0000, sram_end=0x4000_0000, code=0x4200_0000, header=(0xAEDB_041D,) * 2)
_ALL = (
    *(_board(core.name, core, mhz, 1024, 256) for core, mhz in _MHZ.items()),  # the size the paper set itself
    _board("cortex-m55", M55, 160, 1024, 256, flash_origin=0x0100_0000),  # where QEMU's mps3-an547 has memory
    _board("cortex-m85", M85, 480, 1024, 256, flash_origin=0x0100_0000),
    _board("stm32f746", M7, 216, 1024, 320),
    _board("stm32f446", M4, 180, 512, 128),
    _board("nrf52840", M4, 64, 1024, 256, flash_origin=0),
    _board("stm32u575", M33, 160, 2048, 768),
    _board("stm32f207", M3, 120, 1024, 128),
    _board("stm32g0b1", M0PLUS, 64, 512, 144),
    _board("mps2-an500", M7, 25, 4096, 4096, flash_origin=0),  # Arm's prototyping board; QEMU has one too
    Board("mps3-an547", M55, Region(0x0100_0000, 2048 * KIB), Region(0x2100_0000, 4096 * KIB), 32),  # the same
    Board("riscv32", RV32IMC, Region(0x2000_0000, 1024 * KIB), Region(0x8000_0000, 256 * KIB), 160, map=VIRT),
    Board("esp32-c3", RV32IMC, Region(0x3C00_0000, 4096 * KIB), Region(0x3FC8_0000, 384 * KIB), 160, map=ESP32_C3),
)
BOARDS: Mapping[str, Board] = {board.name: board for board in _ALL}
