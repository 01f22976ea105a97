"""Tensors that learn, constants turned into state with steps that are scaled, and the head: the model's own or new."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from smidgen.errors import InputError
from smidgen.ir import Array, Builder, Graph, Node, QParams, Value
from smidgen.ir.rewriting import rewrite
from smidgen.ops.conv import Conv2D
from smidgen.ops.dense import Dense
from smidgen.ops.elementwise import Dequantize
from smidgen.ops.gradient import Mask, RequantizeGrad
from smidgen.ops.lookup import is_sigmoid
from smidgen.ops.pool import Mean
from smidgen.ops.shape import Reshape
from smidgen.ops.softmax import Softmax
from smidgen.ops.state import LearnedBias, Overlay
from smidgen.ops.weighted import multipliers, weighted
from smidgen.training.head import Ending
from smidgen.training.options import Head
from smidgen.training.projection import projection
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
        """Return the value that the gradient is taken of."""
        return self.moved or self.value


def learning_bias(g: Builder, graph: Graph, node: Node, qas: bool, name: str = "") -> Weight:
    """Add a layer's bias as state."""
    b = node.ins[2]
    value = g.persistent(name or b.name, graph.constants[b])
    return Weight(value, "bias", bias_factors(node, qas), 0, positions(node))


def bias_factors(node: Node, qas: bool) -> tuple[float, ...]:
    """Return the factors that scale the steps of a layer's bias."""
    x, _, b = node.ins
    return scaling((x.type.scale * np.broadcast_to(_scales(node), (b.type.size,))) ** -2.0, qas)


def learning_difference(g: Builder, graph: Graph, node: Node, qas: bool) -> Weight:
    """Add a layer's bias as a constant, and 16 bits of difference to it as state."""
    b = node.ins[2]
    data = graph.constants[b]
    shifts = tuple(int(shift) for shift in multipliers(node)[1])
    base = g.constant(b.name, data)
    value = g.persistent(f"{b.name}.difference", np.zeros(data.shape, np.int16))
    moved = g.emit(LearnedBias(shifts), base, value, name=f"{b.name}.learned")
    return Weight(value, "bias", bias_factors(node, qas), 0, positions(node), moved, shifts)


def learning_weights(g: Builder, graph: Graph, node: Node, qas: bool, name: str = "") -> Weight:
    """Add all of a layer's weights as state."""
    w = node.ins[1]
    value = g.persistent(name or w.name, graph.constants[w], w.type.q)
    return Weight(value, "weight", scaling(_scales(node) ** -2.0, qas), _axis(node), positions(node))


def learning_channels(g: Builder, graph: Graph, layer: Trained, qas: bool) -> tuple[Value, Weight]:
    """Add some input channels of a layer's weights as state; return what the layer reads and the part that learns."""
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
    """Return over how many outputs the gradient of each of a layer's weights is summed."""
    return math.prod(node.out.type.shape[:-1])


def scaling(factors: Array, qas: bool) -> tuple[float, ...]:
    """Return QAS's factors, or ones where it is switched off; limited, so that a dead channel's stay numbers."""
    limited = np.minimum(factors, 2.0**60) if qas else np.ones_like(factors)
    return tuple(float(f) for f in limited)


def _axis(node: Node) -> int:
    return weighted(node).weight_axis


def _scales(node: Node) -> Array:
    w = node.ins[1].type
    assert w.q is not None
    return np.broadcast_to(np.array(w.q.scale), (w.shape[_axis(node)],))


WEIGHTS, BIAS = "head.w", "head.b"  # what a head's state is called
INT8_START = 32  # steps of an int8 weight to the bound of a random head's, ±1/√features


def begin_head(
    g: Builder, graph: Graph, ending: Ending, features: Value, head: Head, qas: bool
) -> tuple[Value, tuple[Weight, ...]]:
    """Emit the head behind the features; its scores, float32 [1, outputs] or a map of them, and what learns in int8.

    A new head starts at zero: its first steps send no gradient into the layers before it, where random weights would
    send noise (docs/internals/heads.md has the trials).
    """
    if head.start == "keep":
        return _kept(g, graph, ending, features, head, qas)
    if head.per_cell:
        return _new_int8(g, Conv2D(), features, ending, head.outputs, qas)
    flat = flat_features(g, features)
    if head.project is not None:
        flat = g.emit(projection(graph, flat, head.project), flat, name="projected")
    if head.dtype == "int8":
        return _new_int8(g, Dense(), flat, ending, head.outputs, qas)
    shape = head.outputs, flat.type.shape[1]
    return _float(g, flat, np.zeros(shape, np.float32), np.zeros(head.outputs, np.float32)), ()


def with_drawn_head(graph: Graph, seed: int) -> Graph:
    """Return a graph whose new head has random weights: those of a head at zero have no gradients to measure."""
    w = next(v for v in graph.state if v.name == WEIGHTS)
    drawn = np.random.default_rng(seed).uniform(-1, 1, w.type.shape)
    data = np.round(drawn * INT8_START) if w.type.q else drawn * w.type.shape[-1] ** -0.5
    return replace(graph, state={**graph.state, w: data.astype(w.type.dtype)})


