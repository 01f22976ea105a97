"""From float32 gradients to int8 ones with carried exponents.

`fuse_requantize_grads` first joins each gradient with the requantization behind it, so that a gradient tensor is
rounded once; `lower` then gives every gradient its place in the step state and its stream of random bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Graph, Node, Value, evaluate_all
from smidgen.ir.rewriting import fuse, prune
from smidgen.numerics import stochastic
from smidgen.ops.elementwise import DequantizeGrad
from smidgen.ops.gradient import FromFloat, GradOp, RequantizeGrad
from smidgen.ops.shape import Crop, Pad, Reshape, Transpose
from smidgen.ops.state import Gather

MOVERS = (Reshape, Transpose, Crop, Pad, Gather)  # they move a gradient's bytes and keep its exponent


def fuse_requantize_grads(graph: Graph) -> Graph:
    """Join `RequantizeGrad` with the gradient op before it, where nobody else reads the value between them."""

    def join(before: Node, node: Node) -> Node | None:
        if not isinstance(node.op, RequantizeGrad) or not isinstance(before.op, GradOp) or before.op.masked:
            return None
        joined = replace(before.op, factors=_product(before.op.factors, node.op.factors), masked=node.op.masked)
        return Node(joined, (*before.ins, *node.ins[1:]), node.outs)

    return fuse(graph, join)


def _product(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(float(x) for x in np.array(a) * np.array(b)) if a and b else a or b


def largest_gradients(graph: Graph, g0: Value, samples: tuple[tuple[Array, ...], ...]) -> dict[Value, float]:
    """Return the largest magnitude of every float32 value over some samples, in units of g0."""
    largest: dict[Value, float] = {}
    for arrays in samples:
        values = evaluate_all(graph, graph.state, *arrays)
        unit = float(values[g0][0])
        for value, array in values.items():
            if array.dtype == np.float32 and array.size and unit > 0:
                largest[value] = max(largest.get(value, 0.0), float(np.abs(array).max()) / unit)
    return largest


@dataclass
class Lowered:
    """A graph with int8 gradients, emitted node by node: what became of each value, and each gradient's exponent."""

    builder: Builder
    g0: Value
    step_state: Value
    owners: Mapping[Value, int]  # the gradients that own an exponent, and its place
    values: dict[Value, Value] = field(default_factory=dict)
    slots: dict[Value, int] = field(default_factory=dict)
    peak_bits: list[Value] = field(default_factory=list)
    streams: int = 0

    @property
    def unit(self) -> Value:
        """Return the unit of gradients: the largest magnitude of the loss gradient."""
        return self.values[self.g0]

    def stream(self) -> int:
        """Return the next stream of random bits."""
        self.streams += 2  # an op may draw from its stream and the next
        return self.streams

    def _now(self, node: Node) -> tuple[Value, ...]:
        return tuple(self.values.get(v, v) for v in node.ins)

    def keep(self, node: Node) -> None:
        """Emit a node that is not an int8 gradient."""
        out = node.outs[0]
        outs = self.builder.emit_all(node.op, *self._now(node), q=out.type.q, name=out.name)
        self.values.update(zip(node.outs, outs, strict=True))

    def lower(self, node: Node) -> None:
        """Emit a gradient in int8."""
        ins, out = self._now(node), node.outs[0]
        if isinstance(node.op, MOVERS):
            self.values[out] = self.builder.emit(node.op, *ins, name=out.name)
            self.slots[out] = self.slots[node.ins[0]]
            return
        slot = self.owners[out]
        if isinstance(node.op, DequantizeGrad):
            op: FromFloat | GradOp = FromFloat(node.op.scale, (slot,), self.stream())
            ins = (ins[0], self.unit)
        elif isinstance(node.op, GradOp):
            sources = tuple(self.slots[v] for v in node.ins[: node.op.gradients])
            op = replace(node.op, slots=(*sources, slot), stream=self.stream())
        else:
            raise GraphError(f"{type(node.op).__name__}, which gives %{out.name}, has no int8 form")
        self.values[out], peak_bits = self.builder.emit_all(op, *ins, self.step_state, name=out.name)
        self.slots[out] = slot
        self.peak_bits.append(peak_bits)


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
    made = Lowered(g, g0, step_state, owners)
    for node in graph.nodes:
        out = node.outs[0]
        if out not in every:
            made.keep(node)
        elif out in lowered:
            made.lower(node)
        elif every[out]:
            made.stream()
    return made


def _int8_gradients(graph: Graph) -> dict[Value, bool]:
    """Return the gradients behind a Dequantize in order; whether each owns an exponent, or shares that of its input."""
    found: dict[Value, bool] = {}
    for node in graph.nodes:
        behind = any(v in found for v in node.ins)
        owns = isinstance(node.op, DequantizeGrad) or (isinstance(node.op, GradOp) and behind)
        if owns or (isinstance(node.op, MOVERS) and behind):
            found[node.outs[0]] = owns
    return found
