"""Gradients of the weighted ops with respect to their input and their weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Params, Type, Value, op
from smidgen.ops.checking import check_dtypes, check_gradient, check_map, check_rank, check_sums
from smidgen.ops.gradient import GRADIENT_MOST, GradOp, ParameterGrad
from smidgen.ops.window import Pad, Window

Channels = tuple[int, ...]


def wide(dy: Array) -> type[np.float64] | type[np.float32]:
    """Sums of int8 products are exact in float64, which is what BLAS is fast at."""
    return np.float64 if dy.dtype == np.int8 else np.float32


def narrow(sums: Array, dy: Array) -> Array:
    """Back to integers where the gradient is int8."""
    return sums.astype(np.int64) if dy.dtype == np.int8 else sums


def scatter(columns: Array, window: Window, shape: tuple[int, ...]) -> Array:
    """Add [rows, columns, kernel rows, kernel columns, channels] back to the map its patches came from."""
    (top, bottom, left, right), (_, h, w, c) = window.pad, shape
    rows, cols, kh, kw, _ = columns.shape
    (sh, sw), (dh, dw) = window.stride, window.dilation
    full = np.zeros((h + top + bottom, w + left + right, c), columns.dtype)
    for i in range(kh):
        for j in range(kw):
            full[i * dh : i * dh + rows * sh : sh, j * dw : j * dw + cols * sw : sw] += columns[:, :, i, j]
    return full[None, top : top + h, left : left + w]


def same_map(node: Node) -> bool:
    """Whether the first output is as large as the first input, pixel for pixel and channel for channel."""
    return node.ins[0].type.shape == node.outs[0].type.shape


@dataclass(frozen=True)
class WindowGrad(GradOp):
    """The geometry of the convolution whose input gradient this is, and that input's rows and columns."""

    stride: tuple[int, int] = (1, 1)
    pad: Pad = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    size: tuple[int, int] = (1, 1)

    operands = 2
    working_memory = True

    def window(self, w: Type) -> Window:
        return Window((w.shape[1], w.shape[2]), self.stride, self.pad, self.dilation)

    def check_window(self, shape: tuple[int, ...], dy: Type, w: Type) -> tuple[int, ...]:
        """The shape, unless this geometry makes another map of it than dy is one of."""
        check_map(type(self).__name__, dy)
        if self.window(w).output(Type(shape), type(self).__name__) != dy.shape[1:3]:
            raise GraphError(f"{type(self).__name__} of {list(shape)} does not fit the gradient {list(dy.shape)}")
        return shape

    def geometry(self, node: Node) -> Params:
        """Named as in the forward kernel: x is the map whose gradient is computed, y the one it came from."""
        return self.window(node.ins[1].type).params(node.outs[0].type, node.ins[0].type)

    def macs(self, node: Node) -> int:
        return node.ins[0].type.size * math.prod(node.ins[1].type.shape[1:])


