"""Graph + scheme → training graph: forward, loss, int8 gradients, updates in place.

The result is an ordinary graph: inputs image, label and learning rate; outputs loss and logits; everything
that learns is state. `passes` makes it small, planning and code generation treat it as any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from smidgen.errors import InputError
from smidgen.ir import Array, Builder, Graph, Node, Roles, Type, Value
from smidgen.ir.rewriting import needed, producers, prune
from smidgen.ops.gradient import AdvanceStepState
from smidgen.ops.loss import LossOp
from smidgen.ops.losses import LOSSES, example_label
from smidgen.ops.rules import MaxAbs, Rate, UpdateRule
from smidgen.ops.state import Gather
from smidgen.ops.update import BiasStep, DenseStep, WeightStep, initial_fraction
from smidgen.ops.weighted import Windowed
from smidgen.training.autodiff import differentiate
from smidgen.training.head import ending_of
from smidgen.training.lowering import Lowered, fuse_requantize_grads, largest_gradients, lower
from smidgen.training.options import Head, Options
from smidgen.training.projection import smooth_noise
from smidgen.training.scheme import Scheme, Trained, resolve
from smidgen.training.weights import (
    Weight,
    begin_head,
    learning_bias,
    learning_channels,
    learning_difference,
    learning_weights,
    let_through,
    with_drawn_head,
)


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
        """Return the part that computes the loss, its only output."""
        return prune(replace(self.graph, outputs=(self.loss,)))


@dataclass(frozen=True)
class Training:
    """A training step and the forward pass it shares its state with."""

    step: Graph
    forward: Graph
    reference: Reference
    trained: tuple[Trained, ...]
    unit: Value  # of the step's gradients, before passes
    head: Head


def build_training(graph: Graph, scheme: Scheme, options: Options, images: tuple[Array, ...] | None = ()) -> Training:
    """Build the training graph of a scheme; `images`, where given, set the first exponents (noise does otherwise).

    With None nothing sets them: that is enough to plan memory, on which they have no effect.
    """
    options.check()
    ending = ending_of(graph)
    trained = resolve(scheme, graph, options.seed)
    _check_int8(graph, ending.features, trained)
    head = options.head_of(graph)
    g, values, weights = _learnable(graph, ending.features, trained, options.qas, options.bias_bits)
    logits, last = begin_head(g, graph, ending, values[ending.features], head, options.qas)
    forward = g.graph(logits)
    loss, label = _end_in_loss(g, logits, LOSSES[options.loss], values[graph.image], graph.name)
    weights = (*weights, *last)
    found = differentiate(g.graph(loss, logits), loss, (logits, *(w.learned for w in weights)))
    passing = let_through(found.graph, last[0].value) if head.start == "keep" and last else found.graph
    whole, unit = _with_unit(fuse_requantize_grads(passing), found.gradients[logits])
    reference = Reference(whole, label, loss, logits, unit, found.gradients)
    drawn = with_drawn_head(whole, options.seed) if head.start == "new" else whole
    largest = {} if images is None else largest_gradients(drawn, unit, _samples(reference, options.seed, images))
    lowered = lower(whole, unit, largest, options.seed)
    step = _updates(reference, lowered, weights, head, options, options.bits(scheme))
    return Training(step, forward, reference, trained, lowered.unit, head)


def _end_in_loss(g: Builder, logits: Value, op: LossOp, image: Value, model: str) -> tuple[Value, Value | None]:
    """Emit the loss of the logits and the input for its label; there is none where the image is the target."""
    op.check_model(logits.type, image.type, model)
    type_ = op.label_type(logits.type)
    label = None if type_ is None else g.input("label", type_)
    loss, _ = g.emit_all(op, logits, label or image, name="loss")
    return loss, label


def _check_int8(graph: Graph, features: Value, trained: tuple[Trained, ...]) -> None:
    """Raise InputError for a model that still computes in float32 where it is to learn."""
    for value in (features, *(layer.node.out for layer in trained)):
        if value.type.dtype != "int8":
            raise InputError(
                f"%{value.name} of {graph.name} is {value.type.dtype}, what learns computes in int8; quantize the "
                "model first, with `smidgen quantize` or quantize()"
            )


def _learnable(
    graph: Graph, features: Value, trained: tuple[Trained, ...], qas: bool, bias_bits: int
) -> tuple[Builder, dict[Value, Value], tuple[Weight, ...]]:
    """Emit the nodes up to the features and to what replaces variables, all that learns turned into state."""
    by_output = {t.node.out: t for t in trained}
    g = Builder(graph.name, graph.preprocessing)
    values: dict[Value, Value] = {v: g.input(v.name, v.type) for v in graph.inputs}
    values |= {v: g.persistent(v.name, data, v.type.q) for v, data in graph.state.items()}
    weights: list[Weight] = []
    for node in needed(graph, features, *graph.updates.values()):
        layer = by_output.get(node.outs[0])
        for index, value in enumerate(node.ins):
            if value in graph.constants and value not in values:
                learns = layer is not None and (index == 2 or (index == 1 and bool(layer.channels)))
                if layer is not None and learns:
                    values[value], weight = _state(g, graph, layer, index, qas, bias_bits)
                    weights.append(weight)
                else:
                    values[value] = g.constant(value.name, graph.constants[value], value.type.q)
        outs = g.emit_all(node.op, *(values[v] for v in node.ins), q=node.outs[0].type.q, name=node.outs[0].name)
        values.update(zip(node.outs, outs, strict=True))
    g.update((values[v] for v in graph.updates), (values[v] for v in graph.updates.values()))
    return g, values, tuple(weights)


def _state(g: Builder, graph: Graph, layer: Trained, index: int, qas: bool, bias_bits: int) -> tuple[Value, Weight]:
    """Turn a layer's bias (index 2) or weights (index 1) into state; what its node reads, and how it learns."""
    if index == 1 and layer.partial:
        return learning_channels(g, graph, layer, qas)
    narrow = bias_bits == 16 and isinstance(layer.node.op, Windowed)
    bias = learning_difference if narrow else learning_bias
    weight = (learning_weights if index == 1 else bias)(g, graph, layer.node, qas)
    return weight.learned, weight


