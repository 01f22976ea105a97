"""Softmax in int8, on gemmlowp's fixed-point arithmetic as TFLite's reference kernel uses it."""

from __future__ import annotations

import math

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, QParams, Type, Value, op
from smidgen.numerics.int16 import shift_right
from smidgen.ops.gradient import GRADIENT_MOST, GradOp

OUTPUT = QParams.per_tensor(1 / 256, -128)
DIFF_BITS = 5  # integer bits of a scaled difference to the row's maximum
SUM_BITS = 12  # integer bits of the sum of exponentials
MAX_DIFF = 255  # of two int8 numbers
SHARES = 256  # in steps of the output: one
REST_BITS = 21  # of what a gradient is multiplied by its share with
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
# exp(−2^k) for k = −2 … 4, in Q0.31: the factors of a barrel shifter.
EXP_FACTORS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
EXP_EIGHTH, THIRD = 1895147668, 715827883  # exp(−1/8) and 1/3 in Q0.31
C_48_17, C_32_17 = 1515870810, -1010580540  # Newton's starting line for 1/x, in Q2.29


def high_mul(a: Array | int, b: Array | int) -> Array:
    """The rounded upper half of 2ab, saturated: gemmlowp's product of fixed-point numbers."""
    product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    half: Array = np.where(nudged >= 0, nudged >> 31, -(-nudged >> 31))
    return np.minimum(half, INT32_MAX)


def shift_left(x: Array, exponent: Array | int) -> Array:
    """x · 2^exponent, saturated to int32."""
    result: Array = np.clip(np.asarray(x, np.int64) << exponent, INT32_MIN, INT32_MAX)
    return result


def exp_negative(a: Array) -> Array:
    """exp(a) in Q0.31 for a ≤ 0 in Q5.26."""
    quarter = 1 << 24
    offset = (a & (quarter - 1)) - quarter
    x = shift_left(offset, DIFF_BITS) + (1 << 28)
    x2 = high_mul(x, x)
    x3, x4 = high_mul(x2, x), high_mul(x2, x2)
    tail = shift_right(high_mul(shift_right(x4, 2) + x3, THIRD) + x2, 1)
    result = EXP_EIGHTH + high_mul(EXP_EIGHTH, x + tail)
    remainder = offset - a
    for bit, factor in enumerate(EXP_FACTORS, start=24):
        result = np.where(remainder & (1 << bit), high_mul(result, factor), result)
    return np.where(a == 0, INT32_MAX, result)


def leading_zeros(x: Array) -> Array:
    """The zeros before the first one of each of some 32-bit numbers."""
    return np.array([32 - int(n).bit_length() for n in x.ravel()], np.int64).reshape(x.shape)


def reciprocal(total: Array) -> tuple[Array, Array]:
    """1 / total of a Q12.19 sum as Q0.31, and the bits by which it is over one."""
    zeros = leading_zeros(total)
    return one_over_one_plus((total << zeros) - (1 << 31)), SUM_BITS - zeros


def one_over_one_plus(fraction: Array) -> Array:
    """1 / (1 + fraction) in Q0.31, by Newton's method."""
    s = fraction + INT32_MAX
    half = np.where(s >= 0, (s + 1) >> 1, -((1 - s) >> 1))
    x = C_48_17 + high_mul(half, C_32_17)
    for _ in range(3):
        x = x + shift_left(high_mul(x, (1 << 29) - high_mul(half, x)), 2)
    return shift_left(x, 1)


