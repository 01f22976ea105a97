"""A table's cells: which runs each needs, and the figure they give."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.paper.runs import Build, Found, Outcome, Run

Course = tuple[float, ...]  # a run's
ByKind = Mapping[Run, Sequence[tuple[Run, Outcome]]]


@dataclass(frozen=True)
class Cell:
    """One figure: a run at several rates, and at the best of them with several seeds."""

    row: str
    run: Run  # at any rate and seed
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    paper: float | None = None  # percent
    at: float | None = None  # the one rate that the row is about, where it is not about the best
    pinned: bool = False  # to the epochs of the run; otherwise to those that most cells of the table have

    @property
    def column(self) -> str:
        return self.run.data

    def wanted(self, found: Found, together: bool) -> list[Run]:
        """The runs still to be made: every rate with the first seed; then the others, at the best rate.

        `together`, at every rate at once.
        """
        first, *others = self.seeds
        tried = [replace(self.run, rate=rate, seed=first) for rate in self.rates]
        rest = [replace(run, seed=seed) for run in tried for seed in others]
        if together:
            return [run for run in (*tried, *rest) if run not in found]
        missing = [run for run in tried if run not in found]
        if missing:
            return missing
        best = max(tried, key=lambda run: _order(found[run].accuracy)).rate
        return [run for run in rest if run.rate == best and run not in found]


def _order(accuracy: float) -> float:
    """Whatever is not a number is worst."""
    return -1.0 if math.isnan(accuracy) else accuracy


@dataclass(frozen=True)
class Figure:
    """A cell as measured: top-1 in percent at the best rate, one for each seed."""

    accuracies: tuple[float, ...]
    rate: float
    rates: tuple[float, ...]  # tried
    runs: tuple[tuple[Run, Outcome], ...]  # at the best rate

    @property
    def mean(self) -> float:
        return statistics.fmean(self.accuracies)

    def __str__(self) -> str:
        if len(self.accuracies) == 1:
            return f"{self.mean:.1f}"
        return f"{self.mean:.1f} ± {statistics.stdev(self.accuracies):.1f}"


def by_kind(found: Found) -> ByKind:
    """Results by what they are of, whatever the rate, seed and course."""
    groups: dict[Run, list[tuple[Run, Outcome]]] = defaultdict(list)
    for run, outcome in found.items():
        groups[run.kind].append((run, outcome))
    return groups


def courses(cells: Sequence[Cell], results: ByKind) -> dict[tuple[str, int], Course]:
    """By data set and batch, the course that most of these cells have results of: they are to be compared.

    Among equals it is that over most images, then the longest.
    """
    had: dict[tuple[str, int], Counter[Course]] = defaultdict(Counter)
    for cell in cells:
        had[cell.column, cell.run.batch].update({run.course for run, _ in _measured(cell, results)})
    return {key: max(counts, key=lambda c: (counts[c], _length(c))) for key, counts in had.items() if counts}


def _measured(cell: Cell, results: ByKind) -> list[tuple[Run, Outcome]]:
    return [
        (run, outcome)
        for run, outcome in results.get(cell.run.kind, ())
        if cell.at in (None, run.rate) and (not cell.pinned or run.epochs == cell.run.epochs)
    ]


def figure(cell: Cell, results: ByKind, course: Course | None) -> Figure | None:
    """The figure of a cell from whatever was measured of a course; None without any.

    The best rate is that with the highest mean over the seeds that were run at every rate.
    """
    tried: dict[float, dict[int, tuple[Run, Outcome]]] = defaultdict(dict)
    for run, outcome in _measured(cell, results):
        if run.course == course:
            tried[run.rate][run.seed] = (run, outcome)
    if not tried:
        return None
    common = set.intersection(*(set(seeds) for seeds in tried.values()))
    if not common:  # an interrupted table: only what has most seeds can be shown
        best = max(tried, key=lambda rate: len(tried[rate]))
    else:
        best = max(tried, key=lambda rate: statistics.fmean(_order(tried[rate][s][1].accuracy) for s in common))
    chosen = tuple(tried[best][seed] for seed in sorted(tried[best]))
    shown = tuple(100 * max(_order(outcome.accuracy), 0.0) for _, outcome in chosen)
    return Figure(shown, best, tuple(sorted(tried)), chosen)


def _length(course: Course) -> tuple[float, ...]:
    """Courses over all images before those over some, then those of many epochs."""
    epochs, warmup, order, limit = course
    return (limit < 0, limit, epochs, warmup, -order)


@dataclass(frozen=True)
class Table:
    """A table or figure of the paper: its cells, and the builds whose memory it shows."""

    name: str
    network: str
    title: str
    about: str  # what is measured, and how that differs from the paper's
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...] = ()
    builds: tuple[tuple[str, Build], ...] = ()  # by row

    def at(self, row: str, column: str) -> Cell | None:
        return next((cell for cell in self.cells if (cell.row, cell.column) == (row, column)), None)


def table(
    name: str, network: str, title: str, about: str, cells: Iterable[Cell], builds: Iterable[tuple[str, Build]] = ()
) -> Table:
    """A table whose rows and columns are those of its cells, in their order."""
    cells, builds = tuple(cells), tuple(builds)
    rows = tuple(dict.fromkeys([row for row, _ in builds] if not cells else [cell.row for cell in cells]))
    columns = tuple(dict.fromkeys(cell.column for cell in cells))
    return Table(name, network, f"{title} ({network})", about, rows, columns, cells, builds)
