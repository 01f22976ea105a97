"""Random int8 graphs over every op, for property tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from smidgen.ir import Array, Builder, Graph, QParams, Type, Value
from smidgen.numerics import ACTIVATIONS
from smidgen.ops import (
    Activate,
    Add,
    AvgPool,
    Concat,
    Conv2D,
    Crop,
    Dense,
    Depthwise,
    Dequantize,
    LogSoftmax,
    Lookup,
    Lstm,
    MatMul,
    Maximum,
    MaxPool,
    Mean,
    Mul,
    Normalize,
    Pad,
    Pick,
    PRelu,
    Project,
    Quantize,
    Requantize,
    Reshape,
    ResizeBilinear,
    Softmax,
    Transpose,
    UnitNorm,
)
from smidgen.ops.window import Pad as Padding
from smidgen.ops.window import same_pad
from tests.support.case_parts import FUNCTION_PARAMETERS
from tests.support.recurrent_cases import recurrent as recurrent_layer

# ELU is not among LiteRT's reference kernels, whose roots take nothing below zero.
OWN_FUNCTIONS = ("abs", "exp", "gelu", "gelu_tanh", "hard_swish", "leaky_relu", "log", "sigmoid", "tanh")
MAX_SIZE = 4096  # elements of one tensor: keeps the slowest oracle quick


@dataclass
class Grower:
    """A graph in the making, the values it may still read, and where its choices come from."""

    draw: st.DrawFn
    rng: np.random.Generator
    g: Builder
    pool: list[Value]

    def choose(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def one_of(self, *options: object) -> object:
        return self.draw(st.sampled_from(options))

    def activation(self) -> str:
        return self.draw(st.sampled_from(ACTIVATIONS))

    def q(self, scale: float) -> QParams:
        """A quantization near `scale`: sometimes tight enough to saturate, sometimes loose."""
        return QParams.per_tensor(scale * 2.0 ** self.rng.uniform(-1.5, 1.5), self.zero())

    def zero(self) -> int:
        return self.draw(st.one_of(st.sampled_from((-128, 0, 127)), st.integers(-128, 127)))

    def value(self, rank: int | None = None) -> Value:
        fits = [v for v in self.pool if rank is None or len(v.type.shape) == rank]
        return self.draw(st.sampled_from(fits[-4:]))

    def keep(self, value: Value) -> None:
        self.pool.append(value)

    def weights(self, shape: tuple[int, ...], axis: int, shared: bool = False) -> tuple[Value, Value, float]:
        """Random weights and bias, and a typical weight scale."""
        channels = shape[axis]
        scales = self.rng.uniform(0.002, 0.02, 1 if shared else channels)
        q = QParams.per_tensor(scales[0]) if shared else QParams.per_channel(scales, axis)
        w = self.g.constant("w", self.rng.integers(-127, 128, shape).astype(np.int8), q)
        b = self.g.constant("b", self.rng.integers(-3000, 3001, channels).astype(np.int32))
        return w, b, float(scales.mean())

    def padding(self, x: Value, size: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]) -> Padding:
        kind = self.choose(0, 2)
        if kind == 0 and all((s - 1) * d < n for s, d, n in zip(size, dilation, x.type.shape[1:3], strict=True)):
            return (0, 0, 0, 0)
        same = same_pad(x.type.shape, size, stride, dilation)
        if kind == 2:
            top, bottom, left, right = same
            return (top + self.choose(0, 2), bottom + self.choose(0, 1), left, right + self.choose(0, 2))
        return same


def grow_conv(s: Grower) -> Value:
    x = s.value(4)
    size, stride = (s.choose(1, 5), s.choose(1, 5)), (s.choose(1, 2), s.choose(1, 2))
    dilation = (s.choose(1, 2), s.choose(1, 2)) if stride == (1, 1) else (1, 1)
    channels = x.type.shape[3]
    groups = s.draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
    out = groups * s.choose(1, max(1, 9 // groups))
    w, b, scale = s.weights((out, *size, channels // groups), 0, shared=bool(s.choose(0, 1)))
    reach = x.type.scale * scale * (size[0] * size[1] * channels // groups) ** 0.5 * 70
    op = Conv2D(stride, s.padding(x, size, stride, dilation), dilation, groups, s.activation())
    return s.g.emit(op, x, w, b, q=s.q(reach))


def grow_depthwise(s: Grower) -> Value:
    x = s.value(4)
    size = s.draw(st.sampled_from(((3, 3), (5, 5), (7, 7), (1, 3), (2, 2))))
    step = s.choose(1, 2)
    dilation = (s.choose(1, 2),) * 2 if step == 1 else (1, 1)
    multiplier = s.choose(1, 2)
    w, b, scale = s.weights((1, *size, x.type.shape[3] * multiplier), 3, shared=bool(s.choose(0, 1)))
    reach = x.type.scale * scale * (size[0] * size[1]) ** 0.5 * 70
    op = Depthwise((step, step), s.padding(x, size, (step, step), dilation), dilation, s.activation())
    return s.g.emit(op, x, w, b, q=s.q(reach))


def grow_dense(s: Grower) -> Value:
    x = s.value()
    x = x if len(x.type.shape) == 2 else s.g.emit(Reshape((1, x.type.size)), x)
    w, b, scale = s.weights((s.choose(1, 12), x.type.shape[1]), 0, shared=bool(s.choose(0, 1)))
    return s.g.emit(Dense(s.activation()), x, w, b, q=s.q(x.type.scale * scale * x.type.shape[1] ** 0.5 * 70))


def second(s: Grower, a: Value) -> Value:
    """Something to add to or multiply with `a`: a value of its shape, or a constant that repeats along it."""
    alike = [v for v in s.pool if v.type.shape == a.type.shape]
    if alike and s.choose(0, 2):
        return s.draw(st.sampled_from(alike))
    shape = s.draw(st.sampled_from((a.type.shape, a.type.shape[-1:], (1,))))
    data: Array = s.rng.integers(-128, 128, shape).astype(np.int8)
    return s.g.constant("k", data, s.q(a.type.scale))


def grow_add(s: Grower) -> Value:
    a = s.value()
    b = second(s, a)
    return s.g.emit(Add(s.activation()), a, b, q=s.q(max(a.type.scale, b.type.scale)))


def grow_mul(s: Grower) -> Value:
    a = s.value()
    b = second(s, a)
    return s.g.emit(Mul(s.activation()), a, b, q=s.q(a.type.scale * b.type.scale * 70))


def grow_maximum(s: Grower) -> Value:
    a = s.value()
    alike = [v for v in s.pool if v.type.shape == a.type.shape]
    if s.choose(0, 2):
        b = s.draw(st.sampled_from(alike))
        b = b if b.type.q == a.type.q else s.g.emit(Requantize(), b, q=a.type.q)
    else:
        shape = s.draw(st.sampled_from((a.type.shape, a.type.shape[-1:], (1,))))
        b = s.g.constant("k", s.rng.integers(-128, 128, shape).astype(np.int8), a.type.q)
    return s.g.emit(Maximum(), a, b)


def grow_matmul(s: Grower) -> Value:
    """A value times its own transpose, times another of its shape or times a constant, transposed or not."""
    a = s.value()
    *outer, rows, columns = a.type.shape
    turned = bool(s.choose(0, 1))
    depth = rows if turned else columns
    alike = [v for v in s.pool if v.type.shape == a.type.shape]
    if s.choose(0, 1):
        b, other = s.draw(st.sampled_from(alike)), not turned  # a · bᵀ, or aᵀ · b
    else:
        shape, other = (*outer, depth, s.choose(1, 9)), bool(s.choose(0, 1))
        shape = (*shape[:-2], shape[-1], shape[-2]) if other else shape
        b = s.g.constant("k", s.rng.integers(-128, 128, shape).astype(np.int8), s.q(a.type.scale))
    return s.g.emit(MatMul(turned, other), a, b, q=s.q(a.type.scale * b.type.scale * depth**0.5 * 5000))


def grow_normalize(s: Grower) -> Value:
    """By rows, or by groups of channels of all rows."""
    x = s.value()
    channels = x.type.shape[-1]
    groups = s.draw(st.sampled_from([n for n in range(1, channels + 1) if channels % n == 0]))
    scale = s.rng.integers(-32767, 32768, channels).astype(np.int16)
    shift = s.rng.integers(-20_000, 20_001, channels).astype(np.int32)
    op = Normalize(s.draw(st.sampled_from((1e-5, 1e-12, 0.01, 1.0))), groups if s.choose(0, 1) else 0)
    parts = s.g.constant("scale", scale, QParams.per_tensor(4e-5)), s.g.constant("shift", shift)
    return s.g.emit(op, x, *parts, q=s.q(0.03))


def grow_prelu(s: Grower) -> Value:
    x = s.value()
    shape = s.draw(st.sampled_from((x.type.shape, x.type.shape[-1:], (1,))))
    slope = s.g.constant("slope", s.rng.integers(-128, 128, shape).astype(np.int8), s.q(0.004))
    return s.g.emit(PRelu(), x, slope, q=s.q(x.type.scale))


def grow_pool(s: Grower) -> Value:
    x = s.value(4)
    size, step = (s.choose(1, 3), s.choose(1, 3)), s.choose(1, 2)
    same = same_pad(x.type.shape, size, (step, step))
    fits = size[0] <= x.type.shape[1] and size[1] <= x.type.shape[2]
    pad: Padding = (0, 0, 0, 0) if fits and s.choose(0, 1) else same
    op = AvgPool if s.choose(0, 1) else MaxPool
    return s.g.emit(op(size, (step, step), pad, s.activation()), x)


def grow_mean(s: Grower) -> Value:
    x = s.value(4)
    return s.g.emit(Mean(bool(s.choose(0, 1))), x, q=s.q(x.type.scale / 4))


def grow_pad(s: Grower) -> Value:
    x = s.value(4)
    before, after = ((0, s.choose(0, 2), s.choose(0, 2), s.choose(0, 1)) for _ in range(2))
    return s.g.emit(Pad(before, after), x)


def grow_crop(s: Grower) -> Value:
    x = s.value()
    start = tuple(s.choose(0, d - 1) for d in x.type.shape)
    return s.g.emit(Crop(start, tuple(s.choose(a + 1, d) for a, d in zip(start, x.type.shape, strict=True))), x)


def grow_pick(s: Grower) -> Value:
    """Larger by a factor, as networks that give maps have it, or any rows and columns."""
    x = s.value(4)
    sizes = x.type.shape[1:3]
    if s.choose(0, 1):
        return s.g.emit(Pick(*(tuple(i // 2 for i in range(2 * n)) for n in sizes)), x)
    rows, columns = (tuple(s.draw(st.lists(st.integers(0, n - 1), max_size=2 * n))) for n in sizes)
    return s.g.emit(Pick(rows, columns), x)


def grow_bilinear(s: Grower) -> Value:
    x = s.value(4)
    how = s.draw(st.sampled_from(((False, False), (True, False), (False, True))))
    return s.g.emit(ResizeBilinear((s.choose(1, 14), s.choose(1, 14)), *how), x)


def grow_reshape(s: Grower) -> Value:
    x = s.value()
    size = x.type.size
    factor = s.draw(st.sampled_from([f for f in range(1, min(size, 12) + 1) if size % f == 0]))
    shapes = ((1, size), (1, 1, factor, size // factor), (1, factor, 1, size // factor))
    return s.g.emit(Reshape(s.draw(st.sampled_from(shapes))), x)


def grow_transpose(s: Grower) -> Value:
    x = s.value(4)
    return s.g.emit(Transpose((0, *s.draw(st.permutations((1, 2, 3))))), x)


def grow_concat(s: Grower) -> Value:
    first = s.value()
    axis = s.choose(1, len(first.type.shape) - 1)
    parts = [first]
    for other in s.pool[-3:]:
        a, b = list(other.type.shape), list(first.type.shape)
        if len(a) == len(b) and a[:axis] + a[axis + 1 :] == b[:axis] + b[axis + 1 :]:
            parts.append(other if other.type.q == first.type.q else s.g.emit(Requantize(), other, q=first.type.q))
    return s.g.emit(Concat(axis), *parts)


def grow_rescale(s: Grower) -> Value:
    x = s.value()
    op = s.draw(st.sampled_from((Requantize(), Activate("relu"), Activate("relu6"), Activate("relu_n1_to_1"))))
    return s.g.emit(op, x, q=s.q(x.type.scale))


def grow_lookup(s: Grower) -> Value:
    x = s.value()
    function, alpha, beta = s.draw(st.sampled_from(FUNCTION_PARAMETERS))
    return s.g.emit(Lookup(function, alpha, beta), x, q=s.q(0.03))


def grow_own_function(s: Grower) -> Value:
    """A function as TFLite's own kernel computes it, in the scale that kernel asks for."""
    x = s.value()
    function = s.draw(st.sampled_from(OWN_FUNCTIONS))
    fixed = {"sigmoid": QParams.per_tensor(1 / 256, -128), "tanh": QParams.per_tensor(1 / 128)}
    q = fixed.get(function) or s.q(x.type.scale)
    return s.g.emit(Lookup(function, 0.2 if function == "leaky_relu" else 0.0, tflite=True), x, q=q)


