"""Layers with weights, (x, weights, bias) → y, and what they answer for themselves; `conv` and `dense` have them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Op, Params, RowWindow, Type
from smidgen.ops.checks import check_dtypes, check_gradient, check_sums
from smidgen.ops.gradient import GRADIENT_MOST, ParameterGrad
from smidgen.ops.window import Pad, Sliding, Window

Channels = tuple[int, ...]


class Weighted(Op):
    """A layer whose every output is a sum of inputs times weights, plus a bias and an activation."""

    activation: str
    groups: int = 1  # of channels that do not meet
    pad: Pad = (0, 0, 0, 0)

    weight_axis: ClassVar[int]  # along which weights have one scale, and one step, per output channel
    mixes_channels: ClassVar[bool] = True  # an output channel reads all input channels, or all of its group
    learns_in_parts: ClassVar[bool] = True  # some of its input channels may learn without the others
    requantizes = True

    @property
    def mixes_all(self) -> bool:
        """Return whether every output channel reads every input channel."""
        return self.mixes_channels and self.groups == 1

    def along_outputs(self, numbers: Array, w: Array) -> Array:
        """Return one number per output channel, shaped to broadcast along the weights."""
        return numbers.reshape([-1 if axis == self.weight_axis else 1 for axis in range(w.ndim)])

    def along_inputs(self, numbers: Array, w: Array) -> Array:
        """Return one number per input channel, shaped to broadcast along the weights."""
        if not self.mixes_channels:
            return np.repeat(numbers, w.shape[-1] // len(numbers))
        if self.groups == 1:
            return numbers
        group = np.arange(w.shape[0]) // (w.shape[0] // self.groups)
        return np.asarray(numbers.reshape(-1, w.shape[-1])[group][:, None, None])

    def sum_outputs(self, products: Array) -> Array:
        """Return the sum for each output channel of what has the shape of the weights."""
        return np.asarray(products.sum(axis=tuple(axis for axis in range(products.ndim) if axis != self.weight_axis)))

    def taps(self, w: Array) -> int:
        """Return how many products make one output."""
        return w.size // int(w.shape[self.weight_axis])

    def finish(self, node: Node, acc: Array) -> Array:
        """Turn accumulators, bias included, into outputs: requantize and saturate, or limit where they are float."""
        y = node.out.type
        scaled = acc if y.dtype == "float32" else numerics.multiply(acc, *multipliers(node))
        return numerics.activated(scaled, self.activation, y)

    def macs(self, node: Node) -> int:
        return positions(node.out.type) * node.ins[1].type.size


@dataclass(frozen=True)
class Windowed(Sliding, Weighted):
    """A window that slides over a map, and weights of which some channels may be laid over."""

    out_in_rows_columns: ClassVar[tuple[int, int, int, int]]  # the axes of weights in this order, which ONNX has
    overlay_input = 1
    spatial = True
    working_memory = True

    def window(self, w: Type) -> Window:
        return self.over(w.shape[1:3])

    def row_window(self, node: Node) -> RowWindow:
        return self.window(node.ins[1].type).rows

    def separate_groups(self, x: Type) -> int:
        """Return how many groups of input channels do not meet."""
        return self.groups if self.mixes_channels else x.shape[3]


def positions(y: Type) -> int:
    """Return how often each weight is multiplied: once for every position of the output."""
    return y.size // y.shape[-1]


def weighted(node: Node) -> Weighted:
    """Return the op of a node that is a layer with weights."""
    assert isinstance(node.op, Weighted)
    return node.op


def check_weighted(what: str, x: Type, w: Type, b: Type, channels: int, axis: int) -> None:
    """Raise GraphError unless input, weights and bias are what every layer with weights takes."""
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
    """Return s_x·s_w / s_y of each channel as multipliers and shifts."""
    x, w = node.ins[0].type, node.ins[1].type
    assert w.q is not None
    reals = x.scale * np.array(w.q.scale, np.float64) / node.out.type.scale
    return numerics.quantize_multipliers(np.broadcast_to(reals, (node.out.type.shape[-1],)))


def factors(node: Node) -> tuple[float, ...]:
    """Return ∂y/∂accumulator of each channel: s_x·s_w / s_y, or 1 in float32."""
    x, w, y = node.ins[0].type, node.ins[1].type, node.out.type
    if w.q is None:
        return ()
    return tuple(float(s) for s in np.broadcast_to(x.scale * np.array(w.q.scale) / y.scale, (y.shape[-1],)))


def requantize_params(node: Node, activation: str) -> Params:
    """Return the fields of the C struct that say how accumulators become int8."""
    multiplier, shift = multipliers(node)
    lo, hi = numerics.activation_range(activation, node.out.type)
    return {
        "x_zero": node.ins[0].type.zero, "y_zero": node.out.type.zero, "lo": lo, "hi": hi,
        "multiplier": multiplier, "shift": shift,
    }  # fmt: skip


def wide(dy: Array) -> type[np.float64] | type[np.float32]:
    """Return the type to sum in: sums of int8 products are exact in float64, which is what BLAS is fast at."""
    return np.float64 if dy.dtype == np.int8 else np.float32


def narrow(sums: Array, dy: Array) -> Array:
    """Return the sums as integers where the gradient is int8."""
    return sums.astype(np.int64) if dy.dtype == np.int8 else sums


@dataclass(frozen=True)
class WeightGrad(ParameterGrad):
    """A weight gradient from x and dy: int32 sums where dy is int8, float32 where it is."""

    def channels_read(self, wanted: Channels, x: Type, dy: Type) -> tuple[Channels, Channels | None] | None:
        """Return the channels of x and of dy (None: all) that some of the result need; None where it is made whole."""
        return None

    def bound(self, *types: Type) -> int:
        _, dy = types
        return 255 * GRADIENT_MOST * positions(dy)

    def sum_type(self, x: Type, dy: Type, shape: tuple[int, ...]) -> Type:
        """Return the type of the sums, of this shape."""
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

    def macs(self, node: Node) -> int:
        return positions(node.ins[1].type) * node.out.type.size
