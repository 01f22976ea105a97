"""Passes over float graphs that keep what they compute: folds into fewer layers, and cross-layer equalization.

Equalization brings channels of very different ranges closer. y = B · f(A x) is the same when channel i of A is divided
by s and what reads it in B multiplied, as long as f(s·x) = s·f(x): so for no activation and for ReLU, and for pools,
means and gates on the way. ReLU6 has no such s and is left alone.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from smidgen import ops
from smidgen.ir import Array, Builder, Graph, Node, Op, Value
from smidgen.ir.rewriting import producers, readers, rewrite, uses
from smidgen.ops.fusion import fuse_activations, merge_pads
from smidgen.ops.weighted import Weighted, Windowed, weighted
from smidgen.quantization.batch import Passes

HOMOGENEOUS = ("none", "relu")
LARGEST_FACTOR = 32.0  # a channel is never scaled by more: dead ones stay numbers


def _layer(g: Builder, op: Op, x: Value, w: Array, b: Array, outs: tuple[Value, ...]) -> Node:
    """Return a linear layer with new weights."""
    name = outs[0].name
    weights = g.constant(f"{name}.w", w.astype(np.float32))
    return Node(op, (x, weights, g.constant(f"{name}.b", b.astype(np.float32))), outs)


def drop_idle(graph: Graph) -> Graph:
    """Drop nodes that change nothing: reshapes to the same shape, pads of nothing, activations that are none."""

    def rule(g: Builder, node: Node) -> Value | None:
        op, x = node.op, node.ins[0]
        idle = (
            (isinstance(op, ops.Reshape) and op.shape == x.type.shape)
            or (isinstance(op, ops.Transpose) and op.perm == tuple(range(len(op.perm))))
            or (isinstance(op, ops.Pad) and not any((*op.before, *op.after)))
            or (isinstance(op, ops.Activate) and op.activation == "none")
            or (isinstance(op, ops.Concat) and len(node.ins) == 1)
        )
        return x if idle else None

    return rewrite(graph, rule)


def crop_kernels(graph: Graph) -> Graph:
    """Cut off rows and columns of a kernel that only ever meet padding: no scale serves them."""

    def rule(g: Builder, node: Node) -> Node | None:
        op = node.op
        if not isinstance(op, Windowed) or (held := _weights(graph, node)) is None:
            return None
        (w, b), (before, after) = held, (op.pad[::2], op.pad[1::2])
        sides, outs = (v.type.shape[1:3] for v in (node.ins[0], node.out))
        numbers = zip(sides, outs, w.shape[1:3], op.stride, op.dilation, before, after, strict=True)
        (first, end), (left, right) = (_met(*one) for one in numbers)
        if (first, end, left, right) == (0, w.shape[1], 0, w.shape[2]):
            return None
        cut = (first, w.shape[1] - end, left, w.shape[2] - right)
        along = (op.dilation[0], op.dilation[0], op.dilation[1], op.dilation[1])
        t, d, le, r = (p - taps * apart for p, taps, apart in zip(op.pad, cut, along, strict=True))
        op = replace(op, pad=(t, d, le, r))
        return _layer(g, op, node.ins[0], w[:, first:end, left:right], b, node.outs)

    return rewrite(graph, rule)


def _met(side: int, out: int, size: int, stride: int, dilation: int, before: int, after: int) -> tuple[int, int]:
    """Return the first tap and the end along one side, without those at the ends that never meet the map."""
    met = [any(0 <= o * stride + tap * dilation - before < side for o in range(out)) for tap in range(size)]
    first, end = 0, size
    while end - first > 1 and not met[first] and before >= dilation:
        first, before = first + 1, before - dilation
    while end - first > 1 and not met[end - 1] and after >= dilation:
        end, after = end - 1, after - dilation
    return first, end


@dataclass(frozen=True, eq=False)
class Affine:
    """y = x · scale + shift on the last axis, then an activation: a batch norm, a product or a sum."""

    x: Value
    scale: Array
    shift: Array
    activation: str = "none"


def affine(graph: Graph, node: Node) -> Affine | None:
    """Return a node as an affine map by constants; None if it is none."""
    op, channels = node.op, node.ins[0].type.shape[-1] if node.ins[0].type.shape else 1
    if isinstance(op, ops.BatchNorm):
        held = [graph.constants.get(v) for v in node.ins[1:]]
        return None if held[0] is None or held[1] is None else Affine(node.ins[0], held[0], held[1])
    if not isinstance(op, ops.Mul | ops.Add) or node.out.type.dtype != "float32":
        return None
    data = graph.constants.get(node.ins[1])
    if data is None or node.ins[0] in graph.constants or data.size not in (1, data.shape[-1] if data.ndim else 1):
        return None
    along = np.broadcast_to(data.reshape(-1), (channels,))
    one, none = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    scale, shift = (along, none) if isinstance(op, ops.Mul) else (one, along)
    return Affine(node.ins[0], scale, shift, op.activation)


def fold_back(graph: Graph) -> Graph:
    """Fold affine maps into the convolution, depthwise or dense layer before them, where nothing else reads that."""
    used, made_by = uses(graph), producers(graph)
    pairs: dict[Value, tuple[Node, Affine]] = {}
    for node in graph.nodes:
        before, found = made_by.get(node.ins[0]), affine(graph, node)
        if before is None or found is None or used[node.ins[0]] != 1 or not isinstance(before.op, Weighted):
            continue
        if before.op.activation == "none" and _weights(graph, before) is not None:
            pairs[node.outs[0]] = before, found

    def rule(g: Builder, node: Node) -> Node | None:
        if node.outs[0] not in pairs:
            return None
        before, found = pairs[node.outs[0]]
        held, scale = _weights(graph, before), found.scale.astype(np.float64)
        assert held is not None
        w, b = held
        op = replace(before.op, activation=found.activation)  # type: ignore[call-arg]
        changed = w * weighted(before).along_outputs(scale, w), b * scale + found.shift
        return _layer(g, op, before.ins[0], *changed, before.outs)

    return rewrite(graph, rule, {before for before, _ in pairs.values()})


def _weights(graph: Graph, node: Node) -> tuple[Array, Array] | None:
    """Return a linear layer's weights and bias in double; None if they are not constants."""
    w, b = (graph.constants.get(v) for v in node.ins[1:3])
    return None if w is None or b is None else (w.astype(np.float64), b.astype(np.float64))


