"""Linked programs: their sections and symbols, and the most stack they can use.

The bound adds up the frames of machine code along its calls. Frames are read from the code itself, so compilers,
assembly and libraries are all treated alike. What a function pushes anywhere counts as pushed at once, and a jump
counts as a call: the bound may be higher than the stack of any run, never lower. Functions that nobody calls by name
are taken for those called through pointers. Interrupts, of which programs have none, are not in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from elftools.elf.elffile import ELFFile

from smidgen.errors import TargetError
from smidgen.targets.boards import Isa
from smidgen.targets.instructions import Effect, riscv_effects, thumb_effects

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
class ImageSection:
    """A section of a program that takes memory."""

    name: str
    address: int
    bytes: int


@dataclass(frozen=True)
class Image:
    """The program in an ELF file."""

    loads: tuple[tuple[int, bytes], ...]  # into flash: address and content
    sections: tuple[ImageSection, ...]  # what takes memory
    symbols: tuple[Symbol, ...]  # by address
    isa: Isa
    code: bytes  # of the section .text
    marks: tuple[tuple[int, bool], ...]  # where code and data begin in it: an address, and whether it is code

    @property
    def flash_bytes(self) -> int:
        """Return the bytes of flash from the first one written to the last."""
        return max(at + len(data) for at, data in self.loads) - min(at for at, _ in self.loads)

    @property
    def constant_bytes(self) -> int:
        """Return the bytes of flash that hold constants, not code."""
        return self.section(".rodata").bytes + self.section(".data").bytes

    @property
    def static_bytes(self) -> int:
        """SRAM that is taken for good, the stack left out."""
        return self.section(".data").bytes + self.section(".bss").bytes

    def section(self, name: str) -> ImageSection:
        return next((s for s in self.sections if s.name == name), ImageSection(name, 0, 0))

    def symbol(self, name: str) -> Symbol:
        return next(s for s in self.symbols if s.name == name)

    @cached_property
    def _starts(self) -> list[int]:
        return [symbol.address for symbol in self.symbols]

    def at(self, address: int) -> Symbol | None:
        """Return the function or object an address lies in."""
        index = bisect_right(self._starts, address) - 1
        found = self.symbols[index] if index >= 0 else None
        return found if found and address < found.address + max(found.bytes, 1) else None

    def place(self, address: int) -> str:
        """Return an address in words."""
        symbol = self.at(address)
        return f"0x{address:08x}" if symbol is None else f"{symbol.name}+0x{address - symbol.address:x}"


def read_image(path: Path) -> Image:
    """Read the image in an ELF file."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        loads = tuple(_loads(elf))
        sections = tuple(
            ImageSection(section.name, section["sh_addr"], section["sh_size"])
            for section in elf.iter_sections()
            if section["sh_flags"] & ALLOCATED and section["sh_size"]
        )
        symbols, text = sorted(_symbols(elf), key=lambda s: s.address), elf.get_section_by_name(".text")
        start, end = text["sh_addr"], text["sh_addr"] + text["sh_size"]
        entries = ((entry["st_value"], entry.name) for entry in elf.get_section_by_name(".symtab").iter_symbols())
        begun = ((at, name) for at, name in entries if start <= at < end and name.startswith(("$t", "$x", "$d")))
        marks = tuple(sorted((at, not name.startswith("$d")) for at, name in begun)) or ((start, True),)
        return Image(loads, sections, tuple(symbols), MACHINES[elf["e_machine"]], text.data(), marks)


def _loads(elf: ELFFile) -> Iterator[tuple[int, bytes]]:
    """Yield what is written to flash, section by section: segments may hold the file's own headers, too."""
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
            address = entry["st_value"] & ~1 if is_code else entry["st_value"]  # bit 0 means Thumb
            local = entry["st_info"]["bind"] == "STB_LOCAL"
            symbol = Symbol(entry.name, file if local else "", address, entry["st_size"], is_code)
            if address not in found or symbol.bytes > found[address].bytes:  # of aliases one is enough
                found[address] = symbol
    return list(found.values())


START = "reset"
READERS: Mapping[Isa, Callable[[bytes, int, int, int], Iterator[Effect]]] = {
    "thumb": thumb_effects, "riscv": riscv_effects,
}  # fmt: skip


