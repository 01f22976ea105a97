"""Tensors that learn: constants turned into state, and how their steps are scaled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from smidgen.ir import Array, Builder, Graph, Node, QParams, Value
from smidgen.ops.state import LearnedBias, Overlay
from smidgen.ops.weighted import multipliers, weighted
from smidgen.training.scheme import Trained


@dataclass(frozen=True)
class Weight:
    """One tensor that learns, and how its steps are scaled along `axis`."""

    value: Value
    kind: Literal["bias", "weight"]
    factors: tuple[float, ...]
    axis: int
    positions: int  # over how many a gradient is summed
    moved: Value | None = None  # what the gradient is taken of, where that is not the state itself
    shifts: tuple[int, ...] = ()  # of the layer's multipliers, where the state is a difference to a bias

    @property
    def learned(self) -> Value:
        """What the gradient is taken of."""
        return self.moved or self.value


def learning_bias(g: Builder, graph: Graph, node: Node, qas: bool, name: str = "") -> Weight:
    """A layer's bias as state."""
    b = node.ins[2]
    value = g.persistent(name or b.name, graph.constants[b])
    return Weight(value, "bias", bias_factors(node, qas), 0, positions(node))


def bias_factors(node: Node, qas: bool) -> tuple[float, ...]:
    """What scales the steps of a layer's bias."""
    x, _, b = node.ins
    return scaling((x.type.scale * np.broadcast_to(_scales(node), (b.type.size,))) ** -2.0, qas)


def learning_difference(g: Builder, graph: Graph, node: Node, qas: bool) -> Weight:
    """A layer's bias as a constant, and 16 bits of difference to it as state."""
    b = node.ins[2]
    data = graph.constants[b]
    shifts = tuple(int(shift) for shift in multipliers(node)[1])
    base = g.constant(b.name, data)
    value = g.persistent(f"{b.name}.difference", np.zeros(data.shape, np.int16))
    moved = g.emit(LearnedBias(shifts), base, value, name=f"{b.name}.learned")
    return Weight(value, "bias", bias_factors(node, qas), 0, positions(node), moved, shifts)


def learning_weights(g: Builder, graph: Graph, node: Node, qas: bool, name: str = "") -> Weight:
    """All of a layer's weights as state."""
    w = node.ins[1]
    value = g.persistent(name or w.name, graph.constants[w], w.type.q)
    return Weight(value, "weight", scaling(_scales(node) ** -2.0, qas), _axis(node), positions(node))


def learning_channels(g: Builder, graph: Graph, layer: Trained, qas: bool) -> tuple[Value, Weight]:
    """Some input channels of a layer's weights as state; what the layer reads, and the part that learns."""
    w, axis, scales, chosen = layer.node.ins[1], _axis(layer.node), _scales(layer.node), list(layer.channels)
    assert w.type.q is not None
    data = graph.constants[w]
    frozen = g.constant(w.name, data, w.type.q)
    kept = scales[chosen] if axis == 3 else scales
    q = QParams.per_channel(kept, axis) if w.type.q.axis is not None else w.type.q
    value = g.persistent(f"{w.name}.trained", data[..., chosen], q)
    whole = g.emit(Overlay(layer.channels), frozen, value, name=f"{w.name}.whole")
    return whole, Weight(value, "weight", scaling(kept**-2.0, qas), axis, positions(layer.node))


def positions(node: Node) -> int:
    """Over how many outputs the gradient of each of a layer's weights is summed."""
    return math.prod(node.out.type.shape[:-1])


def scaling(factors: Array, qas: bool) -> tuple[float, ...]:
    """QAS's factors, or ones where it is switched off; limited, so that a dead channel's stay numbers."""
    limited = np.minimum(factors, 2.0**60) if qas else np.ones_like(factors)
    return tuple(float(f) for f in limited)


def _axis(node: Node) -> int:
    return weighted(node).weight_axis


def _scales(node: Node) -> Array:
    w = node.ins[1].type
    assert w.q is not None
    return np.broadcast_to(np.array(w.q.scale), (w.shape[_axis(node)],))
