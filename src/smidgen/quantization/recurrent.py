"""Room for the cell states of recurrent layers, as far as samples tell."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from smidgen.ir import Array, Graph, Node, Value
from smidgen.ir.rewriting import readers
from smidgen.ops.lstm import MOST_BITS, Lstm
from smidgen.quantization.batch import run_batch
from smidgen.quantization.calibration import ProgressCallback, each_batch

ROOM = 2.0  # a cell state may become so many times larger than on the samples


def fit_cells(graph: Graph, samples: Array, on_progress: ProgressCallback, threads: int = 1) -> Graph:
    """The graph with as many bits before the point of every cell state as the samples need."""
    if not any(isinstance(node.op, Lstm) for node in graph.nodes):
        return graph
    read_by = readers(graph)

    def run(places: slice) -> dict[Value, float]:
        found: dict[Value, float] = {}

        def look(value: Value, array: Array) -> None:
            for node in read_by.get(value, ()):
                if isinstance(node.op, Lstm):
                    w, u, b = (graph.constants[v] for v in node.ins[1:])
                    cells = (node.op.states(node, x[0], w, u, b)[1] for x in array)
                    found[node.out] = max(float(np.abs(c).max()) for c in cells)

        run_batch(graph, samples[places], look)
        return found

    largest: dict[Value, float] = {}
    for part in each_batch(run, len(samples), "looking at cells", on_progress, threads):
        for value, found in part.items():
            largest[value] = max(largest.get(value, 0.0), found)
    return replace(graph, nodes=tuple(_fitted(node, largest.get(node.outs[0], 1.0)) for node in graph.nodes))


def _fitted(node: Node, largest: float) -> Node:
    if not isinstance(node.op, Lstm):
        return node
    bits = math.ceil(math.log2(max(ROOM * largest, 1.0)))
    return replace(node, op=replace(node.op, bits=min(bits, MOST_BITS)))
