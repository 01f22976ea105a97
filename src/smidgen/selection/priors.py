"""Gains of candidates over the head on other data sets: the prior for judging them on few samples.

Fifty samples measure accuracy to within seven points, and candidates differ by two or three. So the gain seen on the
samples held back is shrunk towards the mean gain of such candidates on other data (empirical Bayes), with true gains
assumed to be normally distributed around it. With few samples the choice follows what usually helps; with many, the
user's own data decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from smidgen.ir import Array
from smidgen.selection.judging import Recipe
from smidgen.selection.rates import BATCH

PRIOR_DEVIATION = 0.03  # standard deviation of true gains around the mean of their kind
TRIAL_DEVIATION = 0.007  # error that remains with endless samples, because a trial is shorter than a course
LEAST_VARIANCE = 0.02  # added to the variance of the difference between two candidates on one sample
FEW = 10  # samples per class up to which WITH_FIVE applies; beyond, WITH_TWENTY
MEASURED = 40  # samples per class beyond which gains were not measured, and no prior applies

Kind = tuple[str, Literal["nothing", "head", "some", "most"]]  # how the head begins, and how much learns in steps
Gains = Mapping[Kind, Mapping[float, float]]  # in points, by rate (of a batch of 256)
BASELINE_RATE = 0.4  # gains are measured from the head at this rate

# Means over seven data sets, two networks and two sets of weights: `python benchmarks/own_data.py --gains`.
WITH_FIVE: Gains = {
    ("new head", "head"): {0.1: -1.4, 0.4: 0.0, 1.0: 0.1, 2.5: -0.6},
    ("new head", "some"): {0.1: -0.2, 0.4: 1.3, 1.0: 1.2, 2.5: 0.7},
    ("new head", "most"): {0.1: 0.4, 0.4: 2.0, 1.0: 2.0, 2.5: 0.2},
    ("one pass", "nothing"): {0.0: 1.6},
    ("one pass", "head"): {0.05: 2.1, 0.2: 2.1, 1.0: 1.3},
    ("one pass", "some"): {0.05: 1.8, 0.2: 2.1, 1.0: 1.8},
    ("one pass", "most"): {0.05: 2.2, 0.2: 2.8, 1.0: 2.6},
}
WITH_TWENTY: Gains = {
    ("new head", "head"): {0.1: 0.3, 0.4: 0.0, 1.0: -0.6, 2.5: -1.6},
    ("new head", "some"): {0.1: 1.1, 0.4: 1.6, 1.0: 1.7, 2.5: 1.5},
    ("new head", "most"): {0.1: 1.8, 0.4: 2.3, 1.0: 2.2, 2.5: 1.8},
    ("one pass", "nothing"): {0.0: 3.2},
    ("one pass", "head"): {0.05: 2.8, 0.2: 2.4, 1.0: 0.4},
    ("one pass", "some"): {0.05: 3.2, 0.2: 2.8, 1.0: 2.3},
    ("one pass", "most"): {0.05: 3.4, 0.2: 3.6, 1.0: 3.2},
}


def kind_of(recipe: Recipe) -> Kind:
    """Return the kind of a candidate: how its head begins, and how much of the network takes steps."""
    if not recipe.steps:
        return recipe.start, "nothing"
    return recipe.start, "head" if not recipe.scheme.biases else "most" if recipe.most else "some"


def prior_gain(recipe: Recipe, rate: float, per_class: float) -> float:
    """Return the mean gain of such candidates on other data with about as many samples per class."""
    return at_rate((WITH_FIVE if per_class <= FEW else WITH_TWENTY)[kind_of(recipe)], rate)


def at_rate(points: Mapping[float, float], rate: float) -> float:
    """Return the gain at the known rate nearest to this one, which is that of one sample."""

    def distance(known: float) -> float:
        return abs(math.log(known / (rate * BATCH))) if known and rate else 0.0

    return points[min(points, key=distance)] / 100


def expected_gain(prior: float, differences: Array) -> float:
    """Return the posterior mean of a gain, from its prior mean and the differences seen, one per sample."""
    count = differences.size
    error = ((float(differences.var(ddof=1)) if count > 1 else 0.0) + LEAST_VARIANCE) / count
    weight = PRIOR_DEVIATION**2 / (PRIOR_DEVIATION**2 + TRIAL_DEVIATION**2 + error)
    return prior + weight * (float(differences.mean()) - prior)
