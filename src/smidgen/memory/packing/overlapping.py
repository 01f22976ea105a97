"""Packing where some items overlap: one is made in the place of another that is consumed meanwhile.

Such items move together, as one shape, and the search knows rectangles alone. So shapes go to the bottom, and become
the ground on which everything else is packed.
"""

from __future__ import annotations

from collections.abc import Sequence

from smidgen.memory.overlap import Overlap
from smidgen.memory.packing.problem import Item, pose

Offsets = dict[int, int]  # of some items, by their index
Overlaps = Sequence[Overlap[int]]  # of items by their index


def lower_bound(items: tuple[Item, ...], overlaps: Overlaps) -> int:
    """The most bytes alive at once, those that two items share counted once."""
    problem = pose(items)
    loads = [load * problem.unit for load in problem.loads]
    for overlap in overlaps:
        upper, lower = items[overlap.consumed].size, items[overlap.made].size
        first = max(problem.first[overlap.consumed], problem.first[overlap.made])
        for section in range(first, min(problem.end[overlap.consumed], problem.end[overlap.made])):
            loads[section] -= upper + lower - max(lower, overlap.distance + upper)
    return max(loads)


def stack(items: tuple[Item, ...], overlaps: Overlaps) -> Offsets:
    """Every shape as low as it can lie on those before it, the largest first."""
    placed: Offsets = {}
    for shape in sorted(_shapes(overlaps), key=lambda shape: -max(rise + items[i].size for i, rise in shape.items())):
        base = max((ground_of(items[i], items, placed) - rise for i, rise in shape.items()), default=0)
        placed |= {i: max(base, 0) + rise for i, rise in shape.items()}
    return placed


def ground_of(item: Item, items: tuple[Item, ...], placed: Offsets) -> int:
    """The highest top of what is placed and alive with an item."""
    tops = (at + items[i].size for i, at in placed.items() if items[i].start < item.end and item.start < items[i].end)
    return max(tops, default=0)


def _shapes(overlaps: Overlaps) -> list[Offsets]:
    """Items that move together, each so many bytes above the lowest of them."""
    shapes: dict[int, Offsets] = {}
    for overlap in overlaps:
        upper, lower = (shapes.get(i, {i: 0}) for i in (overlap.consumed, overlap.made))
        up = lower[overlap.made] + overlap.distance - upper[overlap.consumed]
        joined = lower | {i: rise + up for i, rise in upper.items()}
        least = min(joined.values())
        shape = {i: rise - least for i, rise in joined.items()}
        shapes |= dict.fromkeys(shape, shape)
    return [shape for i, shape in shapes.items() if i == min(shape)]
