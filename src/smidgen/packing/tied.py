"""Packing where some items are tied: one lies a given number of bytes above another, and may lie over it.

Tied items move together, as one shape. The exact search knows rectangles alone, so shapes are packed by first fit, in
many orders that are changed little by little.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from smidgen.packing.problem import Item, Problem, pose
from smidgen.packing.skyline import ORDERS, Offsets, ordered


@dataclass(frozen=True)
class Tie:
    """Item `upper` begins `rise` bytes above the beginning of item `lower`, and no further than at its end."""

    upper: int
    lower: int
    rise: int


@dataclass(frozen=True)
class Shape:
    """Items that move together, each so many bytes above the lowest."""

    rises: dict[int, int]


def best_tied(items: tuple[Item, ...], ties: Sequence[Tie], deadline: float, random: Random) -> tuple[Offsets, int]:
    """The best offsets found until the deadline or until they meet the bound, and that bound: bytes alive at once."""
    problem = pose(items)
    bound = max(_loads(problem, ties))
    shapes = _shapes(len(items), ties)
    tried = [(_first_fit(problem, order, shapes), order) for order in (ordered(problem, o, random) for o in ORDERS)]
    best, order = min(tried, key=lambda pair: _peak(items, pair[0]))
    while _peak(items, best) > bound and time.monotonic() < deadline:
        changed = _changed(problem, order, best, random)
        offsets = _first_fit(problem, changed, shapes)
        if _peak(items, offsets) <= _peak(items, best):
            best, order = offsets, changed
    return best, bound


def _changed(problem: Problem, order: list[int], offsets: Offsets, random: Random) -> list[int]:
    """The order with one item moved to some earlier place: one at the peak, or alive with it."""
    peak = _peak(problem.items, offsets)
    top = random.choice([i for i, offset in enumerate(offsets) if offset + problem.items[i].size == peak])
    moved = random.choice((top, *problem.together[top]))
    rest = [index for index in order if index != moved]
    rest.insert(random.randrange(order.index(moved) + 1), moved)
    return rest


def _loads(problem: Problem, ties: Sequence[Tie]) -> Iterator[int]:
    """Bytes alive in each section, those that two tied items share counted once."""
    saved = [0] * problem.sections
    for tie in ties:
        upper, lower = problem.items[tie.upper].size, problem.items[tie.lower].size
        first = max(problem.first[tie.upper], problem.first[tie.lower])
        for section in range(first, min(problem.end[tie.upper], problem.end[tie.lower])):
            saved[section] += upper + lower - max(lower, tie.rise + upper)
    for load, less in zip(problem.loads, saved, strict=True):
        yield load * problem.unit - less


def _shapes(items: int, ties: Sequence[Tie]) -> list[Shape]:
    """For each item the shape it belongs to."""
    shapes = [Shape({index: 0}) for index in range(items)]
    for tie in ties:
        upper, lower = shapes[tie.upper].rises, shapes[tie.lower].rises
        up = lower[tie.lower] + tie.rise - upper[tie.upper]
        joined = lower | {index: rise + up for index, rise in upper.items()}
        least = min(joined.values())
        shape = Shape({index: rise - least for index, rise in joined.items()})
        for index in joined:
            shapes[index] = shape
    return shapes


def _first_fit(problem: Problem, order: Sequence[int], shapes: Sequence[Shape]) -> Offsets:
    """Each shape, when its first item's turn comes, at the lowest offset where it meets none of those before it."""
    offsets = [-1] * len(order)
    for turn in order:
        if offsets[turn] >= 0:
            continue
        rises = shapes[turn].rises
        # Where the shape must not begin: strictly between these.
        barred = sorted(
            (offsets[other] - rise - problem.items[index].size, offsets[other] + problem.items[other].size - rise)
            for index, rise in rises.items()
            for other in problem.together[index]
            if offsets[other] >= 0
        )
        at = 0
        for low, high in barred:
            if low >= at:
                break
            at = max(at, high)
        for index, rise in rises.items():
            offsets[index] = at + rise
    return tuple(offsets)


def _peak(items: Sequence[Item], offsets: Offsets) -> int:
    return max(offset + item.size for item, offset in zip(items, offsets, strict=True))
