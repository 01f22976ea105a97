"""Passes over graphs as files give them: several nodes that amount to one op, and transposes that cancel out."""

from collections.abc import Callable

import numpy as np

from smidgen import ops
from smidgen.ir import Array, Builder, Graph, Node, Op, Type, Value, verify
from smidgen.ir.rewriting import fuse, producers, prune, rewrite, uses
from smidgen.ops.fusion import fuse_activations, keep_last_states, merge_pads
from smidgen.ops.weighted import Weighted

Perm = tuple[int, ...]
GRID = np.concatenate([np.linspace(-9, 9, 361), [-40.0, -0.013, 0.0171, 33.0]]).astype(np.float32)
CLOSE = 2e-5  # largest relative difference between two spellings of one function
# Functions that a chain of nodes may amount to, the simplest first.
KNOWN: tuple[Op, ...] = (
    ops.Activate("relu"), ops.Activate("relu6"), ops.Lookup("sigmoid"), ops.Lookup("tanh"), ops.Lookup("hard_swish"),
    ops.Lookup("hard_sigmoid", 1 / 6, 0.5), ops.Lookup("hard_sigmoid", 0.2, 0.5), ops.Lookup("silu"),
    ops.Lookup("gelu"), ops.Lookup("gelu_tanh"), ops.Lookup("mish"), ops.Lookup("softplus"),
)  # fmt: skip


def tidy(graph: Graph) -> Graph:
    """Return the same function in fewer nodes."""
    for one in TIDY:
        graph = one(graph)
        verify(graph)
    return graph


def fewest_transposes(last: Graph, own: Graph, images: bool) -> Graph:
    """Choose between two graphs of one file, with inputs channels last or in the file's order; images win ties."""
    counts = count_transposes(last), count_transposes(own)
    return last if counts[0] < counts[1] or (images and counts[0] == counts[1]) else own


def class_note(code: str, graph: Graph) -> str:
    """Describe what became of the operator that chose a class at the end of a file."""
    return f"{code} at the end is left out: the output is the scores %{graph.scores.name}, and the class their largest"


def count_transposes(graph: Graph) -> int:
    return sum(isinstance(node.op, ops.Transpose) for node in graph.nodes)


def recognize(graph: Graph) -> Graph:
    """Replace nodes that together compute a known function of one value by that function."""
    search = _Functions(graph)
    return prune(rewrite(graph, lambda g, node: search.simplified(node)))


class _Functions:
    """A search for float values that are known functions of earlier ones."""

    def __init__(self, graph: Graph) -> None:
        self.scalars = {v: data.reshape(-1) for v, data in graph.constants.items() if v.type.size == 1}
        self.nodes: dict[Value, Node] = {}
        self.ancestors: dict[Value, tuple[Value, ...]] = {}  # the values that each is a function of, the nearest first

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
        alone = len(above) == 1 and isinstance(node.op, ops.Activate | ops.Lookup)  # a function of its input already
        for source in (v for v in reversed(shared) if not alone or v != read[0]):
            found = self._known(source, out)
            if found is not None:
                self.nodes[out] = Node(found, (source,), node.outs)
                self.ancestors[out] = (source, *self.ancestors.get(source, ()))
                return self.nodes[out]
        return node

    def _known(self, source: Value, out: Value) -> Op | None:
        with np.errstate(all="ignore"):
            y = self._on_grid(source, out, {source: GRID})
        if not np.isfinite(y).all():
            return None
        leak, type_ = float(-y[np.flatnonzero(np.isclose(GRID, -1))[0]]), Type(GRID.shape, "float32")
        for op in (*KNOWN, *([ops.Lookup("leaky_relu", leak)] if 0 < leak < 1 else [])):
            expected = np.asarray(op.ref(Node(op, (Value("x", type_),), (Value("y", type_),)), GRID))
            if np.all(np.abs(y - expected) <= CLOSE * (1 + np.abs(expected))):
                return op
        return None

    def _on_grid(self, source: Value, value: Value, known: dict[Value, Array]) -> Array:
        if value not in known and value not in self.scalars:
            node = self.nodes[value]
            known[value] = np.asarray(node.op.ref(node, *(self._on_grid(source, v, known) for v in node.ins)))
        return known[value] if value in known else self.scalars[value]