def grow_float(s: Grower) -> Value:
    x = s.value()
    return s.g.emit(Quantize(), s.g.emit(Dequantize(), x), q=s.q(x.type.scale))


def grow_softmax(s: Grower) -> Value:
    kind = s.draw(st.sampled_from((Softmax, LogSoftmax)))
    return s.g.emit(kind(1.0 if kind is LogSoftmax else s.draw(st.sampled_from((1.0, 0.5, 3.0)))), s.value())


def grow_unit_norm(s: Grower) -> Value:
    return s.g.emit(UnitNorm(), s.value())


def grow_project(s: Grower) -> Value:
    x = s.value()
    x = x if len(x.type.shape) == 2 and x.type.shape[0] == 1 else s.g.emit(Reshape((1, x.type.size)), x)
    return s.g.emit(Project(s.choose(1, x.type.size), s.choose(0, 8)), x)


def grow_lstm(s: Grower) -> Value:
    """A recurrent layer over any value as rows of any length; at times limited, at times its last state alone."""
    x = s.value()
    columns = s.draw(st.sampled_from([n for n in range(1, x.type.size + 1) if x.type.size % n == 0]))
    op = Lstm(s.draw(st.booleans()), s.draw(st.sampled_from((0.0, 0.5, 10.0))), s.choose(0, 6))
    rows = s.g.emit(Reshape((1, x.type.size // columns, columns)), x)
    return recurrent_layer(s.g, s.rng, rows, s.choose(1, 6), op, y=s.q(1 / 128))


ANY = (
    grow_dense, grow_add, grow_mul, grow_maximum, grow_reshape, grow_concat, grow_crop, grow_rescale, grow_float,
    grow_softmax, grow_lookup, grow_own_function, grow_prelu, grow_matmul, grow_unit_norm,
    grow_project,
)  # fmt: skip
ON_MAPS = (grow_conv, grow_depthwise, grow_pool, grow_mean, grow_pad, grow_pick, grow_bilinear, grow_transpose)


BEYOND_TFLITE = (grow_normalize,)


@st.composite
def int8_graphs(draw: st.DrawFn, max_nodes: int = 7, *, recurrent: bool = True, beyond: bool = False) -> Graph:
    """A graph of a few nodes, any op, any wiring; what nobody reads is an output.

    With `beyond`, ops that TFLite has no operator for are among them.
    """
    g = Builder("random")
    s = Grower(draw, np.random.default_rng(draw(st.integers(0, 2**32 - 1))), g, [])
    for index in range(s.choose(1, 2)):
        shape = (1, s.choose(1, 9), s.choose(1, 9), s.choose(1, 8))
        if draw(st.booleans()):
            s.keep(g.input(f"x{index}", Type(shape, "int8", s.q(0.05))))
        else:
            s.keep(g.emit(Quantize(), g.input(f"x{index}", Type(shape, "float32")), q=s.q(0.05)))
    for _ in range(s.choose(1, max_nodes)):
        maps = any(len(v.type.shape) == 4 for v in s.pool[-4:])
        others = [*((grow_lstm,) if recurrent else ()), *(BEYOND_TFLITE * 3 if beyond else ())]
        options = [*ANY, *(ON_MAPS * 2 if maps else ()), *others]
        value = draw(st.sampled_from(options))(s)
        if value.type.size <= MAX_SIZE:
            s.keep(value)
    nodes = g.graph(s.pool[-1]).nodes
    read = {v for node in nodes for v in node.ins}
    outputs = [v for node in nodes for v in node.outs if v not in read]
    return g.graph(*(outputs or [s.pool[-1]]))


def random_inputs(graph: Graph, rng: np.random.Generator) -> tuple[Array, ...]:
    """Inputs of the graph's types, extremes included."""
    arrays: list[Array] = []
    for value in graph.inputs:
        if value.type.dtype == "int8":
            low, high = ((-128, 128), (127, 128), (-128, -127))[rng.choice(3, p=(0.8, 0.1, 0.1))]
            arrays.append(rng.integers(low, high, value.type.shape).astype(np.int8))
        else:
            arrays.append(rng.normal(0, 3, value.type.shape).astype(np.float32))
    return tuple(arrays)
