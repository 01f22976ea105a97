"""Passes over float graphs that leave fewer and simpler layers; each keeps what the graph computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from smidgen.ir import Array, Builder, Graph, Node, Op, Value
from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.ops.dense import Dense
from smidgen.ops.elementwise import Activate, Add, Mul
from smidgen.ops.norm import BatchNorm
from smidgen.ops.pool import AvgPool, MaxPool
from smidgen.ops.shape import Concat, Pad, Reshape, Transpose

Linear = Conv2D | Depthwise | Dense
Fusing = Conv2D | Depthwise | Dense | Add | Mul | AvgPool | MaxPool  # ops with an activation of their own
Rule = Callable[["Site", Node], Value | None]


class Site:
    """A graph being emitted anew: a rule says what takes a node's place, or None for the node itself."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.g = graph, Builder(graph.name, graph.preprocessing)
        self.producer: Mapping[Value, Node] = {v: node for node in graph.nodes for v in node.outs}
        self.values: dict[Value, Value] = {v: self.g.input(v.name, v.type) for v in graph.inputs}
        for value, data in graph.constants.items():
            self.values[value] = self.g.constant(value.name, data)

    def emit(self, op: Op, *ins: Value, name: str) -> Value:
        """A node on values of the old graph or of the new."""
        return self.g.emit(op, *(self.values.get(v, v) for v in ins), name=name)

    def layer(self, op: Op, x: Value, w: Array, b: Array, name: str) -> Value:
        """A linear layer with new weights."""
        weights = self.g.constant(f"{name}.w", w.astype(np.float32))
        return self.emit(op, x, weights, self.g.constant(f"{name}.b", b.astype(np.float32)), name=name)


def rewrite(graph: Graph, rule: Rule, absorbed: set[int] | None = None) -> Graph:
    """Emit a graph anew by a rule, without the nodes (by identity) that others absorb."""
    site = Site(graph)
    for node in graph.nodes:
        if absorbed and id(node) in absorbed:
            continue
        made = rule(site, node)
        if made is None:
            outs = site.g.emit_all(node.op, *(site.values[v] for v in node.ins), name=node.outs[0].name)
            site.values.update(zip(node.outs, outs, strict=True))
        else:
            site.values[node.out] = made
    return site.g.graph(*(site.values[v] for v in graph.outputs))


def drop_idle(graph: Graph) -> Graph:
    """Leave out what changes nothing: reshapes to the same shape, pads of nothing, one reshape after another."""

    def rule(site: Site, node: Node) -> Value | None:
        op, x = node.op, site.values[node.ins[0]]
        idle = (
            (isinstance(op, Reshape) and op.shape == x.type.shape)
            or (isinstance(op, Transpose) and op.perm == tuple(range(len(op.perm))))
            or (isinstance(op, Pad) and not any((*op.before, *op.after)))
            or (isinstance(op, Activate) and op.activation == "none")
            or (isinstance(op, Concat) and len(node.ins) == 1)
        )
        return x if idle else None

    return rewrite(graph, rule)


def fold_pads(graph: Graph) -> Graph:
    """Zeros around a map become the padding of the convolution that reads it."""
    absorbed = {
        id(before)
        for node in graph.nodes
        if (before := _producer(graph, node)) is not None and _pads(before) and _all_fold(graph, before)
    }

    def rule(site: Site, node: Node) -> Value | None:
        before = site.producer.get(node.ins[0])
        if before is None or id(before) not in absorbed:
            return None
        assert isinstance(before.op, Pad)
        assert isinstance(node.op, Conv2D | Depthwise)
        (top, left), (bottom, right) = before.op.before[1:3], before.op.after[1:3]
        pads = zip(node.op.pad, (top, bottom, left, right), strict=True)
        t, b, le, r = (p + q for p, q in pads)
        return site.emit(replace(node.op, pad=(t, b, le, r)), before.ins[0], *node.ins[1:], name=node.out.name)

    return rewrite(graph, rule, absorbed)


def _producer(graph: Graph, node: Node) -> Node | None:
    return next((other for other in graph.nodes if node.ins[0] in other.outs), None)


def _pads(node: Node) -> bool:
    """Whether a node adds rows and columns of zeros alone."""
    op = node.op
    return isinstance(op, Pad) and len(op.before) == 4 and not any((*op.before[::3], *op.after[::3]))


