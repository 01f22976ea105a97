"""Random int8 networks from a table: weights from a seed, scales and biases from the moments they pass on.

Weights are uniform integers. A channel's weight scale and bias give its output the mean and deviation that
the next layer counts on, so that no activation dies, few saturate, and images stay apart at any depth:

    convolution   mean Σw·E[x] + b, variance Σw²·Var[x]
    ReLU6         the moments of min(max(z, 0), 6) for z ~ N(CENTRE, SPREAD²)
    sum           variances add
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from smidgen.frontends.network import IMAGE_SCALE, Block, Conv, Network
from smidgen.ir import Array, QParams
from smidgen.zoo.tables import BlockTable, Stage

RELU6 = QParams.per_tensor(6 / 255, -128)  # the int8 limits are the limits of ReLU6
CENTRE, SPREAD = 1.0, 1.5  # mean and deviation before a ReLU6: few channels stay below 0 or above 6
RELU6_MEAN, RELU6_VARIANCE = 1.226, 1.401  # after it
IMAGE_VARIANCE = 0.25  # of pixels in −1 … 1
REACH = 5.0  # deviations an int8 range spans each side of zero


@dataclass(frozen=True)
class Signal:
    """The output of a layer: channels, their quantization, and the moments of their real values."""

    channels: int
    q: QParams
    mean: float
    variance: float


def draw(table: BlockTable, resolution: int, classes: int, seed: int) -> Network:
    """Draw a network of the table's shapes; the same seed gives the same bytes everywhere."""
    weights = _Weights(seed)
    image = Signal(3, QParams.per_tensor(IMAGE_SCALE, 0), 0.0, IMAGE_VARIANCE)
    stem, x = weights.relu6(image, table.stem, 3, 2)
    blocks = []
    for stage in table.blocks:
        block, x = _block(weights, x, stage)
        blocks.append(block)
    return Network(resolution, image.q, stem, tuple(blocks), weights.linear(x, classes)[0])


def _block(weights: _Weights, x: Signal, stage: Stage) -> tuple[Block, Signal]:
    expand, inner = None, x
    if stage.expand > 1:
        expand, inner = weights.relu6(x, x.channels * stage.expand, 1)
    depthwise, inner = weights.relu6(inner, inner.channels, stage.kernel, stage.stride, depthwise=True)
    project, y = weights.linear(inner, stage.channels)
    if stage.stride != 1 or stage.channels != x.channels:
        return Block(expand, depthwise, project, None), y
    total = _symmetric(x.channels, x.variance + y.variance)
    return Block(expand, depthwise, project, total.q), total


def _symmetric(channels: int, variance: float) -> Signal:
    return Signal(channels, QParams.per_tensor(REACH * math.sqrt(variance) / 127, 0), 0.0, variance)


class _Weights:
    """The seed's stream; raw words of the generator, which numpy keeps the same for good."""

    def __init__(self, seed: int) -> None:
        self.source = np.random.PCG64(seed)

    def integers(self, shape: tuple[int, ...]) -> Array:
        """Draw uniform integers in −127 … 127."""
        words = self.source.random_raw(math.prod(shape))
        return (words >> np.uint64(32)).astype(np.int64).reshape(shape) % 255 - 127

    def relu6(
        self, x: Signal, channels: int, kernel: int, stride: int = 1, depthwise: bool = False
    ) -> tuple[Conv, Signal]:
        shape = (1, kernel, kernel, channels) if depthwise else (channels, kernel, kernel, x.channels)
        w, b, scales = self.layer(shape, x, CENTRE, SPREAD, 3 if depthwise else 0)
        return Conv(w, b, scales, RELU6, stride, depthwise), Signal(channels, RELU6, RELU6_MEAN, RELU6_VARIANCE)

    def linear(self, x: Signal, channels: int) -> tuple[Conv, Signal]:
        w, b, scales = self.layer((channels, 1, 1, x.channels), x, 0.0, 1.0, 0)
        y = _symmetric(channels, 1.0)
        return Conv(w, b, scales, y.q), y

    def layer(
        self, shape: tuple[int, ...], x: Signal, mean: float, spread: float, axis: int
    ) -> tuple[Array, Array, tuple[float, ...]]:
        """Draw weights, biases and weight scales that give each output channel this mean and deviation."""
        w = self.integers(shape)
        others = tuple(i for i in range(4) if i != axis)
        scales = spread / np.sqrt((w * w).sum(axis=others) * x.variance)
        bias = mean - x.mean * scales * w.sum(axis=others)
        return w.astype(np.int8), np.rint(bias / (x.q.one * scales)).astype(np.int32), tuple(scales.tolist())