def head_numbers(graph: Graph, ending: Ending) -> tuple[Array, Array]:
    """Return the weights [outputs, features] and biases of a plain head, in float32."""
    x, w, b = ending.layer.ins
    weights, biases = graph.constants[w].reshape(w.type.shape[0], -1), graph.constants[b]
    if ending.is_float:
        return weights, biases
    assert w.type.q is not None
    scales = np.broadcast_to(np.array(w.type.q.scale), (len(weights),))
    return (weights * scales[:, None]).astype(np.float32), (biases * (x.type.scale * scales)).astype(np.float32)


def _kept(
    g: Builder, graph: Graph, ending: Ending, features: Value, head: Head, qas: bool
) -> tuple[Value, tuple[Weight, ...]]:
    """Emit the model's own last layer, its softmax or sigmoid dropped: the loss has one."""
    if not all(v in graph.constants for v in ending.layer.ins[1:]):
        raise InputError(f"the weights of {graph.name}'s last layer are computed, not stored; begin with a new head")
    if head.dtype == "float32":
        return _float(g, flat_features(g, features), *head_numbers(graph, ending)), ()
    weights = learning_weights(g, graph, ending.layer, qas, WEIGHTS), learning_bias(g, graph, ending.layer, qas, BIAS)
    values = {ending.layer.ins[0]: features, **dict(zip(ending.layer.ins[1:], (w.value for w in weights), strict=True))}
    y = _again(g, ending.layer, values)
    for node in ending.after:
        if isinstance(node.op, Softmax | Dequantize) or (head.sigmoid and is_sigmoid(node.op)):
            values[node.out] = y
        else:
            y = _again(g, node, {**values, node.ins[0]: y})
    y = g.emit(Dequantize(), y, name="logits" if head.per_cell else "scores")
    if head.per_cell:
        return y, weights
    flat = (1, head.outputs)
    return (y if y.type.shape == flat else g.emit(Reshape(flat), y, name="logits")), weights


def let_through(graph: Graph, weights: Value) -> Graph:
    """Let gradients pass where the scores of the int8 layer with these weights are clamped.

    The range of a kept head's scores was chosen for what the model has learned. A class that scores far too low, or far
    too high, could not learn if a clamp stopped its gradient.
    """
    scores = next(node.outs[0] for node in graph.nodes if len(node.ins) > 1 and node.ins[1] == weights)
    masks = [node for node in graph.nodes if node.op == Mask("none") and node.ins[0] == scores]
    stopped = {mask.out for mask in masks}

    def rule(_: Builder, node: Node) -> Node | None:
        if isinstance(node.op, RequantizeGrad) and node.op.masked and node.ins[1] in stopped:
            return Node(replace(node.op, masked=False), node.ins[:1], node.outs)
        return None

    return rewrite(graph, rule, set(masks))


def _again(g: Builder, node: Node, values: dict[Value, Value]) -> Value:
    return g.emit(node.op, *(values[v] for v in node.ins), q=node.out.type.q, name=node.out.name)


def _float(g: Builder, features: Value, weights: Array, biases: Array) -> Value:
    x = g.emit(Dequantize(), features, name="features")
    return g.emit(Dense(), x, g.persistent(WEIGHTS, weights), g.persistent(BIAS, biases), name="logits")


def _new_int8(
    g: Builder, op: Dense | Conv2D, features: Value, ending: Ending, outputs: int, qas: bool
) -> tuple[Value, tuple[Weight, ...]]:
    """Emit a new layer: a Dense, or a 1×1 convolution over the map of features.

    Its weights can grow to four times those that a random head would start with before they saturate.
    """
    *cells, k = features.type.shape
    scale = k**-0.5 / INT8_START
    shape = (outputs, *[1] * (len(cells) - 1), k)
    w = g.persistent(WEIGHTS, np.zeros(shape, np.int8), QParams.per_channel([scale] * outputs, 0))
    b = g.persistent(BIAS, np.zeros(outputs, np.int32))
    y = g.emit(op, features, w, b, q=QParams.per_tensor(_unit(ending), 0), name="head")
    steps = np.full(outputs, scale)
    learned = (
        Weight(w, "weight", scaling(steps**-2.0, qas), 0, math.prod(cells)),
        Weight(b, "bias", scaling((features.type.scale * steps) ** -2.0, qas), 0, math.prod(cells)),
    )
    return g.emit(Dequantize(), y, name="logits"), learned


def _unit(ending: Ending) -> float:
    """Return the step of a new int8 head's scores: that of the model's own, but not too fine."""
    old = ending.layer.out.type
    return max(old.scale if old.q else 0.0, 2.0**-4)


def flat_features(g: Builder, features: Value, prefix: str = "") -> Value:
    """Emit features as [1, channels]: of a map the mean, of a single pixel or a longer tensor all elements."""
    shape = features.type.shape
    if len(shape) == 4 and shape[1] * shape[2] > 1:
        return g.emit(Mean(), features, q=features.type.q, name=f"{prefix}pooled")
    flat = (1, features.type.size)
    return features if shape == flat else g.emit(Reshape(flat), features, name=f"{prefix}flat")