def _all_fold(graph: Graph, pad: Node) -> bool:
    """Whether only convolutions read it, as their map."""
    readers = [node for node in graph.nodes if pad.out in node.ins]
    return pad.out not in graph.outputs and all(
        isinstance(node.op, Conv2D | Depthwise) and pad.out not in node.ins[1:] for node in readers
    )


def crop_kernels(graph: Graph) -> Graph:
    """Rows and columns of a kernel that meet padding alone, wherever it stands, are cut off: no scale serves them."""

    def rule(site: Site, node: Node) -> Value | None:
        op = node.op
        if not isinstance(op, Conv2D | Depthwise) or (held := _weights(graph, node)) is None:
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
        return site.layer(op, node.ins[0], w[:, first:end, left:right], b, node.out.name)

    return rewrite(graph, rule)


def _met(side: int, out: int, size: int, stride: int, dilation: int, before: int, after: int) -> tuple[int, int]:
    """The first and the end of a kernel's taps along one side, without those at its ends that never meet the map."""
    met = [any(0 <= o * stride + tap * dilation - before < side for o in range(out)) for tap in range(size)]
    first, end = 0, size
    while end - first > 1 and not met[first] and before >= dilation:
        first, before = first + 1, before - dilation
    while end - first > 1 and not met[end - 1] and after >= dilation:
        end, after = end - 1, after - dilation
    return first, end


@dataclass(frozen=True, eq=False)
class Affine:
    """y = x · scale + shift on the last axis, then an activation: what a batch norm, a product or a sum comes to."""

    x: Value
    scale: Array
    shift: Array
    activation: str = "none"


def affine(graph: Graph, node: Node) -> Affine | None:
    """A node as an affine map by constants, where it is one."""
    op, channels = node.op, node.ins[0].type.shape[-1] if node.ins[0].type.shape else 1
    if isinstance(op, BatchNorm):
        held = [graph.constants.get(v) for v in node.ins[1:]]
        return None if held[0] is None or held[1] is None else Affine(node.ins[0], held[0], held[1])
    if not isinstance(op, Mul | Add) or node.out.type.dtype != "float32":
        return None
    data = graph.constants.get(node.ins[1])
    if data is None or node.ins[0] in graph.constants or data.size not in (1, data.shape[-1] if data.ndim else 1):
        return None
    along = np.broadcast_to(data.reshape(-1), (channels,))
    one, none = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    scale, shift = (along, none) if isinstance(op, Mul) else (one, along)
    return Affine(node.ins[0], scale, shift, op.activation)


def fold_back(graph: Graph) -> Graph:
    """Affine maps join the convolution, depthwise or dense layer before them."""
    pairs = _joined(graph, lambda before, node: affine(graph, node) is not None)

    def rule(site: Site, node: Node) -> Value | None:
        if (before := pairs.get(id(node))) is None:
            return None
        found, held = affine(graph, node), _weights(graph, before)
        assert found is not None
        assert held is not None
        w, b = held
        scale = found.scale.astype(np.float64)
        along = scale if isinstance(before.op, Depthwise) else scale.reshape(-1, *(1,) * (w.ndim - 1))
        op = replace(before.op, activation=found.activation)  # type: ignore[call-arg]
        return site.layer(op, before.ins[0], w * along, b * scale + found.shift, before.out.name)

    return rewrite(graph, rule, {id(before) for before in pairs.values()})


def _joined(graph: Graph, fits: Callable[[Node, Node], bool]) -> dict[int, Node]:
    """Nodes (by identity) that can join the linear layer before them, which nobody else reads, and that layer."""
    readers = Counter(v for node in graph.nodes for v in node.ins) + Counter(graph.outputs)
    producer = {v: node for node in graph.nodes for v in node.outs}
    found = {}
    for node in graph.nodes:
        before = producer.get(node.ins[0])
        if before is None or readers[node.ins[0]] != 1 or not isinstance(before.op, Linear):
            continue
        if before.op.activation == "none" and _weights(graph, before) is not None and fits(before, node):
            found[id(node)] = before
            producer.pop(node.outs[0], None)  # one map at a time: the next joins in the next round
    return found


def _weights(graph: Graph, node: Node) -> tuple[Array, Array] | None:
    """A linear layer's weights and bias in double, where they are constants."""
    w, b = (graph.constants.get(v) for v in node.ins[1:3])
    return None if w is None or b is None else (w.astype(np.float64), b.astype(np.float64))


