"""The packing problem, made small: sections instead of times, and sizes in their greatest common divisor."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import gcd

import numpy as np

from smidgen.errors import PlanError

MOST_BYTES = 2**31 - 1  # of all items together: offsets fit into 32 bits, and no target has more


@dataclass(frozen=True)
class Item:
    """Bytes that are needed over [start, end)."""

    start: int
    end: int
    size: int


@dataclass(frozen=True)
class PackingProblem:
    """Items alive over sections [first, end), with sizes in units of `unit` bytes.

    A section stands for a time at which no item could be added to those alive: what lies apart in all sections lies
    apart at all times.
    """

    items: tuple[Item, ...]
    unit: int
    first: tuple[int, ...]
    end: tuple[int, ...]
    size: tuple[int, ...]
    ground: tuple[int, ...]  # what each item cannot lie below
    sections: int

    @cached_property
    def loads(self) -> tuple[int, ...]:
        """Return the units alive in each section."""
        changes = [0] * (self.sections + 1)
        for first, end, size in zip(self.first, self.end, self.size, strict=True):
            changes[first] += size
            changes[end] -= size
        return tuple(accumulate(changes[:-1]))

    @property
    def lower_bound(self) -> int:
        """Return units that no packing can stay below: in each section all that is alive, above the lowest ground."""
        lowest = [0] * self.sections
        for section in range(self.sections):
            alive = (g for g, a, b in zip(self.ground, self.first, self.end, strict=True) if a <= section < b)
            lowest[section] = min(alive, default=0)
        return max(load + ground for load, ground in zip(self.loads, lowest, strict=True))

    @cached_property
    def together(self) -> tuple[tuple[int, ...], ...]:
        """Return for each item the others that are alive with it."""
        first, end = np.array(self.first), np.array(self.end)
        meets = (first[:, None] < end) & (first < end[:, None])
        np.fill_diagonal(meets, False)
        return tuple(tuple(np.flatnonzero(row).tolist()) for row in meets)

    def peak(self, offsets: Sequence[int]) -> int:
        """Return the units up to the top of the highest item."""
        return max(offset + size for offset, size in zip(offsets, self.size, strict=True))


def pose(items: tuple[Item, ...], ground: tuple[int, ...] = ()) -> PackingProblem:
    """Raise PlanError unless the items make sense; else the problem they pose. There must be one at least.

    `ground` is the lowest offset of each item; without it, all may begin at 0.
    """
    check_items(items)
    starts = sorted({item.start for item in items})
    ends = sorted({item.end for item in items})
    # Between two starts, the set of items alive only shrinks: the last start before an end is where it is whole.
    times = sorted({starts[bisect_left(starts, end) - 1] for end in ends})
    ground = ground or (0,) * len(items)
    unit = gcd(*(item.size for item in items), *ground)
    return PackingProblem(
        items, unit, tuple(bisect_left(times, item.start) for item in items),
        tuple(bisect_left(times, item.end) for item in items), tuple(item.size // unit for item in items),
        tuple(least // unit for least in ground), len(times),
    )  # fmt: skip


def check_items(items: tuple[Item, ...]) -> None:
    """Raise PlanError unless every item is alive at some time, needs memory, and all could exist."""
    for index, item in enumerate(items):
        if not all(isinstance(number, int) for number in (item.start, item.end, item.size)):
            raise PlanError(f"item {index} is {item}; its times and size must be whole numbers")
        if item.end <= item.start:
            raise PlanError(f"item {index} is alive over [{item.start:,}, {item.end:,}), which is never")
        if item.size <= 0:
            raise PlanError(f"item {index} has {item.size:,} bytes; leave out what needs no memory")
    total = sum(item.size for item in items)
    if total > MOST_BYTES:
        largest = max(range(len(items)), key=lambda index: items[index].size)
        raise PlanError(
            f"the items have {total:,} bytes together, and {MOST_BYTES:,} can be packed; "
            f"item {largest} is the largest with {items[largest].size:,}"
        )
