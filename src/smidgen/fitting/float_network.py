"""Small float32 networks over time in numpy: layers, their gradients, and training by AdamW.

A batch is [samples, moments, channels]; rows of features are a single moment. Every layer is a convolution over time: a
dense layer is one over all moments at once. The last layer reads the mean over time and gives the scores. Matrices are
multiplied sample by sample: so small ones are not shared out among threads, which would cost more than it gains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from smidgen.callbacks import ignore
from smidgen.ir import Array
from smidgen.ops.loss import Loss

BATCH = 32
RATE, WARM_UP = 0.005, 0.1  # the highest rate, and the share of the steps over which it rises to that
DECAY = 0.02  # of weights, times the rate
MOMENTS, TINY = (0.9, 0.99), 1e-8  # of Adam
LOUDER, NOISE = 0.1, 0.1  # deviations of a factor per sample and channel, and of noise, of standardized windows


@dataclass(frozen=True)
class Layer:
    """A convolution over time, followed by ReLU except in the last layer."""

    outputs: int
    kernel: int = 1
    stride: int = 1
    depthwise: bool = False
    padded: bool = True  # by (kernel − 1) // 2 zeros on each side

    def span(self, moments: int) -> tuple[int, int]:
        """Return the zeros on each side of so many moments, and the moments of the output."""
        side = (self.kernel - 1) // 2 if self.padded else 0
        return side, (moments + 2 * side - self.kernel) // self.stride + 1

    def weights(self, inputs: int) -> tuple[int, ...]:
        """Return the shape of the weights: [kernel, channels] depthwise, else [kernel, inputs, outputs]."""
        return (self.kernel, self.outputs) if self.depthwise else (self.kernel, inputs, self.outputs)


Weights = tuple[Array, Array]  # of a layer: its weights and its biases


@dataclass(frozen=True, eq=False)
class Network:
    """Layers with their weights."""

    layers: tuple[Layer, ...]
    weights: tuple[Weights, ...]

    def scores(self, x: Array) -> Array:
        """Return the scores of a batch, [samples, outputs]."""
        return self._forward(x)[0]

    def _forward(self, x: Array) -> tuple[Array, list[tuple[Array, Array]]]:
        """Return the scores, and the padded input and the output of each layer."""
        kept = []
        for layer, (w, b) in zip(self.layers, self.weights, strict=True):
            last = layer is self.layers[-1]
            x = x.mean(axis=1, keepdims=True) if last else x
            side, _ = layer.span(x.shape[1])
            padded = np.pad(x, ((0, 0), (side, side), (0, 0))) if side else x
            y = _convolve(layer, padded, w) + b
            x = y if last else np.maximum(y, 0)
            kept.append((padded, x))
        return x[:, 0], kept

    def gradients(self, x: Array, targets: Array, loss: Loss) -> tuple[Weights, ...]:
        """Return the gradients of the mean loss of a batch."""
        scores, kept = self._forward(x)
        dy = (_score_gradient(scores, targets, loss) / len(x))[:, None]
        found: list[Weights] = []
        for place in reversed(range(len(self.layers))):
            layer, (w, _), (padded, y) = self.layers[place], self.weights[place], kept[place]
            if place < len(self.layers) - 1:
                dy = dy * (y > 0)
            dx, dw = _convolve_backward(layer, padded, w, dy)
            found.append((dw, dy.sum(axis=(0, 1))))
            side = layer.span(0)[0]
            dy = dx[:, side : dx.shape[1] - side]
            if place == len(self.layers) - 1 and place:
                moments = kept[place - 1][1].shape[1]
                dy = np.repeat(dy / np.float32(moments), moments, axis=1)
        return tuple(reversed(found))


def _taps(layer: Layer, moments: int) -> list[slice]:
    """Return the moments of a padded input that each tap of a kernel meets."""
    steps = (moments - layer.kernel) // layer.stride
    return [slice(i, i + steps * layer.stride + 1, layer.stride) for i in range(layer.kernel)]


def _convolve(layer: Layer, x: Array, w: Array) -> Array:
    taps = [x[:, tap] for tap in _taps(layer, x.shape[1])]
    if layer.depthwise:
        return np.asarray(sum(tap * w[i] for i, tap in enumerate(taps)))
    return np.concatenate(taps, axis=2) @ w.reshape(-1, layer.outputs)


def _convolve_backward(layer: Layer, x: Array, w: Array, dy: Array) -> tuple[Array, Array]:
    """Return the gradients of a padded input and of the weights."""
    dx, taps = np.zeros_like(x), _taps(layer, x.shape[1])
    if layer.depthwise:
        for i, tap in enumerate(taps):
            dx[:, tap] += dy * w[i]
        return dx, np.stack([(x[:, tap] * dy).sum(axis=(0, 1)) for tap in taps])
    laid = np.concatenate([x[:, tap] for tap in taps], axis=2)
    dw = (laid.transpose(0, 2, 1) @ dy).sum(axis=0)
    for i, tap in enumerate(taps):
        dx[:, tap] += dy @ w[i].T
    return dx, dw.reshape(w.shape)


def _score_gradient(scores: Array, targets: Array, loss: Loss) -> Array:
    """Return the gradient of each sample's loss: softmax against one-hot targets, sigmoid, or half the mean square."""
    if loss == "softmax":
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True) - targets)
    difference = (1 / (1 + np.exp(-scores)) if loss == "sigmoid" else scores) - targets
    return np.asarray(difference / np.float32(targets.shape[1]))


