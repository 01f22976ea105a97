"""Packing where some items are tied: one lies a given number of bytes above another, and may lie over it.

Tied items move together, as one shape, and the search knows rectangles alone. So shapes go to the bottom, and become
the ground on which everything else is packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smidgen.memory.packing.problem import Item, pose

Offsets = dict[int, int]  # of some items, by their index


@dataclass(frozen=True)
class Tie:
    """Item `upper` begins `rise` bytes above the beginning of item `lower`, and no further than at its end."""

    upper: int
    lower: int
    rise: int


def lower_bound(items: tuple[Item, ...], ties: Sequence[Tie]) -> int:
    """The most bytes alive at once, those that two tied items share counted once."""
    problem = pose(items)
    loads = [load * problem.unit for load in problem.loads]
    for tie in ties:
        upper, lower = items[tie.upper].size, items[tie.lower].size
        first = max(problem.first[tie.upper], problem.first[tie.lower])
        for section in range(first, min(problem.end[tie.upper], problem.end[tie.lower])):
            loads[section] -= upper + lower - max(lower, tie.rise + upper)
    return max(loads)


def stack(items: tuple[Item, ...], ties: Sequence[Tie]) -> Offsets:
    """Every shape as low as it can lie on those before it, the largest first."""
    placed: Offsets = {}
    for shape in sorted(_shapes(ties), key=lambda shape: -max(rise + items[i].size for i, rise in shape.items())):
        base = max((ground_of(items[i], items, placed) - rise for i, rise in shape.items()), default=0)
        placed |= {i: max(base, 0) + rise for i, rise in shape.items()}
    return placed


def ground_of(item: Item, items: tuple[Item, ...], placed: Offsets) -> int:
    """The highest top of what is placed and alive with an item."""
    tops = (at + items[i].size for i, at in placed.items() if items[i].start < item.end and item.start < items[i].end)
    return max(tops, default=0)


def _shapes(ties: Sequence[Tie]) -> list[Offsets]:
    """Items that move together, each so many bytes above the lowest of them."""
    shapes: dict[int, Offsets] = {}
    for tie in ties:
        upper, lower = (shapes.get(i, {i: 0}) for i in (tie.upper, tie.lower))
        up = lower[tie.lower] + tie.rise - upper[tie.upper]
        joined = lower | {i: rise + up for i, rise in upper.items()}
        least = min(joined.values())
        shape = {i: rise - least for i, rise in joined.items()}
        shapes |= dict.fromkeys(shape, shape)
    return [shape for i, shape in shapes.items() if i == min(shape)]
