"""2-D convolution with groups, depthwise convolution with a channel multiplier, and their gradients."""

from dataclasses import dataclass, replace

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Params, Type, Value, op
from smidgen.ops.checks import check_map, check_rank
from smidgen.ops.gradient import ChannelSum, GradOp, requantize_grad
from smidgen.ops.weighted import (
    Channels,
    WeightGrad,
    Windowed,
    check_weighted,
    factors,
    narrow,
    positions,
    requantize_params,
    wide,
)
from smidgen.ops.window import Sliding, Window, scatter


def same_map(node: Node) -> bool:
    """Return whether the first output is as large as the first input, pixel for pixel and channel for channel."""
    return node.ins[0].type.shape == node.outs[0].type.shape


@op
class Conv2D(Windowed):
    """y[o] = Σ x·w[o] + b[o] over the window; weights are [out, rows, columns, in / groups]."""

    groups: int = 1
    activation: str = "none"

    kernel = "smg_conv2d_s8"
    weight_axis = 0
    out_in_rows_columns = (0, 3, 1, 2)

    def infer(self, x: Type, w: Type, b: Type) -> Type:
        numerics.check_activation(self.activation)
        if len(w.shape) != 4:
            raise GraphError(f"Conv2D needs weights [out, rows, columns, in], got {list(w.shape)}")
        rows, columns = self.window(w).output(x, "Conv2D")
        n, groups = w.shape[0], self.groups
        check_weighted("Conv2D", x, w, b, n, self.weight_axis)
        if groups < 1 or n % groups or x.shape[3] != w.shape[3] * groups:
            raise GraphError(f"Conv2D of {x.shape[3]} channels in {groups} groups cannot use weights {list(w.shape)}")
        return Type((1, rows, columns, n), x.dtype)

    def ref(self, node: Node, x: Array, w: Array, b: Array) -> Array:
        # Sums of int8 products are exact in float64, which is what BLAS is fast at.
        wide = np.float64 if x.dtype == np.int8 else np.float32
        shifted = x.astype(wide) - node.ins[0].type.zero
        patches = self.window(node.ins[1].type).patches(shifted, 0)
        rows, columns, kh, kw, c = patches.shape
        grouped = patches.reshape(rows * columns, kh * kw, self.groups, c // self.groups)
        weights = w.astype(wide).reshape(self.groups, -1, kh * kw * (c // self.groups))
        sums = [grouped[:, :, g].reshape(rows * columns, -1) @ weights[g].T for g in range(self.groups)]
        acc = np.concatenate(sums, axis=1).reshape(1, rows, columns, -1)
        return self.finish(node, (acc.astype(np.int64) if x.dtype == np.int8 else acc) + b)

    def params(self, node: Node) -> Params:
        x, w, _ = (v.type for v in node.ins)
        geometry = self.window(w).params(x, node.out.type)
        return {**geometry, "groups": self.groups, **requantize_params(node, self.activation)}

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        return window_grads(g, node, dy, ConvGradInput(groups=self.groups), ConvGradWeight(groups=self.groups))


@op
class Depthwise(Windowed):
    """Each input channel has `multiplier` separate filters; weights are [1, rows, columns, in · multiplier]."""

    activation: str = "none"

    kernel = "smg_depthwise_s8"
    weight_axis = 3
    out_in_rows_columns = (3, 0, 1, 2)
    mixes_channels = False

    def infer(self, x: Type, w: Type, b: Type) -> Type:
        numerics.check_activation(self.activation)
        if len(w.shape) != 4 or w.shape[0] != 1:
            raise GraphError(f"Depthwise needs weights [1, rows, columns, channels], got {list(w.shape)}")
        rows, columns = self.window(w).output(x, "Depthwise")
        check_weighted("Depthwise", x, w, b, w.shape[3], self.weight_axis)
        if w.shape[3] % x.shape[3]:
            raise GraphError(f"Depthwise of {x.shape[3]} channels cannot give {w.shape[3]}: not a multiple")
        return Type((1, rows, columns, w.shape[3]), x.dtype)

    def ref(self, node: Node, x: Array, w: Array, b: Array) -> Array:
        wide = np.int64 if x.dtype == np.int8 else np.float32
        shifted = x.astype(wide) - node.ins[0].type.zero
        patches = self.window(node.ins[1].type).patches(shifted, 0)
        repeated = np.repeat(patches, w.shape[3] // x.shape[3], axis=4)
        acc = np.einsum("yxijc,ijc->yxc", repeated, w[0].astype(wide))[None]
        return self.finish(node, acc + b)

    def params(self, node: Node) -> Params:
        x, w, _ = (v.type for v in node.ins)
        return {**self.window(w).params(x, node.out.type), **requantize_params(node, self.activation)}

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        multiplier = node.ins[1].type.shape[3] // node.ins[0].type.shape[3]
        return window_grads(g, node, dy, DepthwiseGradInput(multiplier=multiplier), DepthwiseGradWeight())

    def donor(self, node: Node) -> int | None:
        """Return the input: channels do not meet, so kernels set some aside and write the output in their place."""
        return 0 if same_map(node) else None


@dataclass(frozen=True)
class WindowGrad(Sliding, GradOp):
    """The geometry of the convolution whose input gradient this is, and that input's rows and columns."""

    size: tuple[int, int] = (1, 1)

    operands = 2
    working_memory = True

    def window(self, w: Type) -> Window:
        return self.over(w.shape[1:3])

    def check_window(self, shape: tuple[int, ...], dy: Type, w: Type) -> tuple[int, ...]:
        """Return the shape of x; GraphError where a window of this geometry does not make a map like dy of it."""
        check_map(type(self).__name__, dy)
        if self.window(w).output(Type(shape), type(self).__name__) != dy.shape[1:3]:
            raise GraphError(f"{type(self).__name__} of {list(shape)} does not fit the gradient {list(dy.shape)}")
        return shape

    def sizes(self, node: Node) -> Params:
        """Return sizes as the forward kernel names them: x has the shape of dx, y that of dy."""
        return self.window(node.ins[1].type).params(node.outs[0].type, node.ins[0].type)

    def macs(self, node: Node) -> int:
        return positions(node.ins[0].type) * node.ins[1].type.size


@op
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

    def sizes(self, node: Node) -> Params:
        return {**super().sizes(node), "groups": self.groups}


@op
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

    def donor(self, node: Node) -> int | None:
        """Return dy: channels do not meet, so kernels set some of them aside and write dx in their place."""
        return 0 if same_map(node) else None


@dataclass(frozen=True)
class WindowWeightGrad(Sliding, WeightGrad):
    """The weight gradient of a convolution of this geometry."""

    size: tuple[int, int] = (1, 1)

    @property
    def window(self) -> Window:
        return self.over(self.size)

    def sizes(self, node: Node) -> Params:
        """Return sizes as the forward kernel names them."""
        return self.window.params(node.ins[0].type, node.ins[1].type)


def window_grads(
    g: Builder, node: Node, dy: Value, to_x: WindowGrad, to_w: WindowWeightGrad
) -> tuple[Value | None, ...]:
    """Emit the gradients of a convolution's input, weights and bias, given the ops without its geometry."""
    (x, w, _), op = node.ins, node.op
    assert isinstance(op, Windowed)
    dz = requantize_grad(g, dy, node.out, factors(node), op.activation)
    (_, height, width, _), (_, rows, columns, _) = x.type.shape, w.type.shape
    dx = replace(to_x, stride=op.stride, pad=op.pad, dilation=op.dilation, size=(height, width))
    dw = replace(to_w, stride=op.stride, pad=op.pad, dilation=op.dilation, size=(rows, columns))
    return g.emit(dx, dz, w), g.emit(dw, x, dz), g.emit(ChannelSum(), dz)


@op
class ConvGradWeight(WindowWeightGrad):
    """dw[o] = Σ over positions of (x − zero) · dy[o]; x may be some of the layer's channels only."""

    groups: int = 1

    kernel = "smg_conv2d_grad_weight_g8"
    fused_kernel = "smg_conv2d_weight_step"

    def channels_read(self, wanted: Channels, x: Type, dy: Type) -> tuple[Channels, Channels | None]:
        """Return those channels of every group of x."""
        wide = x.shape[3] // self.groups
        return tuple(first + c for first in range(0, x.shape[3], wide) for c in wanted), None

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
        return {**self.sizes(node), "groups": self.groups, "x_zero": node.ins[0].type.zero}


@op
class DepthwiseGradWeight(WindowWeightGrad):
    """dw[c] = Σ over positions of (x[c] − zero) · dy[c]."""

    kernel = "smg_depthwise_grad_weight_g8"
    fused_kernel = "smg_depthwise_weight_step"
    axis = 3

    def channels_read(self, wanted: Channels, x: Type, dy: Type) -> tuple[Channels, Channels | None]:
        """Return those channels of dy, and of x the ones they come from."""
        times = dy.shape[3] // x.shape[3]
        return tuple(c // times for c in wanted), wanted

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
        return np.asarray(total[None].astype(node.out.type.dtype))

    def params(self, node: Node) -> Params:
        return {**self.sizes(node), "x_zero": node.ins[0].type.zero}
