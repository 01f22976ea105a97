"""Random bits by counter, rounding without bias, and levels that stay where they are told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smidgen.errors import GraphError
from smidgen.numerics.stochastic import (
    LEVEL_LIMIT,
    exponent_of,
    level_of,
    lift,
    next_level,
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


def test_sums_beyond_32_bits_are_refused() -> None:
    with pytest.raises(GraphError, match="does not fit 32 bits"):
        lift(2**31, "A sum")
