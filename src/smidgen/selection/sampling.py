"""Candidates drawn at random, and the record of a search that tries so many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from smidgen.selection.found import Improvement
from smidgen.selection.problem import UNIT, Candidate, Problem

EVALUATIONS = 20_000  # candidates that a search tries


@dataclass(frozen=True)
class Genes:
    """A candidate as it is varied: which problem, how many biases, and a choice for every layer, used or not."""

    problem: int
    biases: int
    choices: tuple[int, ...]


@dataclass
class Trials:
    """Candidates tried so far under a budget, the best of them, and when it was found."""

    problems: Sequence[Problem]
    budget: int
    tried: int = 0
    best: Candidate | None = None
    improvements: list[Improvement] = field(default_factory=list)

    def evaluate(self, genes: Genes) -> Candidate | None:
        """The candidate, or None where it costs more than the budget."""
        problem = self.problems[genes.problem]
        first = len(problem.layers) - genes.biases
        candidate = problem.candidate(genes.biases, genes.choices[first:])
        self.tried += 1
        if candidate.cost > self.budget:
            return None
        if self.best is None or candidate.gain > self.best.gain:
            self.best = candidate
            self.improvements.append(Improvement(self.tried, candidate.gain / UNIT))
        return candidate


def head_alone(problems: Sequence[Problem]) -> Genes:
    """Nothing learns but the head."""
    return Genes(0, 0, (0,) * len(problems[0].layers))


def draw_genes(problems: Sequence[Problem], rng: np.random.Generator) -> Genes:
    """Any number of biases; of the layers a share that is drawn as well, else nearly all would be far too large."""
    which = int(rng.integers(len(problems)))
    problem, density = problems[which], rng.random() ** 2
    biases = int(rng.integers(len(problem.bias_gains)))
    learns, part = rng.random(len(problem.layers)) < density, rng.random(len(problem.layers))
    choices = tuple(
        1 + int(part[i] * (len(layer.choices) - 1)) if learns[i] and len(layer.choices) > 1 else 0
        for i, layer in enumerate(problem.layers)
    )
    return Genes(which, biases, choices)
