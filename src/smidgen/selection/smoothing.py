"""Contributions without most of their noise: what neighbouring measurements say of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from smidgen.ir import Array
from smidgen.selection.contributions import BiasDepth, Contributions, LayerShare

POWER = 0.6  # of a share: a quarter of a layer's channels adds about four tenths of what all of them do
WEIGHTS_PULL = 0.1  # how strongly the gain of a layer is drawn to nothing, in measurements
BIASES_PULL = 1.0  # how strongly two depths of biases are drawn together that differ by one bias
CAUTION = 1.0  # standard errors by which the gain of a layer is taken to be less than the fit says
DIGITS = 9  # of an accuracy: what is below differs from machine to machine
Measurement = BiasDepth | LayerShare


def smoothed(contributions: Contributions, caution: float = CAUTION) -> Contributions:
    """The same with fitted accuracies for measured ones.

    Each measurement is a single run judged with some hundred images, so that it is off by a point or two, and the
    largest of many such are the luckiest. The fit is ridge regression, with a gain for each layer that grows as
    share ** POWER and with depths of biases that follow their neighbours. All runs beside the same biases say what
    those are worth. Runs that diverged stay as they are and say nothing of others.

    From the gain of each layer so many of its standard errors are then taken off: many a layer that seems to add
    little adds nothing, and each costs memory and time.
    """
    if not contributions.measured:
        return contributions
    known = measurements(contributions)
    if not known:
        return contributions
    fit = Fit(contributions)
    found = fit.solve(known)
    found = found - caution * fit.weights_errors(known, found)
    return replace(
        contributions,
        depths=tuple(replace(one, accuracy=fit.predict(one, found)) for one in contributions.depths),
        shares=tuple(replace(one, accuracy=fit.predict(one, found)) for one in contributions.shares),
    )


def measurements(contributions: Contributions) -> list[Measurement]:
    """Every run that did not diverge."""
    every: list[Measurement] = [*contributions.depths, *contributions.shares]
    return [one for one in every if one.accuracy > 0]


class Fit:
    """The unknowns: what each depth of biases reaches, then what each layer's weights add."""

    def __init__(self, contributions: Contributions) -> None:
        self._depths = np.array([one.biases for one in contributions.depths])
        self._layers = sorted({one.layer for one in contributions.shares})
        self._beside = {layer: contributions.beside(layer) for layer in self._layers}

    def solve(self, known: Sequence[Measurement]) -> Array:
        """The unknowns that agree best with these measurements."""
        rows = np.stack([self._row(one) for one in known])
        measured = np.array([one.accuracy for one in known])
        pulls = self._pulls()
        wished = np.append(measured, np.zeros(len(pulls)))
        found: Array = np.linalg.lstsq(np.concatenate([rows, pulls]), wished, rcond=None)[0]
        return found

    def weights_errors(self, known: Sequence[Measurement], found: Array) -> Array:
        """The standard error of each unknown that is a layer's gain, zero for the others.

        As Bayesian linear regression has it: what is left of the measurements says how noisy they are, the matrix
        of the fit how much of that noise reaches an unknown.
        """
        rows, pulls = np.stack([self._row(one) for one in known]), self._pulls()
        inverse = np.linalg.inv(rows.T @ rows + pulls.T @ pulls)
        left = np.array([one.accuracy for one in known]) - rows @ found
        freedom = max(len(known) - float(np.trace(rows @ inverse @ rows.T)), 1.0)
        errors: Array = np.sqrt(np.diag(inverse) * float(left @ left) / freedom)
        errors[: len(self._depths)] = 0.0
        return errors

    def predict(self, one: Measurement, found: Array) -> float:
        """The fitted accuracy of a run, from 0 to 1; of one that diverged what was measured."""
        if one.accuracy <= 0:
            return one.accuracy
        return round(min(max(float(self._row(one) @ found), 0.0), 1.0), DIGITS)

    def _row(self, one: Measurement) -> Array:
        row = np.zeros(len(self._depths) + len(self._layers))
        biases = one.biases if isinstance(one, BiasDepth) else self._beside[one.layer]
        row[: len(self._depths)] = self._between(biases)
        if isinstance(one, LayerShare):
            row[len(self._depths) + self._layers.index(one.layer)] = float(one.share) ** POWER
        return row

    def _between(self, biases: int) -> Array:
        """How much each measured depth counts for one that may lie between two of them."""
        return np.array([np.interp(biases, self._depths, unit) for unit in np.eye(len(self._depths))])

    def _pulls(self) -> Array:
        """What is wished for besides, as measurements of zero."""
        depths, layers = len(self._depths), len(self._layers)
        steps = np.diff(np.eye(depths), axis=0) * np.sqrt(BIASES_PULL / np.diff(self._depths))[:, None]
        return np.block(
            [
                [steps, np.zeros((depths - 1, layers))],
                [np.zeros((layers, depths)), np.sqrt(WEIGHTS_PULL) * np.eye(layers)],
            ]
        )
