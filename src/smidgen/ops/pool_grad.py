"""Gradients of pools, means and products with respect to their inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Params, Type, op
from smidgen.ops.checking import check_map, check_repeats, check_shape
from smidgen.ops.conv_grad import scatter
from smidgen.ops.gradient import GradOp
from smidgen.ops.window import Pad, Window, check_pads


@op
@dataclass(frozen=True)
class MeanGrad(GradOp):
    """Every position of a channel gets its mean's gradient; the count is in the factors."""

    size: tuple[int, int] = (1, 1)

    kernel = "smg_mean_grad_g8"

    def shape(self, *operands: Type) -> tuple[int, ...]:
        (dy,) = operands
        if dy.size != dy.shape[-1]:
            raise GraphError(f"MeanGrad takes the gradient of one number per channel, not {list(dy.shape)}")
        return (1, *self.size, dy.shape[-1])

    def sums(self, node: Node, *operands: Array) -> Array:
        dy = operands[0].reshape(1, 1, 1, -1)
        spread = np.broadcast_to(dy, node.outs[0].type.shape)
        return spread.astype(np.int64) if self.lowered else spread

    def bound(self, node: Node) -> int:
        return 127

    def params(self, node: Node) -> Params:
        _, h, w, c = node.outs[0].type.shape
        return {"n": h * w, "c": c, **self.rounding(node)}


@dataclass(frozen=True)
class PoolGrad(GradOp):
    """The geometry of the pool whose input gradient this is."""

    size: tuple[int, int] = (2, 2)
    stride: tuple[int, int] = (2, 2)
    pad: Pad = (0, 0, 0, 0)

    @property
    def window(self) -> Window:
        return Window(self.size, self.stride, self.pad)

    def check_window(self, x: Type, dy: Type) -> None:
        """Raise unless the pool of x is as large as dy."""
        what = type(self).__name__
        check_map(what, dy)
        check_pads(what, self.size, self.pad)
        if self.window.output(x, what) != dy.shape[1:3] or x.shape[3] != dy.shape[3]:
            raise GraphError(f"{what} of {list(x.shape)} does not fit the gradient {list(dy.shape)}")

    def overlap(self) -> int:
        """How many windows can see one element."""
        return int(np.prod([-(-k // s) for k, s in zip(self.size, self.stride, strict=True)]))


@op
@dataclass(frozen=True)
class AvgPoolGrad(PoolGrad):
    """Every element inside a window gets its share; lowered, a share is a 12-bit fraction of the window."""

    map: tuple[int, int] = (1, 1)  # rows and columns of the pooled map

    kernel = "smg_avg_pool_grad_g8"
    SHARE_BITS: ClassVar[int] = 12

    def shape(self, *operands: Type) -> tuple[int, ...]:
        (dy,) = operands
        shape = (1, *self.map, dy.shape[-1])
        self.check_window(Type(shape), dy)
        return shape

    def sums(self, node: Node, *operands: Array) -> Array:
        (dy,), shape = operands, node.outs[0].type.shape
        count = self.window.patches(np.ones((1, *self.map, 1), np.int64), 0).sum(axis=(2, 3))
        if self.lowered:
            each = dy[0].astype(np.int64) * (((1 << self.SHARE_BITS) + count // 2) // count)
        else:
            each = dy[0] / count.astype(np.float32)
        columns = np.broadcast_to(each[:, :, None, None], (*each.shape[:2], *self.size, each.shape[2]))
        return scatter(columns, self.window, shape)

    def multipliers(self) -> tuple[Array, int]:
        multiplier, shift = super().multipliers()
        return multiplier, shift - self.SHARE_BITS

    def bound(self, node: Node) -> int:
        return (127 << self.SHARE_BITS) * self.overlap()

    def params(self, node: Node) -> Params:
        geometry = self.window.params(node.outs[0].type, node.ins[0].type)
        return {**geometry, "share_bits": self.SHARE_BITS, **self.rounding(node)}


@op
@dataclass(frozen=True)
class MaxPoolGrad(PoolGrad):
    """The first largest element of each window gets its gradient."""

    kernel = "smg_max_pool_grad_g8"
    operands = 2

    def shape(self, *operands: Type) -> tuple[int, ...]:
        dy, x = operands
        self.check_window(x, dy)
        return x.shape

    def sums(self, node: Node, *operands: Array) -> Array:
        dy, x = operands
        low = -np.inf if x.dtype == np.float32 else -129
        patches = self.window.patches(x.astype(np.float64), low)
        rows, cols, kh, kw, c = patches.shape
        winner = patches.reshape(rows, cols, kh * kw, c).argmax(axis=2)
        hot = winner[:, :, None] == np.arange(kh * kw)[:, None]
        kind = np.int64 if self.lowered else np.float32
        columns = (hot * dy[0][:, :, None]).astype(kind).reshape(rows, cols, kh, kw, c)
        return scatter(columns, self.window, x.shape)

    def bound(self, node: Node) -> int:
        return 127 * self.overlap()

    def params(self, node: Node) -> Params:
        return {**self.window.params(node.outs[0].type, node.ins[0].type), **self.rounding(node)}


@op
@dataclass(frozen=True)
class MulGrad(GradOp):
    """da = dy · (b − zero), b repeating along it."""

    kernel = "smg_mul_grad_g8"
    operands = 2

    def shape(self, *operands: Type) -> tuple[int, ...]:
        check_repeats("MulGrad", *operands)
        return operands[0].shape

    def sums(self, node: Node, *operands: Array) -> Array:
        dy, b = operands
        kind = np.int64 if self.lowered else np.float32
        product: Array = dy.astype(kind) * (b.astype(kind) - np.asarray(node.ins[1].type.zero, kind))
        return product

    def bound(self, node: Node) -> int:
        return 127 * 255

    def params(self, node: Node) -> Params:
        out, b = node.outs[0].type, node.ins[1].type
        sizes = {"n": out.size, "c": out.shape[-1], "b_period": b.size, "b_zero": b.zero}
        return {**sizes, **self.rounding(node)}


@op
@dataclass(frozen=True)
class RepeatGrad(GradOp):
    """The gradient of a value that repeated along another: the sum over the repetitions."""

    repeated: tuple[int, ...] = (1,)  # the shape of the value

    kernel = "smg_repeat_grad_g8"

    def shape(self, *operands: Type) -> tuple[int, ...]:
        check_shape("RepeatGrad", self.repeated)
        if operands[0].size % math.prod(self.repeated):
            raise GraphError(f"RepeatGrad of {list(operands[0].shape)} does not repeat {list(self.repeated)}")
        return self.repeated

    def sums(self, node: Node, *operands: Array) -> Array:
        size = int(np.prod(self.repeated))
        kind = np.int64 if self.lowered else np.float32
        total: Array = operands[0].reshape(-1, size).sum(axis=0, dtype=kind).reshape(self.repeated)
        return total

    def bound(self, node: Node) -> int:
        return 127 * (node.ins[0].type.size // node.outs[0].type.size)

    def params(self, node: Node) -> Params:
        out = node.outs[0].type
        sizes = {"n": out.size, "c": out.shape[-1], "repeats": node.ins[0].type.size // out.size}
        return {**sizes, **self.rounding(node)}