@dataclass(frozen=True)
class Function:
    """A function of the program: bytes it pushes, the addresses it calls or jumps to, and whether to unknown ones."""

    name: str
    address: int
    end: int
    frame: int
    branches: tuple[int, ...]
    through_pointer: bool


@dataclass(frozen=True)
class StackBound:
    """The most bytes of stack from reset on, and the calls that use them: names and frames, outermost first."""

    bytes: int
    path: tuple[tuple[str, int], ...]


def bound_stack(path: Path) -> StackBound:
    """Return the bound of the program in an ELF file; TargetError where it has none."""
    graph = read_calls(path)
    return graph.deepest(next(f for f in graph.functions if f.name == START))


def read_calls(path: Path) -> CallGraph:
    """Read who calls whom in an ELF file."""
    return CallGraph(tuple(_functions(read_image(path))))


@dataclass(frozen=True)
class CallGraph:
    """Functions by address, and who calls whom."""

    functions: tuple[Function, ...]

    @cached_property
    def _starts(self) -> list[int]:
        return [function.address for function in self.functions]

    @cached_property
    def _pointed(self) -> tuple[Function, ...]:
        """Return the functions that nobody calls by name."""
        called = {callee.address for function in self.functions for callee in self._named(function)}
        return tuple(f for f in self.functions if f.address not in called and f.name != START)

    def _named(self, function: Function) -> Iterator[Function]:
        for address in function.branches:
            found = self.functions[max(bisect_right(self._starts, address) - 1, 0)]
            if found.address <= address < found.end and found is not function:
                yield found
            elif found is function and address == function.address and function.frame:
                yield function  # itself, from its first instruction on; without a frame that is a loop

    def deepest(self, start: Function) -> StackBound:
        """Return the calls from this function on that use most."""
        return self._deepest(start, (), {})

    def _deepest(self, function: Function, callers: tuple[Function, ...], known: dict[int, StackBound]) -> StackBound:
        if function in callers:
            cycle = " → ".join(f.name for f in (*callers[callers.index(function) :], function))
            raise TargetError(f"the stack of the program has no bound: {cycle} is a recursion; write it as a loop")
        if function.frame < 0:
            raise TargetError(f"the stack of the program has no bound: {function.name} decides its frame as it runs")
        if function.address not in known:
            callees = (*self._named(function), *(self._pointed if function.through_pointer else ()))
            inner = (self._deepest(callee, (*callers, function), known) for callee in callees)
            most = max(inner, key=lambda bound: bound.bytes, default=StackBound(0, ()))
            path = ((function.name, function.frame), *most.path)
            known[function.address] = StackBound(function.frame + most.bytes, path)
        return known[function.address]


def _functions(image: Image) -> Iterator[Function]:
    """Every function of the program, by address; what only branches within itself does not show."""
    text, effects = image.section(".text"), READERS[image.isa]
    symbols = [s for s in image.symbols if s.is_code and text.address <= s.address < text.address + text.bytes]
    ends = [*(s.address for s in symbols[1:]), text.address + text.bytes]
    for symbol, following in zip(symbols, ends, strict=True):
        address, end = symbol.address, symbol.address + symbol.bytes if symbol.bytes else following
        parts = _parts(address, end, image.marks)
        found = [effect for start, stop in parts for effect in effects(image.code, text.address, start, stop)]
        unknown = any(e.kind == "unknown push" for e in found)
        frame = -1 if unknown else sum(e.value for e in found if e.kind == "push")
        branches = tuple(e.value for e in found if e.kind == "branch" and not address < e.value < end)
        yield Function(symbol.name, address, end, frame, branches, any(e.kind == "pointer" for e in found))


def _parts(start: int, end: int, marks: Sequence[tuple[int, bool]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of [start, end) that are code: constants lie between them."""
    first = max(bisect_right(marks, (start, True)) - 1, 0)
    for (at, is_code), following in zip(marks[first:], [*(m for m, _ in marks[first + 1 :]), end], strict=True):
        if at >= end:
            break
        here, there = max(at, start), min(following, end)
        if is_code and here < there:
            yield here, there
