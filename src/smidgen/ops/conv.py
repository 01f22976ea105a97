"""2-D convolution with groups, and depthwise convolution with a channel multiplier."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, RowWindow, Type, Value, op
from smidgen.ops.conv_grad import ConvGradInput, ConvGradWeight, DepthwiseGradInput, DepthwiseGradWeight, same_map
from smidgen.ops.gradient import ChannelSum, requantize_grad
from smidgen.ops.window import Pad, Window


def check_weighted(what: str, x: Type, w: Type, b: Type, channels: int, axis: int) -> None:
    """What convolution, depthwise and dense all require of their input, weights and bias."""
    if x.dtype not in ("int8", "float32") or w.dtype != x.dtype:
        raise GraphError(
            f"{what} takes int8 or float32 with weights of the same type, not {x.dtype} with {w.dtype} weights"
        )
    bias = "int32" if x.dtype == "int8" else "float32"
    if b.dtype != bias or b.shape != (channels,):
        raise GraphError(f"{what} needs a bias of {bias}[{channels}], got {b.dtype}{list(b.shape)}")
    if x.dtype == "int8":
        if x.q is None or w.q is None:
            raise GraphError(f"{what} in int8 needs quantized input and weights")
        if x.q.axis is not None:
            raise GraphError(f"{what} in int8 takes an input with one scale, it has {len(x.q.scale)}")
        if w.q.zero != 0 or w.q.axis not in (None, axis):
            raise GraphError(f"{what} needs weights with zero point 0 and scales along axis {axis}, got {w.q.axis}")


def multipliers(node: Node) -> tuple[Array, Array]:
    """Per-channel s_x·s_w / s_y as multipliers and shifts."""
    x, w = node.ins[0].type, node.ins[1].type
    assert w.q is not None
    reals = x.scale * np.array(w.q.scale, np.float64) / node.out.type.scale
    return numerics.quantize_multipliers(np.broadcast_to(reals, (node.out.type.shape[-1],)))


def factors(node: Node) -> tuple[float, ...]:
    """∂y/∂accumulator of each channel: s_x·s_w / s_y, or 1 in float32."""
    x, w, y = node.ins[0].type, node.ins[1].type, node.out.type
    if w.q is None:
        return ()
    return tuple(float(s) for s in np.broadcast_to(x.scale * np.array(w.q.scale) / y.scale, (y.shape[-1],)))


def finish(node: Node, activation: str, acc: Array) -> Array:
    """Accumulators, bias included → output: requantize and saturate, or limit where it is float."""
    y = node.out.type
    if y.dtype == "float32":
        limited: Array = np.clip(acc, *numerics.activation_limits(activation)).astype(np.float32)
        return limited
    scaled = numerics.multiply(acc, *multipliers(node))
    return numerics.to_int8(scaled, y.zero, *numerics.activation_range(activation, y))


def requantize_params(node: Node, activation: str) -> Params:
    """The fields of the C struct that say how accumulators become int8."""
    multiplier, shift = multipliers(node)
    lo, hi = numerics.activation_range(activation, node.out.type)
    return {
        "x_zero": node.ins[0].type.zero, "y_zero": node.out.type.zero, "lo": lo, "hi": hi,
        "multiplier": multiplier, "shift": shift,
    }  # fmt: skip


@op
@dataclass(frozen=True)
class Conv2D(Op):
    """y[o] = Σ x·w[o] + b[o] over the window; weights are [out, rows, columns, in / groups]."""

    weight_axis: ClassVar[int] = 0  # along which weights have one scale, and one step, per output channel

    stride: tuple[int, int] = (1, 1)
    pad: Pad = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    activation: str = "none"

    kernel = "smg_conv2d_s8"
    overlay_input = 1
    requantizes = True
    spatial = True
    working_memory = True

    def window(self, w: Type) -> Window:
        return Window((w.shape[1], w.shape[2]), self.stride, self.pad, self.dilation)

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
        return finish(node, self.activation, (acc.astype(np.int64) if x.dtype == np.int8 else acc) + b)

    def params(self, node: Node) -> Params:
        x, w, _ = (v.type for v in node.ins)
        geometry = self.window(w).params(x, node.out.type)
        return {**geometry, "groups": self.groups, **requantize_params(node, self.activation)}

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        x, w, _ = node.ins
        dz = requantize_grad(g, dy, node.out, factors(node), self.activation)
        size = (w.type.shape[1], w.type.shape[2])
        stride, pad, dilation = self.stride, self.pad, self.dilation
        dx = ConvGradInput(
            stride=stride, pad=pad, dilation=dilation, size=(x.type.shape[1], x.type.shape[2]), groups=self.groups
        )
        dw = ConvGradWeight(stride, pad, dilation, size=size, groups=self.groups)
        return g.emit(dx, dz, w), g.emit(dw, x, dz), g.emit(ChannelSum(), dz)

    def row_window(self, node: Node) -> RowWindow:
        return self.window(node.ins[1].type).rows

    def macs(self, node: Node) -> int:
        return node.out.type.size * math.prod(node.ins[1].type.shape[1:])


@op
@dataclass(frozen=True)
class Depthwise(Op):
    """Each input channel has `multiplier` filters of its own; weights are [1, rows, columns, in · multiplier]."""

    weight_axis: ClassVar[int] = 3  # along which weights have one scale, and one step, per output channel

    stride: tuple[int, int] = (1, 1)
    pad: Pad = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    activation: str = "none"

    kernel = "smg_depthwise_s8"
    overlay_input = 1
    requantizes = True
    spatial = True
    working_memory = True

    def window(self, w: Type) -> Window:
        return Window((w.shape[1], w.shape[2]), self.stride, self.pad, self.dilation)

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
        return finish(node, self.activation, acc + b)

    def params(self, node: Node) -> Params:
        x, w, _ = (v.type for v in node.ins)
        return {**self.window(w).params(x, node.out.type), **requantize_params(node, self.activation)}

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        x, w, _ = node.ins
        dz = requantize_grad(g, dy, node.out, factors(node), self.activation)
        stride, pad, dilation = self.stride, self.pad, self.dilation
        multiplier = w.type.shape[3] // x.type.shape[3]
        dx = DepthwiseGradInput(
            stride=stride, pad=pad, dilation=dilation, size=(x.type.shape[1], x.type.shape[2]), multiplier=multiplier
        )
        dw = DepthwiseGradWeight(stride, pad, dilation, size=(w.type.shape[1], w.type.shape[2]))
        return g.emit(dx, dz, w), g.emit(dw, x, dz), g.emit(ChannelSum(), dz)

    def row_window(self, node: Node) -> RowWindow:
        return self.window(node.ins[1].type).rows

    def donor(self, node: Node) -> int | None:
        """Channels do not meet: kernels set some of the input aside, and put as many of the output in their place."""
        return 0 if same_map(node) else None

    def macs(self, node: Node) -> int:
        return node.out.type.size * math.prod(node.ins[1].type.shape[1:3])
