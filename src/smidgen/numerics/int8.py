"""The arithmetic contract in numpy: TFLite's int8 requantization, exactly, for every op to use."""

import math

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, QParams, Type
from smidgen.numerics.fixed_point import INT32, shift_right

INT8_MIN, INT8_MAX = -128, 127
INT32_MAX = 2**31 - 1
ACTIVATIONS = ("none", "relu", "relu6", "relu_n1_to_1")
_REAL_RANGE = {
    "none": (-math.inf, math.inf),
    "relu": (0.0, math.inf),
    "relu6": (0.0, 6.0),
    "relu_n1_to_1": (-1.0, 1.0),
}


def round_half_away(x: float) -> int:
    """Round as C does: halves go away from zero."""
    return math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1)


def rounded(x: Array) -> Array:
    """Return real numbers as whole ones, halves away from zero."""
    whole = np.trunc(x)
    return np.asarray(whole + (x - whole >= 0.5) - (x - whole <= -0.5))


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Return m and shift with real ≈ m · 2^(shift − 31), m in [2^30, 2^31); (0, 0) where it is too small to matter."""
    if real == 0.0:
        return 0, 0
    if not real <= INT32_MAX:
        raise GraphError(f"a factor of {real:.3g} between scales does not fit int32; calibrate the model again")
    fraction, shift = math.frexp(real)
    m = round_half_away(fraction * (1 << 31))
    if m == 1 << 31:
        m, shift = m // 2, shift + 1
    return (0, 0) if shift < -31 else (m, shift)


def quantize_single(*factors: float, over: float) -> tuple[int, int]:
    """Return the multiplier of a quotient that TFLite computes in float32."""
    with np.errstate(over="ignore", under="ignore"):
        product = np.float32(factors[0])
        for factor in factors[1:]:
            product = product * np.float32(factor)
        return quantize_multiplier(float(product / np.float32(over)))


def quantize_multipliers(reals: Array) -> tuple[Array, Array]:
    """Return the multipliers of an array of factors, as int32, and their shifts, as int8."""
    pairs = [quantize_multiplier(float(r)) for r in reals]
    return np.array([m for m, _ in pairs], np.int32), np.array([s for _, s in pairs], np.int8)


def multiply(x: Array, multiplier: Array | int, shift: Array | int) -> Array:
    """Return x · multiplier · 2^(shift − 31) as TFLite rounds it: a doubling high half, then a rounding shift."""
    shift = np.asarray(shift, np.int64)
    wide = np.asarray(x, np.int64) << np.maximum(shift, 0)
    return shift_right(INT32.product(wide.astype(np.int32), multiplier), np.maximum(-shift, 0))


def scale_double(x: Array, factor: Array) -> Array:
    """Return x · factor rounded in double, halves away from zero; kept within int32 by a wide margin."""
    product = np.clip(x.astype(np.float64) * factor, -1e9, 1e9)
    return rounded(product).astype(np.int64)


def activated(x: Array, activation: str, y: Type) -> Array:
    """Return an output of type y: x limited by an activation, where it is int8 with its zero point added."""
    if y.dtype == "float32":
        return np.asarray(np.clip(x, *activation_limits(activation)).astype(np.float32))
    return to_int8(x, y.zero, *activation_range(activation, y))


def activation_range(activation: str, type: Type) -> tuple[int, int]:
    """Return the int8 limits of a fused activation on a tensor of this type."""
    low, high = _REAL_RANGE[activation]
    scale, zero = np.float32(type.scale), type.zero

    def quantized(real: float) -> int:
        with np.errstate(over="ignore"):
            steps = float(np.float32(real) / scale)
        if abs(steps) > INT32_MAX - 128:
            raise GraphError(f"the limit {real} of {activation} is beyond int32 at scale {scale:.3g}: calibrate again")
        return zero + round_half_away(steps)

    lo = INT8_MIN if math.isinf(low) else max(INT8_MIN, quantized(low))
    hi = INT8_MAX if math.isinf(high) else min(INT8_MAX, quantized(high))
    return lo, hi


def check_activation(activation: str) -> None:
    """Raise GraphError unless the activation is one we know."""
    if activation not in ACTIVATIONS:
        raise GraphError(f"there is no activation {activation[:40]!r}; known are {', '.join(ACTIVATIONS)}")


def activation_limits(activation: str) -> tuple[float, float]:
    """Return the limits of an activation on real numbers."""
    return _REAL_RANGE[activation]


def to_int8(x: Array, zero: int, lo: int = INT8_MIN, hi: int = INT8_MAX) -> Array:
    """Add the zero point and saturate."""
    return np.asarray(np.clip(x + zero, lo, hi).astype(np.int8))


def quantize(x: Array, q: QParams) -> Array:
    """Turn float32 into int8, halves away from zero, computed in float32 as TFLite does."""
    with np.errstate(over="ignore"):
        y = np.clip(np.asarray(x, np.float32) / np.float32(q.one), -1e6, 1e6)
    return to_int8(rounded(y).astype(np.int64), q.zero)


def dequantize(x: Array, q: QParams) -> Array:
    """Turn int8 into float32: the product is taken in double and rounded once."""
    return np.asarray((float(q.one) * (x.astype(np.int64) - q.zero)).astype(np.float32))