def fold_biases(graph: Graph) -> Graph:
    """Move a constant added to every position of a layer's float output into the layer's bias."""
    return _fold_into(graph, Weighted, _with_bias)


def fold_normalizations(graph: Graph) -> Graph:
    """Move constants that scale or shift a float normalization's channels into the normalization."""
    return _fold_into(graph, ops.Normalize, _with_scale_and_shift)


def _fold_into(graph: Graph, kind: type[Op], merged: Callable[[Builder, Node, Node], Node | None]) -> Graph:
    """Merge products and sums into the float layers of a kind that only they read, where `merged` returns a node."""
    layers, used = dict[Value, Node](), uses(graph)

    def rule(g: Builder, node: Node) -> Node:
        layer = layers.get(node.ins[0])
        if layer is not None and node.op in (ops.Mul(), ops.Add()) and used[layer.out] == 1:
            node = merged(g, layer, node) or node
        if isinstance(node.op, kind) and node.out.type.dtype == "float32":
            layers[node.out] = node
        return node

    return prune(rewrite(graph, rule))


def _with_bias(g: Builder, layer: Node, node: Node) -> Node | None:
    """Return a layer with the constant added to its output in its bias; None where the layer cannot take it."""
    bias, added = g.data(layer.ins[2]), g.data(node.ins[1])
    plain = isinstance(layer.op, Weighted) and layer.op.activation == "none" and isinstance(node.op, ops.Add)
    if not plain or bias is None or added is None or added.shape not in (layer.out.type.shape[-1:], (1,)):
        return None
    b = g.constant(f"{layer.ins[2].name}.{node.out.name}", np.asarray(bias + added.reshape(-1), np.float32))
    return Node(layer.op, (*layer.ins[:2], b), node.outs)


def _with_scale_and_shift(g: Builder, layer: Node, node: Node) -> Node | None:
    """Return a normalization with the product or sum behind it; None where that has no constant per channel."""
    x, scale, shift = layer.ins
    scales, shifts, by = (g.data(v) for v in (scale, shift, node.ins[1]))
    if by is None or scales is None or shifts is None or by.size not in (1, x.type.shape[-1]):
        return None
    if isinstance(node.op, ops.Mul):
        scales, shifts = scales * by.reshape(-1), shifts * by.reshape(-1)
    else:
        shifts = shifts + by.reshape(-1)
    held = (scale, scales), (shift, shifts)
    parts = [g.constant(f"{v.name}.{node.out.name}", np.asarray(data, np.float32)) for v, data in held]
    return Node(layer.op, (x, *parts), node.outs)


def sink_functions(graph: Graph) -> Graph:
    """Apply a function between a Dequantize and a Quantize to the int8 numbers, as a table."""
    made_by = producers(graph)

    def rule(g: Builder, node: Node) -> Node | None:
        function = made_by.get(node.ins[0]) if isinstance(node.op, ops.Quantize) else None
        source = made_by.get(function.ins[0]) if function is not None else None
        if function is None or source is None or not isinstance(source.op, ops.Dequantize):
            return None
        return Node(function.op, source.ins, node.outs) if isinstance(function.op, ops.Activate | ops.Lookup) else None

    return prune(rewrite(graph, rule))


def flatten_means(graph: Graph) -> Graph:
    """Let a mean whose only reader flattens it return a flat vector."""

    def join(mean: Node, node: Node) -> Node | None:
        flat = mean.op == ops.Mean(keep_dims=True) and node.op == ops.Reshape((1, mean.out.type.shape[-1]))
        return Node(ops.Mean(), mean.ins, node.outs) if flat else None

    return fuse(graph, join)


