"""Activations other than a clamp: a function of each element, as a table of 256 results in int8, and PReLU."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, QParams, Type, Value, op
from smidgen.numerics import INT8_MAX, INT8_MIN
from smidgen.ops.elementwise import Compare, MulGrad, check_pair, check_quantized, ratio, repeat_grad
from smidgen.ops.functions import FUNCTIONS, TABLES
from smidgen.ops.gradient import RequantizeGrad, SumGrads, requantize_grad


@op
class Lookup(Op):
    """y = f(x), f a function of `functions.FUNCTIONS` with its parameters, or its slope.

    In int8 each result is the nearest or, with `tflite`, what TFLite's kernel of that function gives.
    """

    function: str
    alpha: float = 0.0
    beta: float = 0.0
    slope: bool = False
    tflite: bool = False

    kernel = "smg_lookup_s8"
    requantizes = True
    elementwise = True
    inplace = 0

    def infer(self, x: Type) -> Type:
        check_quantized("Lookup", x)
        if self.function not in FUNCTIONS:
            raise GraphError(f"there is no function {self.function[:40]!r}; known are {', '.join(FUNCTIONS)}")
        if not (math.isfinite(self.alpha) and math.isfinite(self.beta)):
            raise GraphError(f"{self.function} has the parameters {self.alpha} and {self.beta}; give finite numbers")
        if self.function == "celu" and self.alpha == 0:
            raise GraphError("celu divides by its alpha, which is 0; give another number")
        if self.tflite and (self.slope or self.function not in TABLES):
            raise GraphError(f"TFLite has no {self.function}; known are {', '.join(TABLES)}, but not their slopes")
        return Type(x.shape, x.dtype)

    def real(self, x: Array) -> Array:
        """Return f or its slope on real numbers, in float64."""
        function = FUNCTIONS[self.function]
        with np.errstate(over="ignore", under="ignore"):
            return (function.slope if self.slope else function.value)(x.astype(np.float64), self.alpha, self.beta)

    def table(self, x: Type, y: Type) -> Array:
        """Return the result of each int8 number, −128 first: halves away from zero, saturated."""
        if self.tflite:
            return TABLES[self.function](x, y, self.alpha)
        steps = np.clip(self.real(reals(x)) / y.scale, -1e6, 1e6)
        rounded = np.copysign(np.floor(np.abs(steps) + 0.5), steps)
        return np.asarray(np.clip(rounded + y.zero, INT8_MIN, INT8_MAX).astype(np.int8))

    def ref(self, node: Node, x: Array) -> Array:
        if x.dtype == np.float32:
            with np.errstate(over="ignore"):
                return self.real(x).astype(np.float32)
        return np.asarray(self.table(node.ins[0].type, node.out.type)[x.astype(np.int64) - INT8_MIN])

    def tangent(self, x: Type) -> tuple[Lookup, QParams]:
        """Return what gives the slope at int8 x, in a scale that holds the largest of its 256 results exactly."""
        slope = replace(self, slope=True, tflite=False)
        return slope, QParams.per_tensor((float(np.abs(slope.real(reals(x))).max()) or 1.0) / INT8_MAX)

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        (x,), y = node.ins, node.out
        dz = requantize_grad(g, dy, y, ratio(x.type, over=y.type), "none")
        if x.type.q is None:
            return (g.emit(MulGrad(), dz, g.emit(replace(self, slope=True, tflite=False), x)),)
        slope, q = self.tangent(x.type)
        return (g.emit(MulGrad((q.one,)), dz, g.emit(slope, x, q=q)),)

    def params(self, node: Node) -> Params:
        return {"table": self.table(node.ins[0].type, node.out.type)}


def is_sigmoid(op: Op) -> bool:
    """Return whether an op is the sigmoid itself, however it rounds."""
    return isinstance(op, Lookup) and op.function == "sigmoid" and not op.slope


def reals(x: Type) -> Array:
    """Return the real numbers that the 256 int8 numbers stand for."""
    return x.scale * (np.arange(INT8_MIN, INT8_MAX + 1) - x.zero)


@op
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
        """Return the factors of x itself and of its product with the slope."""
        x, slope, y = node.ins[0].type, node.ins[1].type, node.out.type
        return numerics.quantize_single(x.scale, over=y.scale), numerics.quantize_single(
            x.scale, slope.scale, over=y.scale
        )

    def ref(self, node: Node, x: Array, slope: Array) -> Array:
        if x.dtype == np.float32:
            return np.asarray(np.where(x >= 0, x, x * slope))
        above, below = self.multipliers(node)
        steps = x.astype(np.int64) - node.ins[0].type.zero
        products = steps * (slope.astype(np.int64) - node.ins[1].type.zero)
        scaled = np.where(steps >= 0, numerics.multiply(steps, *above), numerics.multiply(products, *below))
        return numerics.to_int8(scaled, node.out.type.zero)

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        """Pass the gradient where x ≥ 0 as through a requantization, elsewhere as through a product."""
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
