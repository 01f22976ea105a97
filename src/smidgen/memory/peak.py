"""The memory of a program: as planned, with what stands in the arena at its peak, and as measured on a board."""

from collections.abc import Iterator
from dataclasses import dataclass

from smidgen.memory.layout import Plan, loads, shared

SHOWN = 4  # parts by name; the others are added up


@dataclass(frozen=True)
class Sram:
    """Bytes of SRAM in use on a board, as measured."""

    arena: int
    state: int
    other: int  # static data of start-up, of the program and of the line to the host
    stack: int  # at its deepest so far
    stack_bound: int  # which no run exceeds: every frame of the program, along its deepest calls

    @property
    def bytes(self) -> int:
        """Return all bytes in use."""
        return self.arena + self.state + self.other + self.stack


@dataclass(frozen=True)
class PeakPart:
    """Memory in use at the peak: a tensor's, that of several which use it in turn, or a kernel's working memory."""

    name: str
    bytes: int
    tensors: tuple[str, ...]  # that lie in it, one after the other; none in working memory

    def __str__(self) -> str:
        turns = f" ({len(self.tensors)} tensors in turn)" if len(self.tensors) > 1 else ""
        return f"{self.name} {self.bytes:,}{turns}"


@dataclass(frozen=True)
class PeakParts:
    """An arena at the node where most of it is in use: the parts, less what they share, and what else there is."""

    parts: tuple[PeakPart, ...]  # largest first
    shared_bytes: int  # that two of them have in common: a map grows into the memory of the one it is made from
    padding_bytes: int  # up to whole words
    unused_bytes: int  # that no plan found a use for at this node

    @property
    def bytes(self) -> int:
        """Return the bytes of the arena."""
        return sum(p.bytes for p in self.parts) - self.shared_bytes + self.padding_bytes + self.unused_bytes

    def __str__(self) -> str:
        return " ".join(self._terms()) + f" = {self.bytes:,}" if self.parts else "nothing"

    def _terms(self) -> Iterator[str]:
        yield " + ".join(map(str, self.parts[:SHOWN]))
        if rest := self.parts[SHOWN:]:
            yield f"+ {len(rest)} smaller {sum(p.bytes for p in rest):,}"
        if self.shared_bytes:
            yield f"- {self.shared_bytes:,} that two of them share"
        if self.padding_bytes:
            yield f"+ padding {self.padding_bytes:,}"
        if self.unused_bytes:
            yield f"+ unused {self.unused_bytes:,}"


@dataclass(frozen=True)
class Memory:
    """Memory of a program as planned, in bytes: SRAM for arena, state and overhead, flash for constants."""

    peak: int  # the arena
    lower_bound: int  # the most alive at one node: no placing of the same buffers takes less
    state: int
    at_peak: PeakParts
    constants: int = 0  # 0 where no C was generated
    overhead: int = 0  # the most that other static data and the stack take, where a budget is for all SRAM

    @property
    def sram(self) -> int:
        """All bytes of SRAM."""
        return self.peak + self.state + self.overhead

    def __str__(self) -> str:
        return (
            f"arena      {self.peak:>11,} bytes of SRAM; no plan of this order needs less than {self.lower_bound:,}\n"
            f"state      {self.state:>11,} bytes of SRAM that outlive a run\n"
            f"constants  {self.constants:>11,} bytes of flash\n"
            f"at the peak: {self.at_peak}"
        )


def planned_memory(plan: Plan, state: int, constants: int = 0, overhead: int = 0) -> Memory:
    """Return the memory that a plan takes beside state and constants."""
    return Memory(plan.peak, plan.lower_bound, state, peak_parts(plan), constants, overhead)


def peak_parts(plan: Plan) -> PeakParts:
    """Return the parts of a plan's arena where most bytes are alive."""
    time, load = max(loads(plan.buffers), key=lambda pair: pair[1], default=(0, 0))
    alive = plan.at_peak()
    both = sum(size for size, start, end in shared(plan.buffers) if start <= time < end)
    parts = tuple(PeakPart(b.name, b.bytes, tuple(v.name for v in b.values)) for b in alive)
    padding = sum(b.padded - b.bytes for b in alive)
    return PeakParts(parts, both, padding, plan.peak - load)
