"""Calibration: the range each tensor takes on real samples, by one of four methods."""

import math
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import numpy as np

from smidgen.errors import SmidgenError
from smidgen.ir import Array, Graph, Node, QParams, Value
from smidgen.ir.rewriting import readers, uses
from smidgen.ops.lookup import Lookup
from smidgen.ops.lstm import MOST_BITS, Lstm
from smidgen.quantization.batch import Passes

Method = Literal["minmax", "average", "percentile", "mse"]
METHODS: tuple[Method, ...] = get_args(Method)
BINS = 2048  # of a histogram
STEPS = 255  # of an int8 range
CLIPS = np.linspace(0.3, 1.0, 71)  # shares of the range that `mse` tries
NARROWEST = 1e-6  # of a range: a tensor that never leaves zero gets at least this
POINTS = 1 << 14  # at which a function is looked at
FLAT = 0.25  # steps of its output within which a function counts as constant
ROOM = 2.0  # a cell state may become this many times as large as on the samples

Range = tuple[float, float]


class QuantizationError(SmidgenError):
    """A graph, or the samples it is to be calibrated with, cannot be quantized."""


def calibrate(graph: Graph, samples: Array, method: Method, percentile: float, passes: Passes) -> dict[Value, Range]:
    """Return the range of the input and of every node's output.

    `minmax` takes the extremes of all samples, `average` the mean of each sample's extremes; `percentile` keeps
    the given share of the elements and clips the rest, half at either end; `mse` clips where the squared error of
    rounding and clipping together is least. Outputs are never clipped: the largest of them decides. A value
    that only a function reads gets the range in which that function is not constant.
    """
    extremes = _extremes(graph, samples, passes)
    whole = {v: (float(low.min()), float(high.max())) for v, (low, high) in extremes.items()}
    ranges = _without_flat_ends(graph, whole)
    outputs = {v: ranges[v] for v in graph.outputs}
    if method == "minmax":
        return ranges
    if method == "average":
        means = {v: (float(low.mean()), float(high.mean())) for v, (low, high) in extremes.items()}
        return _without_flat_ends(graph, means) | outputs
    counts = _histograms(graph, samples, ranges, passes)
    choose = _least_error_range if method == "mse" else partial(_percentile_range, (1 - percentile / 100) / 2)
    return {v: choose(*ranges[v], counts[v]) if counts[v].any() else ranges[v] for v in ranges} | outputs


def functions_of(graph: Graph) -> dict[str, Lookup]:
    """Return the functions that are the only reader of a value, by the value's name."""
    used = uses(graph)
    return {n.ins[0].name: n.op for n in graph.nodes if isinstance(n.op, Lookup) and used[n.ins[0]] == 1}


def _without_flat_ends(graph: Graph, ranges: dict[Value, Range]) -> dict[Value, Range]:
    """Cut off the ends where the only reader, a function, is constant: hard-sigmoid outside of ±3."""
    functions = functions_of(graph)
    found = dict(ranges)
    for node in graph.nodes:
        value = node.ins[0]
        if value in graph.inputs or (function := functions.get(value.name)) is None:
            continue
        (low, high), (least, most) = ranges[value], ranges[node.out]
        x = np.linspace(low, high, POINTS)
        y = function.real(x)
        # The last index from either end up to which all results are close to each other.
        spreads = (np.maximum.accumulate(part) - np.minimum.accumulate(part) for part in (y, y[::-1]))
        flat = [int(np.searchsorted(one, FLAT * (most - least) / STEPS, "right")) - 1 for one in spreads]
        if sum(flat) < POINTS - 1:
            found[value] = float(x[flat[0]]), float(x[POINTS - 1 - flat[1]])
    return found


def _extremes(graph: Graph, samples: Array, passes: Passes) -> dict[Value, tuple[Array, Array]]:
    """Return the least and largest element of every value, sample by sample."""

    def look(value: Value, array: Array) -> tuple[Array, Array]:
        flat = array.reshape(len(array), -1)
        low, high = flat.min(axis=1), flat.max(axis=1)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise QuantizationError(f"%{value.name} of {graph.name} is not finite on the samples given; fix the model")
        return low, high

    parts = list(passes.look(graph, samples, look, "calibrating"))
    joined = {v: [np.concatenate(ends) for ends in zip(*(part[v] for part in parts), strict=True)] for v in parts[0]}
    return {v: (low, high) for v, (low, high) in joined.items()}


