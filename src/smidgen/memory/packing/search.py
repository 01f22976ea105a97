"""The exact search, branch and bound: built from C when first needed, run again and again on other orders and goals."""

import ctypes
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import count
from pathlib import Path
from random import Random

import numpy as np

from smidgen.compiler import Cache, cache_folder, find_compiler
from smidgen.errors import PlanError, TargetError
from smidgen.memory.packing.problem import PackingProblem
from smidgen.memory.packing.skyline import ORDERS, Offsets, ordered

SOURCE = Path(__file__).parent / "search.c"
MOST_ITEMS = 1024  # of one search: its memory grows with the square, to about 150 MB
SHORTEST = 4000  # decisions of the shortest run, some ten milliseconds
SPREADS = (0.1, 0.5, 1.0)  # of the chance in the orders, from the second round on


class SearchOutcome(IntEnum):
    """The outcome of a run; the values are those of search.c."""

    IMPOSSIBLE = 0
    FOUND = 1
    STOPPED = 2
    NO_MEMORY = 3


@dataclass
class Bracket:
    """The best packing so far, in units, and what is known to be impossible."""

    offsets: Offsets
    best: int
    lower: int  # nothing lower is possible
    goal: int  # nothing lower is asked for

    @property
    def done(self) -> bool:
        return self.enough(self.best)

    def enough(self, peak: int) -> bool:
        """Return whether nothing better is possible, or asked for."""
        return peak <= max(self.goal, self.lower)


@cache
def load() -> ctypes.CDLL:
    """Return the search, built for this machine; TargetError where that cannot be done."""
    builds = Cache(cache_folder(), find_compiler())
    built = builds.build(".so", {SOURCE.name: SOURCE.read_text("utf-8")}, "-shared", SOURCE.name)
    try:
        return ctypes.CDLL(str(built))
    except OSError as error:
        raise TargetError(f"the search built for this machine cannot be loaded: {error}") from None


def improve(problem: PackingProblem, bracket: Bracket, random: Random, decisions: int) -> int:
    """Run the search until the bracket is closed or the decisions are used up; return how many were made.

    Each run takes another order of items and is cut off after a number of decisions that follows Luby's sequence: a
    lucky order decides in a moment what an unlucky one never does. Every other run goes for the goal itself, the rest
    halve the distance to it.
    """
    left = decisions
    hopeless = 0  # the highest aim that was not reached since aims began to rise from the goal
    for run in count():
        if bracket.done or left <= 0:
            break
        goal = max(bracket.goal, bracket.lower)
        if not goal <= hopeless < bracket.best - 1:
            hopeless = goal
        aim = goal if run % 2 == 0 else (hopeless + bracket.best) // 2
        spread = 0.0 if run < len(ORDERS) else SPREADS[run // len(ORDERS) % len(SPREADS)]
        order = ordered(problem, ORDERS[run % len(ORDERS)], random, spread)
        attempted = attempt(problem, order, aim, min(SHORTEST * luby(run + 1), left))
        left -= attempted.decisions
        if attempted.outcome is SearchOutcome.FOUND:
            bracket.offsets, bracket.best = attempted.offsets, problem.peak(attempted.offsets)
        elif attempted.outcome is SearchOutcome.IMPOSSIBLE:
            bracket.lower = aim + 1
        else:
            hopeless = max(hopeless, aim)
    return decisions - left


@dataclass(frozen=True)
class Attempt:
    """The result of one run of the search; the offsets mean something where it found a packing."""

    outcome: SearchOutcome
    offsets: Offsets
    decisions: int


def attempt(problem: PackingProblem, order: list[int], capacity: int, decisions: int) -> Attempt:
    """Run the search once, with at most this many decisions."""
    columns = [
        np.array(column, np.int32)[order] for column in (problem.first, problem.end, problem.size, problem.ground)
    ]
    offsets = np.empty(len(order), np.int32)
    made = ctypes.c_int64(0)
    outcome = SearchOutcome(
        load().smg_pack(
            len(order),
            *(ctypes.c_void_p(column.ctypes.data) for column in columns),
            problem.sections,
            capacity,
            ctypes.c_int64(decisions),
            ctypes.byref(made),
            ctypes.c_void_p(offsets.ctypes.data),
        )
    )
    if outcome is SearchOutcome.NO_MEMORY:
        raise PlanError(f"this machine has no memory left to search for a packing of {len(order)} buffers")
    placed = np.empty_like(offsets)
    placed[order] = offsets
    return Attempt(outcome, tuple(placed.tolist()), made.value)


def luby(index: int) -> int:
    """Return element `index`, from 1, of 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 …"""
    size = index.bit_length()
    return 1 << size - 1 if index == (1 << size) - 1 else luby(index - (1 << size - 1) + 1)
