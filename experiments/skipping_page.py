"""Runs that skip as text: the tables of docs/internals/skipping.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.incremental_page import shown, spread
from experiments.skipping import Skipped, SkippingRun, StepCost

NAMES = {"flowers102": "Flowers-102", "cifar10": "CIFAR-10"}
CLASSES = {"flowers102": 102, "cifar10": 10}
COURSES = {"flowers102": (2040, 6, 1.0), "cifar10": (2000, 5, 0.4)}  # images, epochs, rate of a batch of 256
BELOW = (0.0, 0.02, 0.1, 0.5)
SEEDS = (0, 1, 2)
COLUMNS = ("data", "skip below", "top-1", "steps skipped", "in the last epoch")


@dataclass(frozen=True)
class Row:
    """What all seeds gave at one threshold, in percent: means, and standard deviations over seeds."""

    data: str
    below: float
    seeds: int
    top1: float
    top1_spread: float
    skipped: float
    skipped_last: float  # of the last epoch

    def cells(self) -> tuple[str, ...]:
        """What is shown of it, in the order of COLUMNS."""
        below = f"{self.below:g}" if self.below else "never"
        shares = (f"{share:.1f} %" for share in (self.skipped, self.skipped_last))
        return NAMES[self.data], below, shown(self.top1, self.top1_spread), *shares


def trials(sets: Sequence[str], seeds: Sequence[int]) -> list[SkippingRun]:
    """All that is measured."""
    return [SkippingRun(data, below, seed, *COURSES[data]) for seed in seeds for below in BELOW for data in sets]


def rows(found: Mapping[SkippingRun, Skipped], wanted: Sequence[SkippingRun]) -> tuple[Row, ...]:
    """A row for each data set and threshold that has an outcome."""
    groups: dict[tuple[str, float], list[Skipped]] = {}
    for trial in wanted:
        if trial in found:
            groups.setdefault((trial.data, trial.below), []).append(found[trial])
    return tuple(_row(data, below, some) for (data, below), some in sorted(groups.items()))


def _row(data: str, below: float, some: Sequence[Skipped]) -> Row:
    top1 = [100 * one.accuracy for one in some]
    whole, last = (
        statistics.fmean(shares) for shares in zip(*((one.whole, one.skipped[-1]) for one in some), strict=True)
    )
    return Row(data, below, len(some), statistics.fmean(top1), spread(top1), 100 * whole, 100 * last)


def saved(row: Row, costs: Mapping[str, StepCost]) -> str:
    """Of a course's instructions on a board, those that are spared."""
    return f"{100 * costs[row.data].saved(row.skipped / 100):.1f} %"


def markdown(found: Sequence[Row], costs: Mapping[str, StepCost]) -> Iterator[str]:
    """The rows as lines of a table; what steps cost is the last column."""
    yield f"| {' | '.join((*COLUMNS, 'instructions saved'))} |"
    yield f"|{' --- |' * (len(COLUMNS) + 1)}"
    for one in found:
        yield f"| {' | '.join((*one.cells(), saved(one, costs)))} |"
