"""Max and average pooling, the mean over a whole map, and the gradients of all three."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, RowWindow, Type, Value, op
from smidgen.ops.checks import check_map
from smidgen.ops.elementwise import check_quantized
from smidgen.ops.gradient import GradOp, requantize_grad
from smidgen.ops.window import Pad, Window, check_pads, scatter


@dataclass(frozen=True)
class PoolWindow:
    """The geometry of a pool."""

    size: tuple[int, int] = (2, 2)
    stride: tuple[int, int] = (2, 2)
    pad: Pad = (0, 0, 0, 0)

    @property
    def window(self) -> Window:
        return Window(self.size, self.stride, self.pad)


@dataclass(frozen=True)
class Pool(PoolWindow, Op):
    """The common part of both pools: a window over each channel, the input's quantization kept."""

    activation: str = "none"

    spatial = True

    def infer(self, x: Type) -> Type:
        what = type(self).__name__
        numerics.check_activation(self.activation)
        check_quantized(what, x)
        check_pads(what, self.size, self.pad)
        return Type((1, *self.window.output(x, what), x.shape[3]), x.dtype, x.q)

    def limit(self, node: Node, y: Array) -> Array:
        float_limits = numerics.activation_limits(self.activation)
        if node.out.type.dtype == "float32":
            return np.asarray(np.clip(y, *float_limits).astype(np.float32))
        return numerics.to_int8(y, 0, *numerics.activation_range(self.activation, node.out.type))

    def row_window(self, node: Node) -> RowWindow:
        return self.window.rows

    def params(self, node: Node) -> Params:
        x, y = node.ins[0].type, node.out.type
        lo, hi = numerics.activation_range(self.activation, y)
        return {**self.window.params(x, y), "lo": lo, "hi": hi}


@op
class MaxPool(Pool):
    """The largest element of each window; padding never wins."""

    kernel = "smg_max_pool_s8"

    def ref(self, node: Node, x: Array) -> Array:
        wide = np.int64 if x.dtype == np.int8 else np.float32
        fill = np.iinfo(np.int8).min if x.dtype == np.int8 else -np.inf
        patches = self.window.patches(x.astype(wide), fill)
        return self.limit(node, patches.max(axis=(2, 3))[None])

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        dz = dy if self.activation == "none" else requantize_grad(g, dy, node.out, (), self.activation)
        return (g.emit(MaxPoolGrad(size=self.size, stride=self.stride, pad=self.pad), dz, node.ins[0]),)


@op
class AvgPool(Pool):
    """The mean of each window's elements inside the map, halves away from zero."""

    kernel = "smg_avg_pool_s8"

    def ref(self, node: Node, x: Array) -> Array:
        wide = np.int64 if x.dtype == np.int8 else np.float32
        total = self.window.patches(x.astype(wide), 0).sum(axis=(2, 3))
        count = self.window.patches(np.ones_like(x, wide), 0).sum(axis=(2, 3))
        if x.dtype == np.float32:
            return self.limit(node, (total / count)[None])
        magnitude = (np.abs(total) + count // 2) // count
        return self.limit(node, (np.sign(total) * magnitude)[None])

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        dz = dy if self.activation == "none" else requantize_grad(g, dy, node.out, (), self.activation)
        rows, columns = node.ins[0].type.shape[1:3]
        op = AvgPoolGrad(size=self.size, stride=self.stride, pad=self.pad, map=(rows, columns))
        return (g.emit(op, dz),)


@op
class Mean(Op):
    """The mean of each channel over the whole map, as [1, channels] or, with keep_dims, [1, 1, 1, channels]."""

    keep_dims: bool = False

    kernel = "smg_mean_s8"
    requantizes = True

    def infer(self, x: Type) -> Type:
        check_quantized("Mean", x)
        if len(x.shape) != 4 or x.shape[0] != 1:
            raise GraphError(f"Mean needs a [1, height, width, channels] map, its input is {list(x.shape)}")
        return Type((1, 1, 1, x.shape[3]) if self.keep_dims else (1, x.shape[3]), x.dtype)

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        x, y = node.ins[0].type, node.out.type
        ratio = 1.0 if x.q is None else x.scale / y.scale
        factor = ratio / (x.shape[1] * x.shape[2])
        return (g.emit(MeanGrad((factor,), size=(x.shape[1], x.shape[2])), dy),)

    def multiplier(self, node: Node) -> tuple[int, int]:
        """Return s_x / s_y divided by the count, as TFLite folds the division into the multiplier."""
        x = node.ins[0].type
        count = x.shape[1] * x.shape[2]
        multiplier, shift = numerics.quantize_multiplier(x.scale / node.out.type.scale)
        extra = min(count.bit_length() - 1, 32, 31 + shift)
        return (multiplier << extra) // count, shift - extra

    def ref(self, node: Node, x: Array) -> Array:
        if x.dtype == np.float32:
            return np.asarray(x.mean(axis=(1, 2), dtype=np.float32, keepdims=self.keep_dims))
        total = (x.astype(np.int64) - node.ins[0].type.zero).sum(axis=(1, 2), keepdims=self.keep_dims)
        return numerics.to_int8(numerics.multiply(total, *self.multiplier(node)), node.out.type.zero)

    def params(self, node: Node) -> Params:
        x = node.ins[0].type
        multiplier, shift = self.multiplier(node)
        return {
            "x_h": x.shape[1], "x_w": x.shape[2], "x_c": x.shape[3],
            "x_zero": x.zero, "y_zero": node.out.type.zero, "multiplier": multiplier, "shift": shift,
        }  # fmt: skip


@op
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

    def sizes(self, node: Node) -> Params:
        _, h, w, c = node.outs[0].type.shape
        return {"n": h * w, "c": c}


@dataclass(frozen=True)
class PoolGrad(PoolWindow, GradOp):
    """The input gradient of a pool of this geometry."""

    def check_window(self, x: Type, dy: Type) -> None:
        """Raise unless the pool of x is as large as dy."""
        what = type(self).__name__
        check_map(what, dy)
        check_pads(what, self.size, self.pad)
        if self.window.output(x, what) != dy.shape[1:3] or x.shape[3] != dy.shape[3]:
            raise GraphError(f"{what} of {list(x.shape)} does not fit the gradient {list(dy.shape)}")

    def sizes(self, node: Node) -> Params:
        return self.window.params(node.outs[0].type, node.ins[0].type)

    def overlap(self) -> int:
        """Return how many windows can see one element."""
        return int(np.prod([-(-k // s) for k, s in zip(self.size, self.stride, strict=True)]))


@op
class AvgPoolGrad(PoolGrad):
    """Every element inside a window gets its share; lowered, a share is a 12-bit fraction of the window."""

    map: tuple[int, int] = (1, 1)  # rows and columns of the pooled map

    kernel = "smg_avg_pool_grad_g8"
    SHARE_BITS: ClassVar[int] = 12
    fraction = SHARE_BITS

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

    def bound(self, node: Node) -> int:
        return (127 << self.SHARE_BITS) * self.overlap()

    def sizes(self, node: Node) -> Params:
        return {**super().sizes(node), "share_bits": self.SHARE_BITS}


@op
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
