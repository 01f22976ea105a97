"""Graph + scheme → training graph: forward, loss, int8 gradients, updates in place.

The result is an ordinary graph: inputs image, label and learning rate; outputs loss and logits; everything
that learns is state. `passes` makes it small, planning and code generation treat it as any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from smidgen.errors import InputError
from smidgen.ir import Array, Builder, Graph, Node, QParams, Roles, Type, Value
from smidgen.ir.rewriting import needed, producers, prune
from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.ops.dense import Dense
from smidgen.ops.elementwise import Dequantize
from smidgen.ops.gradient import AdvanceStepState
from smidgen.ops.loss import MaxAbs, Rate
from smidgen.ops.overlay import Overlay
from smidgen.ops.pool import Mean
from smidgen.ops.rules import SGD, UpdateRule
from smidgen.ops.select import Gather
from smidgen.ops.shape import Reshape
from smidgen.ops.update import BiasStep, DenseStep, WeightStep, initial_fraction
from smidgen.training.autodiff import differentiate
from smidgen.training.head import features_of
from smidgen.training.losses import Loss, end_in_loss, example_label
from smidgen.training.lowering import Lowered, fuse_requantize_grads, largest_gradients, lower
from smidgen.training.scheme import WEIGHT_BITS, Scheme, Trained, resolve

HeadDtype = Literal["float32", "int8"]
DEFAULT_BITS = 12
MOST_OUTPUTS = 4096


@dataclass(frozen=True)
class Options:
    """How to learn; the learning rate is given at each step."""

    classes: int  # outputs of the head, which for sigmoid and mse may be a single one
    weight_bits: int | None = None  # of each weight that learns; None: as many as the scheme says, or 12
    qas: bool = True
    rule: UpdateRule = SGD
    head_dtype: HeadDtype = "float32"
    seed: int = 0
    loss: Loss = "softmax"

    def check(self) -> None:
        if self.loss not in get_args(Loss):
            raise InputError(f"there is no loss {self.loss!r}; known are {', '.join(get_args(Loss))}")
        least = 2 if self.loss in ("softmax", "cells") else 1
        if not least <= self.classes <= MOST_OUTPUTS:
            what = "classes" if least == 2 else "outputs"
            raise InputError(f"{self.classes} {what} cannot be learned; give {least} to {MOST_OUTPUTS}")
        if self.weight_bits not in (None, *WEIGHT_BITS):
            raise InputError(f"weights of {self.weight_bits} bits are not supported; choose 8, 10 or 12")
        if self.seed < 0:
            raise InputError(f"a seed of {self.seed} cannot be used; give a number from 0 up")
        self.rule.check()

    def bits(self, scheme: Scheme) -> int:
        """Bits of each weight that learns by a scheme."""
        return self.weight_bits or scheme.weight_bits or DEFAULT_BITS


@dataclass(frozen=True)
class Reference:
    """A step's loss and float32 gradients, before lowering: the definition that the step approximates."""

    graph: Graph
    label: Value | None  # None where the image itself is what the network should give
    loss: Value
    logits: Value
    unit: Value  # the largest magnitude of the loss gradient
    gradients: Mapping[Value, Value]  # of the logits and of everything that learns in int8, by what they are of

    def loss_graph(self) -> Graph:
        """The part that computes the loss, its only output."""
        return prune(replace(self.graph, outputs=(self.loss,)))


@dataclass(frozen=True)
class Training:
    """A training step and the forward pass it shares its state with."""

    step: Graph
    forward: Graph
    reference: Reference
    trained: tuple[Trained, ...]
    unit: Value  # of the step's gradients, before passes


@dataclass(frozen=True)
class _Weight:
    """One tensor that learns, and how its steps are scaled along `axis`."""

    value: Value
    kind: Literal["bias", "weight"]
    factors: tuple[float, ...]
    axis: int
    positions: int  # over how many a gradient is summed


def build_training(graph: Graph, scheme: Scheme, options: Options, images: tuple[Array, ...] | None = ()) -> Training:
    """The training graph of a scheme; `images`, where given, set the first exponents (noise does otherwise).

    With None nothing sets them: that is enough to plan memory, on which they have no effect.
    """
    options.check()
    features, classifier = features_of(graph)
    trained = resolve(scheme, graph, options.seed)
    _check_int8(graph, features, trained)
    g, values, weights = _learnable(graph, features, trained, options)
    logits, head = _head(g, values[features], classifier, options)
    forward = g.graph(logits)
    loss, label = end_in_loss(g, logits, options.loss, values[graph.image], graph.name)
    weights = (*weights, *head) if options.head_dtype == "int8" else weights
    found = differentiate(g.graph(loss, logits), loss, (logits, *(w.value for w in weights)))
    whole, unit = _with_unit(fuse_requantize_grads(found.graph), found.gradients[logits])
    reference = Reference(whole, label, loss, logits, unit, found.gradients)
    largest = {} if images is None else largest_gradients(whole, unit, _samples(reference, options, images))
    lowered = lower(whole, unit, largest, options.seed)
    step = _updates(reference, lowered, weights, options, options.bits(scheme))
    return Training(step, forward, reference, trained, lowered.unit)


