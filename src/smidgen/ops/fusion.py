"""Passes that float and int8 graphs share: padding and activations join the layer beside them."""

from dataclasses import replace

import numpy as np

from smidgen.ir import Builder, Graph, Node, Value
from smidgen.ir.rewriting import fuse, producers, prune, rewrite, uses
from smidgen.ops.elementwise import Activate, Add, Mul
from smidgen.ops.pool import AvgPool, MaxPool
from smidgen.ops.recurrence import Recurrent
from smidgen.ops.shape import Crop, Pad, Reshape
from smidgen.ops.weighted import Weighted, Windowed

Fusing = Weighted | Add | Mul | AvgPool | MaxPool  # ops with a fused activation


def merge_pads(graph: Graph) -> Graph:
    """Turn zeros around a map into the padding of the convolutions that read it."""
    made_by = producers(graph)

    def rule(g: Builder, node: Node) -> Node | None:
        source = made_by.get(node.ins[0])
        if source is None or not isinstance(source.op, Pad) or not isinstance(node.op, Windowed):
            return None
        before, after = source.op.before, source.op.after
        if any((*before[::3], *after[::3])):  # of samples or channels
            return None
        top, bottom, left, right = node.op.pad
        pad = (top + before[1], bottom + after[1], left + before[2], right + after[2])
        return Node(replace(node.op, pad=pad), (*source.ins, *node.ins[1:]), node.outs)

    return prune(rewrite(graph, rule))


def fuse_activations(graph: Graph) -> Graph:
    """Join an activation with the op before it, where nobody else reads the value between and its scale is the same.

    A float layer keeps its name, by which reports call it; in int8 files the name that counts is the activation's.
    """

    def join(before: Node, node: Node) -> Node | None:
        fits = isinstance(before.op, Fusing) and before.op.activation == "none" and before.out.type == node.out.type
        if not fits or not isinstance(node.op, Activate):
            return None
        op = replace(before.op, activation=node.op.activation)  # type: ignore[call-arg]
        return Node(op, before.ins, before.outs if before.out.type.dtype == "float32" else node.outs)

    return fuse(graph, join)


def keep_last_states(graph: Graph) -> Graph:
    """Keep only the last state of a recurrent layer where no other is read."""
    made_by, used = producers(graph), uses(graph)

    def layer_before(value: Value) -> Node | None:
        """Return the layer whose states these are, where nobody else reads them."""
        made = made_by.get(value)
        if made is None or used[value] != 1:
            return None
        return layer_before(made.ins[0]) if made.op.view else made

    def rule(g: Builder, node: Node) -> Node | None:
        layer = layer_before(node.ins[0]) if isinstance(node.op, Crop) else None
        if layer is None or not isinstance(layer.op, Recurrent) or not layer.op.whole:
            return None
        x, cells = node.ins[0].type, layer.out.type.shape[-1]
        taken = np.asarray(node.op.ref(node, np.arange(x.size).reshape(x.shape))).ravel()
        if not np.array_equal(taken, np.arange(x.size - cells, x.size)):
            return None
        name = f"{node.out.name}.state"
        last = g.emit(replace(layer.op, whole=False), *layer.ins, q=layer.out.type.q, name=name)
        return Node(Reshape(node.out.type.shape), (last,), node.outs)

    return prune(rewrite(graph, rule))