def draw_network(layers: Sequence[Layer], inputs: int, seed: int) -> Network:
    """Draw first weights, normal of a variance of 2 over the inputs of a sum (He et al. 2015); biases are zero."""
    rng, weights = np.random.default_rng(seed), list[Weights]()
    for layer in layers:
        shape = layer.weights(inputs)
        deviation = math.sqrt(2 / math.prod(shape[:-1]))
        w = (deviation * rng.standard_normal(shape)).astype(np.float32)
        weights.append((w, np.zeros(layer.outputs, np.float32)))
        inputs = layer.outputs
    return Network(tuple(layers), tuple(weights))


def train_network(
    layers: Sequence[Layer],
    x: Array,
    targets: Array,
    loss: Loss,
    seen: int,
    seed: int,
    on_seen: Callable[[int], None] = ignore,
) -> Network:
    """Train a network from random weights until it has seen so many samples; the same arguments give the same weights.

    Windows are shown a little louder or quieter in each channel, and with noise; `x` is standardized.
    """
    network, rng = draw_network(layers, x.shape[2], seed), np.random.default_rng((seed, 1))
    flat = [array for pair in network.weights for array in pair]
    first, second = ([np.zeros_like(array) for array in flat] for _ in range(2))
    size = min(BATCH, len(x))
    steps, order = max(1, seen // size), np.empty(0, np.int64)
    for step in range(steps):
        while len(order) < size:
            order = np.concatenate((order, rng.permutation(len(x))))
        places, order = order[:size], order[size:]
        shown = _varied(x[places], rng) if x.shape[1] > 1 else x[places]
        slopes = [array for pair in network.gradients(shown, targets[places], loss) for array in pair]
        done = (step + 1) / steps
        rate = RATE * min(done / WARM_UP, (1 + math.cos(math.pi * done)) / 2)
        for array, slope, m, v in zip(flat, slopes, first, second, strict=True):
            m += (1 - MOMENTS[0]) * (slope - m)
            v += (1 - MOMENTS[1]) * (slope * slope - v)
            unbiased = math.sqrt(1 - MOMENTS[1] ** (step + 1)) / (1 - MOMENTS[0] ** (step + 1))
            array -= np.float32(rate) * (np.float32(unbiased) * m / (np.sqrt(v) + TINY) + np.float32(DECAY) * array)
        on_seen(size)
    return network


def _varied(x: Array, rng: np.random.Generator) -> Array:
    """Return windows at other volumes and with noise."""
    louder = 1 + LOUDER * rng.standard_normal((len(x), 1, x.shape[2]), np.float32)
    return np.asarray(x * louder + NOISE * rng.standard_normal(x.shape, np.float32))
