"""Many samples at once in numpy: the values `ir.evaluate` gives one by one, with sums left to BLAS.

A batch of a tensor has one axis more, in front: [samples, *shape]. Constants have none. int8 results are the
reference's byte for byte; float32 sums are taken in another order and differ in their last bits.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

import numpy as np

from smidgen.callbacks import ignore
from smidgen.errors import InputError
from smidgen.ir import Array, Graph, Node, Value
from smidgen.ops import AvgPool, BatchNorm, MaxPool, Mean
from smidgen.ops.weighted import Weighted, Windowed, weighted
from smidgen.ops.window import Window
from smidgen.threads import in_order

Result = TypeVar("Result")
ProgressCallback = Callable[["QuantizationProgress"], None]
EXACT = 1 << 24  # float32 adds whole numbers below this without rounding
BATCH = 8  # samples at once


@dataclass(frozen=True)
class QuantizationProgress:
    """The stage under way, and how many samples of how many are done."""

    doing: str
    done: int
    total: int


@dataclass(frozen=True)
class Passes:
    """Passes over samples, a few at a time, shared out among threads."""

    on_progress: ProgressCallback = ignore
    threads: int = 1

    def each(self, function: Callable[[slice], Result], count: int, doing: str) -> Iterator[Result]:
        """Yield function(places) of a few samples at a time, in their order; `on_progress` is called for each batch."""
        places = [slice(at, min(at + BATCH, count)) for at in range(0, count, BATCH)]
        self.on_progress(QuantizationProgress(doing, 0, count))
        with closing(in_order(function, places, self.threads)) as results:
            for batch, result in zip(places, results, strict=True):
                yield result
                self.on_progress(QuantizationProgress(doing, batch.stop, count))

    def look(
        self, graph: Graph, samples: Array, look: Callable[[Value, Array], Result | None], doing: str
    ) -> Iterator[dict[Value, Result]]:
        """Yield what `look` finds in each value of the graph, a few samples at a time."""
        return self.each(lambda places: look_at(graph, samples[places], look), len(samples), doing)


def run_batch(graph: Graph, samples: Array, visit: Callable[[Value, Array], None]) -> None:
    """Run the graph on samples of its one input, [samples, *shape]; `visit` sees each value as it is computed.

    A value is forgotten once its last reader has run.
    """
    if len(graph.inputs) != 1 or samples.shape[1:] != graph.inputs[0].type.shape:
        raise InputError(f"{graph.name} cannot be run on samples of {list(samples.shape[1:])}; it takes one input")
    values = Values(graph, samples)
    visit(graph.inputs[0], samples)
    for node in graph.nodes:
        visit(node.out, values.run(node))


class Values:
    """The values of a graph under way, each kept until its last reader has run."""

    def __init__(self, graph: Graph, samples: Array) -> None:
        self.graph, self.left = graph, Counter(v for node in graph.nodes for v in set(node.ins))
        self.values = {graph.inputs[0]: samples}

    def of(self, node: Node) -> tuple[Array, ...]:
        """Return a node's inputs."""
        held = (self.values, self.graph.constants, self.graph.state)
        return tuple(next(arrays[v] for arrays in held if v in arrays) for v in node.ins)

    def run(self, node: Node) -> Array:
        out = run_node(node, self.of(node), self.graph)
        self.keep(node, out)
        return out

    def keep(self, node: Node, out: Array) -> None:
        """Keep a node's output, and drop the inputs that nothing else reads."""
        self.values[node.out] = out
        for value in set(node.ins):
            self.left[value] -= 1
            if not self.left[value]:
                self.values.pop(value, None)


def look_at(graph: Graph, samples: Array, look: Callable[[Value, Array], Result | None]) -> dict[Value, Result]:
    """Run the graph on samples and return what `look` finds in each value, values without a finding left out."""
    found: dict[Value, Result] = {}

    def visit(value: Value, array: Array) -> None:
        if (result := look(value, array)) is not None:
            found[value] = result

    run_batch(graph, samples, visit)
    return found


def scores_of(graph: Graph, samples: Array) -> Array:
    """Run the graph on samples and return its scores, [samples, classes]."""
    found = look_at(graph, samples, lambda v, array: array if v == graph.scores else None)[graph.scores]
    return found.reshape(len(found), -1)


