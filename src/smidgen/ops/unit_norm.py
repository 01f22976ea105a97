"""Rows brought to the length of one, as TFLite's int8 kernel does it, and the gradient of that by integers alone."""

import math

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, QParams, Type, Value, op
from smidgen.ops.elementwise import check_quantized
from smidgen.ops.functions import inverse_root
from smidgen.ops.gradient import GRADIENT_MOST, GradOp, requantize_grad
from smidgen.ops.normalize import ROOT_BITS, SUM_BITS, inverse_root_of

OUTPUT_BITS = 7  # of a result: 127 is next to one
UNIT_BITS = 14  # of an element of such a row after the point, in gradients; UNIT_BITS in C
UNIT = QParams.per_tensor(2.0**-OUTPUT_BITS)
MOST_CHANNELS = 33_000  # whose squares int32 adds up
LEAST_LENGTH = 1e-6  # of a row of float32


@op
class UnitNorm(Op):
    """y = x / √Σ x² along the last dimension; in int8 its output is always 1/128 per step from 0."""

    kernel = "smg_unit_norm_s8"

    def infer(self, x: Type) -> Type:
        check_quantized("UnitNorm", x)
        if not x.shape or x.shape[-1] > MOST_CHANNELS:
            raise GraphError(f"UnitNorm takes rows of up to {MOST_CHANNELS:,} elements, not {list(x.shape)}")
        return Type(x.shape, x.dtype, None if x.q is None else UNIT)

    def ref(self, node: Node, x: Array) -> Array:
        if x.dtype == np.float32:
            length = np.sqrt((x * x).sum(axis=-1, keepdims=True))
            return np.asarray(x / np.maximum(length, np.float32(LEAST_LENGTH)))
        steps = x.astype(np.int64) - node.ins[0].type.zero
        squares = (steps * steps).sum(axis=-1)
        roots = np.array([inverse_root(int(n)) for n in squares.ravel()], np.int64).reshape(*squares.shape, 2)
        return numerics.to_int8(numerics.multiply(steps, roots[..., :1], roots[..., 1:] + OUTPUT_BITS), 0)

    def params(self, node: Node) -> Params:
        x = node.ins[0].type
        return {"rows": x.size // x.shape[-1], "c": x.shape[-1], "x_zero": x.zero}

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        x = node.ins[0]
        if x.type.q is None:
            return (g.emit(UnitNormGrad(), dy, x),)
        dz = requantize_grad(g, dy, node.out, (2.0**OUTPUT_BITS,), "none")
        fraction = SUM_BITS - largest_sum(x.type.shape[-1]).bit_length()
        return (g.emit(UnitNormGrad(fraction=fraction), dz, x),)


def largest_sum(c: int) -> int:
    """Return the largest magnitude of a sum in the gradient: where a row is one step long."""
    return GRADIENT_MOST * (3 + math.isqrt(c))


@op
class UnitNormGrad(GradOp):
    """dx = (dy − y · Σ y·dy) / √Σ x² along the last dimension."""

    fraction: int = 0  # lowered: bits of a sum after the point

    kernel = "smg_unit_norm_grad_g8"
    operands = 2

    def shape(self, *operands: Type) -> tuple[int, ...]:
        dy, x = operands
        if dy.shape != x.shape:
            raise GraphError(f"UnitNormGrad of {list(x.shape)} does not fit the gradient {list(dy.shape)}")
        return x.shape

    def sums(self, node: Node, *operands: Array) -> Array:
        dy, x = operands
        if self.lowered:
            return self._whole_sums(dy.astype(np.int64), x.astype(np.int64) - node.ins[1].type.zero)
        wide = x.astype(np.float64) - node.ins[1].type.zero
        least = LEAST_LENGTH if x.dtype == np.float32 else 1.0
        length = np.maximum(np.sqrt((wide * wide).sum(axis=-1, keepdims=True)), least)
        y = wide / length
        return np.asarray(((dy - y * (y * dy).sum(axis=-1, keepdims=True)) / length).astype(np.float32))

    def _whole_sums(self, dy: Array, x: Array) -> Array:
        """Return the same in integers, with `fraction` bits after the point."""
        squares = (x * x).sum(axis=-1, keepdims=True)
        roots = [inverse_root_of(max(int(n), 1)) for n in squares.ravel()]
        inverse, half = (np.array(part, np.int64).reshape(squares.shape) for part in zip(*roots, strict=True))
        y = (x * inverse) >> (ROOT_BITS - UNIT_BITS - half)
        along = (dy * y).sum(axis=-1, keepdims=True)
        rest = (dy << UNIT_BITS) - ((y * along) >> UNIT_BITS)
        return np.asarray((rest * inverse) >> np.clip(ROOT_BITS + UNIT_BITS - half - self.fraction, 0, 63))

    def bound(self, node: Node) -> int:
        most = largest_sum(node.ins[1].type.shape[-1])
        return most << self.fraction if self.fraction >= 0 else (most >> -self.fraction) + 1

    def sizes(self, node: Node) -> Params:
        x = node.ins[1].type
        return {"rows": x.size // x.shape[-1], "c": x.shape[-1], "x_zero": x.zero, "fraction": self.fraction}
