"""The block of state: what outlives a run, apart from the arena."""

from __future__ import annotations

from smidgen.ir import Graph, Value
from smidgen.memory.layout import padded


def state_offsets(graph: Graph) -> dict[Value, int]:
    """Where each state value lies in the block of state: in order, aligned to its own elements or better."""
    offsets: dict[Value, int] = {}
    at = 0
    for value in graph.state:
        offsets[value] = at
        at += padded(value.type.bytes)
    return offsets


def state_bytes(graph: Graph) -> int:
    """Bytes of the block of state."""
    return sum(padded(value.type.bytes) for value in graph.state)
