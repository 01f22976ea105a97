"""Cross-layer equalisation: channels of very different ranges are brought closer where that changes nothing.

y = B · f(A x) is the same when channel i of A is divided by s and what reads it in B multiplied, as long as
f(s·x) = s·f(x): so for no activation and for ReLU. ReLU6 has no such s and is left alone.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from smidgen.batch import run_batch
from smidgen.ir import Array, Graph, Node, Value
from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.ops.dense import Dense

HOMOGENEOUS = ("none", "relu")
MOST = 32.0  # a channel is never scaled by more: dead ones stay numbers
Linear = Conv2D | Depthwise | Dense


def equalise(graph: Graph, samples: Array) -> Graph:
    """Scale channels between layers that only feed each other, by the ranges they take on the samples.

    A depthwise layer has a scale for every channel it reads, so its inputs are given one range; for other layers the
    factor is the geometric mean between equal activations and equal weights.
    """
    pairs = _pairs(graph)
    largest = _largest(graph, samples, {before.out for before, _ in pairs})
    constants = dict(graph.constants)
    for before, after in pairs:
        factor = _factor(after, constants, largest[before.out])
        _divide(before, constants, factor)
        _multiply(after, constants, factor)
    return Graph(graph.inputs, graph.outputs, graph.nodes, constants, graph.name, preprocessing=graph.preprocessing)


def _pairs(graph: Graph) -> list[tuple[Node, Node]]:
    """Layers of which one alone reads the other, with weights of their own."""
    readers = Counter(v for node in graph.nodes for v in node.ins) + Counter(graph.outputs)
    producer = {v: node for node in graph.nodes for v in node.outs}
    found = []
    for after in graph.nodes:
        before = producer.get(after.ins[0])
        if before is None or readers[before.out] != 1 or not all(isinstance(n.op, Linear) for n in (before, after)):
            continue
        alone = all(v in graph.constants and readers[v] == 1 for n in (before, after) for v in n.ins[1:])
        plain = not isinstance(after.op, Conv2D) or after.op.groups == 1
        if alone and plain and before.op.activation in HOMOGENEOUS:  # type: ignore[attr-defined]
            found.append((before, after))
    return found


def _largest(graph: Graph, samples: Array, wanted: set[Value]) -> dict[Value, Array]:
    """The largest magnitude in each channel."""
    found: dict[Value, Array] = {}

    def look(value: Value, array: Array) -> None:
        if value in wanted:
            most = np.abs(array).max(axis=tuple(range(array.ndim - 1)))
            found[value] = np.maximum(found.get(value, 0), most)

    run_batch(graph, samples, look)
    return found


def _factor(after: Node, constants: dict[Value, Array], largest: Array) -> Array:
    """By what each channel is divided; 1 where it is dead."""
    w = np.abs(constants[after.ins[1]])
    if isinstance(after.op, Depthwise):
        wanted = largest / (largest.max() or 1.0)
    else:
        weights = w.max(axis=tuple(range(w.ndim - 1)))
        wanted = np.sqrt(largest / np.where(weights > 0, weights, 1))
        wanted = np.where(weights > 0, wanted, 0)
        wanted /= np.median(wanted[wanted > 0]) if (wanted > 0).any() else 1.0
    factor: Array = np.where(wanted > 0, np.clip(wanted, 1 / MOST, MOST), 1.0).astype(np.float32)
    return factor


def _divide(node: Node, constants: dict[Value, Array], factor: Array) -> None:
    _, w, b = node.ins
    along = factor if isinstance(node.op, Depthwise) else factor.reshape(-1, *(1,) * (len(w.type.shape) - 1))
    constants[w], constants[b] = constants[w] / along, constants[b] / factor


def _multiply(node: Node, constants: dict[Value, Array], factor: Array) -> None:
    w = node.ins[1]
    times = w.type.shape[3] // len(factor) if isinstance(node.op, Depthwise) else 1
    constants[w] = constants[w] * np.repeat(factor, times)
