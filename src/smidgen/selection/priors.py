"""Gains of candidates over the head on other data sets, which what few samples say is weighed against.

Fifty samples judge a candidate to within seven points, and candidates differ by two or three. So the gain that is seen
on samples held back is drawn towards the gain of such candidates elsewhere (empirical Bayes): true gains are taken to
be spread normally around that. Few samples then keep what usually pays, and many decide by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from smidgen.ir import Array
from smidgen.selection.judging import Recipe
from smidgen.selection.rates import BATCH

SPREAD = 0.03  # standard deviation of gains around those of their kind elsewhere
OFF = 0.007  # by which a trial, which is shorter than a course, is off even with endless samples
DOUBT = 0.02  # variance of the difference of two candidates on a sample, at least
FEW = 10  # samples of a class up to which those of five hold, beyond it those of twenty

Kind = tuple[str, Literal["nothing", "head", "some", "most"]]  # how the head begins, and how much learns in steps
Gains = Mapping[Kind, Mapping[float, float]]  # by the rate of a batch, in points
AS_USUAL = 0.4  # the rate of the head that gains are measured from

# Means over seven data sets, two networks and two sets of weights: `python benchmarks/own_data.py --gains`.
WITH_FIVE: Gains = {
    ("new head", "head"): {0.1: -1.3, 0.4: 0.0, 1.0: 0.1, 2.5: -0.6},
    ("new head", "some"): {0.1: -0.2, 0.4: 1.3, 1.0: 1.2, 2.5: 0.4},
    ("new head", "most"): {0.1: 0.4, 0.4: 2.0, 1.0: 1.9, 2.5: 0.0},
    ("one pass", "nothing"): {0.0: 1.6},
    ("one pass", "head"): {0.05: 2.0, 0.2: 2.1, 1.0: 1.2},
    ("one pass", "some"): {0.05: 1.7, 0.2: 2.1, 1.0: 1.7},
    ("one pass", "most"): {0.05: 2.1, 0.2: 2.7, 1.0: 2.5},
}
WITH_TWENTY: Gains = {
    ("new head", "head"): {0.1: 0.3, 0.4: 0.0, 1.0: -0.6, 2.5: -1.6},
    ("new head", "some"): {0.1: 1.0, 0.4: 1.5, 1.0: 1.5, 2.5: 1.5},
    ("new head", "most"): {0.1: 1.8, 0.4: 2.3, 1.0: 2.2, 2.5: 1.8},
    ("one pass", "nothing"): {0.0: 3.2},
    ("one pass", "head"): {0.05: 2.8, 0.2: 2.4, 1.0: 0.4},
    ("one pass", "some"): {0.05: 3.1, 0.2: 2.7, 1.0: 2.2},
    ("one pass", "most"): {0.05: 3.4, 0.2: 3.6, 1.0: 3.2},
}


def kind_of(recipe: Recipe) -> Kind:
    """Return what a candidate has in common with others."""
    if not recipe.steps:
        return recipe.start, "nothing"
    return recipe.start, "head" if not recipe.scheme.biases else "most" if recipe.most else "some"


def gain_elsewhere(recipe: Recipe, rate: float, of_class: float) -> float:
    """Return what such a candidate gained elsewhere, with about so many samples of a class."""
    return at_rate((WITH_FIVE if of_class <= FEW else WITH_TWENTY)[kind_of(recipe)], rate)


def at_rate(points: Mapping[float, float], rate: float) -> float:
    """Return the gain at the rate nearest to that of a sample."""

    def distance(known: float) -> float:
        return abs(math.log(known / (rate * BATCH))) if known and rate else 0.0

    return points[min(points, key=distance)] / 100


def expected_gain(elsewhere: float, differences: Array) -> float:
    """Return the gain to expect from the one elsewhere and from the differences seen, sample by sample."""
    count = differences.size
    error = ((float(differences.var(ddof=1)) if count > 1 else 0.0) + DOUBT) / count
    weight = SPREAD**2 / (SPREAD**2 + OFF**2 + error)
    return elsewhere + weight * (float(differences.mean()) - elsewhere)
