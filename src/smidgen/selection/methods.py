"""The search for a scheme as a pure problem, and three methods: best-first (A*), evolution as in the paper, random.

A candidate is a number of biases and, for each of their layers, one of its choices. Its gain is a sum. Its cost is the
fixed bytes, the state of what learns, and an arena: from the first layer that learns to the last, each adds what it
keeps, and the arena is the most that any of them needs beside what is kept by then.

Best-first search decides layer by layer, from the first that learns to the last, and always follows the partial
candidate that promises most. A promise is never too low: it is the lesser of two multiple-choice knapsacks over the
layers to come, solved once by dynamic programming for every number of bytes left. One counts state alone, which has to
fit beside the arena known so far; the other counts state and what is kept in the arena until one late layer's gradient
is computed. So candidates come in descending order of gain, and the first that fits is the best there is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from smidgen.errors import SmidgenError
from smidgen.ir import Array
from smidgen.selection.found import Improvement
from smidgen.training.scheme import Scheme

UNIT = 1 << 40  # gains are whole numbers of 1 / UNIT, so that a tie is a tie on every machine


class SearchError(SmidgenError):
    """There is no scheme to be found: the budget, the model or the contributions do not allow one."""


@dataclass(frozen=True)
class Choice:
    """One way in which a layer's weights can learn."""

    share: Fraction | None  # of its input channels; None: its weights are frozen
    gain: int
    state: int  # bytes
    saved: int  # bytes of its input, kept from the forward pass on


NOTHING = Choice(None, 0, 0, 0)


@dataclass(frozen=True)
class Layer:
    """A layer whose bias learns: the bytes that takes, and the choices for its weights, of which the first is none."""

    choices: tuple[Choice, ...] = (NOTHING,)
    state: int = 0  # its bias, and the exponents of the gradients on the way to it
    kept: int = 0  # in the arena, from the forward pass until its gradient is computed
    early: int = 0  # the least arena at some time before its saved input is done with, that input not counted
    late: int = 0  # the least arena at some time at which its saved input may be gone


@dataclass(frozen=True)
class Candidate:
    """A number of biases, and for each of their layers, first to last, the index of the choice taken."""

    bits: int
    biases: int
    choices: tuple[int, ...]
    gain: int
    cost: int  # bytes
    arena: int  # bytes, of the cost


@dataclass(frozen=True)
class Problem:
    """Everything to choose from, for one number of bits per weight."""

    bits: int
    layers: tuple[Layer, ...]  # by their numbers
    bias_gains: tuple[int, ...]  # by how many biases learn, from 0 to the most that can
    fixed: int = 0  # bytes that every candidate takes
    head_arena: int = 0  # of the arena, at least, all that is kept on top
    floors: tuple[int, ...] = ()  # of the arena, at least, by how many biases learn

    def candidate(self, biases: int, choices: tuple[int, ...]) -> Candidate:
        """Return a candidate with its gain and cost."""
        taken = self.taken(choices)
        gain = self.bias_gains[biases] + sum(choice.gain for _, choice in taken)
        state = sum(layer.state + choice.state for layer, choice in taken)
        kept, arena = 0, self.floor(biases)
        for layer, choice in taken:
            arena = max(arena, kept + layer.late, kept + choice.saved + layer.early)
            kept += layer.kept + choice.saved
        arena = max(arena, kept + self.head_arena)
        return Candidate(self.bits, biases, choices, gain, self.fixed + state + arena, arena)

    def taken(self, choices: tuple[int, ...]) -> list[tuple[Layer, Choice]]:
        """Return the last layers, each with the choice taken."""
        last = self.layers[len(self.layers) - len(choices) :]
        return [(layer, layer.choices[choice]) for layer, choice in zip(last, choices, strict=True)]

    def floor(self, biases: int) -> int:
        return self.floors[biases] if self.floors else 0

    def scheme(self, candidate: Candidate) -> Scheme:
        """Return the scheme of a candidate."""
        first = len(self.layers) - candidate.biases
        shares = (choice.share for _, choice in self.taken(candidate.choices))
        weights = tuple((first + i, share) for i, share in enumerate(shares) if share is not None)
        return Scheme("searched", candidate.biases, weights, weight_bits=candidate.bits)


