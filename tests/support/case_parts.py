"""Parts of op cases: graphs of one op around random weights and scales."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from smidgen import ops
from smidgen.ir import Builder, Graph, Op, QParams, Type, Value
from smidgen.ops.functions import FUNCTIONS
from smidgen.ops.window import Pad, same_pad

Q = QParams.per_tensor
X, SECOND, Y = Q(0.05, -3), Q(0.07, 90), Q(0.1, 5)  # quantizations of a case that asks for none
Rng = np.random.Generator
# Every function of `Lookup` with an alpha and a beta such as networks give it.
FUNCTION_PARAMETERS = tuple(
    (name, *{"celu": (1.5, 0.0), "clip": (-0.5, 2.0), "elu": (0.8, 0.0), "hard_sigmoid": (0.2, 0.5),
             "leaky_relu": (0.01, 0.0), "power": (0.5, 0.0), "selu": (1.67, 1.05)}.get(name, (0.0, 0.0)))
    for name in FUNCTIONS
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A graph around one op; `build` draws its constants."""

    name: str
    op: type[Op]
    build: Callable[[Rng], Graph]


@dataclass(frozen=True)
class Weights:
    """How constants are drawn: the largest weight and bias, the spread of scales, or one scale for all.

    Biases `at_the_ends` are of those magnitudes that few products take beyond 32 bits.
    """

    largest: int = 127
    bias: int = 3000
    scale: float = 0.01
    shared: bool = False
    at_the_ends: bool = False

    def draw(self, g: Builder, rng: Rng, shape: tuple[int, ...], axis: int) -> tuple[Value, Value]:
        channels = shape[axis]
        scales = self.scale * 2.0 ** rng.uniform(-2, 2, channels)
        q = Q(scales[0]) if self.shared else QParams.per_channel(scales, axis)
        w = rng.integers(-self.largest, self.largest + 1, shape).clip(-128, 127).astype(np.int8)
        b = rng.integers(-self.bias, self.bias + 1, channels)
        if self.at_the_ends:
            b = np.where(b < 0, -1, 1) * (2**31 - 1 - abs(b))
        return g.constant("w", w, q), g.constant("b", b.astype(np.int32))


PLAIN = Weights()
SATURATING = Weights(largest=1000, bias=1000, at_the_ends=True)  # weights of −128 and 127, sums that wrap


def _conv(
    op: ops.Conv2D | ops.Depthwise, size: tuple[int, int, int], w: tuple[int, ...], x: QParams, y: QParams,
    weights: Weights, rng: Rng,
) -> Graph:  # fmt: skip
    g = Builder("case")
    source = g.input("x", Type((1, *size), "int8", x))
    axis = 3 if isinstance(op, ops.Depthwise) else 0
    return g.graph(g.emit(op, source, *weights.draw(g, rng, w, axis), q=y))


def _pad(
    size: tuple[int, int, int], k: tuple[int, int], stride: tuple[int, int], same: bool, dilation: tuple[int, int],
    even: bool,
) -> Pad:  # fmt: skip
    """None, as TFLite pads, or `even`: as much before a map as behind it, as PyTorch pads."""
    if even:
        high, wide = (over * (n // 2) for over, n in zip(dilation, k, strict=True))
        return high, high, wide, wide
    return same_pad((1, *size), k, stride, dilation) if same else (0, 0, 0, 0)


def conv(
    name: str, size: tuple[int, int, int], out: int, k: tuple[int, int] = (3, 3), stride: tuple[int, int] = (1, 1),
    same: bool = True, dilation: tuple[int, int] = (1, 1), groups: int = 1, activation: str = "none",
    x: QParams = X, y: QParams = Y, weights: Weights = PLAIN, even: bool = False,
) -> Case:  # fmt: skip
    pad = _pad(size, k, stride, same, dilation, even)
    op = ops.Conv2D(stride, pad, dilation, groups, activation)
    shape = (out, *k, size[2] // groups)
    return Case(f"conv-{name}", ops.Conv2D, partial(_conv, op, size, shape, x, y, weights))


def depthwise(
    name: str, size: tuple[int, int, int], times: int = 1, k: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1), same: bool = True, dilation: tuple[int, int] = (1, 1), activation: str = "none",
    x: QParams = X, y: QParams = Y, weights: Weights = PLAIN, even: bool = False,
) -> Case:  # fmt: skip
    pad = _pad(size, k, stride, same, dilation, even)
    op = ops.Depthwise(stride, pad, dilation, activation)
    return Case(f"depthwise-{name}", ops.Depthwise, partial(_conv, op, size, (1, *k, size[2] * times), x, y, weights))


def dense(
    name: str, rows: int, c: int, n: int, activation: str = "none", y: QParams = Y, weights: Weights = PLAIN
) -> Case:
    def build(rng: Rng) -> Graph:
        g = Builder("case")
        x = g.input("x", Type((rows, c), "int8", Q(0.05, -9)))
        return g.graph(g.emit(ops.Dense(activation), x, *weights.draw(g, rng, (n, c), 0), q=y))

    return Case(f"dense-{name}", ops.Dense, build)


def unary(name: str, op: Op, *shape: int, dtype: str = "int8", x: QParams | None = X,
          y: QParams | None = None) -> Case:  # fmt: skip
    def build(rng: Rng) -> Graph:
        g = Builder("case")
        return g.graph(g.emit(op, g.input("x", Type(shape, dtype, x)), q=y))

    return Case(name, type(op), build)


def binary(name: str, op: Op, a: tuple[int, ...], b: tuple[int, ...], *, constant: bool = False,
           qa: QParams = X, qb: QParams = SECOND, y: QParams = Y) -> Case:  # fmt: skip
    def build(rng: Rng) -> Graph:
        g = Builder("case")
        left = g.input("a", Type(a, "int8", qa))
        data = rng.integers(-128, 128, b).astype(np.int8)
        right = g.constant("b", data, qb) if constant else g.input("b", Type(b, "int8", qb))
        return g.graph(g.emit(op, left, right, q=y))

    return Case(name, type(op), build)


def twice(name: str, op: Op, *shape: int) -> Case:
    """An op whose two inputs are one value, in whose place its output may lie."""

    def build(rng: Rng) -> Graph:
        g = Builder("case")
        x = g.input("x", Type(shape, "int8", X))
        return g.graph(g.emit(op, x, x, q=Y))

    return Case(name, type(op), build)


def concat(name: str, axis: int, *shapes: tuple[int, ...]) -> Case:
    def build(rng: Rng) -> Graph:
        g = Builder("case")
        parts = [g.input(f"x{i}", Type(shape, "int8", X)) for i, shape in enumerate(shapes)]
        return g.graph(g.emit(ops.Concat(axis), *parts))

    return Case(f"concat-{name}", ops.Concat, build)


def normalize(name: str, op: ops.Normalize, *shape: int, x: QParams = X, y: QParams = Y) -> Case:
    def build(rng: Rng) -> Graph:
        g = Builder("case")
        scale = rng.integers(-32767, 32768, shape[-1]).astype(np.int16)
        shift = rng.integers(-30_000, 30_001, shape[-1]).astype(np.int32)
        parts = g.constant("scale", scale, Q(5e-5)), g.constant("shift", shift)
        return g.graph(g.emit(op, g.input("x", Type(shape, "int8", x)), *parts, q=y))

    return Case(f"normalize-{name}", ops.Normalize, build)