def fold_forward(graph: Graph) -> Graph:
    """Fold affine maps into the linear layers that read them, if those alone do and no padding would see the shift."""
    maps = {node.out: found for node in graph.nodes if (found := affine(graph, node)) and found.activation == "none"}
    read_by = readers(graph)

    def takes(node: Node, value: Value) -> bool:
        if not isinstance(node.op, Weighted) or value in node.ins[1:] or _weights(graph, node) is None:
            return False
        return not any(node.op.pad) or not np.any(maps[value].shift)

    inner = (value for value in maps if value not in graph.outputs)
    gone = {value for value in inner if all(takes(node, value) for node in read_by.get(value, ()))}

    def rule(g: Builder, node: Node) -> Node | None:
        if node.ins[0] not in gone or not isinstance(node.op, Weighted):
            return None
        found, held, op = maps[node.ins[0]], _weights(graph, node), node.op
        assert held is not None
        w, b = held
        scale, shift = (op.along_inputs(numbers.astype(np.float64), w) for numbers in (found.scale, found.shift))
        return _layer(g, op, found.x, w * scale, b + op.sum_outputs(w * shift), node.outs)

    return rewrite(graph, rule, {node for node in graph.nodes if node.outs[0] in gone})


def settle_affine(graph: Graph) -> Graph:
    """Turn the remaining affine maps into 1×1 depthwise layers on maps, a product and a sum elsewhere."""

    def rule(g: Builder, node: Node) -> Node | None:
        found = affine(graph, node)
        if found is None:
            return None
        name, shape = node.out.name, found.x.type.shape
        if len(shape) == 4 and shape[0] == 1:
            op = ops.Depthwise(activation=found.activation)
            return _layer(g, op, found.x, found.scale.reshape(1, 1, 1, -1), found.shift, node.outs)
        if not isinstance(node.op, ops.BatchNorm):
            return None
        scale, shift = (g.constant(f"{name}.{n}", a) for n, a in (("scale", found.scale), ("shift", found.shift)))
        return Node(ops.Add(), (g.emit(ops.Mul(), found.x, scale, name=f"{name}.scaled"), shift), node.outs)

    return rewrite(graph, rule)


FOLDS: tuple[Callable[[Graph], Graph], ...] = (
    drop_idle, merge_pads, fold_back, fold_forward, fold_back, settle_affine, fuse_activations, crop_kernels, drop_idle,
)  # fmt: skip


