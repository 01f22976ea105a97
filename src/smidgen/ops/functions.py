"""Named functions of one number: their values and slopes in float64, and TFLite's own int8 results, all 256 of each.

Some of TFLite's kernels compute a table in float32; leaky ReLU and the absolute value multiply by fixed-point factors;
hard-swish runs in 16 bits. Each rounds in its own way, so a table of the nearest results would differ here and there.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Type
from smidgen.numerics.fixed_point import INT16, shift_right

Real = NDArray[np.float64]
Formula = Callable[[Real, float, float], Real]
_erf = np.vectorize(math.erf, otypes=[np.float64])
FAR = 700.0  # beyond it exp leaves float64


@dataclass(frozen=True)
class FunctionAndSlope:
    """y = value(x, alpha, beta) and dy/dx; at a kink the slope is one of the two beside it."""

    value: Formula
    slope: Formula


def _exp(x: Real) -> Real:
    return np.asarray(np.exp(np.clip(x, -FAR, FAR)))


def _sigmoid(x: Real) -> Real:
    return 0.5 + 0.5 * np.tanh(x / 2)


def _sigmoid_slope(x: Real) -> Real:
    return _sigmoid(x) * (1 - _sigmoid(x))


def _softplus(x: Real) -> Real:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _normal(x: Real) -> Real:
    """Return the standard normal distribution's cumulative probability."""
    return np.asarray(0.5 + 0.5 * _erf(x / math.sqrt(2)))


def _density(x: Real) -> Real:
    return np.exp(-np.minimum(x * x / 2, FAR)) / math.sqrt(2 * math.pi)


def _elu(x: Real, alpha: float) -> Real:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _elu_slope(x: Real, alpha: float) -> Real:
    return np.where(x > 0, 1.0, alpha * np.exp(np.minimum(x, 0)))


def _inside(x: Real, low: float, high: float) -> Real:
    """Return 1 strictly between the limits, 0 elsewhere."""
    return np.asarray(((x > low) & (x < high)).astype(np.float64))


def _inverse(x: Real) -> Real:
    return np.where(x > LEAST, 1 / np.maximum(x, LEAST), 0.0)


LEAST = 1e-12  # stands for 0 and all below it where a function has no value there


def _base(x: Real, exponent: float) -> Real:
    """Return the base of a power: a root needs numbers above 0, a quotient some that are not 0."""
    if exponent != int(exponent):
        return np.maximum(x, LEAST)
    return x if exponent >= 0 else np.where(np.abs(x) < LEAST, LEAST, x)


def _power(x: Real, exponent: float) -> Real:
    return np.asarray(_base(x, exponent) ** exponent)


def _power_slope(x: Real, exponent: float) -> Real:
    """Return the slope, 0 where the base had to be changed."""
    base = _base(x, exponent)
    return np.where(base == x, exponent * base ** (exponent - 1) if exponent else 0.0, 0.0)


GELU_INNER, GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


