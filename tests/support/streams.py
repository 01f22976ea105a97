"""Small streaming networks: layers over recent inputs, kept in variables from run to run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from smidgen import ops
from smidgen.data import Data, Samples
from smidgen.ir import Array, Builder, Graph, QParams, Type, Value

CLASSES, ROWS, CHANNELS = 3, 2, 5


@dataclass
class Stream:
    """A network in the making."""

    g: Builder
    rng: np.random.Generator

    def q(self, zero: int = 3) -> QParams:
        return QParams.per_tensor(0.05 * 2.0 ** self.rng.uniform(-1, 1), zero)

    def kept(self, x: Value, count: int) -> Value:
        """The last `count` rows of all before, and those of x."""
        shape = (1, count, *x.type.shape[2:])
        first = self.rng.integers(-128, 128, shape).astype(np.int8)
        old = self.g.persistent(f"{x.name}.kept", first, x.type.q)
        both = self.g.emit(ops.Concat(1), old, x)
        rows = both.type.shape[1]
        last = self.g.emit(ops.Crop((0, rows - count, 0, 0), both.type.shape), both)
        self.g.update((old,), (self.g.emit(ops.Assign(), old, last),))
        return both

    def delayed(self, x: Value) -> Value:
        """x, and to it added x as it was in the run before."""
        old = self.g.persistent(f"{x.name}.before", np.zeros(x.type.shape, np.int8), x.type.q)
        y = self.g.emit(ops.Add(), x, old, q=self.q())
        self.g.update((old,), (self.g.emit(ops.Assign(), old, x),))
        return y

    def layer(self, x: Value, op: ops.Conv2D | ops.Depthwise, shape: tuple[int, ...]) -> Value:
        axis = 3 if isinstance(op, ops.Depthwise) else 0
        scales = QParams.per_channel(0.01 * 2.0 ** self.rng.uniform(-1, 1, shape[axis]), axis)
        w = self.g.constant("w", self.rng.integers(-127, 128, shape).astype(np.int8), scales)
        b = self.g.constant("b", self.rng.integers(-900, 901, shape[axis]).astype(np.int32))
        return self.g.emit(op, x, w, b, q=self.q())

    def head(self, x: Value, classes: int) -> Value:
        flat = self.g.emit(ops.Reshape((1, x.type.size)), x)
        q = QParams.per_channel(0.01 * 2.0 ** self.rng.uniform(-1, 1, classes), 0)
        w = self.g.constant("head.w0", self.rng.integers(-127, 128, (classes, x.type.size)).astype(np.int8), q)
        b = self.g.constant("head.b0", np.zeros(classes, np.int32))
        return self.g.emit(ops.Dense(), flat, w, b, q=self.q())


def streaming_network(seed: int = 0) -> Graph:
    """Two layers over time and a classifier, which knows what came before by its variables alone."""
    s = Stream(Builder(f"stream{seed}"), np.random.default_rng(seed))
    x = s.g.input("x", Type((1, ROWS, 1, CHANNELS), "int8", s.q()))
    y = s.layer(s.kept(x, 3), ops.Conv2D(stride=(ROWS, 1)), (8, 3, 1, CHANNELS))
    y = s.layer(s.kept(y, 4), ops.Depthwise(), (1, 6, 1, 8))
    y = s.layer(y, ops.Conv2D(activation="relu"), (6, 1, 1, 8))
    return s.g.graph(s.head(y, CLASSES))


@st.composite
def streaming_graphs(draw: st.DrawFn) -> Graph:
    """A chain of layers, some over time, some of which see what they saw in the run before."""
    s = Stream(Builder("stream"), np.random.default_rng(draw(st.integers(0, 2**32 - 1))))
    rows, columns, channels = (draw(st.integers(1, 4)) for _ in range(3))
    y = s.g.input("x", Type((1, rows, columns, channels), "int8", s.q()))
    for kind in draw(st.lists(st.sampled_from(("conv", "depthwise", "delay")), min_size=1, max_size=4)):
        if kind == "delay":
            y = s.delayed(y)
            continue
        both = s.kept(y, draw(st.integers(1, 5)))
        k, c = draw(st.integers(1, both.type.shape[1])), both.type.shape[3]
        y = s.layer(both, ops.Conv2D(), (c + 1, k, 1, c)) if kind == "conv" else s.layer(
            both, ops.Depthwise(), (1, k, 1, c)
        )  # fmt: skip
    return s.g.graph(y)


def stream_of(graph: Graph, runs: int, seed: int = 0) -> list[Array]:
    """Inputs, one run after the other."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-128, 128, graph.image.type.shape).astype(np.int8) for _ in range(runs)]


def stream_data(count: int) -> Data:
    """Return samples whose class depends on the sample before: only a network that remembers can predict it."""
    rng = np.random.default_rng(7)
    classes = rng.integers(0, CLASSES, count + 1)
    levels = np.array([-100, 0, 100])
    noise = rng.integers(-20, 21, (count, ROWS, 1, CHANNELS))
    shown = np.clip(levels[classes[1:], None, None, None] + noise, -128, 127).astype(np.int8)
    before = tuple(int(c) for c in classes[:-1])
    half = count // 2
    names = tuple("abc")[:CLASSES]
    return Data(
        "stream", names, Samples(tuple(shown[:half]), before[:half]), Samples(tuple(shown[half:]), before[half:])
    )