def _check_int8(graph: Graph, features: Value, trained: tuple[Trained, ...]) -> None:
    """Raise InputError for a model that still computes in float32 where it is to learn."""
    for value in (features, *(layer.node.out for layer in trained)):
        if value.type.dtype != "int8":
            raise InputError(
                f"%{value.name} of {graph.name} is {value.type.dtype}, what learns computes in int8; quantize the "
                "model first, with `smidgen quantize` or quantize()"
            )


def _learnable(
    graph: Graph, features: Value, trained: tuple[Trained, ...], options: Options
) -> tuple[Builder, dict[Value, Value], tuple[_Weight, ...]]:
    """The nodes up to the features, with everything that learns turned from constant into state."""
    by_output = {t.node.out: t for t in trained}
    g = Builder(graph.name, graph.preprocessing)
    values: dict[Value, Value] = {v: g.input(v.name, v.type) for v in graph.inputs}
    weights: list[_Weight] = []
    for node in needed(graph, features):
        layer = by_output.get(node.outs[0])
        for index, value in enumerate(node.ins):
            if value in graph.constants and value not in values:
                learns = layer is not None and (index == 2 or (index == 1 and bool(layer.channels)))
                if layer is not None and learns:
                    values[value], weight = _state(g, graph, layer, index, options)
                    weights.append(weight)
                else:
                    values[value] = g.constant(value.name, graph.constants[value], value.type.q)
        outs = g.emit_all(node.op, *(values[v] for v in node.ins), q=node.outs[0].type.q, name=node.outs[0].name)
        values.update(zip(node.outs, outs, strict=True))
    return g, values, tuple(weights)


def _state(g: Builder, graph: Graph, layer: Trained, index: int, options: Options) -> tuple[Value, _Weight]:
    """Turn a layer's bias (index 2) or weights (index 1) into state; what its node reads, and how it learns."""
    x, w, b = layer.node.ins
    assert w.type.q is not None
    assert isinstance(layer.node.op, Conv2D | Depthwise | Dense)
    axis = layer.node.op.weight_axis
    scales = np.broadcast_to(np.array(w.type.q.scale), (w.type.shape[axis],))
    positions = math.prod(layer.node.out.type.shape[:-1])
    if index == 2:
        value = g.persistent(b.name, graph.constants[b])
        factors = (x.type.scale * np.broadcast_to(scales, (b.type.size,))) ** -2.0
        return value, _Weight(value, "bias", _factors(factors, options), 0, positions)
    data = graph.constants[w]
    if not layer.partial:
        value = g.persistent(w.name, data, w.type.q)
        return value, _Weight(value, "weight", _factors(scales**-2.0, options), axis, positions)
    frozen = g.constant(w.name, data, w.type.q)
    chosen = list(layer.channels)
    kept = scales[chosen] if axis == 3 else scales
    q = QParams.per_channel(kept, axis) if w.type.q.axis is not None else w.type.q
    value = g.persistent(f"{w.name}.trained", data[..., chosen], q)
    whole = g.emit(Overlay(layer.channels), frozen, value, name=f"{w.name}.whole")
    return whole, _Weight(value, "weight", _factors(kept**-2.0, options), axis, positions)


def _factors(factors: Array, options: Options) -> tuple[float, ...]:
    """QAS's factors, or ones where it is switched off; limited, so that a dead channel's stay numbers."""
    limited = np.minimum(factors, 2.0**60) if options.qas else np.ones_like(factors)
    return tuple(float(f) for f in limited)


def _head(g: Builder, features: Value, classifier: Node, options: Options) -> tuple[Value, tuple[_Weight, ...]]:
    """A new classifier for the options' classes; logits are float32 either way."""
    features = _flat(g, features)
    k, n = features.type.shape[1], options.classes
    init = first_head(n, k, options.seed)
    if options.head_dtype == "float32":
        x = g.emit(Dequantize(), features, name="features")
        w, b = g.persistent("head.w", init), g.persistent("head.b", np.zeros(n, np.float32))
        return g.emit(Dense(), x, w, b, name="logits"), ()
    # The weights start at a quarter of their range, so that they can grow fourfold before they saturate.
    old = classifier.out.type
    scale, y_scale = k**-0.5 / 32, max(old.scale if old.q else 0.0, 2.0**-4)
    w = g.persistent("head.w", np.round(init / scale).astype(np.int8), QParams.per_channel([scale] * n, 0))
    b = g.persistent("head.b", np.zeros(n, np.int32))
    y = g.emit(Dense(), features, w, b, q=QParams.per_tensor(y_scale, 0), name="head")
    assert w.type.q is not None
    steps = np.array(w.type.q.scale)
    weights = (
        _Weight(w, "weight", _factors(steps**-2.0, options), 0, 1),
        _Weight(b, "bias", _factors((features.type.scale * steps) ** -2.0, options), 0, 1),
    )
    return g.emit(Dequantize(), y, name="logits"), weights


