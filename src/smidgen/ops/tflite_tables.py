"""TFLite's own int8 results of functions of one number, all 256 of them, by the arithmetic of its reference kernels.

Some kernels compute a table in float32; leaky ReLU and the absolute value multiply by fixed-point factors; hard-swish
runs in 16 bits. Each rounds in its own way, so that a table of the nearest results would differ here and there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Type
from smidgen.ops.functions import FUNCTIONS

Table = Callable[[Type, Type, float], Array]  # of an input and an output, and the function's alpha
EVERY = np.arange(numerics.INT8_MIN, numerics.INT8_MAX + 1)
HIRES_BITS = 7  # by which hard-swish moves int8 into the upper half of 16 bits
INT16_MIN, INT16_MAX = -(2**15), 2**15 - 1


def tflite_table(function: str, x: Type, y: Type, alpha: float) -> Array:
    """The result of each int8 number, −128 first."""
    return TABLES[function](x, y, alpha)


def _single(function: Callable[[Array], Array]) -> Table:
    """A table computed in float32, halves away from zero."""

    def table(x: Type, y: Type, alpha: float) -> Array:
        with np.errstate(over="ignore"):
            real = np.float32(x.scale) * (EVERY - x.zero).astype(np.float32)
            steps = function(real).astype(np.float32) * (np.float32(1) / np.float32(y.scale))
            whole = np.trunc(np.clip(steps, -1e6, 1e6))
        fraction = np.clip(steps, -1e6, 1e6) - whole
        return numerics.to_int8(whole + (fraction >= 0.5) - (fraction <= -0.5), y.zero)

    return table


def _function(name: str) -> Callable[[Array], Array]:
    """A function of float32, rounded once."""
    value = FUNCTIONS[name].value
    return lambda x: value(x.astype(np.float64), 1.0, 0.0).astype(np.float32)


def _sigmoid(x: Array) -> Array:
    """1 / (1 + e^−x), each part rounded to float32."""
    with np.errstate(over="ignore"):
        e = np.exp(-x.astype(np.float64)).astype(np.float32)
    y: Array = np.float32(1) / (np.float32(1) + e)
    return y


def _leaky_relu(x: Type, y: Type, alpha: float) -> Array:
    """x, or alpha · x below zero, each by a factor of its own."""
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
    """x · relu6(x + 3) / 6: a gate of 0 … 1 in 15 bits times x on the output's scale with seven bits more."""
    hires = np.float32(1 / (1 << HIRES_BITS)) * np.float32(x.scale)
    gate_multiplier, gate_shift = _half_multiplier(float(hires / np.float32(3 / 32768)))
    multiplier, shift = _half_multiplier(float(hires / np.float32(y.scale)))
    if shift > 0:
        raise GraphError(
            f"hard-swish of scale {x.scale:.3g} cannot be given in steps of {y.scale:.3g}; calibrate the model again"
        )
    steps = (EVERY - x.zero) << HIRES_BITS
    gate = _saturate(steps << max(gate_shift - 1, 0)) if gate_shift > 0 else steps
    gate = _rounded_product(gate, gate_multiplier)
    gate = _saturate(gate << 1) if gate_shift > 0 else _shift_right(gate, -gate_shift)
    product = np.fix(((gate - INT16_MIN) >> 1) * _rounded_product(steps, multiplier) / 2.0**15).astype(np.int64)
    return numerics.to_int8(_shift_right(product, -shift), y.zero)


def _half_multiplier(real: float) -> tuple[int, int]:
    """A factor as 15 bits and a shift."""
    multiplier, shift = numerics.quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, INT16_MAX), shift


def _saturate(x: Array) -> Array:
    limited: Array = np.clip(x, INT16_MIN, INT16_MAX)
    return limited


def _rounded_product(x: Array, multiplier: int) -> Array:
    """x · multiplier / 2^15, halves up."""
    product = x.astype(np.int64) * multiplier
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.fix(nudged / 2.0**15).astype(np.int64)


def _shift_right(x: Array, bits: int) -> Array:
    """x / 2^bits, halves away from zero."""
    mask = (1 << bits) - 1
    result: Array = (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0))
    return result


TABLES: Mapping[str, Table] = {
    "abs": _abs,
    "elu": _single(_function("elu")),
    "exp": _single(_function("exp")),
    "gelu": _single(_function("gelu")),
    "gelu_tanh": _single(_function("gelu_tanh")),
    "hard_swish": _hard_swish,
    "leaky_relu": _leaky_relu,
    "sigmoid": _single(_sigmoid),
    "tanh": _single(_function("tanh")),
}
