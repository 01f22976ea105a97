"""Google's 11 "challenging" memory-planning instances (minimalloc): who reaches their capacity, and how fast.

    python benchmarks/planner.py [--decisions 250000] [--seed 0] [--least] [--json]

Greedy is by size, the largest first; skyline is the heuristic alone; search may make so many decisions
for each instance.
With --least the search goes on below the capacity, to the least peak. A packing counts only if the planner's own check
accepts it. Times are the wall's.
"""

from __future__ import annotations

import csv
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from shared import SHARED, arguments_of, report, there
from smidgen.memory import Buffer, Plan, check_apart
from smidgen.memory.packing import DECISIONS, Item, Packing, pack
from smidgen.memory.packing.problem import pose
from smidgen.memory.packing.skyline import first_fit, ordered

INSTANCES = SHARED / "planner"


@dataclass(frozen=True)
class Result:
    """Peaks in bytes."""

    instance: str
    items: int
    capacity: int
    live_set: int
    greedy: int
    skyline: int
    skyline_seconds: float
    search: int
    search_seconds: float
    decisions: int
    proved: int  # the lower bound when the search ended


def measure(file: Path, decisions: int, seed: int, least: bool) -> Result:
    """Run all three on one instance."""
    name, capacity = file.stem.split(".")
    with file.open() as rows:
        items = tuple(Item(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in csv.DictReader(rows))
    buffers = tuple(Buffer(str(index), item.size, item.start, item.end) for index, item in enumerate(items))
    problem = pose(items)
    by_size = Plan(buffers, tuple(at * problem.unit for at in first_fit(problem, ordered(problem, "size", Random(0)))))
    began = time.perf_counter()
    fast = pack(items, 0)
    between = time.perf_counter()
    best = pack(items, decisions, None if least else int(capacity), seed)
    ended = time.perf_counter()
    for offsets in (by_size.offsets, fast.offsets, best.offsets):
        check_apart(Plan(buffers, offsets))
    return Result(
        name, len(items), int(capacity), by_size.lower_bound, by_size.peak, fast.peak, between - began, best.peak,
        ended - between, best.decisions, best.lower_bound,
    )  # fmt: skip


def warm_up() -> Packing:
    """Have the search built before the clock starts, by a problem that the heuristics cannot close."""
    lives = ((0, 1, 3), (0, 2, 3), (1, 3, 1), (2, 3, 1), (2, 3, 1), (1, 4, 2), (2, 4, 1), (3, 5, 3), (4, 5, 3))
    return pack(Item(*life) for life in lives)


def show(results: list[Result], decisions: int) -> None:
    table = Table(
        "", "items", "live set", "greedy", "skyline", "time", "search", "time", "decisions", "bound",
        title=f"Peak over capacity; search in {decisions:,} decisions at most",
    )  # fmt: skip
    for r in results:
        table.add_row(
            r.instance, str(r.items), _over(r.live_set, r), _over(r.greedy, r), _over(r.skyline, r),
            f"{1e3 * r.skyline_seconds:.0f} ms", _over(r.search, r), f"{r.search_seconds:.2f} s",
            f"{r.decisions:,}", _over(r.proved, r),
        )  # fmt: skip
    console = Console(width=None if Console().is_terminal else 130)
    console.print(table)
    reached = {name: sum(getattr(r, name) <= r.capacity for r in results) for name in ("greedy", "skyline", "search")}
    console.print(
        f"within capacity: {', '.join(f'{name} {count}' for name, count in reached.items())} of {len(results)}"
    )


def _over(peak: int, result: Result) -> str:
    return f"{peak / result.capacity - 1:+.1%}"


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--decisions", type=int, default=DECISIONS, help="for each instance")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", action="store_true", help="search for the least peak, not for the capacity")
    arguments = parser.parse_args()
    files = sorted(there(INSTANCES).glob("*.csv"))
    warm_up()
    began = time.monotonic()
    results = []
    for file in files:
        results.append(measure(file, arguments.decisions, arguments.seed, arguments.least))
        print(f"{file.stem} after {time.monotonic() - began:.0f} s", file=sys.stderr)
    report(results, partial(show, decisions=arguments.decisions), arguments.json)


if __name__ == "__main__":
    main()