def first_head(classes: int, features: int, seed: int) -> Array:
    """The weights a new classifier begins with, float32 [classes, features]."""
    bound = features**-0.5
    drawn: Array = np.random.default_rng(seed).uniform(-bound, bound, (classes, features)).astype(np.float32)
    return drawn


def _flat(g: Builder, features: Value) -> Value:
    """Features as [1, channels]: of a map the mean, of a single pixel or a longer tensor all elements."""
    shape = features.type.shape
    if len(shape) == 4 and shape[1] * shape[2] > 1:
        return g.emit(Mean(), features, q=features.type.q, name="pooled")
    flat = (1, features.type.size)
    return features if shape == flat else g.emit(Reshape(flat), features, name="flat")


def _with_unit(graph: Graph, dlogits: Value) -> tuple[Graph, Value]:
    """Insert g0 = max |dlogits| right behind the loss gradient; it becomes an output."""
    g = Builder.before(graph)
    g.reserve(*producers(graph))
    for node in graph.nodes:
        g.append(node)
        if dlogits in node.outs:
            unit = g.emit(MaxAbs(), dlogits, name="g0")
    return g.graph(*graph.outputs, unit), unit


def _samples(reference: Reference, options: Options, images: tuple[Array, ...]) -> tuple[tuple[Array, ...], ...]:
    """Arrays for the reference's inputs: the images given, or smooth noise, with labels in turn."""
    type_, label, logits = reference.graph.image.type, reference.label, reference.logits
    if not images:
        rng = np.random.default_rng(options.seed)
        coarse = [rng.integers(-100, 101, (*type_.shape[:-1], 1)) for _ in range(4)]
        images = tuple(np.clip(c + rng.integers(-27, 28, type_.shape), -128, 127).astype(type_.dtype) for c in coarse)
    return tuple((image, *example_label(label, logits, i)) for i, image in enumerate(images))


def _updates(
    reference: Reference, lowered: Lowered, weights: tuple[_Weight, ...], options: Options, bits: int
) -> Graph:
    """Append the steps of everything that learns, and of the step state."""
    g = lowered.builder
    learning_rate = g.input("learning_rate", Type((1,), "float32"))
    rate = g.emit(Rate(), learning_rate, lowered.unit, name="rate")
    producer = producers(reference.graph)
    stream = lowered.streams
    for weight in weights:
        stream += 2
        gradient = reference.gradients[weight.value]
        node = producer[gradient]
        summed = producer[node.ins[0]] if isinstance(node.op, Gather) else node
        (slot,) = (lowered.slots[v] for v in summed.ins if v in lowered.slots)
        _step(g, weight, lowered.values[gradient], rate, lowered.step_state, slot, stream, options.rule, bits)
    if options.head_dtype == "float32":
        dlogits = reference.gradients[reference.logits]
        _head_step(g, lowered, producer[reference.logits], dlogits, learning_rate, options)
    after = g.emit(AdvanceStepState(), lowered.step_state, *lowered.peak_bits, name="step_state.after")
    g.update((lowered.step_state,), (after,))
    loss, logits = (lowered.values[v] for v in (reference.loss, reference.logits))
    roles = Roles(reference.graph.image, reference.label, learning_rate, loss, logits, lowered.step_state)
    return g.graph(loss, logits, roles=roles)


def _step(
    g: Builder,
    weight: _Weight,
    sums: Value,
    rate: Value,
    step_state: Value,
    slot: int,
    stream: int,
    rule: UpdateRule,
    bits: int,
) -> None:
    value, name = weight.value, weight.value.name
    states = [value]
    if weight.kind == "bias":
        op: BiasStep | WeightStep = BiasStep(weight.factors, slot, stream, 127 * weight.positions, rule)
    else:
        bound = 255 * 127 * weight.positions
        op = WeightStep(weight.factors, slot, stream, bound, rule, weight.axis, bits)
        if bits > 8:
            states.append(g.persistent(f"{name}.fraction", initial_fraction(value.type.size, bits - 8)))
    if rule.buffered:
        states.append(_buffer(g, value, rule))
    after = g.emit_all(op, *states, sums, rate, step_state, name=f"{name}.after")
    g.update(states, after)


def _buffer(g: Builder, value: Value, rule: UpdateRule) -> Value:
    """What the rule keeps beside a tensor."""
    type_ = rule.buffer(value.type)
    return g.persistent(f"{value.name}.buffer", np.zeros(type_.shape, type_.dtype))


def _head_step(
    g: Builder, lowered: Lowered, head: Node, dlogits: Value, learning_rate: Value, options: Options
) -> None:
    x, w, b = (lowered.values.get(v, v) for v in head.ins)
    states = [w, b]
    if options.rule.buffered:
        states += [_buffer(g, v, options.rule) for v in (w, b)]
    op = DenseStep(options.rule)
    after = g.emit_all(op, *states, x, lowered.values[dlogits], learning_rate, lowered.step_state, name="head.after")
    g.update(states, after)
