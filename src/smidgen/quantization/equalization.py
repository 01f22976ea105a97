"""Cross-layer equalization: channels of very different ranges are brought closer where that changes no result.

y = B · f(A x) is the same when channel i of A is divided by s and what reads it in B multiplied, as long as
f(s·x) = s·f(x): so for no activation and for ReLU, and for pools, means and gates on the way. ReLU6 has no such s and
is left alone.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from smidgen.ir import Array, Graph, Node, Value
from smidgen.ir.rewriting import readers
from smidgen.ops import Activate, AvgPool, MaxPool, Mean, Mul
from smidgen.ops.weighted import Weighted, weighted
from smidgen.quantization.batch import Passes

HOMOGENEOUS = ("none", "relu")
LARGEST_FACTOR = 32.0  # a channel is never scaled by more: dead ones stay numbers


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
            passes = isinstance(node.op, Mean | Activate | Mul | AvgPool | MaxPool)
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
