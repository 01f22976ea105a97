"""Fixed-point arithmetic in 16 and in 32 bits, exactly as gemmlowp defines it and TFLite's kernels use it.

Qm.n has m bits before the point, n after it and a sign. e^x is a polynomial times factors by the bits of x, and
1 / (1 + x) comes from Newton's method.
"""

from dataclasses import dataclass

import numpy as np

from smidgen.ir import Array


def shift_right(x: Array, bits: Array | int) -> Array:
    """Return x / 2^bits, halves away from zero."""
    mask = (1 << bits) - 1
    return np.asarray((x >> bits) + ((x & mask) > (mask >> 1) + (x < 0)))


@dataclass(frozen=True)
class FixedPoint:
    """Numbers of a sign and `bits` further bits, and the constants that their functions take."""

    bits: int
    exp_factors: tuple[int, ...]  # exp(−2^k) for k = −2 … 4, none before the point: the factors of a barrel shifter
    exp_eighth: int  # exp(−1/8), none before the point
    third: int  # 1/3
    c_48_17: int  # Newton's starting line for 1/x, two bits before the point
    c_32_17: int

    @property
    def most(self) -> int:
        """Return the largest number; it also stands for 1 where no bits are before the point."""
        return (1 << self.bits) - 1

    def saturate(self, x: Array) -> Array:
        """Return x limited to this width."""
        return np.asarray(np.clip(x, -self.most - 1, self.most))

    def product(self, a: Array | int, b: Array | int) -> Array:
        """Return the rounded upper half of 2ab, saturated."""
        product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
        half = 1 << (self.bits - 1)
        nudged = product + np.where(product >= 0, half, 1 - half)
        upper: Array = np.where(nudged >= 0, nudged >> self.bits, -(-nudged >> self.bits))
        return np.minimum(upper, self.most)

    def exp_negative(self, a: Array, whole: int) -> Array:
        """Return exp(a), none before the point, for a ≤ 0 with `whole` bits before it."""
        fraction = self.bits - whole
        quarter = 1 << (fraction - 2)
        offset = (a & (quarter - 1)) - quarter
        x = (offset << whole) + (1 << (self.bits - 3))
        x2 = self.product(x, x)
        x3, x4 = self.product(x2, x), self.product(x2, x2)
        tail = shift_right(self.product(shift_right(x4, 2) + x3, self.third) + x2, 1)
        result = self.saturate(self.exp_eighth + self.product(self.exp_eighth, x + tail))
        remainder = offset - a
        for k, factor in enumerate(self.exp_factors, start=-2):
            if k < whole:
                result = np.where(remainder & (1 << (fraction + k)), self.product(result, factor), result)
        if whole > 5:
            result = np.where(a < -(32 << fraction), 0, result)
        return np.where(a == 0, self.most, result)

    def reciprocal(self, x: Array) -> Array:
        """Return 2 / (1 + x), two bits before the point, for x from 0 to 1 with none."""
        half, one = (x + self.most + 1) >> 1, 1 << (self.bits - 2)
        y = self.c_48_17 + self.product(half, self.c_32_17)
        for _ in range(3):
            y = y + self.saturate(self.product(y, one - self.product(half, y)) << 2)
        return y


INT16 = FixedPoint(15, (25520, 19875, 12055, 4435, 600, 11, 0), 28918, 10923, 23130, -15420)
INT32 = FixedPoint(
    31,
    (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242),
    1895147668,
    715827883,
    1515870810,
    -1010580540,
)