def _histograms(graph: Graph, samples: Array, ranges: dict[Value, Range], passes: Passes) -> dict[Value, Array]:
    """Return how many elements of every value lie in each part of its range."""

    def count(value: Value, array: Array) -> Array | None:
        low, high = ranges[value]
        if high <= low:
            return None
        bins = ((array.reshape(-1) - low) * ((BINS - 1e-3) / (high - low))).astype(np.int64)
        return np.bincount(np.clip(bins, 0, BINS - 1), minlength=BINS)

    counts = {v: np.zeros(BINS, np.int64) for v in ranges}
    for part in passes.look(graph, samples, count, "counting"):
        for value, found in part.items():
            counts[value] += found
    return counts


def _percentile_range(out: float, low: float, high: float, counts: Array) -> Range:
    """Return the range that leaves a share of the elements out at either end."""
    below = np.cumsum(counts) / counts.sum()
    first, last = int(np.searchsorted(below, out, "right")), int(np.searchsorted(below, 1 - out))
    width = (high - low) / BINS
    return low + first * width, low + (min(last, BINS - 1) + 1) * width


def _least_error_range(low: float, high: float, counts: Array) -> Range:
    """Return the range, zero included, whose rounding and clipping errors together are least."""
    centres = low + (np.arange(BINS) + 0.5) * ((high - low) / BINS)
    ends = min(low, 0.0), max(high, 0.0)
    shares = [(share, share) for share in CLIPS]  # of either end: both by the same, and each alone
    if ends[0] < 0 < ends[1]:
        shares += [pair for share in CLIPS for pair in ((1.0, share), (share, 1.0))]
    candidates = {(ends[0] * a, ends[1] * b) for a, b in shares}

    def error(range: Range) -> float:
        step = (range[1] - range[0]) / STEPS
        cut = centres - np.clip(centres, *range)
        return float((counts * (cut**2 + np.where(cut == 0, step**2 / 12, 0))).sum())

    return min(sorted(candidates, reverse=True), key=error)


def scale_of(range: Range) -> QParams:
    """Return the int8 quantization of a range, which is widened to hold zero."""
    low, high = min(range[0], 0.0), max(range[1], 0.0)
    width = max(high - low, NARROWEST)
    zero = int(np.clip(np.floor(-128 - low / (width / STEPS) + 0.5), -128, 127))
    return QParams.per_tensor(width / STEPS, zero)


def fit_cells(graph: Graph, samples: Array, passes: Passes) -> Graph:
    """Return the graph with as many bits before the point of every LSTM cell state as the samples need."""
    if not any(isinstance(node.op, Lstm) for node in graph.nodes):
        return graph
    read_by = readers(graph)

    def look(value: Value, array: Array) -> dict[Value, float] | None:
        found: dict[Value, float] = {}
        for node in read_by.get(value, ()):
            if isinstance(node.op, Lstm):
                w, u, b = (graph.constants[v] for v in node.ins[1:])
                steps = (node.op.steps(node, node.out.type, x[0], w, u, b) for x in array)
                found[node.out] = max(float(np.abs(step.state).max()) for sample in steps for step in sample)
        return found or None

    largest: dict[Value, float] = {}
    for part in passes.look(graph, samples, look, "looking at cells"):
        for value, size in (pair for found in part.values() for pair in found.items()):
            largest[value] = max(largest.get(value, 0.0), size)

    def fitted(node: Node) -> Node:
        if not isinstance(node.op, Lstm):
            return node
        bits = math.ceil(math.log2(max(ROOM * largest.get(node.outs[0], 1.0), 1.0)))
        return replace(node, op=replace(node.op, bits=min(bits, MOST_BITS)))

    return replace(graph, nodes=tuple(map(fitted, graph.nodes)))
