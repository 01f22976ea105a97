"""Random int8 networks from a table: weights from a seed, scales from the variance they pass on.

Weights are uniform integers; a channel's weight scale makes its output's second moment what He initialisation
aims at, so that no activation dies and few saturate, at any depth. The second moments used here:

    convolution   E[y²] = Σw² · E[x²]            weights of zero mean, independent of x
    ReLU6         E[y²] for y = min(max(z, 0), 6), z ~ N(CENTRE, SPREAD²)
    sum           E[y²] = E[a²] + E[b²]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from smidgen.frontends.network import IMAGE_SCALE, Block, Classifier, Conv, Network
from smidgen.ir import Array, QParams
from smidgen.zoo.tables import Stage, Table

RELU6 = QParams.per_tensor(6 / 255, -128)  # the int8 limits are the limits of ReLU6
CENTRE, SPREAD = 1.0, 1.5  # mean and deviation before a ReLU6: few channels stay below 0 or above 6
RELU6_MOMENT = 2.90  # E[y²] after it
IMAGE_MOMENT = 0.25  # of pixels in −1 … 1
REACH = 5.0  # deviations an int8 range spans each side of zero


@dataclass(frozen=True)
class Signal:
    """What a layer hands on: channels, their quantization, and the mean of their squares."""

    channels: int
    q: QParams
    moment: float


def draw(table: Table, resolution: int, classes: int, seed: int) -> Network:
    """A network of the table's shapes; the same seed gives the same bytes everywhere."""
    weights = _Weights(seed)
    image = Signal(3, QParams.per_tensor(IMAGE_SCALE, 0), IMAGE_MOMENT)
    stem, x = weights.relu6(image, table.stem, 3, 2)
    blocks = []
    for stage in table.blocks:
        block, x = _block(weights, x, stage)
        blocks.append(block)
    head, y = weights.linear(x, classes)
    classifier = Classifier(head.w[:, 0, 0, :], head.b, head.w_scales, y.q)
    return Network(resolution, image.q, stem, tuple(blocks), classifier)


def _block(weights: _Weights, x: Signal, stage: Stage) -> tuple[Block, Signal]:
    expand, inner = None, x
    if stage.expand > 1:
        expand, inner = weights.relu6(x, x.channels * stage.expand, 1)
    depthwise, inner = weights.relu6(inner, inner.channels, stage.kernel, stage.stride, depthwise=True)
    project, y = weights.linear(inner, stage.channels)
    if stage.stride != 1 or stage.channels != x.channels:
        return Block(expand, depthwise, project, None), y
    total = _symmetric(x.channels, x.moment + y.moment)
    return Block(expand, depthwise, project, total.q), total


def _symmetric(channels: int, moment: float) -> Signal:
    return Signal(channels, QParams.per_tensor(REACH * math.sqrt(moment) / 127, 0), moment)


class _Weights:
    """The seed's stream; raw words of the generator, which numpy keeps the same for good."""

    def __init__(self, seed: int) -> None:
        self.source = np.random.PCG64(seed)

    def integers(self, shape: tuple[int, ...]) -> Array:
        """Uniform in −127 … 127."""
        words = self.source.random_raw(math.prod(shape))
        return (words >> np.uint64(32)).astype(np.int64).reshape(shape) % 255 - 127

    def relu6(
        self, x: Signal, channels: int, kernel: int, stride: int = 1, depthwise: bool = False
    ) -> tuple[Conv, Signal]:
        shape = (1, kernel, kernel, channels) if depthwise else (channels, kernel, kernel, x.channels)
        w = self.integers(shape)
        scales = self.scales(w, x, SPREAD, 3 if depthwise else 0)
        b = np.rint(CENTRE / (x.q.one * scales)).astype(np.int32)
        conv = Conv(w.astype(np.int8), b, tuple(scales.tolist()), RELU6, stride, depthwise)
        return conv, Signal(channels, RELU6, RELU6_MOMENT)

    def linear(self, x: Signal, channels: int) -> tuple[Conv, Signal]:
        w = self.integers((channels, 1, 1, x.channels))
        scales, y = self.scales(w, x, 1.0, 0), _symmetric(channels, 1.0)
        return Conv(w.astype(np.int8), np.zeros(channels, np.int32), tuple(scales.tolist()), y.q), y

    @staticmethod
    def scales(w: Array, x: Signal, spread: float, axis: int) -> Array:
        """Per output channel, the weight scale that gives its output the deviation `spread`."""
        others = tuple(i for i in range(4) if i != axis)
        norms: Array = np.sqrt((w * w).sum(axis=others)).astype(np.float64)
        return spread / (norms * math.sqrt(x.moment))
