"""The arithmetic contract against exact fractions, as docs/internals/numerics.md words it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smidgen.errors import GraphError
from smidgen.ir import QParams, Type
from smidgen.numerics import (
    activation_range,
    dequantize,
    multiply,
    quantize,
    quantize_multiplier,
    quantize_single,
    scale_double,
)

HALF = Fraction(1, 2)
factors = st.one_of(
    st.floats(-40, 30).map(lambda power: 2.0**power),
    st.sampled_from([2.0**-32, 2.0**-31, 2.0**-33, 2.0**-32 * (1 - 2.0**-40), 1.0, 0.5, 1 - 2.0**-40, 2.0**31 - 1]),
)


def half_away(x: Fraction) -> int:
    """The nearest whole number, halves away from zero."""
    return math.floor(abs(x) + HALF) * (1 if x >= 0 else -1)


def half_up(x: Fraction) -> int:
    return math.floor(x + HALF)


@given(factors)
def test_a_factor_is_a_mantissa_of_31_bits_and_a_power_of_two(real: float) -> None:
    m, shift = quantize_multiplier(real)
    if real < 2.0**-32 * (1 - 2.0**-32):
        assert (m, shift) == (0, 0)
    else:
        assert 2**30 <= m < 2**31
        assert abs(Fraction(m) * Fraction(2) ** (shift - 31) / Fraction(real) - 1) <= Fraction(1, 2**31)


@pytest.mark.parametrize("real", [2.0**31, 1e300, math.inf, math.nan])
def test_a_factor_beyond_int32_is_refused(real: float) -> None:
    with pytest.raises(GraphError, match="does not fit int32"):
        quantize_multiplier(real)


def test_a_quotient_of_scales_is_taken_in_float32() -> None:
    a, b, over = 0.1, 0.7, 0.03
    assert quantize_single(a, over=over) == quantize_multiplier(float(np.float32(a) / np.float32(over)))
    wanted = float(np.float32(a) * np.float32(b) / np.float32(over))
    assert wanted not in (a * b / over, float(np.float32(a) / np.float32(over)))
    assert quantize_single(a, b, over=over) == quantize_multiplier(wanted)
    with np.errstate(all="raise"):  # whatever the caller has numpy do
        assert quantize_single(1e-30, 1e-30, over=1.0) == (0, 0)
        with pytest.raises(GraphError, match="does not fit int32"):
            quantize_single(1e30, 1e30, over=1.0)


def test_no_factor_at_all_is_zero() -> None:
    assert quantize_multiplier(0.0) == (0, 0)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(2**30, 2**31 - 1), st.integers(-31, 0))
def test_an_accumulator_is_rounded_twice(x: int, multiplier: int, shift: int) -> None:
    """First the doubled high half of the product, halves up; then a right shift, halves away from zero."""
    high = half_up(Fraction(x * multiplier, 2**31))
    wanted = half_away(Fraction(high, 2**-shift))
    assert int(multiply(np.array([x]), multiplier, shift)[0]) == wanted


@given(st.integers(-(2**20), 2**20), st.integers(2**30, 2**31 - 1), st.integers(1, 10))
def test_a_factor_above_one_shifts_first(x: int, multiplier: int, shift: int) -> None:
    wanted = half_up(Fraction((x << shift) * multiplier, 2**31))
    assert int(multiply(np.array([x]), multiplier, shift)[0]) == wanted


@given(st.integers(-(2**31), 2**31 - 1), st.floats(-40, 4).map(lambda power: 2.0**power))
def test_a_dense_layers_accumulator_is_rounded_once(x: int, factor: float) -> None:
    product = min(max(float(x) * factor, -1e9), 1e9)
    assert int(scale_double(np.array([x]), np.array(factor))[0]) == half_away(Fraction(product))


@given(st.integers(-3000, 3000), st.integers(-128, 127))
def test_reals_are_quantized_to_the_nearest_step_and_back(halves: int, zero: int) -> None:
    q = QParams.per_tensor(0.25, zero)  # a power of two, so that halves of steps are exact
    real = np.array([halves * 0.125], np.float32)
    step = min(max(half_away(Fraction(halves, 2)) + zero, -128), 127)
    assert int(quantize(real, q)[0]) == step
    assert float(dequantize(np.array([step], np.int8), q)[0]) == 0.25 * (step - zero)


@pytest.mark.parametrize(
    ("activation", "scale", "zero", "limits"),
    [
        ("none", 0.1, 3, (-128, 127)), ("relu", 0.1, 3, (3, 127)), ("relu", 0.1, -128, (-128, 127)),
        ("relu6", 0.1, -100, (-100, -40)), ("relu6", 0.01, -100, (-100, 127)), ("relu6", 4.0, 0, (0, 2)),
        ("relu_n1_to_1", 0.1, 5, (-5, 15)), ("relu_n1_to_1", 0.001, 0, (-128, 127)), ("relu_n1_to_1", 2.0, 0, (-1, 1)),
    ],
)  # fmt: skip
def test_an_activations_limits_are_the_steps_nearest_to_them(
    activation: str, scale: float, zero: int, limits: tuple[int, int]
) -> None:
    assert activation_range(activation, Type((1,), "int8", QParams.per_tensor(scale, zero))) == limits


def test_a_limit_beyond_int32_is_refused() -> None:
    with pytest.raises(GraphError, match="beyond int32"):
        activation_range("relu6", Type((1,), "int8", QParams.per_tensor(1e-10, 0)))
