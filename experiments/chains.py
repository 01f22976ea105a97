"""Networks of any depth to plan: chains of convolutions, and blocks with residual connections, all weights alike."""

from __future__ import annotations

import numpy as np

from smidgen.ir import Builder, Graph, QParams, Type, Value
from smidgen.ops import Add, Conv2D, Dense, Depthwise, Mean

Q = QParams.per_tensor(0.05)


def chain(nodes: int, size: int = 128) -> Graph:
    """Convolutions of 3 by 3, one behind another; every tenth, while the map is large, halves it."""
    g = Builder(f"chain of {nodes}")
    x = g.input("x", Type((1, size, size, 3), "int8", Q))
    for index in range(nodes):
        x = conv(g, x, 4, 3, stride=2 if index % 10 == 0 and x.type.shape[1] > 8 else 1)
    return g.graph(x)


def residual_network(layers: int, size: int = 128) -> Graph:
    """MobileNet-like: blocks of expand, depthwise and project, three of four with the input added to the result."""
    g = Builder(f"residual network of {layers}")
    return g.graph(_blocks(g, layers, size, 8))


def classifier(layers: int, size: int = 128, channels: int = 8) -> Graph:
    """The same with so many channels behind the first layer, twice as many further on, and a head that can learn."""
    g = Builder(f"classifier of {layers}")
    x = g.emit(Mean(), _blocks(g, layers, size, channels), q=Q)
    w = g.constant("w", np.ones((10, x.type.shape[1]), np.int8), QParams.per_tensor(0.01))
    return g.graph(g.emit(Dense(), x, w, g.constant("b", np.zeros(10, np.int32)), q=Q))


def _blocks(g: Builder, layers: int, size: int, channels: int) -> Value:
    x = conv(g, g.input("x", Type((1, size, size, 3), "int8", Q)), channels, 3, stride=2)
    block, emitted = 0, 1
    while emitted < layers:
        halve = block % 4 == 0 and x.type.shape[1] > 8
        y = depthwise(g, conv(g, x, 3 * x.type.shape[3]), stride=2 if halve else 1)
        wider = halve and x.type.shape[3] < 2 * channels
        y = conv(g, y, 2 * channels if wider else x.type.shape[3])
        adds = y.type.shape == x.type.shape
        x = g.emit(Add(), x, y, q=Q) if adds else y
        block, emitted = block + 1, emitted + 3 + adds
    return x


def conv(g: Builder, x: Value, out: int, k: int = 1, stride: int = 1, pad: int | None = None) -> Value:
    """A convolution whose weights are all alike."""
    w = g.constant("w", np.ones((out, k, k, x.type.shape[3]), np.int8), QParams.per_tensor(0.01))
    b = g.constant("b", np.zeros(out, np.int32))
    around = k // 2 if pad is None else pad
    return g.emit(Conv2D((stride, stride), (around,) * 4), x, w, b, q=Q)


def depthwise(g: Builder, x: Value, stride: int = 1) -> Value:
    """A depthwise convolution of 3 by 3 whose weights are all alike."""
    channels = x.type.shape[3]
    w = g.constant("w", np.ones((1, 3, 3, channels), np.int8), QParams.per_tensor(0.01))
    b = g.constant("b", np.zeros(channels, np.int32))
    return g.emit(Depthwise((stride, stride), (1, 1, 1, 1)), x, w, b, q=Q)