def run_node(node: Node, arrays: tuple[Array, ...], graph: Graph) -> Array:
    """Run one node on a batch; inputs that the graph holds come without the axis of samples."""
    held = tuple(v in graph.constants or v in graph.state for v in node.ins)
    if isinstance(node.op, Weighted) and held == (False, True, True):
        return node.op.finish(node, accumulate(node, *arrays))
    if isinstance(node.op, MaxPool | AvgPool | Mean) and not held[0]:
        return _as_channels(node, arrays[0])
    if (node.op.elementwise or isinstance(node.op, BatchNorm)) and not held[0]:
        return _elementwise(node, arrays, held)
    # One sample at a time; a node of constants alone is computed once for all.
    count = next((len(a) for a, kept in zip(arrays, held, strict=True) if not kept), 1)
    shown = ((a if kept else a[i] for a, kept in zip(arrays, held, strict=True)) for i in range(count))
    return np.stack([np.asarray(node.op.ref(node, *one)) for one in shown])


def accumulate(node: Node, x: Array, w: Array, b: Array) -> Array:
    """Return the sums of a convolution or dense layer, bias included, before they are limited or requantized."""
    op, whole = weighted(node), x.dtype == np.int8
    wide = np.dtype(np.float64 if whole and op.taps(w) * 128 * 255 >= EXACT else np.float32)
    shifted: Array = x.astype(wide) - np.array(node.ins[0].type.zero, wide) if whole else x
    if not isinstance(op, Windowed):
        acc = shifted @ w.T.astype(wide)
    else:
        taps = _taps(shifted[:, 0], op.window(node.ins[1].type))
        acc = _convolve(taps, w.astype(wide), op.groups) if op.mixes_channels else _depthwise(taps, w.astype(wide))
        acc = acc[:, None]
    return np.asarray((acc.astype(np.int64) if whole else acc) + b)


def _taps(x: Array, window: Window) -> Iterator[Array]:
    """Yield for each tap of the kernel the elements it meets at every step: [samples, rows, columns, c]."""
    top, bottom, left, right = window.pad
    if any(window.pad):
        x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    (sy, sx), (dy, dx) = window.stride, window.dilation
    rows = (x.shape[1] - window.reach[0]) // sy + 1
    columns = (x.shape[2] - window.reach[1]) // sx + 1
    for i in range(window.size[0]):
        for j in range(window.size[1]):
            y0, x0 = i * dy, j * dx
            yield x[:, y0 : y0 + (rows - 1) * sy + 1 : sy, x0 : x0 + (columns - 1) * sx + 1 : sx]


def _convolve(each: Iterator[Array], w: Array, groups: int) -> Array:
    """Multiply windows laid out in rows by the weights: one matrix product per group."""
    count, wide, taps = w.shape[0] // groups, w.shape[3], list(each)
    n, rows, columns, _ = taps[0].shape
    out = np.empty((n, rows, columns, w.shape[0]), w.dtype)
    for g in range(groups):
        parts = [tap[..., g * wide : (g + 1) * wide] for tap in taps]
        laid = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=3)
        weights = w[g * count : (g + 1) * count].reshape(count, -1)
        product = np.ascontiguousarray(laid).reshape(-1, weights.shape[1]) @ weights.T
        out[..., g * count : (g + 1) * count] = product.reshape(n, rows, columns, count)
    return out


def _depthwise(taps: Iterator[Array], w: Array) -> Array:
    each = zip(taps, w.reshape(-1, w.shape[3]), strict=True)
    parts = (np.repeat(tap, w.shape[3] // tap.shape[3], axis=3) * weights for tap, weights in each)
    return reduce(lambda acc, part: np.add(acc, part, out=acc), parts)


def _elementwise(node: Node, arrays: tuple[Array, ...], held: tuple[bool, ...]) -> Array:
    """Run an elementwise node; inputs that repeat along the first get their missing axes behind that of samples."""
    rank = len(node.ins[0].type.shape)
    fitted = [
        array if kept else array.reshape(len(array), *(1,) * (rank - len(v.type.shape)), *v.type.shape)
        for array, v, kept in zip(arrays, node.ins, held, strict=True)
    ]
    return np.asarray(node.op.ref(node, *fitted))


def _as_channels(node: Node, x: Array) -> Array:
    """Run a pool, which treats channels one by one, with the samples as more channels."""
    n, _, h, w, c = x.shape
    y = np.asarray(node.op.ref(node, np.ascontiguousarray(x[:, 0].transpose(1, 2, 0, 3)).reshape(1, h, w, n * c)))
    return np.ascontiguousarray(np.moveaxis(y.reshape(*y.shape[:-1], n, c), -2, 0))
