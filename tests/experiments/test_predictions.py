"""Predicted and real gains: correlations, random schemes, pairs of layers, and their picture."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.predictions import (
    Interaction,
    Prediction,
    Predictions,
    best_pairs,
    draw_predictions,
    drawn_schemes,
    rank_correlation,
)
from smidgen.training.scheme import resolve
from tests.support.contributions import measured
from tests.support.small_network import small_network
from tests.support.tiers import examples

gains = st.floats(-1, 1).map(lambda gain: round(gain, 4))


@given(st.lists(st.tuples(gains, gains), min_size=3, max_size=20), st.lists(st.tuples(gains, gains, gains), max_size=6))
@settings(max_examples=examples(30))
def test_predictions_are_drawn_with_their_correlation_and_what_pairs_miss(
    pairs: list[tuple[float, float]], threes: list[tuple[float, float, float]]
) -> None:
    schemes = tuple(Prediction(f"s{i}", *pair) for i, pair in enumerate(pairs))
    together = tuple(Interaction((i, i + 1), three[0], three[1:]) for i, three in enumerate(threes))
    found = Predictions("net", "cars", schemes, together)
    figure = draw_predictions(found)
    dots = figure.traces[0]
    np.testing.assert_allclose(dots.x, [100 * a for a, _ in pairs], atol=1e-5)
    np.testing.assert_allclose(dots.y, [100 * b for _, b in pairs], atol=1e-5)
    titles = " ".join(panel.title for panel in figure.panels)
    a, b = np.array(pairs).T
    if np.std(a) > 1e-3 and np.std(b) > 1e-3:
        assert f"r = {np.corrcoef(a, b)[0, 1] + 0.0:.2f}".replace("-0.00", "0.00") in titles.replace("-0.00", "0.00")
    if threes:
        missed = [three[0] - three[1] - three[2] for three in threes]
        np.testing.assert_allclose(figure.traces[2].y, 100 * np.array(missed), atol=1e-5)
        assert found.interaction_error == pytest.approx(np.abs(missed).mean())


@given(st.permutations(range(8)))
def test_the_correlation_of_ranks_is_spearmans(order: list[int]) -> None:
    places = list(range(8))
    distance = sum((a - b) ** 2 for a, b in zip(order, places, strict=True))
    assert rank_correlation([3.0**p for p in order], [float(p) for p in places]) == pytest.approx(
        1 - 6 * distance / (8 * 63)
    )


def test_equals_share_their_rank_and_what_never_varies_correlates_with_nothing() -> None:
    assert rank_correlation([1, 1, 2], [5, 5, 9]) == pytest.approx(1)
    assert rank_correlation([1, 1, 2], [0, 1, 2]) == pytest.approx(np.corrcoef([0.5, 0.5, 2], [0, 1, 2])[0, 1])
    assert rank_correlation([1, 1, 1], [0, 1, 2]) == 0.0


@given(st.integers(0, 50))
@settings(max_examples=examples(15))
def test_random_schemes_fit_the_network_and_no_two_are_the_same(seed: int) -> None:
    graph = small_network()
    found = measured(graph, seed)
    drawn = drawn_schemes(found, 12, seed)
    assert drawn == drawn_schemes(found, 12, seed)
    assert len({(scheme.biases, scheme.weights) for scheme in drawn}) == len(drawn) == 12
    for scheme in drawn:
        assert sum(bool(trained.channels) for trained in resolve(scheme, graph)) == len(scheme.weights) > 0
        found.predict_gain(scheme)  # every part of it was measured


def test_pairs_are_of_the_layers_that_add_most() -> None:
    graph = small_network()
    found = measured(graph, 3)
    whole = {one.layer: found.weights_gain(one.layer, one.share) for one in found.shares if one.share == 1}
    best = sorted(whole, key=lambda layer: whole[layer])[-3:]
    pairs = best_pairs(found, 3)
    assert {pair.layers for pair in pairs} == {(a, b) for a in best for b in best if a < b}
    for pair in pairs:
        assert [dict(scheme.weights) for scheme in pair.alone] == [{layer: Fraction(1)} for layer in pair.layers]
        assert {s.biases for s in (pair.both, *pair.alone, pair.neither)} == {pairs[0].neither.biases}
        assert (pair.neither.weights, len(resolve(pair.both, graph))) == ((), pair.both.biases)
