"""A linked program: what lies in flash and SRAM, and which function or object is at an address."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from elftools.elf.elffile import ELFFile

from smidgen.targets.boards import Isa

MACHINES: Final[Mapping[str, Isa]] = {"EM_ARM": "thumb", "EM_RISCV": "riscv"}  # as ELF files call them
ALLOCATED = 2  # the flag of a section that takes memory


@dataclass(frozen=True)
class Symbol:
    """A function or an object, and the file it was defined in."""

    name: str
    file: str
    address: int
    bytes: int
    is_code: bool


@dataclass(frozen=True)
class Section:
    name: str
    address: int
    bytes: int


@dataclass(frozen=True)
class Image:
    """The program in an ELF file."""

    loads: tuple[tuple[int, bytes], ...]  # into flash: address and content
    sections: tuple[Section, ...]  # what takes memory
    symbols: tuple[Symbol, ...]  # by address
    isa: Isa
    code: bytes  # of the section .text

    @property
    def flash_bytes(self) -> int:
        """From the first byte written to flash to the last."""
        return max(at + len(data) for at, data in self.loads) - min(at for at, _ in self.loads)

    @property
    def constant_bytes(self) -> int:
        """What in flash is no code; the rest is."""
        return self.section(".rodata").bytes + self.section(".data").bytes

    @property
    def static_bytes(self) -> int:
        """SRAM that is taken for good, the stack left out."""
        return self.section(".data").bytes + self.section(".bss").bytes

    def section(self, name: str) -> Section:
        return next((s for s in self.sections if s.name == name), Section(name, 0, 0))

    def symbol(self, name: str) -> Symbol:
        return next(s for s in self.symbols if s.name == name)

    @cached_property
    def _starts(self) -> list[int]:
        return [symbol.address for symbol in self.symbols]

    def at(self, address: int) -> Symbol | None:
        """The function or object an address lies in."""
        index = bisect_right(self._starts, address) - 1
        found = self.symbols[index] if index >= 0 else None
        return found if found and address < found.address + max(found.bytes, 1) else None

    def place(self, address: int) -> str:
        """An address in words."""
        symbol = self.at(address)
        return f"0x{address:08x}" if symbol is None else f"{symbol.name}+0x{address - symbol.address:x}"


def read_image(path: Path) -> Image:
    """The image in an ELF file."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        loads = tuple(_loads(elf))
        sections = tuple(
            Section(section.name, section["sh_addr"], section["sh_size"])
            for section in elf.iter_sections()
            if section["sh_flags"] & ALLOCATED and section["sh_size"]
        )
        symbols, code = sorted(_symbols(elf), key=lambda s: s.address), elf.get_section_by_name(".text").data()
        return Image(loads, sections, tuple(symbols), MACHINES[elf["e_machine"]], code)


def _loads(elf: ELFFile) -> Iterator[tuple[int, bytes]]:
    """What is written to flash, section by section: segments may hold the file's own headers, too."""
    written = [s for s in elf.iter_sections("SHT_PROGBITS") if s["sh_flags"] & ALLOCATED and s["sh_size"]]
    for segment in elf.iter_segments("PT_LOAD"):
        moved = segment["p_paddr"] - segment["p_vaddr"]
        yield from ((s["sh_addr"] + moved, s.data()) for s in written if segment.section_in_segment(s))


def _symbols(elf: ELFFile) -> list[Symbol]:
    table = elf.get_section_by_name(".symtab")
    found: dict[int, Symbol] = {}
    file = ""
    for entry in table.iter_symbols():
        kind = entry["st_info"]["type"]
        if kind == "STT_FILE":
            file = entry.name
        elif kind in ("STT_FUNC", "STT_OBJECT") and entry["st_shndx"] != "SHN_UNDEF":
            is_code = kind == "STT_FUNC"
            address = entry["st_value"] & ~1 if is_code else entry["st_value"]  # bit 0 says Thumb
            local = entry["st_info"]["bind"] == "STB_LOCAL"
            symbol = Symbol(entry.name, file if local else "", address, entry["st_size"], is_code)
            if address not in found or symbol.bytes > found[address].bytes:  # of aliases one is enough
                found[address] = symbol
    return list(found.values())