def _with_unit(graph: Graph, dlogits: Value) -> tuple[Graph, Value]:
    """Insert g0 = max |dlogits| right behind the loss gradient; it becomes an output."""
    g = Builder.before(graph)
    g.reserve(*producers(graph))
    for node in graph.nodes:
        g.append(node)
        if dlogits in node.outs:
            unit = g.emit(MaxAbs(), dlogits, name="g0")
    return g.graph(*graph.outputs, unit), unit


def _samples(reference: Reference, seed: int, images: tuple[Array, ...]) -> tuple[tuple[Array, ...], ...]:
    """Return arrays for the reference's inputs: the images given, or smooth noise, with labels in turn."""
    type_, label, logits = reference.graph.image.type, reference.label, reference.logits
    images = images or smooth_noise(type_, seed)
    return tuple((image, *example_label(label, logits, i)) for i, image in enumerate(images))


def _updates(
    reference: Reference, lowered: Lowered, weights: tuple[Weight, ...], head: Head, options: Options, bits: int
) -> Graph:
    """Append the steps of everything that learns, and of the step state."""
    g = lowered.builder
    learning_rate = g.input("learning_rate", Type((1,), "float32"))
    rate = g.emit(Rate(), learning_rate, lowered.unit, name="rate")
    producer = producers(reference.graph)
    stream = lowered.streams
    for weight in weights:
        stream += 2
        gradient = reference.gradients[weight.learned]
        node = producer[gradient]
        summed = producer[node.ins[0]] if isinstance(node.op, Gather) else node
        (slot,) = (lowered.slots[v] for v in summed.ins if v in lowered.slots)
        value, states = weight.value, [weight.value]
        if weight.kind == "weight" and bits > 8:
            states.append(g.persistent(f"{value.name}.fraction", initial_fraction(value.type.size, bits - 8)))
        if options.rule.buffered:
            states.append(_buffer(g, value, options.rule))
        op, sums = _step_of(weight, slot, stream, options.rule, bits), lowered.values[gradient]
        g.update(states, g.emit_all(op, *states, sums, rate, lowered.step_state, name=f"{value.name}.after"))
    if head.dtype == "float32":
        dlogits = reference.gradients[reference.logits]
        _head_step(g, lowered, producer[reference.logits], dlogits, learning_rate, options.rule)
    after = g.emit(AdvanceStepState(), lowered.step_state, *lowered.peak_bits, name="step_state.after")
    g.update((lowered.step_state,), (after,))
    loss, logits = (lowered.values[v] for v in (reference.loss, reference.logits))
    below = float(np.float32(options.skip_below))
    roles = Roles(reference.graph.image, reference.label, learning_rate, loss, logits, lowered.step_state, below)
    return g.graph(loss, logits, roles=roles)


def _step_of(weight: Weight, slot: int, stream: int, rule: UpdateRule, bits: int) -> BiasStep | WeightStep:
    """Return the op by which a tensor learns."""
    if weight.kind == "bias":
        return BiasStep(weight.factors, slot, stream, 127 * weight.positions, rule, weight.shifts)
    return WeightStep(weight.factors, slot, stream, 255 * 127 * weight.positions, rule, weight.axis, bits)


def _buffer(g: Builder, value: Value, rule: UpdateRule) -> Value:
    """Add the buffer that the rule keeps beside a tensor."""
    type_ = rule.buffer(value.type)
    return g.persistent(f"{value.name}.buffer", np.zeros(type_.shape, type_.dtype))


def _head_step(
    g: Builder, lowered: Lowered, head: Node, dlogits: Value, learning_rate: Value, rule: UpdateRule
) -> None:
    x, w, b = (lowered.values.get(v, v) for v in head.ins)
    states = [w, b]
    if rule.buffered:
        states += [_buffer(g, v, rule) for v in (w, b)]
    op = DenseStep(rule)
    after = g.emit_all(op, *states, x, lowered.values[dlogits], learning_rate, lowered.step_state, name="head.after")
    g.update(states, after)