@op
@dataclass(frozen=True)
class ConvGradInput(WindowGrad):
    """dx = Σ w[o] · dy[o] over the outputs that saw x."""

    groups: int = 1

    kernel = "smg_conv2d_grad_g8"
    overlay_input = 1

    def shape(self, *operands: Type) -> tuple[int, ...]:
        dy, w = operands
        check_rank("ConvGradInput", 4, w)
        if dy.shape[-1] != w.shape[0] or self.groups < 1 or w.shape[0] % self.groups:
            raise GraphError(f"ConvGradInput of {list(dy.shape)} cannot use weights {list(w.shape)}")
        return self.check_window((1, *self.size, w.shape[3] * self.groups), dy, w)

    def sums(self, node: Node, *operands: Array) -> Array:
        dy, w = (a.astype(wide(operands[0])) for a in operands)
        n, kh, kw, c = w.shape
        rows, cols = dy.shape[1:3]
        grouped = dy.reshape(rows * cols, self.groups, n // self.groups)
        weights = w.reshape(self.groups, n // self.groups, kh * kw * c)
        parts = [(grouped[:, g] @ weights[g]).reshape(rows, cols, kh, kw, c) for g in range(self.groups)]
        columns = narrow(np.concatenate(parts, axis=4), operands[0])
        return scatter(columns, self.window(node.ins[1].type), node.outs[0].type.shape)

    def bound(self, node: Node) -> int:
        n, kh, kw, _ = node.ins[1].type.shape
        return 127 * 128 * kh * kw * (n // self.groups)

    def params(self, node: Node) -> Params:
        return {**self.geometry(node), "groups": self.groups, **self.rounding(node)}


@op
@dataclass(frozen=True)
class DepthwiseGradInput(WindowGrad):
    """dx[c] = Σ w[c] · dy[c] over the outputs that saw x."""

    kernel = "smg_depthwise_grad_g8"
    overlay_input = 1

    def shape(self, *operands: Type) -> tuple[int, ...]:
        dy, w = operands
        check_map("DepthwiseGradInput", w)
        if dy.shape[-1] != w.shape[3] or self.multiplier < 1 or w.shape[3] % self.multiplier:
            raise GraphError(f"DepthwiseGradInput of {list(dy.shape)} cannot use weights {list(w.shape)}")
        return self.check_window((1, *self.size, w.shape[3] // self.multiplier), dy, w)

    multiplier: int = 1

    def sums(self, node: Node, *operands: Array) -> Array:
        dy, w = operands
        kind = np.int64 if dy.dtype == np.int8 else np.float32
        columns = dy[0, :, :, None, None, :].astype(kind) * w[0].astype(kind)
        split = columns.reshape(*columns.shape[:4], -1, self.multiplier).sum(axis=5, dtype=kind)
        return scatter(split, self.window(node.ins[1].type), node.outs[0].type.shape)

    def bound(self, node: Node) -> int:
        _, kh, kw, _ = node.ins[1].type.shape
        return 127 * 128 * kh * kw * self.multiplier

    def params(self, node: Node) -> Params:
        return {**self.geometry(node), **self.rounding(node)}

    def donor(self, node: Node) -> int | None:
        """Channels do not meet: kernels set some of dy aside, and put as many of dx in their place."""
        return 0 if same_map(node) else None

    def macs(self, node: Node) -> int:
        return node.ins[0].type.size * math.prod(node.ins[1].type.shape[1:3])


@op
@dataclass(frozen=True)
class DenseGradInput(GradOp):
    """dx = dy · w; in float32 the sum runs over the outputs in order."""

    operands = 2

    def symbol(self, node: Node) -> str:
        if self.lowered:
            return "smg_dense_grad_g8"
        plain = not self.masked and not self.factors and node.ins[1].type.dtype == "float32"
        return "smg_dense_grad_f32" if plain else ""

    def shape(self, *operands: Type) -> tuple[int, ...]:
        dy, w = operands
        check_rank("DenseGradInput", 2, dy, w)
        if dy.shape[1] != w.shape[0]:
            raise GraphError(f"DenseGradInput of {list(dy.shape)} cannot use weights {list(w.shape)}")
        return (dy.shape[0], w.shape[1])

    def sums(self, node: Node, *operands: Array) -> Array:
        dy, w = operands
        if dy.dtype == np.int8:
            exact: Array = (dy.astype(np.float64) @ w.astype(np.float64)).astype(np.int64)
            return exact
        total = np.zeros(node.outs[0].type.shape, np.float32)
        for n in range(w.shape[0]):
            total = total + dy[:, n : n + 1] * w[n].astype(np.float32)
        return total

    def bound(self, node: Node) -> int:
        return 127 * 128 * node.ins[1].type.shape[0]

    def params(self, node: Node) -> Params:
        rows, n = node.ins[0].type.shape
        sizes = {"rows": rows, "x_c": node.outs[0].type.shape[1], "y_c": n}
        return {**sizes, **self.rounding(node)} if self.lowered else sizes

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        return super().arguments(node) if self.lowered else (*node.ins, *node.outs)

    def macs(self, node: Node) -> int:
        return node.ins[0].type.size * node.ins[1].type.shape[1]


@dataclass(frozen=True)
class WeightGrad(ParameterGrad):
    """A weight gradient from x and dy: int32 sums where dy is int8, float32 where it is."""

    def channels_read(self, wanted: Channels, x: Type, dy: Type) -> tuple[Channels, Channels | None] | None:
        """The channels of x and of dy (None: all) that some of the result's need; None where it is made whole."""
        return None

    def bound(self, *types: Type) -> int:
        _, dy = types
        return 255 * GRADIENT_MOST * (dy.size // dy.shape[-1])

    def sum_type(self, x: Type, dy: Type, shape: tuple[int, ...]) -> Type:
        """The type of the sums, whose shape is this."""
        what = type(self).__name__
        if dy.dtype == "float32":
            check_dtypes(what, ("int8", "float32"), x)
            return Type(shape, "float32")
        check_dtypes(what, ("int8",), x)
        check_gradient(what, dy)
        check_sums(what, self.bound(x, dy))
        return Type(shape, "int32")

    def symbol(self, node: Node) -> str:
        return self.kernel if all(v.type.dtype == "int8" for v in node.ins) else ""


@op
@dataclass(frozen=True)
class ConvGradWeight(WeightGrad):
    """dw[o] = Σ over positions of (x − zero) · dy[o]; x may be some of the layer's channels only."""

    stride: tuple[int, int] = (1, 1)
    pad: Pad = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    size: tuple[int, int] = (1, 1)
    groups: int = 1

    kernel = "smg_conv2d_grad_weight_g8"
    fused_kernel = "smg_conv2d_weight_step"

    def channels_read(self, wanted: Channels, x: Type, dy: Type) -> tuple[Channels, Channels | None]:
        """Those channels of every group of x."""
        wide = x.shape[3] // self.groups
        return tuple(first + c for first in range(0, x.shape[3], wide) for c in wanted), None

    @property
    def window(self) -> Window:
        return Window(self.size, self.stride, self.pad, self.dilation)

    def infer(self, x: Type, dy: Type) -> Type:
        check_map("ConvGradWeight", x, dy)
        split = self.groups >= 1 and not x.shape[3] % self.groups and not dy.shape[3] % self.groups
        if not split or self.window.output(x, "ConvGradWeight") != dy.shape[1:3]:
            raise GraphError(f"ConvGradWeight of {list(x.shape)} does not fit the gradient {list(dy.shape)}")
        return self.sum_type(x, dy, (dy.shape[3], *self.size, x.shape[3] // self.groups))

    def ref(self, node: Node, x: Array, dy: Array) -> Array:
        shifted = x.astype(wide(dy)) - node.ins[0].type.zero
        patches = self.window.patches(shifted, 0)
        rows, cols, kh, kw, c = patches.shape
        grouped = patches.reshape(rows * cols, kh * kw, self.groups, c // self.groups)
        outs = dy.astype(wide(dy)).reshape(rows * cols, self.groups, -1)
        parts = [outs[:, g].T @ grouped[:, :, g].reshape(rows * cols, -1) for g in range(self.groups)]
        return narrow(np.concatenate(parts), dy).reshape(node.out.type.shape).astype(node.out.type.dtype)

    def params(self, node: Node) -> Params:
        x, dy = (v.type for v in node.ins)
        return {**self.window.params(x, dy), "groups": self.groups, "x_zero": x.zero}

    def macs(self, node: Node) -> int:
        return node.ins[1].type.size * math.prod(node.out.type.shape[1:])


@op
@dataclass(frozen=True)
class DepthwiseGradWeight(WeightGrad):
    """dw[c] = Σ over positions of (x[c] − zero) · dy[c]."""

    stride: tuple[int, int] = (1, 1)
    pad: Pad = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    size: tuple[int, int] = (1, 1)

    kernel = "smg_depthwise_grad_weight_g8"
    fused_kernel = "smg_depthwise_weight_step"
    axis = 3

    def channels_read(self, wanted: Channels, x: Type, dy: Type) -> tuple[Channels, Channels | None]:
        """Those channels of dy, and of x the ones they come from."""
        times = dy.shape[3] // x.shape[3]
        return tuple(c // times for c in wanted), wanted

    @property
    def window(self) -> Window:
        return Window(self.size, self.stride, self.pad, self.dilation)

    def infer(self, x: Type, dy: Type) -> Type:
        check_map("DepthwiseGradWeight", x, dy)
        if self.window.output(x, "DepthwiseGradWeight") != dy.shape[1:3] or dy.shape[3] % x.shape[3]:
            raise GraphError(f"DepthwiseGradWeight of {list(x.shape)} does not fit the gradient {list(dy.shape)}")
        return self.sum_type(x, dy, (1, *self.size, dy.shape[3]))

    def ref(self, node: Node, x: Array, dy: Array) -> Array:
        kind = np.int64 if dy.dtype == np.int8 else np.float32
        shifted: Array = x.astype(kind) - np.asarray(node.ins[0].type.zero, kind)
        repeated = np.repeat(self.window.patches(shifted, 0), dy.shape[3] // x.shape[3], axis=4)
        total = np.einsum("yxijc,yxc->ijc", repeated, dy[0].astype(kind))
        result: Array = total[None].astype(node.out.type.dtype)
        return result

    def params(self, node: Node) -> Params:
        x, dy = (v.type for v in node.ins)
        return {**self.window.params(x, dy), "x_zero": x.zero}

    def macs(self, node: Node) -> int:
        return node.ins[1].type.size * math.prod(self.size)


@op
@dataclass(frozen=True)
class DenseGradWeight(WeightGrad):
    """dw[n] = Σ over rows of dy[n] · (x − zero)."""

    kernel = "smg_dense_grad_weight_g8"
    fused_kernel = "smg_dense_weight_step"

    def infer(self, x: Type, dy: Type) -> Type:
        if len(x.shape) != 2 or len(dy.shape) != 2 or x.shape[0] != dy.shape[0]:
            raise GraphError(f"DenseGradWeight of {list(x.shape)} does not fit the gradient {list(dy.shape)}")
        return self.sum_type(x, dy, (dy.shape[1], x.shape[1]))

    def ref(self, node: Node, x: Array, dy: Array) -> Array:
        shifted: Array = x.astype(wide(dy)) - node.ins[0].type.zero
        outs: Array = dy.T.astype(wide(dy))
        return narrow(outs @ shifted, dy).astype(node.out.type.dtype)

    def params(self, node: Node) -> Params:
        x, dy = (v.type for v in node.ins)
        return {"rows": x.shape[0], "x_c": x.shape[1], "y_c": dy.shape[1], "x_zero": x.zero}

    def macs(self, node: Node) -> int:
        return node.ins[0].type.size * node.ins[1].type.shape[1]
