"""Memory packing as a separate problem: items with lifetimes and sizes in, offsets of least peak out.

`pack` tries heuristics first and ends there if the peak is as low as can be; else it searches (search.c), and reports
how far from the proven bound it got. It knows nothing of graphs. Items that overlap move together, as one shape, and
the search knows rectangles alone: shapes go to the bottom, and become the ground on which everything else is packed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from smidgen.errors import PlanError
from smidgen.memory.layout import Overlap
from smidgen.memory.packing import search, skyline
from smidgen.memory.packing.problem import Item, PackingProblem, pose

__all__ = ["DECISIONS", "Item", "Packing", "pack", "pack_overlapping"]

# The budget of one packing, in decisions of the search: seconds would make the offsets depend on how busy the machine
# is. Of the 54 plans of benchmarks/memory.py the hardest takes 5,015 and of the eleven instances of
# benchmarks/planner.py 40,289, so this leaves room. A decision takes 3 µs among 200 items and 19 µs among 1,000: a
# search that runs to its budget takes 1 to 5 s.
DECISIONS = 250_000
Placed = dict[int, int]  # of some items, by their index
Overlaps = Sequence[Overlap[int]]  # of items by their index


@dataclass(frozen=True)
class Packing:
    """An offset for every item, in bytes, and how good that is."""

    offsets: tuple[int, ...]
    peak: int  # bytes
    lower_bound: int  # bytes: the most alive at one time, or more where the search has proved it
    method: str  # "skyline", "search", or "climb" where there are too many items for the search
    decisions: int = 0  # that the method made after the heuristics


def pack(
    items: Iterable[Item], decisions: int = DECISIONS, capacity: int | None = None, seed: int = 0,
    ground: tuple[int, ...] = (),
) -> Packing:  # fmt: skip
    """Return the best packing within a number of decisions; earlier where it is optimal or within `capacity` bytes.

    Where there is a `ground`, each item begins at or above it. The heuristics always run, and with no
    decisions nothing else. The same arguments give the same packing, however busy the machine is.
    """
    items = tuple(items)
    if decisions < 0:
        raise PlanError(f"the search may make {decisions:,} decisions; give it a number from 0 on")
    if capacity is not None and capacity <= 0:
        raise PlanError(f"the capacity is {capacity:,} bytes; it must be above 0")
    if not items:
        return Packing((), 0, 0, "skyline")
    problem = pose(items, ground)
    lower = problem.lower_bound
    goal = lower if capacity is None else max(lower, capacity // problem.unit)
    first = skyline.best_of_orders(problem, lambda peak: peak <= goal)
    bracket = search.Bracket(first, problem.peak(first), lower, goal)
    method, made = "skyline", 0
    if decisions and not bracket.done:
        method, made = _improve(problem, bracket, Random(seed), decisions)
    offsets = tuple(offset * problem.unit for offset in bracket.offsets)
    return Packing(offsets, bracket.best * problem.unit, bracket.lower * problem.unit, method, made)


def pack_overlapping(items: Iterable[Item], overlaps: Overlaps, decisions: int = DECISIONS, seed: int = 0) -> Packing:
    """Return the best packing within a number of decisions, items that overlap at the bottom, the others around."""
    items = tuple(items)
    fixed = _stack(items, overlaps)
    free = [index for index in range(len(items)) if index not in fixed]
    ground = tuple(_ground_of(items[i], items, fixed) for i in free)
    bound = _lower_bound(items, overlaps)
    rest = pack((items[i] for i in free), decisions, bound, seed, ground)
    placed = fixed | dict(zip(free, rest.offsets, strict=True))
    offsets = tuple(placed[index] for index in range(len(items)))
    peak = max(offset + item.size for item, offset in zip(items, offsets, strict=True))
    return Packing(offsets, peak, bound, rest.method, rest.decisions)


def _improve(problem: PackingProblem, bracket: search.Bracket, random: Random, decisions: int) -> tuple[str, int]:
    """Better the bracket; returns the name of the method and the decisions it made."""
    if len(problem.items) <= search.MOST_ITEMS:
        return "search", search.improve(problem, bracket, random, decisions)
    count = len(problem.items)  # each round decides on every item again
    offsets, rounds = skyline.climb(problem, random, decisions // count, bracket.enough)
    if problem.peak(offsets) < bracket.best:
        bracket.offsets, bracket.best = offsets, problem.peak(offsets)
    return "climb", rounds * count


def _lower_bound(items: tuple[Item, ...], overlaps: Overlaps) -> int:
    """Return the most bytes alive at once, those that two items share counted once."""
    problem = pose(items)
    loads = [load * problem.unit for load in problem.loads]
    for overlap in overlaps:
        upper, lower = items[overlap.consumed].size, items[overlap.made].size
        first = max(problem.first[overlap.consumed], problem.first[overlap.made])
        for section in range(first, min(problem.end[overlap.consumed], problem.end[overlap.made])):
            loads[section] -= upper + lower - max(lower, overlap.distance + upper)
    return max(loads)


def _stack(items: tuple[Item, ...], overlaps: Overlaps) -> Placed:
    """Place every shape as low as it can lie on those before it, the largest first."""
    placed: Placed = {}
    for shape in sorted(_shapes(overlaps), key=lambda shape: -max(rise + items[i].size for i, rise in shape.items())):
        base = max((_ground_of(items[i], items, placed) - rise for i, rise in shape.items()), default=0)
        placed |= {i: max(base, 0) + rise for i, rise in shape.items()}
    return placed


def _ground_of(item: Item, items: tuple[Item, ...], placed: Placed) -> int:
    """Return the highest top of what is placed and alive with an item."""
    tops = (at + items[i].size for i, at in placed.items() if items[i].start < item.end and item.start < items[i].end)
    return max(tops, default=0)


def _shapes(overlaps: Overlaps) -> list[Placed]:
    """Return the items that move together, each with its bytes above the lowest of them."""
    shapes: dict[int, Placed] = {}
    for overlap in overlaps:
        upper, lower = (shapes.get(i, {i: 0}) for i in (overlap.consumed, overlap.made))
        up = lower[overlap.made] + overlap.distance - upper[overlap.consumed]
        joined = lower | {i: rise + up for i, rise in upper.items()}
        least = min(joined.values())
        shape = {i: rise - least for i, rise in joined.items()}
        shapes |= dict.fromkeys(shape, shape)
    return [shape for i, shape in shapes.items() if i == min(shape)]
