"""One small graph per op, its attributes and quantization chosen by hypothesis, for comparing with LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from smidgen import ops
from smidgen.ir import Array, Builder, Graph, Op, QParams, Type, Value
from smidgen.numerics import ACTIVATIONS
from smidgen.ops.resize import nearest
from smidgen.ops.window import Pad, same_pad
from tests.support import recurrent_cases
from tests.support.case_parts import FUNCTION_PARAMETERS
from tests.support.graphs import OWN_FUNCTIONS

Draw = st.DrawFn
LEAST_SCALE = 2.0**-24  # below, an activation's limits leave int32 and both sides refuse the graph


@dataclass
class Case:
    """A graph in the making, in one dtype, and the source of its numbers."""

    draw: Draw
    dtype: str
    g: Builder
    rng: np.random.Generator

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pair(self, low: int, high: int) -> tuple[int, int]:
        return self.integer(low, high), self.integer(low, high)

    def activation(self) -> str:
        return self.draw(st.sampled_from(ACTIVATIONS))

    def q(self, around: float = 0.05) -> QParams | None:
        """A quantization whose scale is mostly near `around` and at times a thousand times off."""
        if self.dtype == "float32":
            return None
        octaves = self.draw(st.one_of(st.floats(-2, 2), st.sampled_from((-1.0, 0.0, 1.0)), st.floats(-10, 10)))
        scale = max(around * 2.0**octaves, LEAST_SCALE)
        return QParams.per_tensor(scale, self.draw(st.sampled_from((0, -128, 127, 3, -77))))

    def input(self, *shape: int, q: QParams | None = None) -> Value:
        return self.g.input("x", Type(shape, self.dtype, q or self.q()))

    def map(self, channels: int) -> Value:
        return self.input(1, self.integer(1, 8), self.integer(1, 8), channels)

    def weights(self, shape: tuple[int, ...], axis: int) -> tuple[Value, Value]:
        """Weights, per channel or with one scale, and their bias."""
        channels = shape[axis]
        if self.dtype == "float32":
            w, b = self.rng.normal(size=shape), self.rng.normal(size=channels)
            return self.g.constant("w", w.astype(np.float32)), self.g.constant("b", b.astype(np.float32))
        scales = 0.01 * 2.0 ** self.rng.uniform(-4, 4, channels)
        q = QParams.per_channel(scales, axis) if self.draw(st.booleans()) else QParams.per_tensor(scales[0])
        w = self.rng.integers(-127, 128, shape, np.int8)
        limit = self.draw(st.sampled_from((1, 1000, 100_000)))
        return self.g.constant("w", w, q), self.g.constant("b", self.rng.integers(-limit, limit, channels, np.int32))

    def pad(self, x: Value, size: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]) -> Pad:
        """SAME, none, or any; enough for the window to fit."""
        same = same_pad(x.type.shape, size, stride, dilation)
        lacks = [max((size[i] - 1) * dilation[i] + 1 - x.type.shape[1 + i], 0) for i in (0, 1)]
        none = (lacks[0], 0, 0, lacks[1])
        free = (lacks[0] + self.integer(0, 2), self.integer(0, 2), lacks[1], self.integer(0, 3))
        return self.draw(st.sampled_from((same, none, free)))


def arrays(graph: Graph, seed: int) -> tuple[Array, ...]:
    """Inputs that fit the graph: all values, only the extremes, or normal numbers for float32."""
    rng = np.random.default_rng(seed)
    made: list[Array] = []
    for value in graph.inputs:
        if value.type.dtype == "float32":
            made.append(rng.normal(scale=3, size=value.type.shape).astype(np.float32))
        elif rng.random() < 0.2:
            made.append(rng.choice(np.array([-128, 127], np.int8), value.type.shape))
        else:
            made.append(rng.integers(-128, 128, value.type.shape, np.int8))
    return tuple(made)


def _spread(c: Case, x: Value, w: Value, taps: int) -> QParams | None:
    """Return an output scale that suits sums of `taps` products."""
    if x.type.q is None or w.type.q is None:
        return None
    return c.q(x.type.scale * max(w.type.q.scale) * 40 * taps**0.5)


def conv(c: Case) -> Value:
    groups, per_group, out = c.integer(1, 3), c.integer(1, 4), c.integer(1, 4)
    x = c.map(groups * per_group)
    size, stride, dilation = c.pair(1, 4), c.pair(1, 3), c.pair(1, 2)
    w, b = c.weights((groups * out, *size, per_group), 0)
    op = ops.Conv2D(stride, c.pad(x, size, stride, dilation), dilation, groups, c.activation())
    return c.g.emit(op, x, w, b, q=_spread(c, x, w, size[0] * size[1] * per_group))


def depthwise(c: Case) -> Value:
    channels, multiplier = c.integer(1, 5), c.integer(1, 3)
    x = c.map(channels)
    size, stride, dilation = c.pair(1, 4), (step := c.integer(1, 3), step), c.pair(1, 2)
    w, b = c.weights((1, *size, channels * multiplier), 3)
    op = ops.Depthwise(stride, c.pad(x, size, stride, dilation), dilation, c.activation())
    return c.g.emit(op, x, w, b, q=_spread(c, x, w, size[0] * size[1]))


def dense(c: Case) -> Value:
    x = c.input(c.integer(1, 3), c.integer(1, 40))
    w, b = c.weights((c.integer(1, 8), x.type.shape[1]), 0)
    return c.g.emit(ops.Dense(c.activation()), x, w, b, q=_spread(c, x, w, x.type.shape[1]))


def _operands(c: Case) -> tuple[Value, Value]:
    a = c.map(c.integer(1, 5))
    shape = c.draw(
        st.sampled_from((a.type.shape, a.type.shape[-1:], (1, 1, 1, a.type.shape[3]), (1,), a.type.shape[2:]))
    )
    near = a.type.scale if a.type.q else 1.0
    return a, c.g.input("y", Type(shape, c.dtype, c.q(near)))


def add(c: Case) -> Value:
    a, b = _operands(c)
    q = c.q(2 * max(a.type.scale, b.type.scale)) if a.type.q else None
    return c.g.emit(ops.Add(c.activation()), a, b, q=q)


def mul(c: Case) -> Value:
    a, b = _operands(c)
    q = c.q(100 * a.type.scale * b.type.scale) if a.type.q else None
    return c.g.emit(ops.Mul(c.activation()), a, b, q=q)


def maximum(c: Case) -> Value:
    a, b = _operands(c)
    b = b if a.type.q is None else c.g.emit(ops.Requantize(), b, q=a.type.q)
    return c.g.emit(ops.Maximum(), a, b)


def matmul(c: Case) -> Value:
    outer = c.draw(st.sampled_from(((), (1,), (3,), (2, 3), (1, 4))))
    (rows, depth), columns = c.pair(1, 9), c.integer(1, 70)
    turned = c.draw(st.booleans()), c.draw(st.booleans())
    shapes = (rows, depth)[:: -1 if turned[0] else 1], (depth, columns)[:: -1 if turned[1] else 1]
    a = c.input(*outer, *shapes[0])
    b = c.g.input("y", Type((*outer, *shapes[1]), c.dtype, c.q()))
    return c.g.emit(ops.MatMul(*turned), a, b, q=_spread(c, a, b, depth))


def prelu(c: Case) -> Value:
    x, slope = _operands(c)
    return c.g.emit(ops.PRelu(), x, slope, q=c.q(x.type.scale) if x.type.q else None)


def activate(c: Case) -> Value:
    x = c.map(3)
    q = c.q(x.type.scale) if x.type.q else None
    return c.g.emit(ops.Activate(c.draw(st.sampled_from(ACTIVATIONS[1:]))), x, q=q)


def requantize(c: Case) -> Value:
    q = QParams.per_tensor(0.1, 5)
    x = c.g.input("x", Type((4, 64), "int8", c.q() or q))
    return c.g.emit(ops.Requantize(), x, q=c.q(x.type.scale) or q)


def quantize(c: Case) -> Value:
    return c.g.emit(ops.Quantize(), c.g.input("x", Type((1, 200), "float32")), q=c.q() or QParams.per_tensor(0.1, 5))


def dequantize(c: Case) -> Value:
    return c.g.emit(ops.Dequantize(), c.g.input("x", Type((1, 200), "int8", c.q() or QParams.per_tensor(0.1, 5))))


def _pool(c: Case, op: Callable[..., Op], free: bool) -> Value:
    x = c.map(c.integer(1, 4))
    size = c.integer(1, min(4, x.type.shape[1])), c.integer(1, min(4, x.type.shape[2]))
    stride = c.pair(1, 3)
    pads = [same_pad(x.type.shape, size, stride), (0, 0, 0, 0)]
    pads += [(c.integer(0, size[0] - 1), c.integer(0, size[0] - 1), 0, c.integer(0, size[1] - 1))] if free else []
    return c.g.emit(op(size, stride, c.draw(st.sampled_from(pads)), c.activation()), x)


def max_pool(c: Case) -> Value:
    return _pool(c, ops.MaxPool, free=True)


def avg_pool(c: Case) -> Value:
    return _pool(c, ops.AvgPool, free=False)


def mean(c: Case) -> Value:
    x = c.map(c.integer(1, 6))
    q = c.draw(st.sampled_from((x.type.q, c.q(x.type.scale)))) if x.type.q else None
    return c.g.emit(ops.Mean(c.draw(st.booleans())), x, q=q)


ROWS = (1, 10), (3, 2), (7,), (1, 2, 3, 4), (1, 300), (2, 1)


def softmax(c: Case) -> Value:
    shape = c.draw(st.sampled_from(ROWS))
    return c.g.emit(ops.Softmax(c.draw(st.sampled_from((1.0, 0.5, 2.0, 1.7)))), c.input(*shape))


def log_softmax(c: Case) -> Value:
    return c.g.emit(ops.LogSoftmax(), c.input(*c.draw(st.sampled_from(ROWS))))


def unit_norm(c: Case) -> Value:
    return c.g.emit(ops.UnitNorm(), c.input(*c.draw(st.sampled_from(((1, 10), (3, 2), (7,), (1, 2, 3, 4), (1, 300))))))


def lookup(c: Case) -> Value:
    if c.dtype == "float32" or c.draw(st.booleans()):
        return own_function(c)
    function, alpha, beta = c.draw(st.sampled_from(FUNCTION_PARAMETERS))
    op = ops.Lookup(function, alpha, beta, slope=c.draw(st.booleans()))
    return c.g.emit(op, c.input(*c.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))), q=c.q(0.03))


def own_function(c: Case) -> Value:
    """A function that TFLite has a kernel of, in the scales it asks for."""
    function = c.draw(st.sampled_from(OWN_FUNCTIONS))
    fixed = {"sigmoid": QParams.per_tensor(1 / 256, -128), "tanh": QParams.per_tensor(1 / 128)}
    alpha = c.draw(st.sampled_from((0.01, 0.3, 1.5, -0.25))) if function == "leaky_relu" else 0.0
    x = c.input(*c.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    q = None if x.type.q is None else fixed.get(function) or c.q(x.type.scale)
    if function == "hard_swish" and q is not None:  # steps of the output are at least 1/128 of the input's
        q = QParams.per_tensor(max(q.one, x.type.scale / 100), q.zero)
    return c.g.emit(ops.Lookup(function, alpha, tflite=q is not None), x, q=q)


def pad(c: Case) -> Value:
    x = c.input(*c.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    before, after = (tuple(c.integer(0, 3) for _ in x.type.shape) for _ in range(2))
    return c.g.emit(ops.Pad(before, after), x)


def crop(c: Case) -> Value:
    x = c.input(*c.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    start = tuple(c.integer(0, n - 1) for n in x.type.shape)
    return c.g.emit(ops.Crop(start, tuple(c.integer(a + 1, n) for a, n in zip(start, x.type.shape, strict=True))), x)


def pick(c: Case) -> Value:
    """Resized to the nearest, or any rows and columns."""
    x = c.map(c.integer(1, 4))
    sizes = x.type.shape[1:3]
    if c.draw(st.booleans()):
        kind = c.draw(st.sampled_from(((False, False), (False, True), (True, False))))
        return c.g.emit(ops.Pick(*(nearest(n, c.integer(1, 20), *kind) for n in sizes)), x)
    places = (tuple(c.draw(st.lists(st.integers(0, n - 1), max_size=9))) for n in sizes)
    return c.g.emit(ops.Pick(*places), x)


def bilinear(c: Case) -> Value:
    how = c.draw(st.sampled_from(((False, False), (False, True), (True, False))))
    return c.g.emit(ops.ResizeBilinear(c.pair(1, 20), *how), c.map(c.integer(1, 4)))


def reshape(c: Case) -> Value:
    shape = c.draw(st.permutations((2, 3, 4)))
    return c.g.emit(ops.Reshape(c.draw(st.sampled_from((tuple(shape), (24,), (1, 6, 1, 4))))), c.input(1, 4, 3, 2))


def transpose(c: Case) -> Value:
    shape = c.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    return c.g.emit(ops.Transpose(tuple(c.draw(st.permutations(range(len(shape)))))), c.input(*shape))


def concat(c: Case) -> Value:
    shape = c.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axis, q = c.integer(0, len(shape) - 1), c.q()
    parts = []
    for _ in range(c.integer(1, 4)):
        shape[axis] = c.integer(1, 4)
        parts.append(c.input(*shape, q=q))
    return c.g.emit(ops.Concat(axis), *parts)


def lstm(c: Case) -> Value:
    shape, cells = c.pair(1, 6), c.integer(1, 5)
    op = ops.Lstm(c.draw(st.booleans()), c.draw(st.sampled_from((0.0, 0.3, 10.0))), c.integer(0, 6))
    x = c.input(1, *shape)
    if c.dtype == "float32":
        sizes = (("w", (4, cells, shape[1])), ("u", (4, cells, cells)), ("b", (4, cells)))
        held = (c.g.constant(name, c.rng.normal(size=size).astype(np.float32)) for name, size in sizes)
        return c.g.emit(op, x, *held)
    q = c.q(1 / 128) or recurrent_cases.HIDDEN
    return recurrent_cases.recurrent(c.g, c.rng, x, cells, op, c.draw(st.sampled_from((0.001, 0.02, 0.1))), y=q)


CASES: Mapping[str, Callable[[Case], Value]] = {
    "Activate": activate, "Add": add, "AvgPool": avg_pool, "Concat": concat, "Conv2D": conv, "Crop": crop,
    "Dense": dense, "Depthwise": depthwise, "Dequantize": dequantize, "LogSoftmax": log_softmax, "Lookup": lookup,
    "Lstm": lstm, "MatMul": matmul, "Maximum": maximum,
    "MaxPool": max_pool, "Mean": mean, "Mul": mul, "Pad": pad, "Pick": pick, "PRelu": prelu, "Quantize": quantize,
    "Requantize": requantize, "Reshape": reshape, "ResizeBilinear": bilinear, "Softmax": softmax,
    "Transpose": transpose, "UnitNorm": unit_norm,
}  # fmt: skip


@st.composite
def graphs(draw: Draw, op: str, dtype: str = "int8") -> Graph:
    """A graph of one node of this op."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    case = Case(draw, dtype, Builder(), rng)
    return case.g.graph(CASES[op](case))
