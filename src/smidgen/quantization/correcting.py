"""Bias correction: the mean error that rounding leaves in each channel is subtracted from its bias."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from smidgen.ir import Array, Graph, Node, Value
from smidgen.ops.weighted import Weighted, weighted
from smidgen.quantization.batch import accumulate, run_node
from smidgen.quantization.int8 import LARGEST_BIAS


def correct_biases(real: Graph, rounded: Graph, samples: Array, integers: Array) -> Graph:
    """The int8 graph with corrected biases, layer by layer, with all earlier layers already corrected.

    `samples` are the input of the float graph, `integers` the same as int8. Errors are taken before the activation.
    """
    float_node = {node.out.name: node for node in real.nodes}
    constants = dict(rounded.constants)
    graph = replace(rounded, constants=constants)
    reals, ints = _Values(real, samples), _Values(graph, integers)
    for node in rounded.nodes:
        twin = float_node.get(node.out.name)
        if twin is None:
            ints.run(node)
        elif isinstance(node.op, Weighted):
            sums, wanted = accumulate(node, *ints.of(node)), accumulate(twin, *reals.of(twin))
            off = _mean_error(node, sums, wanted)
            constants[node.ins[2]] = _clip_bias(constants[node.ins[2]] - off)
            ints.keep(node, node.op.finish(node, sums - off))
            reals.keep(twin, weighted(twin).finish(twin, wanted))
        else:
            ints.run(node)
            reals.run(twin)
    return graph


def _mean_error(node: Node, sums: Array, wanted: Array) -> Array:
    """The mean error of each channel in steps of its accumulator."""
    w = node.ins[1].type.q
    assert w is not None
    step = node.ins[0].type.scale * np.array(w.scale)
    axes = tuple(range(sums.ndim - 1))
    errors = sums.mean(axis=axes) - wanted.mean(axis=axes, dtype=np.float64) / step
    steps: Array = np.rint(np.clip(errors, -LARGEST_BIAS, LARGEST_BIAS)).astype(np.int64)
    return steps


def _clip_bias(bias: Array) -> Array:
    return np.clip(bias, -2 * LARGEST_BIAS, 2 * LARGEST_BIAS).astype(np.int32)


class _Values:
    """The values of a graph under way, each kept until its last reader has run."""

    def __init__(self, graph: Graph, samples: Array) -> None:
        self.graph, self.left = graph, Counter(v for node in graph.nodes for v in set(node.ins))
        self.values: dict[Value, Array] = {graph.inputs[0]: samples}

    def of(self, node: Node) -> tuple[Array, ...]:
        return tuple(self.values[v] if v in self.values else self.graph.constants[v] for v in node.ins)

    def run(self, node: Node) -> None:
        self.keep(node, run_node(node, self.of(node), self.graph))

    def keep(self, node: Node, out: Array) -> None:
        self.values[node.out] = out
        for value in set(node.ins):
            self.left[value] -= 1
            if not self.left[value]:
                self.values.pop(value, None)
