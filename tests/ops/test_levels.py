"""The exponents of gradients: a running maximum that rises at once and falls by 2^(−4/256) a step, in float64."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smidgen.ir import Array, Builder, Node, Type
from smidgen.numerics.stochastic import FIRST_LEVEL, SEED, STEP, exponent, round_gradient
from smidgen.ops import AdvanceStepState
from tests.support.native import Kernels, pointer

FALL, FALL_OF_NOTHING = 2.0 ** (-4 / 256), 2.0 ** (-64 / 256)
LEAST, MOST = 2.0**-60, 2.0**60
magnitudes = st.lists(
    st.one_of(st.just(0.0), st.floats(-18, 18).map(lambda power: 2.0**power)), min_size=1, max_size=30
)


def advance() -> Node:
    """One gradient's level from step to step."""
    g = Builder("levels")
    state, bits = g.input("state", Type((3,), "int32")), g.input("peak_bits", Type((1,), "int32"))
    return g.graph(g.emit(AdvanceStepState(), state, bits)).nodes[0]


def in_numpy(node: Node, state: Array, bits: Array) -> Array:
    after = node.op.ref(node, state, bits)
    assert isinstance(after, np.ndarray)
    return after


def in_c(kernels: Kernels, node: Node, state: Array, bits: Array) -> Array:
    after = np.zeros_like(state)
    sources = (ctypes.c_void_p * 2)(state.ctypes.data, bits.ctypes.data)
    kernels.call(node, sources, pointer(after))
    return after


def shown(magnitude: float, e: int) -> int:
    """What a tensor with this largest magnitude shows before saturation, in units of 2^e."""
    return min(math.floor(magnitude * 2.0**-e), 2**30)


@given(magnitudes, st.integers(-20 * 256, 20 * 256))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_level_is_the_running_maximum_of_what_its_tensor_showed(
    kernels: Kernels, seen: list[float], first: int
) -> None:
    node, state = advance(), np.array([7, 3, first], np.int32)
    maximum = 2.0 ** (first / 256)
    for step, magnitude in enumerate(seen):
        e = exponent(state, 0)
        assert e == math.ceil(math.log2(maximum) - 1e-9) - 7, "seven bits below the next power of two"
        peak = shown(magnitude, e)
        held = 2.0 ** (e + peak.bit_length())  # the power of two above it
        maximum = max(maximum * FALL, held) if peak else maximum * FALL_OF_NOTHING
        maximum = min(max(maximum, LEAST), MOST)
        bits = np.array([peak], np.int32)
        after = in_numpy(node, state, bits)
        assert np.array_equal(after, in_c(kernels, node, state, bits))
        assert after[FIRST_LEVEL] == pytest.approx(256 * math.log2(maximum), abs=1e-6)
        assert (after[STEP], after[SEED]) == (8 + step, 3)
        state = after


def test_a_quiet_tensor_halves_its_range_in_64_steps_and_a_silent_one_in_4(kernels: Kernels) -> None:
    for bits, steps in ((np.array([1], np.int32), 64), (np.array([0], np.int32), 4)):
        for advance_once in (in_numpy, lambda *given: in_c(kernels, *given)):
            state = np.array([0, 0, 0], np.int32)
            for _ in range(steps):
                state = advance_once(advance(), state, bits)
            assert state[FIRST_LEVEL] == -256


@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.integers(0, 12))
def test_what_a_tensor_shows_has_the_bit_length_of_its_largest_element(key: int, largest: int, t: int) -> None:
    v = np.arange(-largest, largest + 1, dtype=np.int64) << t  # whole numbers: rounding leaves them alone
    g, peak_bits = round_gradient(v, t, key)
    assert peak_bits.bit_length() == largest.bit_length()
    assert np.array_equal(g, np.clip(v >> t, -127, 127))


@given(st.integers(-120, 120), st.integers(8, 20), st.integers(0, 2**32 - 1))
def test_gradients_round_with_the_variance_of_a_coin(whole: int, t: int, key: int) -> None:
    """x between two whole numbers becomes the upper one with probability x − ⌊x⌋ = p: the variance is p(1 − p)."""
    count, p = 1 << 14, 0.3125
    g, _ = round_gradient(np.full(count, (whole << t) + int(p * 2**t), np.int64), t, key)
    assert set(np.unique(g)) == {whole, whole + 1}
    assert abs(g.mean() - (whole + p)) < 6 * math.sqrt(p * (1 - p) / count) + 2**-9
    assert abs(g.var() - p * (1 - p)) < 0.02


@given(st.integers(-(2**31), 2**31 - 1), st.one_of(st.integers(0, 2**30), st.sampled_from([0, 1, 127, 2**30])))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_levels_end_at_two_to_the_plus_and_minus_60(kernels: Kernels, level: int, peak: int) -> None:
    node, state, bits = advance(), np.array([0, 0, level], np.int32), np.array([peak], np.int32)
    after = in_numpy(node, state, bits)
    assert np.array_equal(after, in_c(kernels, node, state, bits))
    assert -60 * 256 <= after[FIRST_LEVEL] <= 60 * 256
    if level >= 60 * 256 and peak >= 64:
        assert after[FIRST_LEVEL] == 60 * 256
    if level <= -60 * 256 and not peak:
        assert after[FIRST_LEVEL] == -60 * 256
