"""How state begins without a copy of it in flash where one can be done without: copied, widened, filled or gathered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smidgen.ir import Array, Graph, Node, Value
from smidgen.memory import state_offsets
from smidgen.ops.state import Overlay


@dataclass(frozen=True)
class Copied:
    """State that is copied from flash."""

    value: Value
    offset: int  # in the block of state


@dataclass(frozen=True)
class Widened:
    """State of 32 bits of which most numbers are copied from 16, and the others are listed."""

    value: Value
    offset: int
    narrow: Array  # 0 for those that are listed
    listed: tuple[tuple[int, int], ...]  # where in the block of state, and what


@dataclass(frozen=True)
class Filled:
    """State whose bytes are all alike."""

    value: Value
    offset: int
    byte: int


@dataclass(frozen=True)
class Gathered:
    """Trained channels, which begin as those of the frozen weights that an Overlay lays them over."""

    value: Value
    offset: int
    overlay: Node

    @property
    def frozen(self) -> Value:
        return self.overlay.ins[0]


Initial = Copied | Widened | Filled | Gathered
LISTED = 8  # bytes of flash for a number that is listed


def initial(graph: Graph) -> Iterator[Initial]:
    """What each state value begins as, in the order of the block."""
    overlays = {node.ins[1]: node for node in graph.nodes if isinstance(node.op, Overlay)}
    offsets = state_offsets(graph)
    for value, data in graph.state.items():
        octets = np.frombuffer(data.tobytes(), np.uint8)
        overlay = overlays.get(value)
        if octets.size and (octets == octets[0]).all():
            yield Filled(value, offsets[value], int(octets[0]))
        elif overlay is not None and _gathers(graph, overlay):
            yield Gathered(value, offsets[value], overlay)
        else:
            yield _widened(value, data, offsets[value]) or Copied(value, offsets[value])


def _widened(value: Value, data: Array, offset: int) -> Widened | None:
    """None where the numbers have no 32 bits, or too many of them need all."""
    if value.type.dtype != "int32":
        return None
    numbers = data.ravel()
    fits = numbers == numbers.astype(np.int16)
    listed = tuple((offset + 4 * int(i), int(numbers[i])) for i in np.flatnonzero(~fits))
    if LISTED * len(listed) >= 2 * numbers.size:
        return None
    return Widened(value, offset, np.where(fits, numbers, 0).astype(np.int16), listed)


def _gathers(graph: Graph, overlay: Node) -> bool:
    """Whether trained channels begin as the frozen ones they are laid over."""
    frozen, trained = overlay.ins
    assert isinstance(overlay.op, Overlay)
    kept = graph.constants.get(frozen)
    return kept is not None and np.array_equal(kept[..., list(overlay.op.channels)], graph.state[trained])
