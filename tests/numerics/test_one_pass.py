"""Sums of one pass know no order, and forget without a trace; their head is that of linear discriminant analysis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen.ir import Array
from smidgen.numerics import one_pass
from smidgen.numerics.one_pass import DONE, FEWER, FULL, LARGEST, MOST_SAMPLES, NEVER, ONE, Sums, products
from tests.support.one_pass_cases import drawn_sums
from tests.support.tiers import examples

SEEDS = st.integers(0, 2**32 - 1)


def samples(rng: np.random.Generator, most: int = 40) -> tuple[Array, Array, int]:
    """Features, labels and the number of classes: anything that int8 features can be."""
    classes, d, count = int(rng.integers(1, 6)), int(rng.integers(1, 12)), int(rng.integers(1, most))
    return rng.integers(-LARGEST, LARGEST + 1, (count, d)), rng.integers(0, classes, count), classes


def observed(x: Array, labels: Array, classes: int, start: Sums | None = None) -> Sums:
    sums = start or Sums.empty(classes, x.shape[1])
    for row, label in zip(x, labels, strict=True):
        code, sums = one_pass.observe(sums, row, int(label), 1)
        assert code == DONE
    return sums


@settings(max_examples=examples(1000, 60), deadline=None)
@given(SEEDS)
def test_any_partition_merged_in_any_order_is_everything_at_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, labels, classes = samples(rng)
    whole, owner = observed(x, labels, classes), rng.integers(0, 4, len(x))
    parts = [observed(x[owner == one], labels[owner == one], classes) for one in range(4)]
    while len(parts) > 1:  # grouped at random
        first, second = (parts.pop(int(rng.integers(0, len(parts)))) for _ in range(2))
        code, merged = one_pass.merge(first, second)
        assert code == DONE
        parts.append(merged)
    assert parts[0] == whole
    assert one_pass.limit(parts[0]).tobytes() == one_pass.limit(whole).tobytes()
    left = int(rng.integers(0, 4))  # a device that leaves is subtracted
    others = observed(x[owner != left], labels[owner != left], classes)
    gone = observed(x[owner == left], labels[owner == left], classes)
    assert one_pass.merge(whole, gone, -1) == (DONE, others)


@settings(max_examples=examples(1000, 60), deadline=None)
@given(SEEDS)
def test_observed_and_forgotten_in_any_order_is_as_before(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, labels, classes = samples(rng)
    before = observed(x, labels, classes)
    more = rng.integers(-LARGEST, LARGEST + 1, (int(rng.integers(1, 9)), x.shape[1]))
    given_ = rng.integers(0, classes, len(more))
    sums = observed(more, given_, classes, before)
    for index in rng.permutation(len(more)):
        code, sums = one_pass.observe(sums, more[index], int(given_[index]), -1)
        assert code == DONE
    assert sums == before


@settings(max_examples=examples(200, 30), deadline=None)
@given(SEEDS)
def test_a_refusal_leaves_the_sums_as_they_were(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sums, other = drawn_sums(rng, 3, 5), drawn_sums(rng, 3, 5)
    before = Sums(sums.n.copy(), sums.m.copy(), sums.g.copy())
    for code, after in (
        one_pass.observe(sums, rng.integers(-LARGEST, LARGEST + 1, 5), int(rng.integers(-1, 4)), -1),
        one_pass.merge(sums, other, -1),
        one_pass.forget_class(sums, int(rng.integers(-1, 4))),
    ):
        assert code == DONE or after is sums
    assert sums == before


def test_the_last_sample_that_fits_is_taken_and_the_next_refused() -> None:
    largest = np.full(2, LARGEST)
    most = Sums(
        np.array([MOST_SAMPLES - 1, 0, 0], np.int32),
        np.array([[LARGEST * (MOST_SAMPLES - 1)] * 2, [0, 0]], np.int32),
        (products(largest) * (MOST_SAMPLES - 1)).astype(np.int32),
    )
    code, full = one_pass.observe(most, largest, 0, 1)
    assert code == DONE
    assert full.g.max() == MOST_SAMPLES * LARGEST**2 < 2**31  # and one more would not fit
    assert (MOST_SAMPLES + 1) * LARGEST**2 > 2**31
    assert one_pass.observe(full, largest, 1, 1) == (FULL, full)
    assert one_pass.merge(full, observed(largest[None], np.array([1]), 2)) == (FULL, full)
    assert one_pass.observe(Sums.empty(2, 2), largest, 0, -1)[0] == FEWER


def in_float64(x: Array, labels: Array, classes: int) -> tuple[Array, Array]:
    """The head by its formula, of numpy's own solver; shrinkage and temperature in float64."""
    n = np.bincount(labels, minlength=classes).astype(float)
    present = np.flatnonzero(n)
    means = np.stack([x[labels == c].mean(axis=0) for c in present])
    within = x - means[np.searchsorted(present, labels)]
    d, freedom = x.shape[1], len(x) - len(present)
    shrunk = np.clip(np.sqrt(d / (d + freedom)), 0.1, 0.9)
    covariance = within.T @ within / freedom
    covariance = (1 - shrunk) * covariance + shrunk * np.trace(covariance) / d * np.eye(d)
    temperature = min(1 - shrunk, len(x) / (len(x) + 48 * len(present)))
    middle = x.mean(axis=0)
    w = np.linalg.solve(covariance, (means - middle).T).T * temperature
    return w, -0.5 * (w * (means + middle)).sum(axis=1)


