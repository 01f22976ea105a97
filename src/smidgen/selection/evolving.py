"""Evolutionary search, as the paper chooses schemes: the best candidates of a generation are varied into the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from smidgen.selection.problem import Candidate, Problem
from smidgen.selection.sampling import EVALUATIONS, Genes, Trials, draw_genes, head_alone

POPULATION = 100
PARENTS = 25  # the best of a population, each of another depth; half of the children mutate one, half cross two
FRESH = 5  # of so many children one is drawn at random, lest all become alike
FIRST = 0.2  # the share of all candidates that is drawn at random for the first population
CHANGED = 3  # layers that a mutation draws anew, at most
NEAR = 3  # biases by which a mutation moves the depth, at most
OTHER_BITS = 0.1  # the share of mutations that change the bits of weights


def evolve(problems: Sequence[Problem], budget: int, evaluations: int = EVALUATIONS, seed: int = 0) -> Trials:
    """So many candidates, the head alone among the first; those that do not fit leave no children."""
    rng, trials = np.random.default_rng(seed), Trials(problems, budget)
    population: dict[Candidate, Genes] = {}

    def consider(genes: Genes) -> None:
        candidate = trials.evaluate(genes)
        if candidate is not None:
            population.setdefault(candidate, genes)

    consider(head_alone(problems))
    while trials.tried < FIRST * evaluations:
        consider(draw_genes(problems, rng))
    while trials.tried < evaluations:
        population = {candidate: population[candidate] for candidate in _best(population)}
        parents = list(population.values())
        for number in range(min(POPULATION - PARENTS, evaluations - trials.tried)):
            one, other = (parents[int(len(parents) * i)] for i in rng.random(2) ** 2)  # the best most often
            if number % FRESH == 0:
                consider(draw_genes(problems, rng))
            else:
                consider(_mutated(problems, one, rng) if number % 2 else _crossed(one, other, rng))
    return trials


def _best(population: Iterable[Candidate]) -> list[Candidate]:
    """The best of a population by number of biases, most gain first: all of one depth would lead nowhere else."""
    best: dict[int, Candidate] = {}
    for candidate in sorted(population, key=lambda one: (-one.gain, one.cost, one.choices)):
        best.setdefault(candidate.biases, candidate)
    return list(best.values())[:PARENTS]


def _mutated(problems: Sequence[Problem], parent: Genes, rng: np.random.Generator) -> Genes:
    """A parent with a few layers' weights dropped or chosen anew, and the number of biases moved a little."""
    which = int(rng.integers(len(problems))) if rng.random() < OTHER_BITS else parent.problem
    problem = problems[which]
    biases = min(max(parent.biases + int(rng.integers(-NEAR, NEAR + 1)), 0), len(problem.bias_gains) - 1)
    first = len(problem.layers) - max(biases, 1)
    # Weights of layers that did not learn before stay as they are at first.
    kept = range(max(first, len(problem.layers) - parent.biases), len(problem.layers))
    choices = [
        min(choice, len(layer.choices) - 1) if place in kept else 0
        for place, (layer, choice) in enumerate(zip(problem.layers, parent.choices, strict=True))
    ]
    for _ in range(int(rng.integers(CHANGED + 1))):
        taken = [place for place, choice in enumerate(choices) if choice]
        if taken and rng.random() < 0.5:
            choices[taken[int(rng.integers(len(taken)))]] = 0
        else:
            place = int(rng.integers(first, len(choices)))
            choices[place] = int(rng.integers(len(problem.layers[place].choices)))
    return Genes(which, biases, tuple(choices))


def _crossed(one: Genes, other: Genes, rng: np.random.Generator) -> Genes:
    """Each gene from one parent or the other; where their bits differ, only the number of biases is the other's."""
    if one.problem != other.problem:
        return Genes(one.problem, other.biases, one.choices)
    from_one = rng.random(len(one.choices)) < 0.5
    choices = tuple(a if first else b for a, b, first in zip(one.choices, other.choices, from_one, strict=True))
    return Genes(one.problem, one.biases if rng.random() < 0.5 else other.biases, choices)
