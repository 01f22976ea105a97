"""Graphs of maps alone, in which rows can be streamed: chains, residual blocks, and random ones with many places that a
single map crosses."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from smidgen.ir import Builder, Graph, QParams, Type, Value
from smidgen.ops import Activate, Add, Conv2D, Depthwise, MaxPool

Q = QParams.per_tensor(0.05)


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


def chain(nodes: int, size: int = 128) -> Graph:
    """Convolutions of 3 by 3, one behind another; every tenth, while the map is large, halves it."""
    g = Builder(f"chain{nodes}")
    x = g.input("x", Type((1, size, size, 3), "int8", Q))
    for index in range(nodes):
        x = conv(g, x, 4, 3, stride=2 if index % 10 == 0 and x.type.shape[1] > 8 else 1)
    return g.graph(x)


def residual_network(layers: int, size: int = 128) -> Graph:
    """MobileNet-like: blocks of expand, depthwise and project, three of four with the input added to the result."""
    g = Builder(f"residual{layers}")
    x = conv(g, g.input("x", Type((1, size, size, 3), "int8", Q)), 8, 3, stride=2)
    block = 0
    while len(g.nodes) < layers:
        halve = block % 4 == 0 and x.type.shape[1] > 8
        y = depthwise(g, conv(g, x, 3 * x.type.shape[3]), stride=2 if halve else 1)
        y = conv(g, y, 16 if halve and x.type.shape[3] < 16 else x.type.shape[3])
        x = y if y.type.shape != x.type.shape else g.emit(Add(), x, y, q=Q)
        block += 1
    return g.graph(x)


@st.composite
def map_graphs(draw: st.DrawFn, most: int = 12) -> Graph:
    """Blocks of nodes over maps: windows that leave rows out, sums across a block, maps that are outputs too."""
    g = Builder("maps")
    x = g.input("x", Type((1, draw(st.integers(3, 14)), draw(st.integers(2, 4)), 2), "int8", Q))
    outputs = []
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.integers(0, 6))
        tall = min(x.type.shape[1:3])
        if kind <= 1:
            k = draw(st.integers(1, 3))
            pad = draw(st.integers(0, 2)) if tall >= k else 1
            x = conv(g, x, draw(st.integers(1, 3)), k, draw(st.integers(1, 3)), max(pad, k - tall))
        elif kind == 2:
            x = g.emit(Add(), x, depthwise(g, x), q=Q)
        elif kind == 3 and tall >= 2:
            x = g.emit(MaxPool((2, 2), (2, 2)), x)
        elif kind == 4:
            x = g.emit(Add(), g.emit(Activate(), x, q=Q), depthwise(g, depthwise(g, x)), q=Q)
        elif kind == 5:
            g.emit(Activate(), x, q=Q)  # nobody reads it
        else:
            x = depthwise(g, x, draw(st.integers(1, 2)))
        if draw(st.integers(0, 9)) == 0:
            outputs.append(x)
    return g.graph(*dict.fromkeys((*outputs, x)))