def fold_forward(graph: Graph) -> Graph:
    """Affine maps that only linear layers read join those, where no padding would feel the shift."""
    maps = {node.out: found for node in graph.nodes if (found := affine(graph, node)) and found.activation == "none"}
    readers = {value: [node for node in graph.nodes if value in node.ins] for value in maps}
    gone = {
        value
        for value, found in maps.items()
        if value not in graph.outputs and all(_takes(graph, node, value, found) for node in readers[value])
    }

    def rule(site: Site, node: Node) -> Value | None:
        if node.ins[0] not in gone or not isinstance(node.op, Linear):
            return None
        found, held = maps[node.ins[0]], _weights(graph, node)
        assert held is not None
        w, b = held
        return site.layer(node.op, found.x, *_after(node, found, w, b), node.out.name)

    return rewrite(graph, rule, {id(node) for node in graph.nodes if node.out in gone})


def _takes(graph: Graph, node: Node, value: Value, found: Affine) -> bool:
    op = node.op
    if not isinstance(op, Linear) or value in node.ins[1:] or _weights(graph, node) is None:
        return False
    return isinstance(op, Dense) or not any(op.pad) or not np.any(found.shift)


def _after(node: Node, found: Affine, w: Array, b: Array) -> tuple[Array, Array]:
    """Weights and bias of a layer that reads x instead of x · scale + shift."""
    scale, shift = found.scale.astype(np.float64), found.shift.astype(np.float64)
    if isinstance(node.op, Depthwise):
        times = w.shape[3] // len(scale)
        scale, shift = np.repeat(scale, times), np.repeat(shift, times)
        return w * scale, b + (w * shift).sum(axis=(0, 1, 2))
    if isinstance(node.op, Conv2D) and node.op.groups > 1:
        wide, each = w.shape[3], w.shape[0] // node.op.groups
        group = np.arange(w.shape[0]) // each
        scale, shift = (n.reshape(-1, wide)[group][:, None, None] for n in (scale, shift))
    return w * scale, b + (w * shift).sum(axis=tuple(range(1, w.ndim)))


def settle_affine(graph: Graph) -> Graph:
    """Affine maps that are left become 1×1 depthwise layers on maps, a product and a sum elsewhere."""

    def rule(site: Site, node: Node) -> Value | None:
        found = affine(graph, node)
        if found is None:
            return None
        name, shape = node.out.name, found.x.type.shape
        if len(shape) == 4 and shape[0] == 1:
            op = Depthwise(activation=found.activation)
            return site.layer(op, found.x, found.scale.reshape(1, 1, 1, -1), found.shift, name)
        if not isinstance(node.op, BatchNorm):
            return None
        scale, shift = (site.g.constant(f"{name}.{n}", a) for n, a in (("scale", found.scale), ("shift", found.shift)))
        return site.emit(Add(), site.emit(Mul(), found.x, scale, name=f"{name}.scaled"), shift, name=name)

    return rewrite(graph, rule)


def fuse_activations(graph: Graph) -> Graph:
    """An activation joins the op before it, where nobody reads what lies between."""
    readers = Counter(v for node in graph.nodes for v in node.ins) + Counter(graph.outputs)
    producer = {v: node for node in graph.nodes for v in node.outs}
    pairs = {
        id(node): before
        for node in graph.nodes
        if isinstance(node.op, Activate)
        and (before := producer.get(node.ins[0])) is not None
        and isinstance(before.op, Fusing)
        and before.op.activation == "none"
        and readers[node.ins[0]] == 1
    }

    def rule(site: Site, node: Node) -> Value | None:
        if (before := pairs.get(id(node))) is None:
            return None
        assert isinstance(node.op, Activate)
        op = replace(before.op, activation=node.op.activation)  # type: ignore[call-arg]
        return site.emit(op, *before.ins, name=before.out.name)

    return rewrite(graph, rule, {id(before) for before in pairs.values()})


FOLDS: tuple[Callable[[Graph], Graph], ...] = (
    drop_idle, fold_pads, fold_back, fold_forward, fold_back, settle_affine, fuse_activations, crop_kernels, drop_idle,
)  # fmt: skip


def fold(graph: Graph) -> Graph:
    """All of them in order, again until nothing changes."""
    count = 0
    while count != len(graph.nodes):
        count = len(graph.nodes)
        for one in FOLDS:
            graph = one(graph)
    return graph
