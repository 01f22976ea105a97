"""Contributions lose their noise to a fit: what it recovers, what it leaves alone, and that it is the fit it says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from smidgen.ir import Array
from smidgen.selection.contributions import BiasDepth, Conditions, Contributions, LayerShare
from smidgen.selection.estimates import estimate
from smidgen.selection.smoothing import BIASES_PULL, POWER, WEIGHTS_PULL, measurements, smoothed
from smidgen.zoo import load_zoo
from tests.support.contributions import SHARES

LAYERS, BASE = 12, 7
GAINS = np.array([0.0, 0.01, -0.02, 0.03, -0.05, 0.04, 0.02, 0.06, 0.0, -0.03, 0.08, 0.1])
GONE = (10, Fraction(1))
DEPTHS = (0, 1, 2, 4, 7, 9, 12)


def drawn(noise: float, seed: int = 0) -> Contributions:
    """Gains that grow as share ** POWER beside biases that gain steadily, each measured with that much noise."""
    rng = np.random.default_rng(seed)
    depths = tuple(BiasDepth(k, 0.3 + 0.005 * k + noise * float(rng.normal())) for k in DEPTHS)
    shares = tuple(
        LayerShare(layer, share, true_accuracy(layer, share) + noise * float(rng.normal()))
        for layer in range(LAYERS)
        for share in SHARES
    )
    names = tuple(f"layer {layer}" for layer in range(LAYERS))
    return Contributions("drawn", names, Conditions("drawn", "0" * 64, 5, 80, 20, 4, 0.004, (0,), 12), depths, BASE,
                         shares, ())  # fmt: skip


def true_accuracy(layer: int, share: Fraction) -> float:
    return float(0.3 + 0.005 * max(BASE, LAYERS - layer) + GAINS[layer] * float(share) ** POWER)


def errors(found: Contributions) -> Array:
    """How far the gains of all shares lie from those drawn."""
    gains = [found.weights_gain(one.layer, one.share) for one in found.shares]
    missed: Array = np.array(gains) - [GAINS[one.layer] * float(one.share) ** POWER for one in found.shares]
    return missed


def test_without_noise_gains_are_found_but_for_the_pull_to_nothing() -> None:
    assert np.abs(errors(smoothed(drawn(noise=0.0), caution=0))).max() < 0.012


@pytest.mark.parametrize("seed", range(5))
def test_most_of_the_noise_goes(seed: int) -> None:
    noisy = drawn(noise=0.01, seed=seed)
    assert np.mean(errors(smoothed(noisy, caution=0)) ** 2) < 0.5 * np.mean(errors(noisy) ** 2)


def objective(fitted: Contributions, measured: Contributions) -> float:
    """What the fit is to make small, written out: distances from measurements, and the two pulls."""
    pairs = zip(measurements(fitted), measurements(measured), strict=True)
    distance = sum((one.accuracy - other.accuracy) ** 2 for one, other in pairs)
    gains = [fitted.weights_gain(layer, Fraction(1)) for layer in range(LAYERS)]
    steps = zip(fitted.depths, fitted.depths[1:], strict=False)
    along = sum((b.accuracy - a.accuracy) ** 2 / (b.biases - a.biases) for a, b in steps)
    return distance + WEIGHTS_PULL * sum(gain**2 for gain in gains) + BIASES_PULL * along


def moved(fitted: Contributions, depth: int | None, layer: int | None, by: float) -> Contributions:
    """The fit with one of its unknowns changed, and what follows from it."""
    depths = tuple(
        replace(one, accuracy=one.accuracy + by) if place == depth else one for place, one in enumerate(fitted.depths)
    )
    changed = replace(fitted, depths=depths)
    shares = []
    for one in fitted.shares:
        gain = fitted.weights_gain(one.layer, one.share) + (by * float(one.share) ** POWER if one.layer == layer else 0)
        beside = changed.biases_gain(changed.beside(one.layer)) + changed.depths[0].accuracy
        shares.append(replace(one, accuracy=beside + gain))
    return replace(changed, shares=tuple(shares))


def test_it_is_the_least_of_the_sum_that_is_written_down() -> None:
    noisy = drawn(noise=0.01)
    fitted = smoothed(noisy, caution=0)
    least = objective(fitted, noisy)
    for by in (-1e-3, 1e-3):
        assert all(objective(moved(fitted, depth, None, by), noisy) > least for depth in range(len(DEPTHS)))
        assert all(objective(moved(fitted, None, layer, by), noisy) > least for layer in range(LAYERS))


def test_a_run_that_diverged_stays_as_it_is_and_says_nothing_of_others() -> None:
    noisy = drawn(noise=0.01)
    gone = tuple(replace(one, accuracy=0.0) if (one.layer, one.share) == GONE else one for one in noisy.shares)
    without = replace(noisy, shares=tuple(one for one in noisy.shares if (one.layer, one.share) != GONE))
    fitted, other = smoothed(replace(noisy, shares=gone)), smoothed(without)
    assert fitted.depths == other.depths
    assert [one for one in fitted.shares if one.accuracy > 0] == list(other.shares)
    assert [(one.layer, one.share) for one in fitted.shares if one.accuracy == 0] == [GONE]


def test_what_a_rule_says_is_no_measurement_and_stays() -> None:
    ruled = estimate(load_zoo("mcunet-5fps"))
    assert smoothed(ruled) == ruled


def test_the_standard_error_is_how_much_gains_scatter_from_one_analysis_to_the_next() -> None:
    noise, many = 0.01, range(200)
    fitted = [smoothed(drawn(noise, seed), caution=0) for seed in many]
    careful = [smoothed(drawn(noise, seed)) for seed in many]
    for layer in range(LAYERS):
        gains = np.array([one.weights_gain(layer, Fraction(1)) for one in fitted])
        taken_off = gains - [one.weights_gain(layer, Fraction(1)) for one in careful]
        assert 0.8 < np.mean(taken_off) / np.std(gains) < 1.25


def test_caution_grows_with_the_share_and_leaves_biases_alone() -> None:
    noisy = drawn(noise=0.01)
    fitted, careful, twice = (smoothed(noisy, caution) for caution in (0.0, 1.0, 2.0))
    assert careful.depths == fitted.depths
    for one, other, third in zip(fitted.shares, careful.shares, twice.shares, strict=True):
        assert other.accuracy < one.accuracy
        assert one.accuracy - third.accuracy == pytest.approx(2 * (one.accuracy - other.accuracy), abs=1e-8)
    whole = [(a.accuracy - b.accuracy) for a, b in zip(fitted.shares, careful.shares, strict=True) if a.layer == 3]
    np.testing.assert_allclose(whole, whole[-1] * np.array([float(one) for one in sorted(SHARES)]) ** POWER, rtol=1e-5)
