"""Random bits by counter, rounding without bias, and levels that stay where they are told."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smidgen.errors import GraphError
from smidgen.ir import Array
from smidgen.numerics.stochastic import (
    LEVEL_LIMIT,
    exponent_of,
    level_of,
    lift,
    mantissas,
    next_level,
    random_bytes,
    random_words,
    round_gradient,
    round_update,
    shared_mantissas,
    stream_key,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
MANY = 1 << 16


@given(seed=st.integers(0, 2**31 - 1), step=INT32, stream=st.integers(0, 2**16))
def test_every_step_and_stream_has_bits_of_its_own(seed: int, step: int, stream: int) -> None:
    key = stream_key(np.array([step, seed], np.int64), stream)
    assert key != stream_key(np.array([step + 1, seed], np.int64), stream)
    assert key != stream_key(np.array([step, seed], np.int64), stream + 1)
    words = random_words(key, 4096)
    assert len(np.unique(words)) == 4096
    set_bits = np.unpackbits(words.view(np.uint8)).mean()
    assert abs(set_bits - 0.5) < 0.02


@given(v=st.integers(-(2**30), 2**30), t=st.integers(-12, 40), key=st.integers(0, 2**32 - 1))
def test_gradients_round_to_a_neighbour_and_right_on_average(v: int, t: int, key: int) -> None:
    g, peak_bits = round_gradient(np.full(MANY, v, np.int64), t, key)
    raised = np.clip(v, -(2**20), 2**20) * 2.0 ** min(-t, 10) if t < 0 else v / 2.0**t
    exact = float(np.clip(raised, -127, 127))
    assert np.all(np.abs(g - exact) < 1 + 2**-9)
    assert abs(g.mean() - exact) < 0.01
    assert peak_bits >= int(np.abs(g).max()) - 1


@given(v=st.integers(-(2**30), 2**30), t=st.integers(-40, 70), key=st.integers(0, 2**32 - 1))
def test_updates_round_to_a_neighbour_and_right_on_average(v: int, t: int, key: int) -> None:
    steps = round_update(np.full(MANY, v, np.int64), np.full(MANY, t), key)
    exact = float(np.clip(v * 2.0**-t, -(2**30), 2**30))
    assert np.all(np.abs(steps - exact) < 1 + 2**-20)
    assert abs(steps.mean() - exact) < 0.01


@given(level=INT32, peak_bits=st.integers(0, 2**30))
def test_levels_stay_within_their_limit(level: int, peak_bits: int) -> None:
    assert -LEVEL_LIMIT <= next_level(level, peak_bits) <= LEVEL_LIMIT


@given(level=st.integers(-LEVEL_LIMIT, LEVEL_LIMIT - (40 << 8)), peak_bits=st.integers(1, 2**30))
def test_the_next_level_holds_what_was_seen(level: int, peak_bits: int) -> None:
    assert peak_bits * 2.0 ** exponent_of(level) < 2.0 ** (exponent_of(next_level(level, peak_bits)) + 7)


@given(largest=st.floats(1e-12, 1e12))
def test_a_first_level_just_fits_its_tensor(largest: float) -> None:
    assert largest <= 127.5 * 2.0 ** exponent_of(level_of(largest)) * 1.01 <= 2.1 * largest


@given(reals=st.lists(st.floats(1e-30, 1e30), min_size=1, max_size=20))
def test_shared_mantissas_are_right_to_half_of_their_last_bit(reals: list[float]) -> None:
    m, e = shared_mantissas(np.array(reals))
    assert 2**30 <= m.max() < 2**31
    np.testing.assert_allclose(m * 2.0 ** (e - 31), reals, rtol=0, atol=2.0 ** (e - 31))


@given(real=st.floats(2.0**-129, 2.0**127, exclude_max=True))
@example(real=2.0**126)  # with the largest power of two
@example(real=1 - 2.0**-53)  # would round up to 2^31
def test_mantissas_are_right_to_their_last_bit(real: float) -> None:
    (m,), (e,) = mantissas(np.array([real]))
    assert 2**30 <= m < 2**31
    assert abs(Fraction(int(m)) * Fraction(2) ** (int(e) - 31) / Fraction(real) - 1) <= Fraction(1, 2**31)


def test_powers_of_two_are_limited_to_an_int8() -> None:
    m, e = mantissas(np.array([0.0, 2.0**-200, 2.0**200]))
    assert m.tolist() == [0, 2**30, 2**30]
    assert e.tolist() == [0, -128, 127]


def test_sums_beyond_32_bits_are_refused() -> None:
    with pytest.raises(GraphError, match="does not fit 32 bits"):
        lift(2**31, "A sum")


# --- the hash, from docs/internals/numerics.md alone


def scattered(x: int) -> int:
    """Two multiplications and three xor-shifts."""
    x &= 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ x >> shift) * factor & 0xFFFFFFFF
    return x ^ x >> 16


def word(seed: int, step: int, stream: int, index: int) -> int:
    """A hash of (seed, step, stream, index)."""
    key = scattered(scattered(scattered(seed) + step) + stream)
    return scattered(index * 0x9E3779B9 + key)


@given(seed=INT32, step=INT32, stream=st.integers(0, 2**16), count=st.integers(1, 40))
def test_random_words_are_the_hash_that_is_written_down(seed: int, step: int, stream: int, count: int) -> None:
    key = stream_key(np.array([step, seed], np.int32), stream)
    wanted = [word(seed, step, stream, index) for index in range(count)]
    assert random_words(key, count).tolist() == wanted
    octets = b"".join(w.to_bytes(4, "little") for w in wanted)
    assert random_bytes(key, count).tobytes() == octets[:count]


def bits_of(seed: int, step: int, stream: int) -> Array:
    key = stream_key(np.array([step, seed], np.int32), stream)
    return np.unpackbits(random_words(key, MANY // 16).view(np.uint8)).astype(np.float64) * 2 - 1


PAIRS = {
    "streams": ((3, 5, 8), (3, 5, 9)), "steps": ((3, 5, 8), (3, 6, 8)), "seeds": ((3, 5, 8), (4, 5, 8)),
    "a seed for a step": ((3, 5, 8), (5, 3, 8)), "a step for a stream": ((3, 5, 8), (3, 8, 5)),
    "a pair of both": ((3, 5, 8), (3, 6, 7)),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS)
def test_words_that_differ_in_what_they_are_a_hash_of_are_independent(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    a, b = bits_of(*one), bits_of(*other)
    spread = 1 / np.sqrt(len(a))
    for lag in (0, 1, 8, 31, 32, 64):
        assert abs(float(a @ np.roll(b, lag)) / len(a)) < 5 * spread, f"correlated at {lag}"
        assert lag == 0 or abs(float(a @ np.roll(a, lag)) / len(a)) < 5 * spread, f"correlated with itself at {lag}"


def test_each_bit_of_a_word_is_as_often_set_as_not_and_bytes_are_even() -> None:
    words = random_words(stream_key(np.array([1, 2], np.int32), 3), MANY)
    set_bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 32).mean(axis=0)
    assert np.abs(set_bits - 0.5).max() < 5 * 0.5 / np.sqrt(MANY)
    counts = np.bincount(words.view(np.uint8), minlength=256)
    chi = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
    assert 140 < chi < 380  # of 255 degrees of freedom: five standard deviations


@given(whole=st.integers(-(2**20), 2**20), t=st.integers(10, 28), key=st.integers(0, 2**32 - 1))
def test_updates_round_with_the_variance_of_a_coin(whole: int, t: int, key: int) -> None:
    p, count = 0.3125, MANY // 4
    v = (whole % 3 << t) + int(p * 2**t)
    steps = round_update(np.full(count, v, np.int64), np.full(count, t), key)
    assert abs(steps.mean() - v / 2**t) < 6 * np.sqrt(p * (1 - p) / count)
    assert abs(steps.var() - p * (1 - p)) < 0.02
