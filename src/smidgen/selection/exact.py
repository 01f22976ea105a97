"""Candidates in descending order of gain, by best-first search (A*): the first that fits is the best there is.

The search decides layer by layer, from the first that learns to the last, and always follows the partial candidate that
promises most. A promise is never too low. It is the lesser of two multiple-choice knapsacks over the layers to come,
solved once by dynamic programming for every number of bytes left: one counts state alone, which has to fit beside the
arena known so far; the other counts state and what is kept in the arena until one late layer's gradient is computed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from smidgen.ir import Array
from smidgen.selection.problem import Candidate, Layer, Problem

CELLS = 1 << 15  # of a table of promises; costs are rounded down to a cell's bytes
IMPOSSIBLE = -(1 << 62)
DECISIONS = 2_000_000  # partial candidates followed in one search


@dataclass(frozen=True)
class Promises:
    """For each layer the most that it and all behind it can gain, by bytes left for them."""

    cell: int  # bytes
    state: Array  # [layer, cells]: bytes of state
    both: Array  # [layer, cells]: bytes of state and, of the layers before `peak`, what is kept
    peak: int  # a layer
    at_peak: int  # bytes of arena it needs at least, beside what is kept by then

    def gain(self, layer: int, state_left: int, both_left: int) -> int:
        """The most that the layers from this on can gain where so many bytes are left for each of the two sums."""
        if layer <= self.peak:
            both_left -= self.at_peak
        if state_left < 0 or both_left < 0:
            return IMPOSSIBLE
        last = self.state.shape[1] - 1
        state, both = min(state_left // self.cell, last), min(both_left // self.cell, last)
        return min(int(self.state[layer, state]), int(self.both[layer, both]))


def promise(problem: Problem, most: int) -> Promises:
    """The promises of a problem for budgets up to `most` bytes."""
    cell, count = max(1, -(-most // CELLS)), len(problem.layers)
    kept = np.cumsum([0, *(layer.kept for layer in problem.layers)])
    # The arena is most often as large as it is late, where nearly all is kept: of the later half, where it is largest.
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
        """The most that any candidate not yet given can gain; None where there is none."""
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