@pytest.mark.parametrize(
    ("classes", "d", "each"), [(2, 8, 5), (10, 33, 20), (10, 160, 5), (10, 160, 100), (50, 160, 20), (200, 64, 5)]
)
def test_the_head_is_that_of_a_float64_solve(classes: int, d: int, each: int) -> None:
    rng = np.random.default_rng(classes + d)
    labels = np.repeat(np.arange(classes), each)
    mixing = rng.normal(0, 1, (d, d)) * np.geomspace(1, 0.05, d)
    x = rng.normal(30, 25, (classes, d))[labels] + rng.normal(0, 12, (labels.size, d)) @ mixing / np.sqrt(d) * 3
    x = np.clip(np.round(x), -128, 127).astype(np.int64)
    first = np.zeros((classes, d), np.float32), np.zeros(classes, np.float32)
    code, w, b = one_pass.solve(observed(x, labels, classes), 0.5, *first)
    assert code == DONE
    wanted, biases = in_float64(x.astype(float), labels, classes)
    scores, expected = x @ (w.astype(float) * 0.5).T + b, x @ wanted.T + biases
    spread = np.abs(expected - expected.mean(axis=1, keepdims=True)).max()
    assert np.abs(w * 0.5 - wanted).max() <= 2e-4 * np.abs(wanted).max()
    assert np.abs(scores - expected).max() <= 2e-4 * spread
    assert (scores.argmax(axis=1) == expected.argmax(axis=1)).all()


def test_one_sample_a_class_is_the_nearest_mean() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-100, 101, (6, 9))
    code, w, b = one_pass.solve(
        observed(x, np.arange(6), 7), 1.0, np.zeros((7, 9), np.float32), np.zeros(7, np.float32)
    )
    assert code == DONE
    probes = rng.integers(-100, 101, (50, 9))
    nearest = ((probes[:, None] - x) ** 2).sum(axis=2).argmin(axis=1)
    assert ((probes @ w.T + b).argmax(axis=1) == nearest).all()
    assert b[6] == NEVER


def test_the_shrinkage_and_the_temperature_follow_their_rules() -> None:
    assert one_pass.shrinkage(160, 0) == ONE
    for d, freedom in ((8, 1), (160, 40), (160, 990), (512, 33000)):
        exact = np.clip(np.sqrt(d / (d + freedom)), 0.1, 0.9)
        assert abs(one_pass.shrinkage(d, freedom) / ONE - exact) < 2 / ONE
    assert one_pass.temperature(ONE, 10, 10) == ONE // 49
    assert one_pass.temperature(ONE // 2, 10_000, 2) == ONE // 2


def spread(rng: np.random.Generator, classes: int, d: int, each: int) -> tuple[Array, Array]:
    """Features of classes whose samples spread more in some directions than in others, and their labels."""
    labels = np.repeat(np.arange(classes), each)
    mixing = rng.normal(0, 1, (d, d)) * np.geomspace(1, 0.05, d) / np.sqrt(d)
    x = rng.normal(10, 20, (classes, d))[labels] + rng.normal(0, 30, (labels.size, d)) @ mixing
    return np.clip(np.round(x), -128, 127).astype(np.int64), labels


@pytest.mark.parametrize(("classes", "d", "each"), [(1, 8, 3), (1, 160, 40), (10, 33, 5), (10, 160, 100), (50, 64, 2)])
def test_the_limit_and_distances_are_those_of_float64(classes: int, d: int, each: int) -> None:
    x, labels = spread(np.random.default_rng(classes * d), classes, d, each)
    sums = observed(x, labels, classes)
    means = np.stack([x[labels == c].mean(axis=0) for c in range(classes)])
    within, freedom = x - means[labels], len(x) - classes
    covariance = within.T @ within / freedom
    trace = np.trace(covariance)
    share = np.clip((covariance**2).sum() / trace**2 - 1 / freedom, 1 / d, 1)
    limit = trace * (1 + 2.5 * np.sqrt(2 * share * (1 + 1 / freedom)))
    found = one_pass.limit(sums)
    assert abs(found - limit) <= 5e-5 * limit
    for probe in np.random.default_rng(1).integers(-LARGEST, LARGEST + 1, (20, d)):
        wanted = ((probe - means) ** 2).sum(axis=1).min() / ((each + 1) / each * limit)
        assert abs(one_pass.distance(sums.n, sums.m, probe, found) - wanted) <= 1e-4 * wanted


def test_the_limit_keeps_known_samples_and_leaves_out_others() -> None:
    rng, left_out = np.random.default_rng(3), list[float]()
    for classes, each in ((1, 10), (1, 100), (5, 5), (5, 20), (20, 5)):
        x, labels = spread(rng, classes, 64, each + 100)
        learned = np.arange(len(x)) % (each + 100) < each
        sums = observed(x[learned], labels[learned], classes)
        most = one_pass.limit(sums)
        known = [one_pass.distance(sums.n, sums.m, one, most) for one in x[~learned]]
        others = [one_pass.distance(sums.n, sums.m, one, most) for one in rng.permuted(x[~learned], axis=1)]
        left_out.append(float(np.mean(np.array(known) > 1)))
        assert np.mean(np.array(others) > 1) > 0.8
    assert 0 < np.mean(left_out) < 0.05
    assert max(left_out) < 0.1


def test_samples_that_show_no_spread_leave_nothing_out() -> None:
    x = np.random.default_rng(0).integers(-100, 101, (6, 9))
    alike = np.tile(x[:1], (6, 1))
    cases = (Sums.empty(3, 9), observed(x, np.arange(6), 6), observed(x[:1], np.zeros(1, int), 1))
    for sums in (*cases, observed(alike, np.arange(6) % 2, 3)):
        assert one_pass.limit(sums) == 0
        assert one_pass.distance(sums.n, sums.m, 100 - x[0], one_pass.limit(sums)) == 0
    two = observed(x, np.arange(6) % 2, 3)  # and one that was never seen
    assert one_pass.limit(two) > 0
    assert one_pass.distance(two.n, two.m, x[0], np.float32(0)) == 0