CELLS = 1 << 14  # of a table of promises; costs are rounded down to a cell's bytes
IMPOSSIBLE = -(1 << 62)
DECISIONS = 2_000_000  # partial candidates followed in one search


@dataclass(frozen=True)
class Promises:
    """The most that each layer and all behind it can gain, by bytes left for them."""

    cell: int  # bytes
    state: Array  # [layer, cells]: bytes of state
    both: Array  # [layer, cells]: bytes of state and, of the layers before `peak`, what is kept
    peak: int  # a layer
    at_peak: int  # bytes of arena it needs at least, beside what is kept by then

    def gain(self, layer: int, state_left: int, both_left: int) -> int:
        """Return the most that the layers from this one on can gain with these bytes left for each of the two sums."""
        if layer <= self.peak:
            both_left -= self.at_peak
        if state_left < 0 or both_left < 0:
            return IMPOSSIBLE
        last = self.state.shape[1] - 1
        state, both = min(state_left // self.cell, last), min(both_left // self.cell, last)
        return min(int(self.state[layer, state]), int(self.both[layer, both]))


def promise(problem: Problem, most: int) -> Promises:
    """Compute the promises of a problem for budgets up to `most` bytes."""
    cell, count = max(1, -(-most // CELLS)), len(problem.layers)
    kept = np.cumsum([0, *(layer.kept for layer in problem.layers)])
    # The arena is usually largest late, where nearly everything is kept: search the later half.
    loads = [*(max(layer.early, layer.late) for layer in problem.layers), problem.head_arena]
    peak = max(range(count // 2, count + 1), key=lambda i: kept[i] + loads[i])
    state, both = (np.zeros((count + 1, most // cell + 1), np.int64) for _ in range(2))
    for i in reversed(range(count)):
        layer = problem.layers[i]
        _extend(state, i, layer, [layer.state + choice.state for choice in layer.choices], cell)
        more = [layer.kept + choice.saved if i < peak else 0 for choice in layer.choices]
        _extend(both, i, layer, [layer.state + c.state + m for c, m in zip(layer.choices, more, strict=True)], cell)
    return Promises(cell, state, both, peak, loads[peak])


def _extend(table: Array, i: int, layer: Layer, costs: list[int], cell: int) -> None:
    """Fill in a layer's row from the one behind it."""
    table[i] = IMPOSSIBLE
    for choice, cost in zip(layer.choices, costs, strict=True):
        cells = cost // cell
        if cells < table.shape[1]:
            rest = table[i + 1, : table.shape[1] - cells]
            np.maximum(table[i, cells:], np.where(rest == IMPOSSIBLE, rest, rest + choice.gain), out=table[i, cells:])


@dataclass(frozen=True, order=True)
class _Partial:
    """Layers decided from the first that learns up to `-behind`; ordered as they are followed."""

    less: int  # minus the promised gain
    biases: int  # of equal promises that of fewer biases first, then of fewer bits, then the one decided further
    bits: int
    behind: int
    choices: tuple[int, ...]
    gain: int
    state: int
    kept: int
    arena: int


class BestFirst:
    """An iterator over the candidates of some problems that cost at most a budget, most gain first."""

    def __init__(self, problems: Sequence[Problem], promises: Sequence[Promises], budget: int) -> None:
        self.problems = {one.bits: one for one in problems}
        self.promises = {one.bits: found for one, found in zip(problems, promises, strict=True)}
        self.budget, self.decisions = budget, 0
        self._open: list[_Partial] = []
        for problem in problems:
            for biases, gain in enumerate(problem.bias_gains):
                first = len(problem.layers) - biases
                self._push(problem.bits, biases, first, (), gain, problem.fixed, 0, problem.floor(biases))

    @property
    def most(self) -> int | None:
        """The most that any remaining candidate can gain; None where there is none."""
        return -self._open[0].less if self._open else None

    def __iter__(self) -> Iterator[Candidate]:
        while self._open and self.decisions < DECISIONS:
            self.decisions += 1
            partial = heapq.heappop(self._open)
            problem, place = self.problems[partial.bits], -partial.behind
            if place == len(problem.layers):
                yield problem.candidate(partial.biases, partial.choices)
            else:
                self._follow(partial, problem.layers[place], place)

    def _follow(self, partial: _Partial, layer: Layer, place: int) -> None:
        for index, choice in enumerate(layer.choices):
            state, kept = partial.state + layer.state + choice.state, partial.kept
            arena = max(partial.arena, kept + layer.late, kept + choice.saved + layer.early)
            kept += layer.kept + choice.saved
            choices, gain = (*partial.choices, index), partial.gain + choice.gain
            self._push(partial.bits, partial.biases, place + 1, choices, gain, state, kept, arena)

    def _push(
        self, bits: int, biases: int, place: int, choices: tuple[int, ...], gain: int, state: int, kept: int, arena: int
    ) -> None:
        problem = self.problems[bits]
        if place == len(problem.layers):
            arena = max(arena, kept + problem.head_arena)
        left = self.budget - state
        more = self.promises[bits].gain(place, left - arena, left - kept)
        if more > IMPOSSIBLE:
            partial = _Partial(-gain - more, biases, bits, -place, choices, gain, state, kept, arena)
            heapq.heappush(self._open, partial)


EVALUATIONS = 20_000  # candidates that a search tries


@dataclass(frozen=True)
class Genes:
    """A candidate in the form that is varied: a problem, a number of biases, and a choice for every layer."""

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
        """Return the candidate, or None where it costs more than the budget."""
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
    """Return the candidate in which only the head learns."""
    return Genes(0, 0, (0,) * len(problems[0].layers))


def draw_genes(problems: Sequence[Problem], rng: np.random.Generator) -> Genes:
    """Draw a number of biases and a share of the layers, without which nearly all candidates would be too large."""
    which = int(rng.integers(len(problems)))
    problem, density = problems[which], rng.random() ** 2
    biases = int(rng.integers(len(problem.bias_gains)))
    learns, part = rng.random(len(problem.layers)) < density, rng.random(len(problem.layers))
    choices = tuple(
        1 + int(part[i] * (len(layer.choices) - 1)) if learns[i] and len(layer.choices) > 1 else 0
        for i, layer in enumerate(problem.layers)
    )
    return Genes(which, biases, choices)


POPULATION = 100
PARENTS = 25  # the best of a population, each of another depth; half of the children mutate one, half cross two
FRESH = 5  # every fifth child is drawn at random, for variety
FIRST = 0.2  # of all candidates, usually
CHANGED = 3  # layers that a mutation draws again, at most
NEAR = 3  # biases by which a mutation moves the depth, at most
OTHER_BITS = 0.1  # the share of mutations that change the bits of weights


def evolve(
    problems: Sequence[Problem], budget: int, evaluations: int = EVALUATIONS, seed: int = 0, first: float = FIRST
) -> Trials:
    """Evolve candidates from the head alone and random ones; those that do not fit leave no children.

    `first` is the share that is drawn at random for the first population: with 1.0 all are.
    """
    rng, trials = np.random.default_rng(seed), Trials(problems, budget)
    population: dict[Candidate, Genes] = {}

    def consider(genes: Genes) -> None:
        candidate = trials.evaluate(genes)
        if candidate is not None:
            population.setdefault(candidate, genes)

    consider(head_alone(problems))
    while trials.tried < first * evaluations:
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
    """Return the best of a population for each number of biases, most gain first, which keeps the depths diverse."""
    best: dict[int, Candidate] = {}
    for candidate in sorted(population, key=lambda one: (-one.gain, one.cost, one.choices)):
        best.setdefault(candidate.biases, candidate)
    return list(best.values())[:PARENTS]


def _mutated(problems: Sequence[Problem], parent: Genes, rng: np.random.Generator) -> Genes:
    """Return a parent with a few layers' weights dropped or drawn again, and the number of biases moved a little."""
    which = int(rng.integers(len(problems))) if rng.random() < OTHER_BITS else parent.problem
    problem = problems[which]
    biases = min(max(parent.biases + int(rng.integers(-NEAR, NEAR + 1)), 0), len(problem.bias_gains) - 1)
    first = len(problem.layers) - max(biases, 1)
    # Weights of layers that did not learn before stay frozen at first.
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
    """Take each gene from one of two parents; where their bits differ, only the number of biases from the other."""
    if one.problem != other.problem:
        return Genes(one.problem, other.biases, one.choices)
    from_one = rng.random(len(one.choices)) < 0.5
    choices = tuple(a if first else b for a, b, first in zip(one.choices, other.choices, from_one, strict=True))
    return Genes(one.problem, one.biases if rng.random() < 0.5 else other.biases, choices)
