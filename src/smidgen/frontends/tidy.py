"""What files spell out in several nodes and the graph says in one: activations, biases, padding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from smidgen import ops
from smidgen.ir import Array, Graph, Node, Op, Type, Value, verify

GRID = np.concatenate([np.linspace(-9, 9, 361), [-40.0, -0.013, 0.0171, 33.0]]).astype(np.float32)
CLOSE = 2e-5  # of two spellings of one function, relative to its values
WEIGHTED = (ops.Conv2D, ops.Depthwise, ops.Dense)
# What a chain of nodes may amount to, the simplest first.
KNOWN: tuple[Op, ...] = (
    ops.Activate("relu"), ops.Activate("relu6"), ops.Lookup("sigmoid"), ops.Lookup("tanh"), ops.Lookup("hard_swish"),
    ops.Lookup("hard_sigmoid", 1 / 6, 0.5), ops.Lookup("hard_sigmoid", 0.2, 0.5), ops.Lookup("silu"),
    ops.Lookup("gelu"), ops.Lookup("gelu_tanh"), ops.Lookup("mish"), ops.Lookup("softplus"),
)  # fmt: skip


def tidy(graph: Graph) -> Graph:
    """The same function in fewer nodes."""
    for one in (recognize, sink_functions, fold_biases, merge_pads, flatten_means, fuse_activations, drop_unused):
        graph = one(graph)
        verify(graph)
    return graph


def fewest_transposes(last: Graph, own: Graph, images: bool) -> Graph:
    """Of two readings of one file, inputs channels last or in its own order; where they tie, the first for images."""
    counts = [sum(isinstance(node.op, ops.Transpose) for node in graph.nodes) for graph in (last, own)]
    return last if counts[0] < counts[1] or (images and counts[0] == counts[1]) else own


def drop_unused(graph: Graph) -> Graph:
    """Without the nodes no output depends on, and the constants nobody reads."""
    needed, kept = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if needed & set(node.outs):
            kept.append(node)
            needed |= set(node.ins)
    constants = {v: data for v, data in graph.constants.items() if v in needed}
    return replace(graph, nodes=tuple(reversed(kept)), constants=constants)


def _producers(graph: Graph) -> dict[Value, Node]:
    return {v: node for node in graph.nodes for v in node.outs}


def _readers(graph: Graph) -> Counter[Value]:
    return Counter(v for node in graph.nodes for v in node.ins) + Counter(graph.outputs)


def _rewrite(graph: Graph, change: Callable[[Node], Node]) -> Graph:
    """Each node as `change` gives it, without what nobody reads then."""
    return drop_unused(replace(graph, nodes=tuple(change(node) for node in graph.nodes)))


def recognize(graph: Graph) -> Graph:
    """Nodes that together compute a known function of one value become that function."""
    search = _Functions(graph)
    return _rewrite(graph, search.simplified)


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
    readers, producers, constants = _readers(graph), _producers(graph), dict(graph.constants)
    layers: dict[Value, Node] = {}

    def change(node: Node) -> Node:
        layer = layers.get(node.ins[0]) or producers.get(node.ins[0])
        if node.op == ops.Add() and layer is not None and _takes_bias(layer, node, readers, constants):
            b = Value(f"{layer.ins[2].name}.{node.out.name}", layer.ins[2].type)
            constants[b] = np.asarray(constants[layer.ins[2]] + constants[node.ins[1]].reshape(-1), np.float32)
            node = Node(layer.op, (*layer.ins[:2], b), node.outs)
        if isinstance(node.op, WEIGHTED):
            layers[node.out] = node
        return node

    nodes = tuple(change(node) for node in graph.nodes)
    return drop_unused(replace(graph, nodes=nodes, constants=constants))


def _takes_bias(layer: Node, add: Node, readers: Mapping[Value, int], constants: Mapping[Value, Array]) -> bool:
    plain = isinstance(layer.op, WEIGHTED) and layer.op.activation == "none" and layer.out.type.dtype == "float32"
    channels = layer.out.type.shape[-1:]
    b = add.ins[1]
    return (
        plain and readers[layer.out] == 1 and b in constants and b.type.shape in (channels, (1,))
        and layer.ins[2] in constants
    )  # fmt: skip


def merge_pads(graph: Graph) -> Graph:
    """Zeros around a map that a convolution reads become its padding."""
    producers = _producers(graph)

    def change(node: Node) -> Node:
        source = producers.get(node.ins[0])
        if not isinstance(node.op, ops.Conv2D | ops.Depthwise) or source is None or not isinstance(source.op, ops.Pad):
            return node
        before, after = source.op.before, source.op.after
        if any((*before[::3], *after[::3])):
            return node
        top, bottom, left, right = node.op.pad
        pad = (top + before[1], bottom + after[1], left + before[2], right + after[2])
        return Node(replace(node.op, pad=pad), (source.ins[0], *node.ins[1:]), node.outs)

    return _rewrite(graph, change)


def sink_functions(graph: Graph) -> Graph:
    """A function of int8 numbers that become int8 again is a table of int8 numbers."""
    producers = _producers(graph)

    def change(node: Node) -> Node:
        function = producers.get(node.ins[0]) if isinstance(node.op, ops.Quantize) else None
        source = producers.get(function.ins[0]) if function is not None else None
        if function is None or source is None or not isinstance(source.op, ops.Dequantize):
            return node
        if not isinstance(function.op, ops.Activate | ops.Lookup):
            return node
        return Node(function.op, source.ins, node.outs)

    return _rewrite(graph, change)


def flatten_means(graph: Graph) -> Graph:
    """A mean whose only reader wants it flat gives it flat."""
    producers, readers = _producers(graph), _readers(graph)

    def change(node: Node) -> Node:
        mean = producers.get(node.ins[0])
        if not isinstance(node.op, ops.Reshape) or mean is None or mean.op != ops.Mean(keep_dims=True):
            return node
        if readers[mean.out] != 1 or node.op.shape != (1, mean.out.type.shape[3]):
            return node
        return Node(ops.Mean(), mean.ins, node.outs)

    return _rewrite(graph, change)


def fuse_activations(graph: Graph) -> Graph:
    """In int8 an activation in its input's quantization is a limit of the op before it."""
    producers, readers = _producers(graph), _readers(graph)

    def change(node: Node) -> Node:
        before = producers.get(node.ins[0])
        fits = isinstance(node.op, ops.Activate) and node.outs[0].type.dtype == "int8" and before is not None
        if not fits or before is None or getattr(before.op, "activation", "") != "none":
            return node
        if readers[before.out] != 1 or before.out.type != node.out.type or isinstance(before.op, ops.Activate):
            return node
        assert isinstance(node.op, ops.Activate)
        op: Op = replace(before.op, activation=node.op.activation)  # type: ignore[call-arg]
        return Node(op, before.ins, node.outs)

    return _rewrite(graph, change)
