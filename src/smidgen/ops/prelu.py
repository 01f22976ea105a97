"""The rectifier whose slope below zero is given for each channel, or for each element."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen import numerics
from smidgen.ir import Array, Builder, Node, Op, Params, Type, Value, op
from smidgen.ops.elementwise import check_pair, ratio, repeat_grad
from smidgen.ops.gradient import RequantizeGrad, SumGrads, requantize_grad
from smidgen.ops.maximum import Compare
from smidgen.ops.pool_grad import MulGrad


@op
@dataclass(frozen=True)
class PRelu(Op):
    """y = x where x ≥ 0, elsewhere x · slope; the slope may repeat along x's leading dimensions."""

    kernel = "smg_prelu_s8"
    requantizes = True
    elementwise = True
    inplace = 0

    def infer(self, x: Type, slope: Type) -> Type:
        check_pair("PRelu", x, slope)
        return Type(x.shape, x.dtype)

    def multipliers(self, node: Node) -> tuple[tuple[int, int], tuple[int, int]]:
        """The factors of x itself and of its product with the slope."""
        x, slope, y = node.ins[0].type, node.ins[1].type, node.out.type
        return numerics.quantize_single(x.scale, over=y.scale), numerics.quantize_single(
            x.scale, slope.scale, over=y.scale
        )

    def ref(self, node: Node, x: Array, slope: Array) -> Array:
        if x.dtype == np.float32:
            chosen: Array = np.where(x >= 0, x, x * slope)
            return chosen
        above, below = self.multipliers(node)
        steps = x.astype(np.int64) - node.ins[0].type.zero
        products = steps * (slope.astype(np.int64) - node.ins[1].type.zero)
        scaled = np.where(steps >= 0, numerics.multiply(steps, *above), numerics.multiply(products, *below))
        return numerics.to_int8(scaled, node.out.type.zero)

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        """Where x ≥ 0 the gradient passes as through a requantization, elsewhere as through a product."""
        (x, slope), y = node.ins, node.out
        inside = requantize_grad(g, dy, y, (), "none")
        zero = g.constant("zero", np.array([x.type.zero], x.type.dtype), x.type.q)
        passes = RequantizeGrad(ratio(x.type, over=y.type), masked=True)
        product = RequantizeGrad(ratio(x.type, slope.type, over=y.type), masked=True)
        above = g.emit(passes, inside, g.emit(Compare(), x, zero))
        below = g.emit(product, inside, g.emit(Compare(less=True), x, zero))
        dx = g.emit(SumGrads(), above, g.emit(MulGrad(), below, slope))
        return dx, repeat_grad(g, slope, g.emit(MulGrad(), below, x))

    def params(self, node: Node) -> Params:
        (above, above_shift), (below, below_shift) = self.multipliers(node)
        x, slope, y = node.ins[0].type, node.ins[1].type, node.out.type
        return {
            "x_zero": x.zero, "slope_zero": slope.zero, "y_zero": y.zero, "slope_period": slope.size,
            "multiplier": above, "shift": above_shift, "slope_multiplier": below, "slope_shift": below_shift,
        }  # fmt: skip
