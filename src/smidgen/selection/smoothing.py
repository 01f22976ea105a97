"""Contributions without most of their noise: neighbouring measurements inform each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from smidgen.ir import Array
from smidgen.selection.contributions import BiasDepth, Contributions, LayerShare

POWER = 0.6  # of a share: a quarter of a layer's channels adds about four tenths of what all of them do
WEIGHTS_PULL = 0.1  # how strongly the gain of a layer is drawn to nothing, in measurements
BIASES_PULL = 1.0  # how strongly two depths of biases are drawn together that differ by one bias
CAUTION = 1.0  # standard errors subtracted from the fitted gain of a layer
DIGITS = 9  # of an accuracy: what is below differs from machine to machine
Measurement = BiasDepth | LayerShare


def smoothed(contributions: Contributions, caution: float = CAUTION) -> Contributions:
    """Replace measured accuracies by fitted ones.

    Each measurement is a single run tested on a few hundred images, so it is off by a point or two, and the largest of
    many are the luckiest. The fit is ridge regression, with a gain for each layer that grows as share ** POWER and with
    depths of biases that follow their neighbours. Runs that diverged keep their accuracy and do not enter the fit.

    Then `caution` standard errors are subtracted from the gain of each layer: many layers that seem to add little add
    nothing, and each costs memory and time.
    """
    if not contributions.measured:
        return contributions
    known = measurements(contributions)
    if not known:
        return contributions
    fit = ContributionFit(contributions)
    found = fit.solve(known)
    found = found - caution * fit.weights_errors(known, found)
    return replace(
        contributions,
        depths=tuple(replace(one, accuracy=fit.predict(one, found)) for one in contributions.depths),
        shares=tuple(replace(one, accuracy=fit.predict(one, found)) for one in contributions.shares),
    )


def measurements(contributions: Contributions) -> list[Measurement]:
    """Return every run that did not diverge."""
    every: list[Measurement] = [*contributions.depths, *contributions.shares]
    return [one for one in every if one.accuracy > 0]


class ContributionFit:
    """A linear fit: its unknowns are the accuracy at each depth of biases, then the gain of each layer's weights."""

    def __init__(self, contributions: Contributions) -> None:
        self._depths = np.array([one.biases for one in contributions.depths])
        self._layers = sorted({one.layer for one in contributions.shares})
        self._beside = {layer: contributions.beside(layer) for layer in self._layers}

    def solve(self, known: Sequence[Measurement]) -> Array:
        """Return the unknowns that agree best with these measurements."""
        rows = np.stack([self._row(one) for one in known])
        measured = np.array([one.accuracy for one in known])
        pulls = self._pulls()
        targets = np.append(measured, np.zeros(len(pulls)))
        found: Array = np.linalg.lstsq(np.concatenate([rows, pulls]), targets, rcond=None)[0]
        return found

    def weights_errors(self, known: Sequence[Measurement], found: Array) -> Array:
        """Return the standard error of each layer's gain, zero for the other unknowns.

        As in Bayesian linear regression: the residuals give the noise of the measurements, the matrix of the fit the
        part of it that reaches an unknown.
        """
        rows, pulls = np.stack([self._row(one) for one in known]), self._pulls()
        inverse = np.linalg.inv(rows.T @ rows + pulls.T @ pulls)
        left = np.array([one.accuracy for one in known]) - rows @ found
        freedom = max(len(known) - float(np.trace(rows @ inverse @ rows.T)), 1.0)
        errors: Array = np.sqrt(np.diag(inverse) * float(left @ left) / freedom)
        errors[: len(self._depths)] = 0.0
        return errors

    def predict(self, one: Measurement, found: Array) -> float:
        """Return the fitted accuracy of a run, from 0 to 1; of one that diverged the measured one."""
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
        """Return the weight of each measured depth for one that may be between two of them."""
        return np.array([np.interp(biases, self._depths, unit) for unit in np.eye(len(self._depths))])

    def _pulls(self) -> Array:
        """Return the ridge terms, as measurements of zero."""
        depths, layers = len(self._depths), len(self._layers)
        steps = np.diff(np.eye(depths), axis=0) * np.sqrt(BIASES_PULL / np.diff(self._depths))[:, None]
        return np.block(
            [
                [steps, np.zeros((depths - 1, layers))],
                [np.zeros((layers, depths)), np.sqrt(WEIGHTS_PULL) * np.eye(layers)],
            ]
        )
