"""How state begins without a copy of it in flash where one can be done without: copied, filled, or gathered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smidgen.ir import Graph, Node, Value
from smidgen.memory import state_offsets
from smidgen.ops.overlay import Overlay


@dataclass(frozen=True)
class Copied:
    """State that is copied from flash."""

    value: Value
    offset: int  # in the block of state


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


Initial = Copied | Filled | Gathered


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
            yield Copied(value, offsets[value])


def _gathers(graph: Graph, overlay: Node) -> bool:
    """Whether trained channels begin as the frozen ones they are laid over."""
    frozen, trained = overlay.ins
    assert isinstance(overlay.op, Overlay)
    kept = graph.constants.get(frozen)
    return kept is not None and np.array_equal(kept[..., list(overlay.op.channels)], graph.state[trained])
