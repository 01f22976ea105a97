"""Packings are sound, as low as they can be, and honest about it."""

from __future__ import annotations

import csv
import subprocess
from itertools import combinations, pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen.compiler import find_compiler
from smidgen.errors import PlanError, TargetError
from smidgen.memory import ALIGNMENT, Buffer, Plan, check_apart
from smidgen.memory.layout import Overlap
from smidgen.memory.packing import Item, Packing, pack, pack_overlapping, search, skyline
from smidgen.memory.packing.problem import MOST_BYTES, pose
from smidgen.memory.packing.search import SearchOutcome
from tests.support.native import SANITIZE
from tests.support.tiers import examples

INSTANCES = Path(__file__).parents[3] / "shared" / "planner"
CAPACITY = 1_048_576
ENOUGH = 2_000_000  # decisions, far more than anything here takes

Items = tuple[Item, ...]


def items(most: int, largest: int = 9, last: int = 12) -> st.SearchStrategy[Items]:
    one = st.builds(
        lambda start, length, size: Item(start, start + length, size * ALIGNMENT),
        st.integers(0, last),
        st.integers(1, max(1, last // 2)),
        st.integers(1, largest),
    )
    return st.lists(one, min_size=1, max_size=most).map(tuple)


def crowd(seed: int, count: int, last: int = 40) -> Items:
    """So many items with all kinds of lifetimes, most of them short."""
    random = Random(seed)
    starts = [random.randrange(last) for _ in range(count)]
    return tuple(
        Item(start, start + 1 + min(int(random.expovariate(0.2)), last), random.randrange(1, 60) * ALIGNMENT)
        for start in starts
    )


def full(seed: int, cuts: int) -> Items:
    """A rectangle of time and 200 units cut into items at random: they fit into 200 units without a gap."""
    random = Random(seed)
    pieces = [(0, 100, 0, 200)]
    for _ in range(cuts):
        start, end, low, high = pieces.pop(max(range(len(pieces)), key=lambda i: random.random() * _area(pieces[i])))
        if end - start > 1 and (random.random() < 0.5 or high - low == 1):
            at = random.randrange(start + 1, end)
            pieces += [(start, at, low, high), (at, end, low, high)]
        elif high - low > 1:
            at = random.randrange(low + 1, high)
            pieces += [(start, end, low, at), (start, end, at, high)]
        else:
            pieces.append((start, end, low, high))
    random.shuffle(pieces)
    return tuple(Item(start, end, (high - low) * ALIGNMENT) for start, end, low, high in pieces)


def _area(piece: tuple[int, int, int, int]) -> int:
    return (piece[1] - piece[0]) * (piece[3] - piece[2])


def check(items: Items, packing: Packing) -> None:
    """Judge a packing by the check that every plan goes through."""
    buffers = tuple(Buffer(f"item {index}", item.size, item.start, item.end) for index, item in enumerate(items))
    plan = Plan(buffers, packing.offsets)
    check_apart(plan)
    assert packing.peak == plan.peak
    assert packing.peak >= packing.lower_bound >= plan.lower_bound


def least_peak(items: Items, ground: Items = ()) -> int:
    """The optimum by brute force: some order of the items, each on top of all before that it meets, is as good."""
    best = sum(item.size for item in (*items, *ground)) + 1

    def stack(placed: list[tuple[Item, int]], left: frozenset[int], peak: int) -> None:
        nonlocal best
        if peak >= best:
            return
        if not left:
            best = peak
        for index in left:
            item = items[index]
            tops = (top for other, top in placed if other.start < item.end and item.start < other.end)
            top = max(tops, default=0) + item.size
            stack([*placed, (item, top)], left - {index}, max(peak, top))

    stack([(item, item.size) for item in ground], frozenset(range(len(items))), 0)
    return best


@given(items(40))
@settings(max_examples=examples(50))
def test_any_lifetimes_are_packed_soundly_and_no_worse_than_by_the_heuristic(items: Items) -> None:
    heuristic, exact = pack(items, 0), pack(items, 20_000)
    check(items, heuristic)
    check(items, exact)
    assert exact.peak <= heuristic.peak
    assert heuristic.method == "skyline"


@given(items(6, largest=4, last=6))
@settings(max_examples=examples(150))
def test_few_items_are_packed_as_low_as_brute_force_can(items: Items) -> None:
    packing = pack(items, ENOUGH)
    assert packing.peak == packing.lower_bound
    assert packing.peak == least_peak(items)


@given(items(6, largest=4, last=6), st.randoms(use_true_random=False))
@settings(max_examples=examples(150))
def test_the_search_finds_the_optimum_in_any_order_and_proves_that_there_is_nothing_below(
    items: Items, random: Random
) -> None:
    problem = pose(items)
    best = least_peak(items) // problem.unit
    order = random.sample(range(len(items)), len(items))
    found = search.attempt(problem, order, best, 10**6)
    assert found.outcome is SearchOutcome.FOUND
    assert problem.peak(found.offsets) == best
    assert search.attempt(problem, order, best - 1, 10**6).outcome is SearchOutcome.IMPOSSIBLE


@given(items(5, largest=4, last=6), items(2, largest=4, last=6), st.randoms(use_true_random=False))
@settings(max_examples=examples(150))
def test_the_search_finds_the_optimum_on_uneven_ground_too(items: Items, pinned: Items, random: Random) -> None:
    ground = tuple(
        max((p.size for p in pinned if p.start < item.end and item.start < p.end), default=0) for item in items
    )
    problem = pose(items, ground)
    best = least_peak(items, pinned) // problem.unit
    assert problem.lower_bound <= best
    order = random.sample(range(len(items)), len(items))
    found = search.attempt(problem, order, best, 10**6)
    assert found.outcome is SearchOutcome.FOUND
    assert problem.peak(found.offsets) == best
    assert all(at >= least for at, least in zip(found.offsets, problem.ground, strict=True))
    assert search.attempt(problem, order, best - 1, 10**6).outcome is SearchOutcome.IMPOSSIBLE


def test_a_bound_above_the_live_set_is_proved() -> None:
    lives = ((0, 1, 3), (0, 2, 3), (1, 3, 1), (2, 3, 1), (2, 3, 1), (1, 4, 2), (2, 4, 1), (3, 5, 3), (4, 5, 3))
    items = tuple(Item(*life) for life in lives)  # 6 are alive at every time, and yet they do not fit into 6
    packing = pack(items, ENOUGH)
    assert packing.method == "search"
    assert packing.peak == packing.lower_bound
    assert packing.peak == least_peak(items) == 7


@pytest.mark.parametrize("seed", range(4))
def test_items_that_leave_no_gap_are_packed_without_one(seed: int) -> None:
    items = full(seed, 60)
    packing = pack(items, ENOUGH)
    check(items, packing)
    assert packing.peak == packing.lower_bound
    assert packing.peak == 200 * ALIGNMENT


def test_a_packing_within_the_capacity_ends_the_search_and_one_capacity_too_small_does_not() -> None:
    items = full(0, 60)
    assert pack(items, ENOUGH, capacity=250 * ALIGNMENT).peak <= 250 * ALIGNMENT
    best = pack(items, ENOUGH, capacity=1)
    assert best.peak == best.lower_bound


def test_the_same_seed_gives_the_same_packing() -> None:
    items = full(1, 60)
    first, second = (pack(items, ENOUGH, seed=7) for _ in range(2))
    assert first.method == "search"
    assert first.offsets == second.offsets


@pytest.mark.parametrize("decisions", [1, 100, 4_000, 30_000])
def test_the_budget_holds_over_all_restarts_and_the_best_so_far_is_returned(decisions: int) -> None:
    items = full(2, 400)
    packing = pack(items, decisions)
    check(items, packing)
    assert packing.method == "search"
    assert packing.decisions == decisions


def test_a_run_of_the_search_is_cut_off_at_its_last_decision() -> None:
    problem = pose(full(2, 400))
    order = list(range(len(problem.items)))
    for decisions in (1, 7, 500):
        attempted = search.attempt(problem, order, problem.lower_bound, decisions)
        assert (attempted.outcome, attempted.decisions) == (SearchOutcome.STOPPED, decisions)


def test_too_many_items_for_the_search_are_climbed(monkeypatch: pytest.MonkeyPatch) -> None:
    items = full(1, 60)
    monkeypatch.setattr(search, "MOST_ITEMS", 10)
    packing = pack(items, 20_000)
    check(items, packing)
    assert packing.method == "climb"
    assert packing.decisions <= 20_000
    assert packing.peak <= pack(items, 0).peak
    assert packing.offsets == pack(items, 20_000).offsets


def test_without_a_compiler_nothing_is_packed_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> None:
        raise TargetError("no C compiler was found")

    monkeypatch.setattr(search, "load", nothing)
    with pytest.raises(TargetError, match="no C compiler"):
        pack(full(1, 60), ENOUGH)


@given(items(14), st.data())
@settings(max_examples=examples(100))
def test_items_that_overlap_keep_their_distance_and_all_others_lie_apart(items: Items, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(items))))
    chained = data.draw(st.integers(0, len(items) - 1))
    overlaps = []
    for lower, upper in pairwise(order[: chained + 1]):
        rise = data.draw(st.integers(0, items[lower].size // ALIGNMENT)) * ALIGNMENT
        overlaps.append(Overlap(upper, lower, rise))
    packing = pack_overlapping(items, overlaps, 10_000)
    for overlap in overlaps:
        assert packing.offsets[overlap.consumed] == packing.offsets[overlap.made] + overlap.distance
    shape = set(order[: chained + 1])
    for a, b in combinations(range(len(items)), 2):
        together = items[a].start < items[b].end and items[b].start < items[a].end
        if together and not {a, b} <= shape:
            assert packing.offsets[a] + items[a].size <= packing.offsets[b] or (
                packing.offsets[b] + items[b].size <= packing.offsets[a]
            )
    assert min(packing.offsets) == 0
    assert packing.peak == max(offset + item.size for item, offset in zip(items, packing.offsets, strict=True))
    if len(overlaps) < 2:  # of longer chains only such count as the planner makes: never three alive at once
        assert packing.peak >= packing.lower_bound


def test_nothing_needs_no_memory() -> None:
    assert pack((), 1).peak == pack((), 1).lower_bound == 0


@pytest.mark.parametrize(
    ("item", "decisions", "capacity", "sentence"),
    [
        (Item(3, 3, 8), 1, None, r"item 1 is alive over \[3, 3\), which is never"),
        (Item(5, 2, 8), 1, None, r"item 1 is alive over \[5, 2\), which is never"),
        (Item(0, 1, 0), 1, None, "item 1 has 0 bytes"),
        (Item(0, 1, -16), 1, None, "item 1 has -16 bytes"),
        (Item(0, 1, MOST_BYTES), 1, None, "2,147,483,651 bytes together, and 2,147,483,647 can be packed"),
        (Item(0, 1, 1.5), 1, None, "must be whole numbers"),  # type: ignore[arg-type]
        (Item(0, 1, 8), -1, None, "the search may make -1 decisions"),
        (Item(0, 1, 8), 1, 0, "the capacity is 0 bytes"),
    ],
)
def test_inconsistent_items_are_an_error_and_never_a_packing(
    item: Item, decisions: int, capacity: int | None, sentence: str
) -> None:
    with pytest.raises(PlanError, match=sentence):
        pack((Item(0, 1, 4), item), decisions, capacity)


def test_the_search_is_clean_under_sanitizers(tmp_path: Path) -> None:
    sources = (search.SOURCE, Path(__file__).parents[1] / "support" / "packing_main.c")
    find_compiler()(*SANITIZE, "-o", "sanitized", *sources, folder=tmp_path)
    for seed, items in enumerate((full(3, 80), crowd(1, 150), crowd(2, 7))):
        problem = pose(items, tuple(ALIGNMENT * (item.start % 3) for item in items))
        order = skyline.ordered(problem, skyline.ORDERS[seed], Random(seed))
        lines = [f"{len(items)} {problem.sections} {max(problem.loads)} 3000"]
        columns = (problem.first, problem.end, problem.size, problem.ground)
        lines += [" ".join(str(column[i]) for column in columns) for i in order]
        result = subprocess.run(
            tmp_path / "sanitized", input="\n".join(lines), capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", "ABCDEFGHIJK")
def test_the_published_instances_reach_their_capacity(name: str) -> None:
    file = INSTANCES / f"{name}.{CAPACITY}.csv"
    if not file.exists():
        pytest.skip(f"there is no {file}")
    with file.open() as rows:
        items = tuple(Item(int(r["lower"]), int(r["upper"]), int(r["size"])) for r in csv.DictReader(rows))
    packing = pack(items, capacity=CAPACITY)
    check(items, packing)
    assert packing.peak <= CAPACITY
