"""The data of a plan: buffers with their lifetimes, where each of them begins, and the block of state beside them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from smidgen.ir import Graph, Node, Value

Thing = TypeVar("Thing")  # a value of a graph, or the index of an item to pack


@dataclass(frozen=True)
class Overlap(Generic[Thing]):
    """A pair that shares memory: the consumed one begins `distance` bytes above the made one, which grows into it."""

    consumed: Thing
    made: Thing
    distance: int  # bytes, less than the thing made is long


# Bytes of working memory that the target's kernel of a node needs; the flag: where it computes one row per call.
Working = Callable[[Node, bool], int]


ALIGNMENT = 4  # bytes: a word, whatever a tensor's elements are


def padded(size: int) -> int:
    """Return the bytes up to where something else may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Buffer:
    """Memory that one or more values use in turn, or a node's working memory, over nodes [start, end)."""

    name: str
    bytes: int
    start: int
    end: int
    values: tuple[Value, ...] = ()
    overlap: Overlap[Value] | None = None  # where a value of this buffer is consumed while another map grows into it

    @property
    def padded(self) -> int:
        """Return the bytes up to where the next buffer may begin."""
        return padded(self.bytes)


@dataclass(frozen=True)
class Plan:
    """Buffers and, in the same order, their offsets in one arena."""

    buffers: tuple[Buffer, ...]
    offsets: tuple[int, ...]

    @property
    def placed(self) -> Iterator[tuple[Buffer, int]]:
        return zip(self.buffers, self.offsets, strict=True)

    @property
    def peak(self) -> int:
        """Return the bytes of the arena."""
        return max((offset + buffer.padded for buffer, offset in self.placed), default=0)

    @property
    def lower_bound(self) -> int:
        """Return the most bytes alive at one node: no plan of these buffers, overlapping as they do, can use less."""
        return most(self.buffers)

    def at_peak(self) -> tuple[Buffer, ...]:
        """Return the buffers alive where most bytes are, largest first."""
        time, _ = max(loads(self.buffers), key=lambda pair: pair[1], default=(0, 0))
        return tuple(sorted((b for b in self.buffers if b.start <= time < b.end), key=lambda b: -b.bytes))

    def values(self) -> dict[Value, int]:
        """Return the offset of every value that lies in the arena."""
        return {value: offset for buffer, offset in self.placed for value in buffer.values}

    def scratch(self) -> dict[int, int]:
        """Return the offset of working memory, by the index of each node that may use it."""
        return {i: offset for b, offset in self.placed if not b.values for i in range(b.start, b.end)}


def shared(buffers: Iterable[Buffer]) -> Iterator[tuple[int, int, int]]:
    """Yield the bytes that two buffers have in common, and the nodes [start, end) over which both are alive."""
    buffers = tuple(buffers)
    begun = {b.values[0]: b for b in buffers if b.values}
    for b in buffers:
        if b.overlap is not None:
            below = begun[b.overlap.made]
            both = max(below.padded, b.overlap.distance + b.padded)
            yield below.padded + b.padded - both, below.start, b.end


def loads(buffers: Iterable[Buffer]) -> Iterator[tuple[int, int]]:
    """Yield each node where a buffer begins, with the bytes alive there; the most are always at such a node."""
    buffers = tuple(buffers)
    change: Counter[int] = Counter()
    for b in buffers:
        change[b.start] += b.padded
        change[b.end] -= b.padded
    for size, start, end in shared(buffers):
        change[start] -= size
        change[end] += size
    starts = {b.start for b in buffers}
    load = 0
    for time in sorted(change):
        load += change[time]
        if time in starts:
            yield time, load


def most(buffers: Iterable[Buffer]) -> int:
    """Return the most bytes alive at one node."""
    return max((load for _, load in loads(buffers)), default=0)


def state_offsets(graph: Graph) -> dict[Value, int]:
    """Return the offset of each state value in the block of state: in order, aligned to its own elements or better.

    Sums of one pass end where the step's state ends that they share memory with; behind both lies what lasts.
    """
    if graph.one_pass is None:
        return _in_order(graph.state, 0)
    lasting, sums = graph.one_pass.lasting, graph.one_pass.sums
    steps = [v for v in graph.state if v not in lasting and v not in sums]
    shared_end = max(_bytes(steps), _bytes(sums))
    return {
        **_in_order(steps, 0), **_in_order(sums, shared_end - _bytes(sums)), **_in_order(lasting, shared_end),
    }  # fmt: skip


def _in_order(values: Iterable[Value], at: int) -> dict[Value, int]:
    offsets: dict[Value, int] = {}
    for value in values:
        offsets[value] = at
        at += padded(value.type.bytes)
    return offsets


def _bytes(values: Iterable[Value]) -> int:
    return sum(padded(value.type.bytes) for value in values)


def state_bytes(graph: Graph) -> int:
    """Return the bytes of the block of state."""
    return max((at + padded(value.type.bytes) for value, at in state_offsets(graph).items()), default=0)


def unused_state(graph: Graph) -> int:
    """Return the bytes at the beginning of the block of state that nothing uses while samples are observed."""
    return 0 if graph.one_pass is None else state_offsets(graph)[graph.one_pass.sums[0]]
