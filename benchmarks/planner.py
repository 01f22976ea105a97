"""Google's 11 "challenging" memory-planning instances (minimalloc): who reaches their capacity, and how fast.

    python benchmarks/planner.py [--seconds 60] [--seed 0] [--least] [--json]

Greedy is by size, the largest first; skyline is the heuristic alone; search may take the given time for each instance.
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

from rich.console import Console
from rich.table import Table

from shared import SHARED, arguments_of, report
from smidgen.memory import Buffer, Plan, check_apart, greedy
from smidgen.memory.packing import Item, Packing, pack

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
    proved: int  # the lower bound when the search ended


def measure(file: Path, seconds: float, seed: int, least: bool) -> Result:
    """Run all three on one instance."""
    name, capacity = file.stem.split(".")
    with file.open() as rows:
        items = tuple(Item(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in csv.DictReader(rows))
    buffers = tuple(Buffer(str(index), item.size, item.start, item.end) for index, item in enumerate(items))
    by_size = greedy(buffers)
    fast = pack(items, 0)
    best = pack(items, seconds, None if least else int(capacity), seed)
    for offsets in (by_size.offsets, fast.offsets, best.offsets):
        check_apart(Plan(buffers, offsets))
    return Result(
        name, len(items), int(capacity), by_size.lower_bound, by_size.peak, fast.peak, fast.seconds, best.peak,
        best.seconds, best.lower_bound,
    )  # fmt: skip


def warm_up() -> Packing:
    """Have the search built before the clock starts, by a problem that the heuristics cannot close."""
    lives = ((0, 1, 3), (0, 2, 3), (1, 3, 1), (2, 3, 1), (2, 3, 1), (1, 4, 2), (2, 4, 1), (3, 5, 3), (4, 5, 3))
    return pack((Item(*life) for life in lives), 60)


def show(results: list[Result], seconds: float) -> None:
    table = Table(
        "", "items", "live set", "greedy", "skyline", "time", "search", "time", "bound",
        title=f"Peak over capacity; search for {seconds:g} s at most",
    )  # fmt: skip
    for r in results:
        table.add_row(
            r.instance, str(r.items), _over(r.live_set, r), _over(r.greedy, r), _over(r.skyline, r),
            f"{1e3 * r.skyline_seconds:.0f} ms", _over(r.search, r), f"{r.search_seconds:.2f} s", _over(r.proved, r),
        )  # fmt: skip
    console = Console()
    console.print(table)
    reached = {name: sum(getattr(r, name) <= r.capacity for r in results) for name in ("greedy", "skyline", "search")}
    console.print(
        f"within capacity: {', '.join(f'{name} {count}' for name, count in reached.items())} of {len(results)}"
    )


def _over(peak: int, result: Result) -> str:
    return f"{peak / result.capacity - 1:+.1%}"


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each instance")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", action="store_true", help="search for the least peak, not for the capacity")
    arguments = parser.parse_args()
    files = sorted(INSTANCES.glob("*.csv"))
    if not files:
        sys.exit(f"there are no instances in {INSTANCES}")
    warm_up()
    began = time.monotonic()
    results = []
    for file in files:
        results.append(measure(file, arguments.seconds, arguments.seed, arguments.least))
        print(f"{file.stem} after {time.monotonic() - began:.0f} s", file=sys.stderr)
    report(results, partial(show, seconds=arguments.seconds), arguments.json)


if __name__ == "__main__":
    main()
