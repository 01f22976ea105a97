"""The arithmetic contract in ONNX's integer nodes: `numerics` and the fixed point of softmax, bit for bit.

ONNX divides integers towards zero and has no arithmetic shift, so that a floor is the quotient of a number lifted above
zero, and a rounding shift the quotient of a number moved half a divisor away from zero. What Sign and Clip read fits
int32 everywhere: of larger int64 numbers some builds of ONNX Runtime compare the lower halves wrongly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import helper

from smidgen.frontends.onnx.writer import Writer
from smidgen.ir import Array
from smidgen.numerics import INT32_MAX
from smidgen.ops.softmax import C_32_17, C_48_17, SUM_BITS

LIFT = 1 << 62  # more than any product of two int32 numbers is below zero


@dataclass(frozen=True)
class Steps:
    """Nodes one after another, named after the value they compute."""

    writer: Writer
    name: str

    def emit(self, code: str, *ins: str, **attributes: object) -> str:
        return self.writer.emit(code, f"{self.name}:step{len(self.writer.nodes)}", *ins, **attributes)

    def number(self, data: Array | Sequence[int] | float, dtype: str = "int64") -> str:
        """The name of constant numbers; single ones are held once for all layers."""
        array = np.asarray(data).astype(dtype)
        single = f"number:{dtype}:{array.item()}" if array.ndim == 0 else ""
        return self.writer.constant(single or f"{self.name}:numbers{len(self.writer.constants)}", array)

    def cast(self, x: str, dtype: str) -> str:
        return self.emit("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def pick(self, table: Array, x: str) -> str:
        """table[x]"""
        return self.emit("Gather", self.number(table, table.dtype.name), x)

    def over(self, x: str, divisor: Array | int, dtype: str = "int64") -> str:
        """x / divisor, halves away from zero; x fits int32."""
        half = self.emit("Mul", self.emit("Sign", x), self.number(np.asarray(divisor) // 2, dtype))
        return self.emit("Div", self.emit("Add", x, half), self.number(divisor, dtype))

    def high(self, product: str) -> str:
        """The upper half of twice a product of int32 numbers, halves up."""
        lifted = self.emit("Add", product, self.number(LIFT + (1 << 30)))
        return self.emit("Sub", self.emit("Div", lifted, self.number(1 << 31)), self.number(LIFT >> 31))

    def multiply(self, x: str, multiplier: Array | int, shift: Array | int) -> str:
        """`numerics.multiply` of int32 numbers."""
        left, right = np.maximum(np.asarray(shift, np.int64), 0), np.maximum(-np.asarray(shift, np.int64), 0)
        wide = self.cast(x, "int64")
        if left.any():
            raised = self.emit("Mul", wide, self.number(np.int64(1) << left))
            wide = self.cast(self.cast(raised, "int32"), "int64")  # a cast drops the upper bits, as C's shift does
        high = self.high(self.emit("Mul", wide, self.number(np.asarray(multiplier))))
        return self.cast(self.over(high, np.int64(1) << right) if right.any() else high, "int32")

    def scale_double(self, x: str, factor: Array) -> str:
        """`numerics.scale_double` of int32 numbers: twice the product, cut towards zero, still tells halves apart."""
        twice = self.emit("Mul", self.cast(x, "float64"), self.number(2 * factor, "float64"))
        limits = (self.number(limit, "float64") for limit in (-2e9, 2e9))
        return self.over(self.cast(self.emit("Clip", twice, *limits), "int32"), 2, "int32")

    def high_mul(self, a: str, b: str) -> str:
        return self.high(self.emit("Mul", a, b))

    def raised(self, x: str, factor: int) -> str:
        """x · factor, saturated to int32 by way of double, which holds both."""
        product = self.cast(self.emit("Mul", x, self.number(factor)), "float64")
        limits = (self.number(limit, "float64") for limit in (-INT32_MAX - 1, INT32_MAX))
        return self.cast(self.emit("Clip", product, *limits), "int64")

    def reciprocal(self, total: str) -> tuple[str, str]:
        """`softmax.reciprocal` of sums, each in [2^19, 2^31): as int64, and the bits by which it is over one."""
        bits = SUM_BITS - 1
        powers = self.number([1 << (31 - bits + k) for k in range(bits)])
        reached = self.cast(self.emit("GreaterOrEqual", total, powers), "int64")
        above = self.emit("ReduceSum", reached, self.number([-1]), keepdims=1)
        whole = self.emit("Mul", total, self.pick(np.int64(1) << np.arange(SUM_BITS, 0, -1), above))
        half = self.emit("Div", whole, self.number(2))
        x = self.emit("Add", self.high_mul(half, self.number(C_32_17)), self.number(C_48_17))
        for _ in range(3):
            rest = self.emit("Sub", self.number(1 << 29), self.high_mul(half, x))
            x = self.emit("Add", x, self.raised(self.high_mul(x, rest), 4))
        return self.raised(x, 2), above
