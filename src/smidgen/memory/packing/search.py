"""The exact search: built from C when first needed, and run again and again on other orders and other goals."""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import count
from pathlib import Path
from random import Random

import numpy as np

from smidgen.errors import TargetError
from smidgen.memory.packing.problem import Problem
from smidgen.memory.packing.skyline import ORDERS, Offsets, ordered
from smidgen.targets.compiler import Cache, cache_folder, find_compiler

SOURCE = Path(__file__).parent / "search.c"
MOST_ITEMS = 1024  # of one search: its memory grows with the square, to about 150 MB
DECISIONS = 4000  # of the shortest run, some ten milliseconds
SPREADS = (0.1, 0.5, 1.0)  # of the chance in the orders, from the second round on


class Outcome(IntEnum):
    """What a run found; the values are those of search.c."""

    IMPOSSIBLE = 0
    FOUND = 1
    STOPPED = 2


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
        """Whether nothing better is possible, or asked for."""
        return peak <= max(self.goal, self.lower)


def load() -> ctypes.CDLL | None:
    """The search, or None on a machine that cannot build it."""
    try:
        return _library()
    except TargetError:
        return None


@cache
def _library() -> ctypes.CDLL:
    builds = Cache(cache_folder(), find_compiler())
    built = builds.build(".so", {SOURCE.name: SOURCE.read_text()}, "-shared", SOURCE.name)
    try:
        return ctypes.CDLL(str(built))
    except OSError as error:
        raise TargetError(f"the search built for this machine cannot be loaded: {error}") from None


def improve(library: ctypes.CDLL, problem: Problem, bracket: Bracket, random: Random, deadline: float) -> None:
    """Run the search until the bracket is closed or the time is over.

    Each run takes another order of items and is cut off after a number of decisions that follows Luby's sequence: a
    lucky order decides in a moment what an unlucky one never does. Every other run goes for the goal itself, the rest
    halve the distance to it.
    """
    stop = ctypes.c_int32(0)
    timer = threading.Timer(max(0.0, deadline - time.monotonic()), lambda: setattr(stop, "value", 1))
    timer.daemon = True
    timer.start()
    hopeless = 0  # the highest aim that was not reached since aims began to rise from the goal
    for run in count():
        if bracket.done or stop.value:
            break
        goal = max(bracket.goal, bracket.lower)
        if not goal <= hopeless < bracket.best - 1:
            hopeless = goal
        aim = goal if run % 2 == 0 else (hopeless + bracket.best) // 2
        spread = 0.0 if run < len(ORDERS) else SPREADS[run // len(ORDERS) % len(SPREADS)]
        order = ordered(problem, ORDERS[run % len(ORDERS)], random, spread)
        outcome, offsets = attempt(library, problem, order, aim, DECISIONS * luby(run + 1), stop)
        if outcome is Outcome.FOUND:
            bracket.offsets, bracket.best = offsets, problem.peak(offsets)
        elif outcome is Outcome.IMPOSSIBLE:
            bracket.lower = aim + 1
        else:
            hopeless = max(hopeless, aim)
    timer.cancel()


def attempt(
    library: ctypes.CDLL, problem: Problem, order: list[int], capacity: int, decisions: int, stop: ctypes.c_int32
) -> tuple[Outcome, Offsets]:
    """One run of the search; the offsets mean something where it found a packing."""
    columns = [
        np.array(column, np.int32)[order] for column in (problem.first, problem.end, problem.size, problem.ground)
    ]
    offsets = np.empty(len(order), np.int32)
    outcome = library.smg_pack(
        len(order),
        *(ctypes.c_void_p(column.ctypes.data) for column in columns),
        problem.sections,
        capacity,
        ctypes.c_int64(decisions),
        ctypes.byref(stop),
        ctypes.c_void_p(offsets.ctypes.data),
    )
    placed = np.empty_like(offsets)
    placed[order] = offsets
    return Outcome(outcome), tuple(placed.tolist())


def luby(index: int) -> int:
    """Element `index`, from 1, of 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 …"""
    size = index.bit_length()
    return 1 << size - 1 if index == (1 << size) - 1 else luby(index - (1 << size - 1) + 1)
