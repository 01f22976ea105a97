"""From float32 gradients to int8 ones with carried exponents.

`fuse_requantize_grads` first joins each gradient with the requantization behind it, so that a gradient tensor is
rounded once; `lower` then gives every gradient its place in the step state and its stream of random bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Graph, Node, Value, evaluate_all
from smidgen.ir.rewriting import producers, prune, rewrite, uses
from smidgen.numerics import stochastic
from smidgen.ops.elementwise import DequantizeGrad
from smidgen.ops.gradient import FromFloat, GradOp, RequantizeGrad
from smidgen.ops.shape import Crop, Pad, Reshape, Transpose
from smidgen.ops.state import Gather

MOVERS = (Reshape, Transpose, Crop, Pad, Gather)  # they move a gradient's bytes and keep its exponent


def fuse_requantize_grads(graph: Graph) -> Graph:
    """Join `RequantizeGrad` with the gradient op before it, where nobody else reads the value between them."""
    made_by, used = producers(graph), uses(graph)
    pairs = {
        node.out: before
        for node in graph.nodes
        if isinstance(node.op, RequantizeGrad)
        and (before := made_by.get(node.ins[0])) is not None
        and isinstance(before.op, GradOp)
        and not before.op.masked
        and used[before.out] == 1
    }

    def rule(g: Builder, node: Node) -> Node | None:
        if not isinstance(node.op, RequantizeGrad) or (before := pairs.get(node.out)) is None:
            return None
        assert isinstance(before.op, GradOp)
        joined = replace(before.op, factors=_product(before.op.factors, node.op.factors), masked=node.op.masked)
        return Node(joined, (*before.ins, *node.ins[1:]), node.outs)

    return rewrite(graph, rule, set(pairs.values()))


def _product(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    if not a or not b:
        return a or b
    product = np.array(a, np.float64) * np.array(b, np.float64)
    return tuple(float(x) for x in product)


def largest_gradients(graph: Graph, g0: Value, samples: tuple[tuple[Array, ...], ...]) -> dict[Value, float]:
    """The largest magnitude of every float32 value over some samples, in units of g0."""
    largest: dict[Value, float] = {}
    for arrays in samples:
        values = evaluate_all(graph, graph.state, *arrays)
        unit = float(values[g0][0])
        for value, array in values.items():
            if array.dtype == np.float32 and array.size and unit > 0:
                largest[value] = max(largest.get(value, 0.0), float(np.abs(array).max()) / unit)
    return largest


@dataclass(frozen=True)
class Lowered:
    """A graph with int8 gradients: what became of each value, and where each gradient's exponent is."""

    builder: Builder
    values: Mapping[Value, Value]
    slots: Mapping[Value, int]
    unit: Value  # of gradients: the largest magnitude of the loss gradient
    step_state: Value
    peak_bits: tuple[Value, ...]
    streams: int


def lower(graph: Graph, g0: Value, largest: Mapping[Value, float], seed: int) -> Lowered:
    """Re-emit the graph with every gradient behind a Dequantize in int8.

    Gradients that nobody reads, as that behind the first layer that learns, are left out. Their streams of random bits
    stay theirs, so that all others are rounded alike with and without them.
    """
    every, lowered = _int8_gradients(graph), _int8_gradients(prune(graph))
    owners = {v: place for place, v in enumerate(v for v, owns in lowered.items() if owns)}
    levels = [stochastic.level_of(largest.get(v, 1.0)) for v in owners]

    g = Builder.before(graph)
    head = np.array([0, seed & 0x7FFFFFFF, *levels], np.int32)
    step_state = g.persistent("step_state", head)
    emitter = _Emitter(g, g0, step_state, owners, set(lowered))
    for node in graph.nodes:
        out = node.outs[0]
        if out in lowered or out not in every:
            emitter.node(node)
        elif every[out]:
            emitter.stream()
    values, slots = emitter.values, emitter.exponents
    return Lowered(g, values, slots, values[g0], step_state, tuple(emitter.peak_bits), emitter.streams)


def _int8_gradients(graph: Graph) -> dict[Value, bool]:
    """The gradients behind a Dequantize in their order; whether each owns an exponent, or has that of what it moves."""
    found: dict[Value, bool] = {}
    for node in graph.nodes:
        behind = any(v in found for v in node.ins)
        owns = isinstance(node.op, DequantizeGrad) or (isinstance(node.op, GradOp) and behind)
        if owns or (isinstance(node.op, MOVERS) and behind):
            found[node.outs[0]] = owns
    return found


class _Emitter:
    """Emits nodes one by one into a builder, gradients in int8."""

    def __init__(
        self, g: Builder, g0: Value, step_state: Value, owners: Mapping[Value, int], lowered: set[Value]
    ) -> None:
        self.g, self.g0, self.step_state, self.owners, self.lowered = g, g0, step_state, owners, lowered
        self.values: dict[Value, Value] = {}
        self.exponents: dict[Value, int] = {}
        self.peak_bits: list[Value] = []
        self.streams = 0

    def stream(self) -> int:
        self.streams += 2  # an op may draw from its stream and the next
        return self.streams

    def node(self, node: Node) -> None:
        ins = tuple(self.values.get(v, v) for v in node.ins)
        out = node.outs[0]
        if out not in self.lowered:
            outs = self.g.emit_all(node.op, *ins, q=out.type.q, name=out.name)
            self.values.update(zip(node.outs, outs, strict=True))
            return
        if isinstance(node.op, MOVERS):
            self.values[out] = self.g.emit(node.op, *ins, name=out.name)
            self.exponents[out] = self.exponents[node.ins[0]]
            return
        slot = self.owners[out]
        if isinstance(node.op, DequantizeGrad):
            op = FromFloat(node.op.scale, (slot,), self.stream())
            made, peak_bits = self.g.emit_all(op, ins[0], self.values[self.g0], self.step_state, name=out.name)
        elif isinstance(node.op, GradOp):
            sources = tuple(self.exponents[v] for v in node.ins[: node.op.gradients])
            lowered = replace(node.op, slots=(*sources, slot), stream=self.stream())
            made, peak_bits = self.g.emit_all(lowered, *ins, self.step_state, name=out.name)
        else:
            raise GraphError(f"{type(node.op).__name__}, which gives %{out.name}, has no int8 form")
        self.values[out], self.exponents[out] = made, slot
        self.peak_bits.append(peak_bits)
