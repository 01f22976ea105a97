"""The search for a scheme: gain, SRAM, plans and seconds of its three methods, budget by budget.

Contributions are those that ship with the package, or files that `smidgen analyze` wrote for networks of the zoo.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

import smidgen as sm
from shared import NETWORKS, arguments_of, report, start
from smidgen.ir import Graph
from smidgen.selection.contributions import read_contributions
from smidgen.selection.estimates import shipped_contributions
from smidgen.selection.found import METHODS, Method

PLANNED = ("64KB", "96KB", "128KB", "192KB", "256KB")
ANALYTIC = ("50KB", "100KB", "150KB")


@dataclass(frozen=True)
class Row:
    """One search."""

    network: str
    budget: str
    analytic: bool
    method: Method
    gain: float
    best_possible: float | None
    cost: int
    weight_bits: int
    planned: int
    seconds: float


def measure(graph: Graph, contributions: sm.Contributions, budget: str, analytic: bool, method: Method) -> Row:
    """One search, timed."""
    began = time.perf_counter()
    found = sm.search(graph, contributions, budget, options=sm.Options(10), method=method, analytic=analytic)
    seconds = time.perf_counter() - began
    return Row(
        graph.name, budget, analytic, method, found.gain, found.best_possible, found.cost, found.weight_bits,
        found.schemes_planned, seconds,
    )  # fmt: skip


def networks(files: list[Path]) -> Iterator[tuple[Graph, sm.Contributions]]:
    """Networks of the zoo with what is known of them; without any, which is said, nothing."""
    given = [read_contributions(file) for file in files]
    for graph in map(sm.load, NETWORKS):
        fitting = [one for one in given if one.model == graph.name]
        try:
            yield graph, fitting[0] if fitting else shipped_contributions(graph)
        except sm.ContributionsError:
            print(f"SKIPPED: {graph.name}, of which there are no contributions", file=sys.stderr)


def show(rows: list[Row]) -> None:
    table = Table(title="Predicted gain in points of top-1 over the head alone", title_justify="left")
    for column in ("network", "budget", "method"):
        table.add_column(column)
    for column in ("gain", "at most", "bytes", "bits", "planned", "s"):
        table.add_column(column, justify="right")
    for row in rows:
        most = "" if row.best_possible is None else f"{100 * row.best_possible:.2f}"
        budget = f"{row.budget} analytic" if row.analytic else row.budget
        figures = (f"{100 * row.gain:.2f}", most, f"{row.cost:,}", str(row.weight_bits), str(row.planned))
        table.add_row(row.network, budget, row.method, *figures, f"{row.seconds:.2f}")
    Console().print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--contributions", action="append", type=Path, default=[], help="a file of smidgen analyze")
    given = parser.parse_args()
    cases = [
        (graph, known, budget, analytic, method)
        for graph, known in networks(given.contributions)
        for analytic, budgets in ((True, ANALYTIC), (False, PLANNED))
        for budget in budgets
        for method in METHODS
    ]
    rows = [measure(*case) for case in track(cases, "searching", console=Console(stderr=True), transient=True)]
    report(rows, show, given.json)


if __name__ == "__main__":
    start(main)
