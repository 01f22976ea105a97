"""What files spell out in several nodes and the graph says in one: activations, biases, padding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from smidgen import ops
from smidgen.ir import Array, Builder, Graph, Node, Op, Type, Value, verify
from smidgen.ir.rewriting import producers, prune, rewrite, uses
from smidgen.ops.fusing import fuse_activations, keep_last_states, merge_pads
from smidgen.ops.weighted import Weighted

GRID = np.concatenate([np.linspace(-9, 9, 361), [-40.0, -0.013, 0.0171, 33.0]]).astype(np.float32)
CLOSE = 2e-5  # of two spellings of one function, relative to its values
# What a chain of nodes may amount to, the simplest first.
KNOWN: tuple[Op, ...] = (
    ops.Activate("relu"), ops.Activate("relu6"), ops.Lookup("sigmoid"), ops.Lookup("tanh"), ops.Lookup("hard_swish"),
    ops.Lookup("hard_sigmoid", 1 / 6, 0.5), ops.Lookup("hard_sigmoid", 0.2, 0.5), ops.Lookup("silu"),
    ops.Lookup("gelu"), ops.Lookup("gelu_tanh"), ops.Lookup("mish"), ops.Lookup("softplus"),
)  # fmt: skip


def tidy(graph: Graph) -> Graph:
    """The same function in fewer nodes."""
    for one in TIDY:
        graph = one(graph)
        verify(graph)
    return graph


def fewest_transposes(last: Graph, own: Graph, images: bool) -> Graph:
    """Of two readings of one file, inputs channels last or in its own order; where they tie, the first for images."""
    counts = [sum(isinstance(node.op, ops.Transpose) for node in graph.nodes) for graph in (last, own)]
    return last if counts[0] < counts[1] or (images and counts[0] == counts[1]) else own


def recognize(graph: Graph) -> Graph:
    """Nodes that together compute a known function of one value become that function."""
    search = _Functions(graph)
    return prune(rewrite(graph, lambda g, node: search.simplified(node)))


class _Functions:
    """Finds what float values are as functions of earlier ones."""

    def __init__(self, graph: Graph) -> None:
        self.scalars = {v: data.reshape(-1) for v, data in graph.constants.items() if v.type.size == 1}
        self.nodes: dict[Value, Node] = {}
        self.ancestors: dict[Value, tuple[Value, ...]] = {}  # values that each is a function of, the nearest first

    def simplified(self, node: Node) -> Node:
        out = node.outs[0]
        pointwise = isinstance(node.op, ops.Add | ops.Mul | ops.Activate | ops.Lookup)
        if not pointwise or out.type.dtype != "float32":
            return node
        self.nodes[out] = node
        read = [v for v in dict.fromkeys(node.ins) if v not in self.scalars]
        above = [(v, *self.ancestors.get(v, ())) for v in read]
        shared = tuple(v for v in above[0] if all(v in other for other in above) and v.type.shape == out.type.shape)
        self.ancestors[out] = shared
        for source in reversed(shared):
            if len(above) > 1 or source != read[0] or not isinstance(node.op, ops.Activate | ops.Lookup):
                found = self._known(source, out)
                if found is not None:
                    simple = Node(found, (source,), node.outs)
                    self.nodes[out] = simple
                    self.ancestors[out] = (source, *self.ancestors.get(source, ()))
                    return simple
        return node

    def _known(self, source: Value, out: Value) -> Op | None:
        with np.errstate(all="ignore"):
            y = self._on_grid(source, out, {source: GRID})
        if not np.isfinite(y).all():
            return None
        leak = float(-y[np.flatnonzero(np.isclose(GRID, -1))[0]])
        leaky = (ops.Lookup("leaky_relu", leak),) if 0 < leak < 1 else ()
        type_ = Type(GRID.shape, "float32")
        op: Op
        for op in (*KNOWN, *leaky):
            expected = np.asarray(op.ref(Node(op, (Value("x", type_),), (Value("y", type_),)), GRID))
            if np.all(np.abs(y - expected) <= CLOSE * (1 + np.abs(expected))):
                return op
        return None

    def _on_grid(self, source: Value, value: Value, known: dict[Value, Array]) -> Array:
        if value in known:
            return known[value]
        if value in self.scalars:
            return self.scalars[value]
        node = self.nodes[value]
        known[value] = np.asarray(node.op.ref(node, *(self._on_grid(source, v, known) for v in node.ins)))
        return known[value]


def fold_biases(graph: Graph) -> Graph:
    """A constant added to every position of a layer's float output goes into the layer's bias."""
    used, layers = uses(graph), dict[Value, Node]()

    def rule(g: Builder, node: Node) -> Node:
        layer = layers.get(node.ins[0])
        if node.op == ops.Add() and layer is not None and used[layer.out] == 1:
            bias = _bias(layer, g.data(layer.ins[2]), g.data(node.ins[1]))
            if bias is not None:
                b = g.constant(f"{layer.ins[2].name}.{node.out.name}", bias)
                node = Node(layer.op, (*layer.ins[:2], b), node.outs)
        if isinstance(node.op, Weighted):
            layers[node.out] = node
        return node

    return prune(rewrite(graph, rule))


def _bias(layer: Node, bias: Array | None, added: Array | None) -> Array | None:
    """A layer's bias with what is added to its output, where both are constants and it takes that."""
    plain = isinstance(layer.op, Weighted) and layer.op.activation == "none" and layer.out.type.dtype == "float32"
    channels = layer.out.type.shape[-1:]
    if not plain or bias is None or added is None or added.shape not in (channels, (1,)):
        return None
    return np.asarray(bias + added.reshape(-1), np.float32)


