"""Softmax in int8, on gemmlowp's fixed-point arithmetic as TFLite's reference kernel uses it."""

import math

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, QParams, Type, Value, op
from smidgen.numerics.fixed_point import INT32, shift_right
from smidgen.ops.gradient import GRADIENT_MOST, GradOp

OUTPUT = QParams.per_tensor(1 / 256, -128)
DIFF_BITS = 5  # integer bits of a scaled difference to the row's maximum
SUM_BITS = 12  # integer bits of the sum of exponentials
MAX_DIFF = 255  # of two int8 numbers
SHARES = 256  # in steps of the output: one
REST_BITS = 21  # of what a gradient is multiplied by its share with


def leading_zeros(x: Array) -> Array:
    """Return how many zeros stand before the first one of each 32-bit number."""
    return np.array([32 - int(n).bit_length() for n in x.ravel()], np.int64).reshape(x.shape)


def reciprocal(total: Array) -> tuple[Array, Array]:
    """Return 1 / total of a Q12.19 sum as Q0.31, and the bits by which it is over one."""
    zeros = leading_zeros(total)
    return INT32.saturate(INT32.reciprocal((total << zeros) - (1 << 31)) << 1), SUM_BITS - zeros


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
        """Return multiplier and left shift of a difference, and the least difference that counts."""
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
            return np.asarray(e / e.sum(axis=-1, keepdims=True))
        scaled, counts, total = self.sums(node.ins[0].type, x)
        scale, over = reciprocal(total)
        y = shift_right(INT32.product(scale, INT32.exp_negative(scaled, DIFF_BITS)), over + 31 - 8) - 128
        return np.where(counts, np.clip(y, -128, 127), -128).astype(np.int8)

    def sums(self, type_: Type, x: Array) -> tuple[Array, Array, Array]:
        """Return differences to each row's maximum in Q5.26, which of them count, and sums of their exponentials."""
        multiplier, shift, least = self.scaling(type_)
        diff = x.astype(np.int64) - x.max(axis=-1, keepdims=True)
        counts = diff >= least
        scaled = INT32.product(np.where(counts, diff, 0) << shift, multiplier)
        exps = INT32.exp_negative(scaled, DIFF_BITS)
        return scaled, counts, np.where(counts, shift_right(exps, SUM_BITS), 0).sum(axis=-1, keepdims=True)

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
    """Return the largest magnitude of what a share is multiplied by in the gradient over c channels."""
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
            return np.asarray(y * (dy - (y * dy).sum(axis=-1, keepdims=True)))
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