def _gelu_tanh_slope(x: Real) -> Real:
    t: Real = np.tanh(GELU_INNER * (x + GELU_CUBE * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU_INNER * (1 + 3 * GELU_CUBE * x * x)


def _mish_slope(x: Real) -> Real:
    t: Real = np.tanh(_softplus(x))
    return t + x * (1 - t * t) * _sigmoid(x)


FUNCTIONS: Mapping[str, FunctionAndSlope] = {
    "abs": FunctionAndSlope(lambda x, a, b: np.abs(x), lambda x, a, b: np.sign(x)),
    "celu": FunctionAndSlope(
        lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0) / a)),
        lambda x, a, b: np.where(x > 0, 1.0, np.exp(np.minimum(x, 0) / a)),
    ),
    "clip": FunctionAndSlope(lambda x, a, b: np.clip(x, a, b), lambda x, a, b: _inside(x, a, b)),
    "elu": FunctionAndSlope(lambda x, a, b: _elu(x, a), lambda x, a, b: _elu_slope(x, a)),
    "erf": FunctionAndSlope(lambda x, a, b: _erf(x), lambda x, a, b: 2 / math.sqrt(math.pi) * _exp(-x * x)),
    "exp": FunctionAndSlope(lambda x, a, b: _exp(x), lambda x, a, b: _exp(x)),
    "gelu": FunctionAndSlope(lambda x, a, b: x * _normal(x), lambda x, a, b: _normal(x) + x * _density(x)),
    "gelu_tanh": FunctionAndSlope(
        lambda x, a, b: 0.5 * x * (1 + np.tanh(GELU_INNER * (x + GELU_CUBE * x**3))),
        lambda x, a, b: _gelu_tanh_slope(x),
    ),
    "hard_sigmoid": FunctionAndSlope(
        lambda x, a, b: np.clip(a * x + b, 0, 1), lambda x, a, b: a * _inside(a * x + b, 0, 1)
    ),
    "hard_swish": FunctionAndSlope(
        lambda x, a, b: x * np.clip(x / 6 + 0.5, 0, 1),
        lambda x, a, b: np.where(x <= -3, 0.0, np.where(x < 3, x / 3 + 0.5, 1.0)),
    ),
    "leaky_relu": FunctionAndSlope(lambda x, a, b: np.where(x > 0, x, a * x), lambda x, a, b: np.where(x > 0, 1.0, a)),
    "log": FunctionAndSlope(lambda x, a, b: np.log(np.maximum(x, LEAST)), lambda x, a, b: _inverse(x)),
    "mish": FunctionAndSlope(lambda x, a, b: x * np.tanh(_softplus(x)), lambda x, a, b: _mish_slope(x)),
    "power": FunctionAndSlope(lambda x, a, b: _power(x, a), lambda x, a, b: _power_slope(x, a)),
    "selu": FunctionAndSlope(lambda x, a, b: b * _elu(x, a), lambda x, a, b: b * _elu_slope(x, a)),
    "sigmoid": FunctionAndSlope(lambda x, a, b: _sigmoid(x), lambda x, a, b: _sigmoid_slope(x)),
    "silu": FunctionAndSlope(lambda x, a, b: x * _sigmoid(x), lambda x, a, b: _sigmoid(x) + x * _sigmoid_slope(x)),
    "softplus": FunctionAndSlope(lambda x, a, b: _softplus(x), lambda x, a, b: _sigmoid(x)),
    "softsign": FunctionAndSlope(lambda x, a, b: x / (1 + np.abs(x)), lambda x, a, b: (1 + np.abs(x)) ** -2.0),
    "tanh": FunctionAndSlope(lambda x, a, b: np.tanh(x), lambda x, a, b: 1 - np.tanh(x) ** 2),
}


Table = Callable[[Type, Type, float], Array]  # of an input and an output, and the function's alpha
EVERY = np.arange(numerics.INT8_MIN, numerics.INT8_MAX + 1)
ROOT, INVERSE_BITS, HALF_ROOT_2 = 0.5, 20, 1518500250  # an exponent; bits of a reciprocal root; √2 / 2 in Q0.31
HIRES_BITS = 7  # by which hard-swish moves int8 into the upper half of 16 bits


def _single(function: Callable[[Array], Array]) -> Table:
    """Return a function's table, computed in float32, halves away from zero."""

    def table(x: Type, y: Type, alpha: float) -> Array:
        with np.errstate(over="ignore"):
            real = np.float32(x.scale) * (EVERY - x.zero).astype(np.float32)
            steps = function(real).astype(np.float32) * (np.float32(1) / np.float32(y.scale))
        return numerics.to_int8(numerics.rounded(np.clip(steps, -1e6, 1e6)), y.zero)

    return table


def _function(name: str) -> Callable[[Array], Array]:
    """Return a named function of float32 numbers, rounded once."""
    value = FUNCTIONS[name].value
    return lambda x: value(x.astype(np.float64), 1.0, 0.0).astype(np.float32)


