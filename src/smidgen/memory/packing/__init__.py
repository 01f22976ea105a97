"""Memory packing as a problem of its own: items with lifetimes and sizes in, offsets of least peak out.

`pack` tries heuristics first and ends there if the peak is as low as can be; else it searches (search.c), and says how
far from the proven bound it got. It knows nothing of graphs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from smidgen.errors import PlanError
from smidgen.memory.packing import search, skyline
from smidgen.memory.packing.problem import Item, Problem, pose
from smidgen.memory.packing.tied import Tie, ground_of, lower_bound, stack

__all__ = ["Item", "Packing", "Tie", "pack", "pack_tied"]


@dataclass(frozen=True)
class Packing:
    """An offset for every item, in bytes, and how good that is."""

    offsets: tuple[int, ...]
    peak: int  # bytes
    lower_bound: int  # bytes: the most alive at one time, or more where the search has proved it
    method: str  # "skyline", "search", or "climb" where there are too many items or no compiler for the search
    seconds: float

    @property
    def optimal(self) -> bool:
        """Whether no packing can have a lower peak."""
        return self.peak == self.lower_bound

    @property
    def gap(self) -> float:
        """How far the peak lies above the bound, as a part of the bound."""
        return self.peak / self.lower_bound - 1 if self.lower_bound else 0.0


def pack(
    items: Iterable[Item],
    time_limit: float,
    capacity: int | None = None,
    seed: int = 0,
    ground: tuple[int, ...] = (),
) -> Packing:
    """The best packing found in `time_limit` seconds; earlier where it is optimal or within `capacity` bytes.

    Where there is a `ground`, each item lies so many bytes up at least. The heuristics always run, and with a time
    limit of 0 nothing else. The same items and seed give the same packing if there is time to finish. Where the search
    was not built yet, the compiler takes a moment more.
    """
    began = time.monotonic()
    items = tuple(items)
    if not 0 <= time_limit < math.inf:
        raise PlanError(f"the time limit is {time_limit} seconds; it must be a number from 0 on")
    if capacity is not None and capacity <= 0:
        raise PlanError(f"the capacity is {capacity:,} bytes; it must be above 0")
    if not items:
        return Packing((), 0, 0, "skyline", 0.0)
    problem = pose(items, ground)
    bracket = _begin(problem, capacity)
    deadline = began + time_limit
    late = time.monotonic() >= deadline
    method = "skyline" if bracket.done or late else _improve(problem, bracket, Random(seed), deadline)
    return Packing(
        tuple(offset * problem.unit for offset in bracket.offsets),
        bracket.best * problem.unit,
        bracket.lower * problem.unit,
        method,
        time.monotonic() - began,
    )


def pack_tied(items: Iterable[Item], ties: Sequence[Tie], time_limit: float, seed: int = 0) -> Packing:
    """The best packing found in `time_limit` seconds with tied items at the bottom and all others around them."""
    began = time.monotonic()
    items = tuple(items)
    fixed = stack(items, ties)
    free = [index for index in range(len(items)) if index not in fixed]
    ground = tuple(ground_of(items[i], items, fixed) for i in free)
    bound = lower_bound(items, ties)
    rest = pack((items[i] for i in free), time_limit, bound, seed, ground)
    placed = fixed | dict(zip(free, rest.offsets, strict=True))
    offsets = tuple(placed[index] for index in range(len(items)))
    peak = max(offset + item.size for item, offset in zip(items, offsets, strict=True))
    return Packing(offsets, peak, bound, rest.method, time.monotonic() - began)


def _begin(problem: Problem, capacity: int | None) -> search.Bracket:
    lower = problem.lower_bound
    goal = lower if capacity is None else max(lower, capacity // problem.unit)
    offsets = skyline.best_of_orders(problem, lambda peak: peak <= goal)
    return search.Bracket(offsets, problem.peak(offsets), lower, goal)


def _improve(problem: Problem, bracket: search.Bracket, random: Random, deadline: float) -> str:
    """Better the bracket; returns the name of the method."""
    library = search.load() if len(problem.items) <= search.MOST_ITEMS else None
    if library:
        search.improve(library, problem, bracket, random, deadline)
        return "search"
    offsets = skyline.climb(problem, random, deadline, bracket.enough)
    if problem.peak(offsets) < bracket.best:
        bracket.offsets, bracket.best = offsets, problem.peak(offsets)
    return "climb"
