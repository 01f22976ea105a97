"""Shapes of small networks for windows and rows of numbers, and trained ones as int8 graphs that take raw numbers.

Channels of sensors differ in their units, so one int8 scale cannot hold them. The input is float32: a dense layer in
float32 standardizes each channel of a window, or is the first layer of a network for rows, and its output is int8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from smidgen.callbacks import ignore
from smidgen.fitting.float_network import Layer, Network
from smidgen.ir import Array, Builder, Graph, QParams, Type, Value
from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.ops.dense import Dense
from smidgen.ops.elementwise import Quantize
from smidgen.ops.pool import Mean
from smidgen.ops.shape import Reshape
from smidgen.quantization import QuantizationProgress, quantize
from smidgen.quantization.recipe import CALIBRATED

KERNEL = 5  # moments
FEWEST_MOMENTS = 8  # of a window; fewer are a row
HALVED = 4  # moments from which a layer still halves them
WINDOW_WIDTHS = ((8, 16), (16, 24, 32), (24, 32, 48), (16, 24, 32, 48), (32, 48, 64, 96))
ROW_WIDTHS = ((16, 16), (32, 16), (64, 32), (128, 64))
DENSE_WIDTHS = (32, 16)  # of the dense network over a whole window


@dataclass(frozen=True)
class Shape:
    """The layers of a network before the one that gives the scores."""

    name: str
    layers: tuple[Layer, ...]

    def with_head(self, outputs: int) -> tuple[Layer, ...]:
        return (*self.layers, Layer(outputs))


@dataclass(frozen=True, eq=False)
class Standard:
    """The mean and the deviation of each channel, by which numbers are standardized."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, x: Array) -> Standard:
        """Measure samples, [samples, moments, channels]; what never changes keeps its size."""
        flat = x.reshape(-1, x.shape[-1]).astype(np.float64)
        deviation = flat.std(axis=0)
        return cls(flat.mean(axis=0), np.where(deviation > 0, deviation, 1.0))

    def apply(self, x: Array) -> Array:
        return ((x - self.mean) / self.deviation).astype(np.float32)


def as_batch(samples: tuple[Array, ...]) -> Array:
    """Return samples as [samples, moments, channels]: windows, or rows of a single moment."""
    x = np.stack([np.squeeze(sample) for sample in samples]).astype(np.float32)
    return x if x.ndim == 3 and x.shape[1] >= FEWEST_MOMENTS else x.reshape(len(x), 1, -1)


def shapes_for(moments: int) -> tuple[Shape, ...]:
    """Return the shapes that are tried on windows of so many moments, or on rows, the smallest first."""
    if moments == 1:
        return tuple(Shape(_name("dense", widths), tuple(map(Layer, widths))) for widths in ROW_WIDTHS)
    first, *others = DENSE_WIDTHS
    dense = Layer(first, moments, padded=False), *map(Layer, others)
    separable = (Shape(_name("conv", widths), _separable(widths, moments)) for widths in WINDOW_WIDTHS)
    return (*separable, Shape(_name("dense", DENSE_WIDTHS), dense))


def _name(kind: str, widths: tuple[int, ...]) -> str:
    return f"{kind}-{'-'.join(map(str, widths))}"


def _separable(widths: tuple[int, ...], moments: int) -> tuple[Layer, ...]:
    """Return a convolution, then depthwise and pointwise ones in turn; each step but the pointwise halves the time."""
    layers, before = list[Layer](), 0
    for width in widths:
        layer = Layer(before or width, KERNEL, 2 if moments > HALVED else 1, depthwise=bool(before))
        layers += [layer, Layer(width)] if before else [layer]
        moments, before = layer.span(moments)[1], width
    return tuple(layers)


def quantized(
    name: str,
    network: Network,
    x: Array,
    standard: Standard,
    classes: tuple[str, ...],
    on_progress: Callable[[QuantizationProgress], None] = ignore,
) -> Graph:
    """Return a network as an int8 graph of raw numbers, calibrated on some of the samples x."""
    x = standard.apply(x[:: -(-len(x) // CALIBRATED)])
    if x.shape[1] > 1:
        w, b = np.diag(1 / standard.deviation), -standard.mean / standard.deviation
    else:  # the first layer, with the standardization in its weights
        first, bias = network.weights[0]
        w = first[0].T / standard.deviation
        b = bias - w @ standard.mean
        x = np.maximum(x @ first[0] + bias, 0)
        network = Network(network.layers[1:], network.weights[1:])
    inner = quantize(_as_graph(name, network, x.shape[1], x.shape[2]), list(x), on_progress=on_progress).graph
    g = Builder(name, None, classes)
    raw = g.input("x", Type((x.shape[1], w.shape[1]), "float32"))
    weights = (g.constant(f"standard.{role}", array.astype(np.float32)) for role, array in (("w", w), ("b", b)))
    standardized = g.emit(Dense(), raw, *weights, name="standard")
    value = g.emit(Quantize(), standardized, q=inner.image.type.q, name="quantized")  # where it is at most 0, ReLU
    values = {inner.image: g.emit(Reshape(inner.image.type.shape), value, name="shaped")}
    values |= {v: g.constant(v.name, array, v.type.q) for v, array in inner.constants.items()}
    for node in inner.nodes:
        q: QParams | None = node.out.type.q
        values[node.out] = g.emit(node.op, *(values[v] for v in node.ins), q=q, name=node.out.name)
    return g.graph(values[inner.scores])


def _as_graph(name: str, network: Network, moments: int, channels: int) -> Graph:
    """Return a network as a float32 graph over standardized numbers, [1, moments, 1, channels]."""
    g = Builder(name)
    x = g.input("standardized", Type((1, moments, 1, channels), "float32"))
    *layers, _ = network.layers
    for place, (layer, (w, b)) in enumerate(zip(layers, network.weights, strict=False)):
        side, _ = layer.span(x.type.shape[1])
        x = _emit(g, f"l{place}", layer, side, x, w, b)
    pooled = Mean(keep_dims=False) if x.type.shape[1] > 1 else Reshape((1, x.type.shape[3]))
    x = g.emit(pooled, x, name="pool")
    w, b = network.weights[-1]
    return g.graph(g.emit(Dense(), x, g.constant("head.w", w[0].T.copy()), g.constant("head.b", b), name="head"))


def _emit(g: Builder, name: str, layer: Layer, side: int, x: Value, w: Array, b: Array) -> Value:
    op = (Depthwise if layer.depthwise else Conv2D)((layer.stride, 1), (side, side, 0, 0))
    shaped = w[None, :, None] if layer.depthwise else w.transpose(2, 0, 1)[:, :, None]
    weights = g.constant(f"{name}.w", np.ascontiguousarray(shaped)), g.constant(f"{name}.b", b)
    return g.emit(replace(op, activation="relu"), x, *weights, name=name)