def _tflite_sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e^−x), each part rounded to float32."""
    with np.errstate(over="ignore"):
        e = np.exp(-x.astype(np.float64)).astype(np.float32)
    return np.asarray(np.float32(1) / (np.float32(1) + e))


def _leaky_relu(x: Type, y: Type, alpha: float) -> Array:
    """Return x, or alpha · x below zero, each with a separate factor."""
    steps = EVERY - x.zero
    above = numerics.multiply(steps, *numerics.quantize_single(x.scale, over=y.scale))
    with np.errstate(over="ignore", under="ignore"):
        factor = abs(float(np.float32(x.scale) * np.float32(alpha) / np.float32(y.scale)))
    multiplier, shift = numerics.quantize_multiplier(factor)
    below = numerics.multiply(steps, multiplier if alpha >= 0 else -multiplier, shift)
    return numerics.to_int8(np.where(steps >= 0, above, below), y.zero)


def _abs(x: Type, y: Type, alpha: float) -> Array:
    steps = np.abs(EVERY - x.zero)
    if x.scale != y.scale:
        steps = numerics.multiply(steps, *numerics.quantize_single(x.scale, over=y.scale))
    return numerics.to_int8(steps, y.zero)


def _hard_swish(x: Type, y: Type, alpha: float) -> Array:
    """Return x · relu6(x + 3) / 6: a gate of 0 … 1 in 15 bits times x, which has seven bits more than the output."""
    hires = np.float32(1 / (1 << HIRES_BITS)) * np.float32(x.scale)
    gate_multiplier, gate_shift = _half_multiplier(float(hires / np.float32(3 / 32768)))
    multiplier, shift = _half_multiplier(float(hires / np.float32(y.scale)))
    if shift > 0:
        raise GraphError(
            f"hard-swish of scale {x.scale:.3g} cannot be given in steps of {y.scale:.3g}; calibrate the model again"
        )
    steps = (EVERY - x.zero) << HIRES_BITS
    gate = INT16.saturate(steps << max(gate_shift - 1, 0)) if gate_shift > 0 else steps
    gate = INT16.product(gate, gate_multiplier)
    gate = INT16.saturate(gate << 1) if gate_shift > 0 else shift_right(gate, -gate_shift)
    product = np.fix(((gate + INT16.most + 1) >> 1) * INT16.product(steps, multiplier) / 2.0**15).astype(np.int64)
    return numerics.to_int8(shift_right(product, -shift), y.zero)


def _log(x: Type, y: Type, alpha: float) -> Array:
    """Return the table of a logarithm, in which numbers not above zero have the least result."""
    above = _single(_function("log"))(x, y, alpha)
    return np.where(x.zero < EVERY, above, np.int8(numerics.INT8_MIN))


def _tflite_power(x: Type, y: Type, alpha: float) -> Array:
    """Return square roots, cut to whole steps, or reciprocal ones in fixed point."""
    steps = np.maximum(EVERY - x.zero, 0)
    if alpha == ROOT:
        real = np.sqrt(np.float32(x.scale) * steps.astype(np.float32))
        with np.errstate(over="ignore"):
            whole = np.trunc(np.minimum(real / np.float32(y.scale), np.float32(1e6)))
        return numerics.to_int8(whole.astype(np.int64), y.zero)
    if alpha != -ROOT:
        raise GraphError(f"TFLite has no power of {alpha}; known are {ROOT} and {-ROOT}")
    multiplier, shift = numerics.quantize_multiplier(1 / (math.sqrt(x.scale) * y.scale))
    inverse = np.array([inverse_root(int(n)) for n in steps], np.int64)
    one = numerics.multiply(np.ones_like(steps), inverse[:, 0], inverse[:, 1] + INVERSE_BITS)
    scaled = numerics.multiply(one, multiplier, shift - INVERSE_BITS)
    return np.where(steps == 0, np.int8(numerics.INT8_MAX), numerics.to_int8(scaled, y.zero))


def inverse_root(n: int) -> tuple[int, int]:
    """Return 1 / √n as a multiplier and its shift: five steps of Newton's method in gemmlowp's fixed point."""
    if n <= 1:
        return numerics.INT32_MAX, 0
    right = 11
    while n >= 1 << 29:
        n, right = n // 4, right + 1
    pairs = (32 - n.bit_length() - 1) // 2 - 1
    right -= pairs
    whole = (n << (2 * pairs)) >> 1
    half, x = (whole >> 1) + (whole & 1), 1 << 28
    for _ in range(5):
        cube = _raised(_high(_high(x, x), x), 6)
        x = _raised(_high(3 << 27, x) - _high(half, cube), 3)
    x = _high(x, HALF_ROOT_2)
    return (x << -right, 0) if right < 0 else (x, -right)


def _high(a: int, b: int) -> int:
    """Return the upper half of twice a product, halves up: gemmlowp's product of numbers above zero."""
    return (a * b + (1 << 30)) >> 31


def _raised(x: int, left: int) -> int:
    return min(x << left, numerics.INT32_MAX)


def _half_multiplier(real: float) -> tuple[int, int]:
    """Return a factor as 15 bits and a shift."""
    multiplier, shift = numerics.quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, INT16.most), shift


TABLES: Mapping[str, Table] = {  # the result of each int8 number, −128 first
    "abs": _abs,
    "elu": _single(_function("elu")),
    "exp": _single(_function("exp")),
    "gelu": _single(_function("gelu")),
    "gelu_tanh": _single(_function("gelu_tanh")),
    "hard_swish": _hard_swish,
    "leaky_relu": _leaky_relu,
    "log": _log,
    "power": _tflite_power,
    "sigmoid": _single(_tflite_sigmoid),
    "tanh": _single(_function("tanh")),
}
