"""How well sums of contributions predict real gains: schemes to try, correlations, and a picture of both."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from smidgen.results.choices import in_points
from smidgen.results.figures import COLOURS, GAINS, HARMS, Axis, Bars, Figure, Panel, Polyline, Rule
from smidgen.selection.contributions import Contributions
from smidgen.training.scheme import Scheme

MOST_LAYERS = 6  # whose weights a random scheme trains
WHOLE = Fraction(1)


@dataclass(frozen=True)
class Prediction:
    """A scheme's gain over biases alone: the sum of its contributions, and as it came out."""

    scheme: str
    predicted: float
    real: float


@dataclass(frozen=True)
class Interaction:
    """Two layers' weights: what they add to biases together, and what each adds alone."""

    layers: tuple[int, int]
    together: float
    alone: tuple[float, float]

    @property
    def error(self) -> float:
        """What the sum of both misses; below zero where they are worth less together."""
        return self.together - sum(self.alone)


@dataclass(frozen=True)
class Predictions:
    """Predicted gains beside real ones, and how pairs of layers interact; gains are of top-1, from 0 to 1."""

    model: str
    data: str
    schemes: tuple[Prediction, ...]
    interactions: tuple[Interaction, ...] = ()

    @property
    def correlation(self) -> float:
        """Pearson's, of predicted and real gains."""
        return correlation(*self._gains())

    @property
    def rank_correlation(self) -> float:
        """Spearman's."""
        return rank_correlation(*self._gains())

    @property
    def interaction_error(self) -> float:
        """The mean size of what sums of two miss."""
        return statistics.fmean(abs(one.error) for one in self.interactions)

    def __str__(self) -> str:
        lines = [
            f"{self.model} on {self.data}: predicted and real gains of {len(self.schemes)} schemes correlate by "
            f"{self.correlation:.2f}, their ranks by {self.rank_correlation:.2f}"
        ]
        if self.interactions:
            mean = statistics.fmean(one.error for one in self.interactions)
            lines.append(
                f"of {len(self.interactions)} pairs of layers the sum misses {100 * self.interaction_error:.1f} points "
                f"on average; together they add {100 * mean:+.1f} points to what they add alone"
            )
        return "\n".join(lines)

    def _gains(self) -> tuple[list[float], list[float]]:
        return [one.predicted for one in self.schemes], [one.real for one in self.schemes]


def correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Pearson's correlation; 0 where one of them does not vary."""
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / size if size else 0.0


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's correlation: Pearson's of the ranks, of which equals share their mean."""
    return correlation(_ranks(a), _ranks(b))


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(order)))}
    last = {value: place for place, value in enumerate(order)}
    return [(first[value] + last[value]) / 2 for value in values]


def drawn_schemes(contributions: Contributions, count: int, seed: int = 0) -> tuple[Scheme, ...]:
    """Draw `count` different random schemes from what was measured, or fewer where there are not as many.

    They have at least the biases beside which weights were measured.
    """
    rng = np.random.default_rng(seed)
    measured: dict[int, list[Fraction]] = {}
    for one in contributions.shares:
        measured.setdefault(one.layer, []).append(one.share)
    found: dict[tuple[object, ...], Scheme] = {}
    for _ in range(100 * count):  # bounded, since a small network has few
        if len(found) == count:
            break
        number = int(rng.integers(1, min(MOST_LAYERS, len(measured)) + 1))
        layers = sorted(int(layer) for layer in rng.choice(sorted(measured), number, replace=False))
        weights = tuple((layer, measured[layer][int(rng.integers(len(measured[layer])))]) for layer in layers)
        biases = int(rng.integers(contributions.beside(layers[0]), contributions.depths[-1].biases + 1))
        found.setdefault((biases, weights), Scheme(f"drawn {len(found) + 1}", biases, weights))
    return tuple(found.values())


@dataclass(frozen=True)
class Pair:
    """The four schemes that show how two layers interact: both, each alone, and the biases alone."""

    layers: tuple[int, int]
    both: Scheme
    alone: tuple[Scheme, Scheme]
    neither: Scheme


def best_pairs(contributions: Contributions, layers: int) -> tuple[Pair, ...]:
    """All pairs of the layers whose whole weights add most, beside as many biases as reach all of them."""
    gains = {
        one.layer: contributions.weights_gain(one.layer, one.share)
        for one in contributions.shares
        if one.share == WHOLE
    }
    best = sorted(sorted(gains, key=lambda layer: -gains[layer])[:layers])
    biases = max([contributions.base, *(contributions.beside(layer) for layer in best)])

    def scheme(*chosen: int) -> Scheme:
        return Scheme(" and ".join(map(str, chosen)) or "biases", biases, tuple((layer, WHOLE) for layer in chosen))

    return tuple(Pair((a, b), scheme(a, b), (scheme(a), scheme(b)), scheme()) for a, b in combinations(best, 2))


def draw_predictions(predictions: Predictions) -> Figure:
    """Predicted gains against real ones, and what the sums of two layers miss."""
    title = f"predicted and real: r = {predictions.correlation:.2f}, of ranks {predictions.rank_correlation:.2f}"
    gains = [gain for one in predictions.schemes for gain in (in_points(one.predicted), in_points(one.real))]
    ends = (min(gains, default=0.0), max(gains, default=0.0))
    diagonal = Polyline("as predicted", ends, ends, ("", ""), "#000000", dashed=True, legend=False)
    panels = [
        Panel(
            title, (_scattered(predictions), diagonal), Axis("predicted gain, points of top-1"),
            Axis("real gain, points of top-1"),
        )
    ]  # fmt: skip
    if predictions.interactions:
        missed = f"pairs: the sum misses {100 * predictions.interaction_error:.1f} points on average"
        pairs = _pairs(predictions)
        names = tuple(_pair(one.layers) for one in predictions.interactions)
        panels.append(
            Panel(missed, (pairs, Rule("y", 0)), Axis(ticks=pairs.x, labels=names), Axis("together less alone, points"))
        )
    whole = f"Sums of contributions and what came: {predictions.model} on {predictions.data}"
    return Figure(whole, tuple(panels), 460, (1.0,) * len(panels))


def _scattered(predictions: Predictions) -> Polyline:
    x = tuple(in_points(one.predicted) for one in predictions.schemes)
    y = tuple(in_points(one.real) for one in predictions.schemes)
    named = (one.scheme for one in predictions.schemes)
    notes = (f"{name}\npredicted {a:+.1f}, real {b:+.1f}" for name, a, b in zip(named, x, y, strict=True))
    return Polyline("schemes", x, y, tuple(notes), COLOURS["activation"], "none", radius=4.5, legend=False)


def _pairs(predictions: Predictions) -> Bars:
    errors = tuple(in_points(one.error) for one in predictions.interactions)
    notes = (
        f"layers {_pair(one.layers)}: alone {' and '.join(f'{100 * gain:+.1f}' for gain in one.alone)}, together "
        f"{100 * one.together:+.1f}"
        for one in predictions.interactions
    )
    colours = tuple(HARMS[2] if error < 0 else GAINS[2] for error in errors)
    return Bars("pairs", tuple(range(len(errors))), errors, tuple(notes), colours, legend=False)


def _pair(pair: Sequence[int]) -> str:
    return " + ".join(map(str, pair))