@op
class Softmax(Op):
    """exp(βx) / Σ exp(βx) along the last axis; in int8 its output is always 1/256 per step from −128."""

    beta: float = 1.0

    kernel = "smg_softmax_s8"
    output = OUTPUT

    def infer(self, x: Type) -> Type:
        name = type(self).__name__
        if not x.shape or not (math.isfinite(self.beta) and self.beta > 0):
            raise GraphError(f"{name} needs at least one dimension and a positive β, got {list(x.shape)}, {self.beta}")
        if x.dtype == "float32":
            return Type(x.shape, x.dtype)
        if x.dtype != "int8" or x.q is None or x.q.axis is not None:
            raise GraphError(f"{name} takes float32 or int8 with one scale, not {x.dtype}")
        if x.shape[-1] >= 1 << SUM_BITS:
            raise GraphError(f"{name} over {x.shape[-1]} elements overflows its sum; {(1 << SUM_BITS) - 1} fit")
        return Type(x.shape, x.dtype, self.output)

    def scaling(self, x: Type) -> tuple[int, int, int]:
        """Multiplier and left shift of a difference, and the least difference that counts."""
        real = min(self.beta * x.scale * (1 << (31 - DIFF_BITS)), 2.0**31 - 1)
        if real <= 1:
            raise GraphError(
                f"{type(self).__name__} of β {self.beta} and scale {x.scale:.3g} cannot tell its inputs apart; "
                "calibrate again"
            )
        multiplier, shift = numerics.quantize_multiplier(real)
        radius = math.floor(((1 << DIFF_BITS) - 1) * 2.0 ** (31 - DIFF_BITS) / 2.0**shift)
        return multiplier, shift, -min(radius, MAX_DIFF)

    def ref(self, node: Node, x: Array) -> Array:
        if x.dtype == np.float32:
            e = np.exp((x - x.max(axis=-1, keepdims=True)) * np.float32(self.beta))
            y: Array = e / e.sum(axis=-1, keepdims=True)
            return y
        scaled, counts, total = self.sums(node.ins[0].type, x)
        scale, over = reciprocal(total)
        y = shift_right(high_mul(scale, exp_negative(scaled)), over + 31 - 8) - 128
        return np.where(counts, np.clip(y, -128, 127), -128).astype(np.int8)

    def sums(self, type_: Type, x: Array) -> tuple[Array, Array, Array]:
        """Return differences to each row's maximum in Q5.26, which of them count, and sums of their exponentials."""
        multiplier, shift, least = self.scaling(type_)
        diff = x.astype(np.int64) - x.max(axis=-1, keepdims=True)
        counts = diff >= least
        scaled = high_mul(np.where(counts, diff, 0) << shift, multiplier)
        total = np.where(counts, shift_right(exp_negative(scaled), SUM_BITS), 0).sum(axis=-1, keepdims=True)
        return scaled, counts, total

    def params(self, node: Node) -> Params:
        x = node.ins[0].type
        multiplier, shift, least = self.scaling(x)
        return {
            "rows": x.size // x.shape[-1], "c": x.shape[-1],
            "multiplier": multiplier, "shift": shift, "least": least,
        }  # fmt: skip

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        x, y = node.ins[0].type, node.out
        factor = self.beta if x.q is None else self.beta * x.scale / SHARES
        dropped = max(0, largest_rest(x.shape[-1]).bit_length() - REST_BITS)
        return (g.emit(SoftmaxGrad((factor,), dropped=dropped), dy, y),)


def largest_rest(c: int) -> int:
    """The largest magnitude of what a share of c is multiplied with in the gradient."""
    return GRADIENT_MOST * (SHARES + MAX_DIFF * c)


@op
class SoftmaxGrad(GradOp):
    """dx = y · (dy − Σ y·dy) along the last axis; of int8 y, whose steps are shares of 256, 256² times that."""

    dropped: int = 0  # lowered: bits by which what a share is multiplied with is made smaller, so that products fit

    kernel = "smg_softmax_grad_g8"
    operands = 2

    def shape(self, *operands: Type) -> tuple[int, ...]:
        dy, y = operands
        if dy.shape != y.shape or (y.dtype == "int8" and y.q != OUTPUT):
            raise GraphError(
                f"SoftmaxGrad takes what a Softmax gave, of {list(dy.shape)}, not {y.dtype}{list(y.shape)}"
            )
        return dy.shape

    def sums(self, node: Node, *operands: Array) -> Array:
        dy, y = operands
        if y.dtype == np.float32:
            real: Array = y * (dy - (y * dy).sum(axis=-1, keepdims=True))
            return real
        shares = y.astype(np.int64 if self.lowered else np.float64) - node.ins[1].type.zero
        moved = dy.astype(shares.dtype)
        rest = SHARES * moved - (shares * moved).sum(axis=-1, keepdims=True)
        if self.lowered:
            rest = rest >> self.dropped
        product: Array = shares * rest
        return product if self.lowered else product.astype(np.float32)

    def multipliers(self) -> tuple[Array, int]:
        multiplier, shift = super().multipliers()
        return multiplier, shift + self.dropped

    def bound(self, node: Node) -> int:
        return MAX_DIFF * ((largest_rest(node.ins[0].type.shape[-1]) >> self.dropped) + 1)

    def sizes(self, node: Node) -> Params:
        x = node.ins[0].type
        return {"rows": x.size // x.shape[-1], "c": x.shape[-1], "dropped": self.dropped}