def fold(graph: Graph) -> Graph:
    """Run all folds in order, again until nothing changes."""
    count = 0
    while count != len(graph.nodes):
        count = len(graph.nodes)
        for one in FOLDS:
            graph = one(graph)
    return graph


def equalise(graph: Graph, samples: Array, passes: Passes) -> Graph:
    """Scale channels between layers that only feed each other, by the ranges they take on the samples.

    A depthwise layer has a scale for every channel it reads, so that its inputs could have one range; for other layers
    the aim is the geometric mean between equal activations and equal weights. Channels go half the way there, in
    octaves: a few images show a range only roughly.
    """
    links = _links(graph)
    if not links:
        return graph
    largest = _channel_maxima(graph, samples, {before.out for before, _ in links}, passes)
    constants = dict(graph.constants)
    for before, after in links:
        factor = _factor(after, constants, largest[before.out])
        _, w, b = before.ins
        along = weighted(before).along_outputs(factor, constants[w])
        constants[w], constants[b] = constants[w] / along, constants[b] / factor
        for node in after:
            w = node.ins[1]
            constants[w] = constants[w] * weighted(node).along_inputs(factor, constants[w])
    return replace(graph, constants=constants)


def _links(graph: Graph) -> list[tuple[Node, tuple[Node, ...]]]:
    """Return layers with unshared weights, each with its readers, all of which can exchange factors with it."""
    held = Counter(v for node in graph.nodes for v in node.ins if v in graph.constants)
    read_by = readers(graph)

    def unshared(node: Node) -> bool:
        return all(held[v] == 1 for v in node.ins[1:])

    links = []
    for node in graph.nodes:
        if isinstance(node.op, Weighted) and node.op.activation in HOMOGENEOUS and unshared(node):
            after = _layers_after(graph, read_by, node.out)
            if after and all(unshared(other) for other in after):
                links.append((node, after))
    return links


def _layers_after(graph: Graph, read_by: Mapping[Value, tuple[Node, ...]], value: Value) -> tuple[Node, ...]:
    """Return the layers that read a map; none if a channel's factor would reach something else."""
    found: list[Node] = []
    reached = [value]
    for at in reached:
        if at in graph.outputs:
            return ()
        for node in read_by.get(at, ()):
            if isinstance(node.op, Weighted) and at not in node.ins[1:]:
                found.append(node)
                continue
            # A positive factor on a channel of one input becomes the same factor on the output's channel.
            alike = len({v.type.shape[-1:] for v in (*node.ins, *node.outs)}) == 1
            passes = isinstance(node.op, ops.Mean | ops.Activate | ops.Mul | ops.AvgPool | ops.MaxPool)
            passes = passes and getattr(node.op, "activation", "none") in HOMOGENEOUS
            if not alike or not passes or sum(v in reached for v in node.ins) != 1:  # not a product with itself
                return ()
            reached.append(node.out)
    return () if any(weighted(node).groups > 1 for node in found) else tuple(found)


def _channel_maxima(graph: Graph, samples: Array, wanted: set[Value], passes: Passes) -> dict[Value, Array]:
    """Return the largest magnitude in each channel."""

    def look(value: Value, array: Array) -> Array | None:
        return np.abs(array).max(axis=tuple(range(array.ndim - 1))) if value in wanted else None

    largest: dict[Value, Array] = {}
    for part in passes.look(graph, samples, look, "equalising"):
        for value, found in part.items():
            largest[value] = np.maximum(largest.get(value, 0), found)
    return largest


def _factor(after: tuple[Node, ...], constants: dict[Value, Array], largest: Array) -> Array:
    """Return the divisor of each channel; 1 for a dead channel."""
    mixing = [node for node in after if weighted(node).mixes_channels]
    if not mixing:
        wanted = largest / (largest.max() or 1.0)
    else:
        # The largest weight on each channel that a layer reads, as a share of the largest on any.
        held = [np.abs(constants[node.ins[1]]) for node in mixing]
        most = [weights.max(axis=tuple(range(weights.ndim - 1))) for weights in held]
        weights = np.max([part / (part.max() or 1.0) for part in most], axis=0)
        wanted = np.sqrt(largest / np.where(weights > 0, weights, 1))
        wanted = np.where(weights > 0, wanted, 0)
        wanted /= np.median(wanted[wanted > 0]) if (wanted > 0).any() else 1.0
    half = np.sqrt(np.where(wanted > 0, wanted, 1.0))
    return np.asarray(np.clip(half, 1 / LARGEST_FACTOR, LARGEST_FACTOR), np.float32)