def crop_parts(graph: Graph) -> Graph:
    """Crop a part of a concatenation where the crop reads that part alone."""
    made_by = producers(graph)

    def rule(g: Builder, node: Node) -> Node | Value | None:
        whole = made_by.get(node.ins[0])
        if whole is None or not isinstance(node.op, ops.Crop) or not isinstance(whole.op, ops.Concat):
            return None
        axis, first = whole.op.axis, 0
        start, stop = node.op.start[axis], node.op.stop[axis]
        for part in whole.ins:
            if first <= start and stop <= first + part.type.shape[axis]:
                ends = (enumerate(end) for end in (node.op.start, node.op.stop))
                moved = (tuple(n - first if i == axis else n for i, n in end) for end in ends)
                return part if part.type.shape == node.out.type.shape else Node(ops.Crop(*moved), (part,), node.outs)
            first += part.type.shape[axis]
        return None

    return prune(rewrite(graph, rule))


def cancel_transposes(graph: Graph) -> Graph:
    """Move transposes behind ops that work in any order, to where the next one undoes them, if fewer remain."""
    moved = prune(rewrite(graph, _Sinking().rule))
    return moved if count_transposes(moved) < count_transposes(graph) else graph


class _Sinking:
    """Transposed values, each with its source and the permutation."""

    def __init__(self) -> None:
        self.of: dict[Value, tuple[Value, Perm]] = {}

    def rule(self, g: Builder, node: Node) -> Node | Value | None:
        if isinstance(node.op, ops.Transpose):
            return self.transposed(node.ins[0], node.op.perm, node)
        sources = [self.of.get(v) for v in node.ins]
        if not sources or sources[0] is None:
            return None
        perm = sources[0][1]
        alike = [s[0] if s is not None and s[1] == perm else None for s in sources]
        ins = [v if s is None and v.type.size == 1 else s for s, v in zip(alike, node.ins, strict=True)]
        op = _in_order(node, perm)
        if op is None or any(v is None for v in ins):
            return None
        made = g.emit(op, *(v for v in ins if v is not None), q=node.out.type.q, name=f"{node.out.name}.first")
        return self.transposed(made, perm, node)

    def transposed(self, x: Value, perm: Perm, node: Node) -> Node | Value:
        """Return the node's output as a transpose of x or of x's own source, or x itself where nothing moves."""
        if x in self.of:
            x, first = self.of[x]
            perm = tuple(first[p] for p in perm)
        if perm == tuple(range(len(perm))):
            return x
        self.of[node.out] = x, perm
        long = [p for p in perm if x.type.shape[p] > 1]
        stays = long == sorted(long)  # only dimensions of one element move: memory is unchanged
        return Node(ops.Reshape(node.out.type.shape) if stays else ops.Transpose(perm), (x,), node.outs)


def _in_order(node: Node, perm: Perm) -> Op | None:
    """Return the op that gives the same result before a transpose as the node's op behind it; None where none does."""
    op, places = node.op, [perm.index(i) for i in range(len(perm))]
    if isinstance(op, ops.Concat):
        return ops.Concat(perm[op.axis])
    if isinstance(op, ops.Pad):
        return ops.Pad(tuple(op.before[i] for i in places), tuple(op.after[i] for i in places))
    if isinstance(op, ops.Crop):
        return ops.Crop(tuple(op.start[i] for i in places), tuple(op.stop[i] for i in places))
    whole = all(v.type.size in (1, node.out.type.size) for v in node.ins)
    return op if op.elementwise and whole else None


TIDY: tuple[Callable[[Graph], Graph], ...] = (
    recognize, sink_functions, fold_biases, fold_normalizations, merge_pads, flatten_means, fuse_activations,
    crop_parts, keep_last_states, prune,
)  # fmt: skip
