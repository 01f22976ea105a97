"""Fixed point in 16 bits as TFLite's recurrent layers compute in it: products, sigmoid and tanh, exactly.

Qm.n has m bits before the point, n after it and a sign: m + n = 15. The functions are gemmlowp's: e^x as a polynomial
times factors by the bits of x, then 1 / (1 + e^x) by Newton's method.
"""

from __future__ import annotations

import numpy as np

from smidgen.ir import Array

INT16_MIN, INT16_MAX = -(2**15), 2**15 - 1
GATE_BITS = 3  # before the point of what goes into a gate: Q3.12
FRACTION = 15  # bits behind the point of what comes out of one: Q0.15
# exp(−2^k) for k = −2 … 4, in Q0.15: the factors of a barrel shifter.
EXP_FACTORS = (25520, 19875, 12055, 4435, 600, 11, 0)
EXP_EIGHTH, THIRD = 28918, 10923  # exp(−1/8) and 1/3 in Q0.15
C_48_17, C_32_17, ONE = 23130, -15420, 1 << 13  # Newton's starting line for 1/x, and 1, in Q2.13


def saturate(x: Array) -> Array:
    """x limited to int16."""
    limited: Array = np.clip(x, INT16_MIN, INT16_MAX)
    return limited


def half_mul(a: Array | int, b: Array | int) -> Array:
    """The rounded upper half of 2ab, saturated: gemmlowp's product of fixed-point numbers."""
    product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    half: Array = np.where(nudged >= 0, nudged >> 15, -(-nudged >> 15))
    return np.minimum(half, INT16_MAX)


def shift_right(x: Array, bits: Array | int) -> Array:
    """x / 2^bits, halves away from zero."""
    mask = (1 << bits) - 1
    result: Array = (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0))
    return result


def exp_negative(a: Array, whole: int) -> Array:
    """exp(a) in Q0.15 for a ≤ 0 with `whole` bits before the point."""
    fraction = FRACTION - whole
    quarter = 1 << (fraction - 2)
    offset = (a & (quarter - 1)) - quarter
    x = (offset << whole) + (1 << 12)
    x2 = half_mul(x, x)
    x3, x4 = half_mul(x2, x), half_mul(x2, x2)
    tail = shift_right(half_mul(shift_right(x4, 2) + x3, THIRD) + x2, 1)
    result = saturate(EXP_EIGHTH + half_mul(EXP_EIGHTH, x + tail))
    remainder = offset - a
    for k, factor in enumerate(EXP_FACTORS, start=-2):
        if k < whole:
            result = np.where(remainder & (1 << (fraction + k)), half_mul(result, factor), result)
    if whole > 5:
        result = np.where(a < -(32 << fraction), 0, result)
    return np.where(a == 0, INT16_MAX, result)


def _reciprocal(x: Array) -> Array:
    """2 / (1 + x) in Q2.13 for x in Q0.15, from 0 to 1."""
    half = (x + INT16_MAX + 1) >> 1
    y = C_48_17 + half_mul(half, C_32_17)
    for _ in range(3):
        y = y + saturate(half_mul(y, ONE - half_mul(half, y)) << 2)
    return y


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^−x): Q3.12 → Q0.15."""
    x = np.asarray(x, np.int64)
    positive = saturate(_reciprocal(exp_negative(-np.abs(x), GATE_BITS)) << 1)
    return np.where(x == 0, 1 << 14, np.where(x > 0, positive, INT16_MAX - positive))


def tanh(x: Array, whole: int) -> Array:
    """tanh of x with `whole` bits before the point, 0 … 6, in Q0.15."""
    x = np.asarray(x, np.int64)
    magnitude = saturate((_reciprocal(exp_negative(-np.abs(x), whole + 1)) - ONE) << 2)
    return np.where(x == 0, 0, np.where(x < 0, -magnitude, magnitude))
