"""Packing by heuristics: best-fit skyline and first fit in several orders, and hill climbing from the best of them."""

import math
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from random import Random

from smidgen.memory.packing.problem import PackingProblem

Offsets = tuple[int, ...]
# What to place first: load of the busiest section an item is in, lifetime, area, size, early start; largest first.
ORDERS = ("load lifetime area", "load area lifetime", "lifetime area load", "load size", "area", "size", "start size")
NOISE = {"load": 0.1, "lifetime": 1.0, "area": 1.0, "size": 1.0, "start": 0.1}  # spread, as a part of `spread`
STRIDE = 20  # places an item moves up in the order, on average, in half of the changes


def ordered(problem: PackingProblem, order: str, random: Random, spread: float = 0.0) -> list[int]:
    """Order items by the named properties, each of them multiplied by chance where `spread` is above zero."""
    values = {
        "load": [max(problem.loads[first:end]) for first, end in zip(problem.first, problem.end, strict=True)],
        "lifetime": [item.end - item.start for item in problem.items],
        "area": [(item.end - item.start) * item.size for item in problem.items],
        "size": list(problem.size),
        "start": [-item.start for item in problem.items],
    }
    columns = [
        [-value * math.exp(random.gauss(0, spread * NOISE[name])) if spread else -value for value in values[name]]
        for name in order.split()
    ]
    return sorted(range(len(problem.items)), key=lambda index: tuple(column[index] for column in columns))


def skyline(problem: PackingProblem, rank: Sequence[float]) -> Offsets:
    """Place by best-fit skyline: again and again, of the items that can lie lowest, the one of least rank."""
    floors = list(problem.ground)
    placed = [False] * len(rank)
    queue = [(floors[index], value, index) for index, value in enumerate(rank)]
    heapify(queue)
    while queue:
        floor, _, index = heappop(queue)
        if placed[index] or floor != floors[index]:
            continue
        placed[index] = True
        top = floor + problem.size[index]
        for other in problem.together[index]:
            if not placed[other] and floors[other] < top:
                floors[other] = top
                heappush(queue, (top, rank[other], other))
    return tuple(floors)


def first_fit(problem: PackingProblem, order: Sequence[int]) -> Offsets:
    """Place each item at the lowest offset where it meets none of those before it."""
    offsets = [-1] * len(order)
    for index in order:
        taken = sorted(
            (offsets[other], offsets[other] + problem.size[other])
            for other in problem.together[index]
            if offsets[other] >= 0
        )
        at = problem.ground[index]
        for low, high in taken:
            if low - at >= problem.size[index]:
                break
            at = max(at, high)
        offsets[index] = at
    return tuple(offsets)


def best_of_orders(problem: PackingProblem, enough: Callable[[int], bool]) -> Offsets:
    """Return the best of a skyline and a first fit in every order, or the first that is good enough."""
    best: Offsets = ()
    for order in ORDERS:
        indices = ordered(problem, order, Random(0))
        for offsets in (skyline(problem, _ranks(indices)), first_fit(problem, indices)):
            if enough(problem.peak(offsets)):
                return offsets
            best = min(best or offsets, offsets, key=problem.peak)
    return best


def climb(problem: PackingProblem, random: Random, rounds: int, enough: Callable[[int], bool]) -> tuple[Offsets, int]:
    """Climb: change the best order a little, keep what is no worse; return the offsets and the rounds it took."""
    orders = [_ranks(ordered(problem, order, random)) for order in ORDERS]
    rank = min(orders, key=lambda rank: problem.peak(skyline(problem, rank)))
    offsets = skyline(problem, rank)
    peak = problem.peak(offsets)
    for done in range(rounds):
        if enough(peak):
            return offsets, done
        changed = _changed(problem, rank, offsets, peak, random)
        attempt = skyline(problem, changed)
        if (height := problem.peak(attempt)) <= peak:
            rank, offsets, peak = changed, attempt, height
    return offsets, rounds


def _changed(problem: PackingProblem, rank: list[float], offsets: Offsets, peak: int, random: Random) -> list[float]:
    """Return the ranks with one item moved: mostly one at the peak, or alive with it."""
    highest = [index for index, offset in enumerate(offsets) if offset + problem.size[index] == peak]
    top = random.choice(highest)
    moved = random.choice((top, *problem.together[top])) if random.random() < 0.7 else random.randrange(len(rank))
    changed = list(rank)
    anywhere = random.random() < 0.5
    changed[moved] = random.uniform(-1, len(rank)) if anywhere else rank[moved] - random.expovariate(1 / STRIDE)
    return changed


def _ranks(order: Sequence[int]) -> list[float]:
    ranks = [0.0] * len(order)
    for rank, index in enumerate(order):
        ranks[index] = rank
    return ranks
