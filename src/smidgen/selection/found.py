"""The result of a search: a scheme with its cost and its predicted gain, and the curve of them over budgets."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from smidgen.memory import Memory
from smidgen.tables import Brief, Table, bars, counted, measured, rows_of
from smidgen.training.scheme import Scheme

Method = Literal["exact", "evolutionary", "random"]
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True)
class LayerGain:
    """The predicted gain in top-1 of a share of one layer's weights."""

    layer: int
    share: Fraction
    gain: float


@dataclass(frozen=True)
class Improvement:
    """The best gain known after some candidates."""

    evaluations: int
    gain: float


@dataclass(frozen=True, repr=False)
class Found(Brief):
    """A scheme found for a budget: its cost, its predicted gain, and how it was found."""

    model: str
    target: str | None  # None where the cost is the paper's analytic sum
    method: Method
    budget: int  # bytes
    scheme: Scheme
    weight_bits: int
    cost: int  # bytes: of SRAM, or of the analytic sum
    planned: Memory | None
    gain: float  # top-1 over the head alone, from 0 to 1
    biases_gain: float
    layers: tuple[LayerGain, ...]
    best_possible: float | None  # gain that no scheme within the budget exceeds; None where the method cannot tell
    evaluations: int  # candidates, whole or in part, that were looked at
    schemes_planned: int
    improvements: tuple[Improvement, ...]  # of an evolutionary or random search, as it went on

    @property
    def weights(self) -> str:
        """The weights that learn, as layer:share."""
        return " ".join(f"{one.layer}:{one.share}" for one in self.layers)

    @property
    def proven(self) -> bool:
        """Return whether no scheme within the budget is predicted to gain more."""
        return self.best_possible is not None and self.best_possible <= self.gain

    def picture(self) -> str:
        """Draw the predicted gain of each layer's weights."""
        notes = [f"{one.share} of layer {one.layer}: {100 * one.gain:+.2f} points" for one in self.layers]
        return bars("predicted gain of weights, layer after layer", [one.gain for one in self.layers], notes)

    def __str__(self) -> str:
        where = f"on {self.target}" if self.target else "by the analytic sum"
        weights = f"weights of {len(self.layers)} layers with {self.weight_bits} bits" if self.layers else "no weights"
        lines = [
            f"{self.model} {where}, at most {self.budget:,} bytes: the last {self.scheme.biases} biases, {weights}",
            f"takes   {self.cost:>9,} bytes{self._parts()}",
            f"gains   {100 * self.gain:>+9.2f} points of top-1 over the head alone, predicted with caution; of these",
            f"        {100 * self.biases_gain:>+9.2f} by biases",
        ]
        lines += [f"        {100 * one.gain:>+9.2f} by {one.share} of layer {one.layer}" for one in self.layers]
        return "\n".join([*lines, f"found   by {self._how()}"])

    def _parts(self) -> str:
        if self.planned is None:
            return ": saved inputs, masks, weights and biases; the classifier is not counted"
        p = self.planned
        return f" of SRAM: arena {p.peak:,}, state {p.state:,}, stack and other data at most {p.overhead:,}"

    def _how(self) -> str:
        plans = f", {self.schemes_planned} schemes planned" if self.planned else ""
        how = f"{self.method} search: {self.evaluations:,} candidates{plans}"
        if self.best_possible is None:
            return how
        if self.proven:
            return f"{how}; none that fits is predicted to gain more"
        return f"{how}; none that fits can gain more than {100 * self.best_possible:+.2f}"


@dataclass(frozen=True, repr=False)
class Pareto(Brief):
    """The best scheme found for each of some budgets: each takes more than the one before, and gains more."""

    model: str
    target: str | None
    points: tuple[Found, ...]

    def __str__(self) -> str:
        where = f"on {self.target}" if self.target else "by the paper's analytic sum"
        return f"{self.model} {where}\n{self.tables()[0]}"

    def picture(self) -> str:
        """Draw the gain of each point."""
        notes = [f"{one.cost:,} bytes: {100 * one.gain:+.2f} points" for one in self.points]
        return bars("what memory buys", [one.gain for one in self.points], notes)

    def tables(self) -> tuple[Table, ...]:
        rows = rows_of(
            (
                counted(one.cost), measured(100 * one.gain, "+.2f"), counted(one.budget), counted(one.scheme.biases),
                counted(one.weight_bits), one.weights,
            )
            for one in self.points
        )  # fmt: skip
        columns = ("Bytes", "Gain in points", "Budget", "Biases", "Bits of a weight", "Weights, layer:share")
        return (Table("What memory buys", columns, rows),)