def fold_normalizations(graph: Graph) -> Graph:
    """A constant for each channel that a float normalization is multiplied by, or that is added, is a part of it."""
    made_by, used = dict[Value, Node](), uses(graph)

    def rule(g: Builder, node: Node) -> Node:
        before = made_by.get(node.ins[0])
        if before is not None and node.op in (ops.Mul(), ops.Add()) and used[before.out] == 1:
            node = _normalization(g, before, node) or node
        if isinstance(node.op, ops.Normalize) and node.out.type.dtype == "float32":
            made_by[node.out] = node
        return node

    return prune(rewrite(graph, rule))


def _normalization(g: Builder, before: Node, node: Node) -> Node | None:
    """A normalization together with what follows it, where all are constants of its channels."""
    x, scale, shift = before.ins
    scales, shifts, by = (g.data(v) for v in (scale, shift, node.ins[1]))
    if by is None or scales is None or shifts is None or by.size not in (1, x.type.shape[-1]):
        return None
    if isinstance(node.op, ops.Mul):
        scales, shifts = scales * by.reshape(-1), shifts * by.reshape(-1)
    else:
        shifts = shifts + by.reshape(-1)
    parts = [
        g.constant(f"{v.name}.{node.out.name}", np.asarray(data, np.float32))
        for v, data in ((scale, scales), (shift, shifts))
    ]
    return Node(before.op, (x, *parts), node.outs)


def sink_functions(graph: Graph) -> Graph:
    """A function of int8 numbers that become int8 again is a table of int8 numbers."""
    made_by = producers(graph)

    def rule(g: Builder, node: Node) -> Node | None:
        function = made_by.get(node.ins[0]) if isinstance(node.op, ops.Quantize) else None
        source = made_by.get(function.ins[0]) if function is not None else None
        if function is None or source is None or not isinstance(source.op, ops.Dequantize):
            return None
        return Node(function.op, source.ins, node.outs) if isinstance(function.op, ops.Activate | ops.Lookup) else None

    return prune(rewrite(graph, rule))


def flatten_means(graph: Graph) -> Graph:
    """A mean whose only reader wants it flat gives it flat."""
    made_by, used = producers(graph), uses(graph)

    def rule(g: Builder, node: Node) -> Node | None:
        mean = made_by.get(node.ins[0])
        if not isinstance(node.op, ops.Reshape) or mean is None or mean.op != ops.Mean(keep_dims=True):
            return None
        if used[mean.out] != 1 or node.op.shape != (1, mean.out.type.shape[3]):
            return None
        return Node(ops.Mean(), mean.ins, node.outs)

    return prune(rewrite(graph, rule))


def crop_parts(graph: Graph) -> Graph:
    """What is cut out of a single part of a concatenation is cut out of that part."""
    made_by = producers(graph)

    def rule(g: Builder, node: Node) -> Node | Value | None:
        whole = made_by.get(node.ins[0])
        if whole is None or not isinstance(node.op, ops.Crop) or not isinstance(whole.op, ops.Concat):
            return None
        axis, first = whole.op.axis, 0
        start, stop = node.op.start[axis], node.op.stop[axis]
        for part in whole.ins:
            end = first + part.type.shape[axis]
            if first <= start and stop <= end:
                if part.type.shape == node.out.type.shape:
                    return part
                moved = (_with(node.op.start, axis, start - first), _with(node.op.stop, axis, stop - first))
                return Node(ops.Crop(*moved), (part,), node.outs)
            first = end
        return None

    return prune(rewrite(graph, rule))


def _with(numbers: tuple[int, ...], place: int, number: int) -> tuple[int, ...]:
    return (*numbers[:place], number, *numbers[place + 1 :])


TIDY: tuple[Callable[[Graph], Graph], ...] = (
    recognize, sink_functions, fold_biases, fold_normalizations, merge_pads, flatten_means, fuse_activations,
    crop_parts, keep_last_states, prune,
)  # fmt: skip
