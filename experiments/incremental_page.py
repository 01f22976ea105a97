"""Streams of classes as text and picture: the tables of docs/results/incremental.md, and accuracy as classes arrive."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.incremental import FIRST, Followed, HeadGrowth, Stream
from smidgen.results.figures import Axis, Figure, Panel, Polyline

SETS = ("cifar10", "flowers102")
NAMES = {"cifar10": "CIFAR-10", "flowers102": "ten classes of Flowers-102"}
MEMORIES = (0, 50, 100, 200, None)
SEEDS = (0, 1, 2)
EXAMPLES = {"cifar10": 100, "flowers102": 20}  # of each class
PASSES = {"cifar10": 1, "flowers102": 5}
RATES = {"cifar10": 0.1, "flowers102": 0.4}  # of a batch of 256; chosen by another seed, with 100 kept examples
EXTENDED = (100,)  # memories with which heads are extended, too
# Steps after one pass: flash for latents, and rates that training images which are not shown chose.
FLASH = 65536
LATENTS = {"99kb": 2560, "last:2": 1536, "head": 160}  # bytes
AFTER_ONE_PASS = {"head": 0.3, "last:2": 0.01, "99kb": 0.01}
HEADS = {"whole": "", "extended": ", head extended", "one pass": ", one pass"}
CLASSES = 10
SHOWN = (2, 4, 6, 8, 10)  # classes after which the table shows what is known
COLOURS = ("#b3362b", "#e08a2e", "#c9b21b", "#3f8f4f", "#2b5cb3")


@dataclass(frozen=True)
class Row:
    """What all seeds gave with one memory: means in percent, and standard deviations over seeds."""

    data: str
    head: HeadGrowth
    memory: int | None
    scheme: str
    seeds: int
    accuracies: tuple[float, ...]  # after each arrival
    spreads: tuple[float, ...]
    average: float
    average_spread: float
    forgotten: float  # percent of a class's test images, from its best to the end
    steps: int

    @property
    def name(self) -> str:
        kept = "all images: the joint bound" if self.memory is None else f"{self.memory}" if self.memory else "none"
        steps = f", then {self.scheme}" if self.head == "one pass" and self.steps else ""
        return f"{kept}{HEADS[self.head]}{steps}"

    @property
    def flash(self) -> str:
        """Return the bytes that the examples take."""
        return "—" if self.memory is None else f"{self.memory * LATENTS[self.scheme]:,}"


def streams(sets: Sequence[str], seeds: Sequence[int]) -> list[Stream]:
    """All that is measured, most telling first."""
    heads: tuple[tuple[HeadGrowth, Sequence[int | None]], ...] = (("whole", MEMORIES), ("extended", EXTENDED))
    by_steps = [
        Stream(data, memory, seed, EXAMPLES[data], PASSES[data], RATES[data], head=head)
        for head, memories in heads
        for seed in seeds
        for memory in memories
        for data in sets
    ]
    ways = [("head", 0, 0, 0.0), *((name, FLASH // LATENTS[name], 1, rate) for name, rate in AFTER_ONE_PASS.items())]
    return by_steps + [
        Stream("cifar10", memory, seed, EXAMPLES["cifar10"], passes, rate, scheme, "one pass")
        for scheme, memory, passes, rate in ways
        for seed in seeds
        if "cifar10" in sets
    ]


def rows(found: Mapping[Stream, Followed], wanted: Sequence[Stream]) -> tuple[Row, ...]:
    """A row for each way to learn that has an outcome."""
    groups: dict[tuple[str, HeadGrowth, int | None, str], list[Followed]] = {}
    for stream in wanted:
        if stream in found:
            groups.setdefault((stream.data, stream.head, stream.memory, stream.scheme), []).append(found[stream])
    return tuple(_row(*key, some) for key, some in sorted(groups.items(), key=lambda item: _place(*item[0])))


def _place(data: str, head: HeadGrowth, memory: int | None, scheme: str) -> tuple[int, int, float]:
    return SETS.index(data), list(HEADS).index(head), np.inf if memory is None else memory


def _row(data: str, head: HeadGrowth, memory: int | None, scheme: str, some: Sequence[Followed]) -> Row:
    after = [[100 * share for share in shares] for shares in zip(*(one.accuracies for one in some), strict=True)]
    averages = [100 * one.average for one in some]
    return Row(
        data, head, memory, scheme, len(some), tuple(map(statistics.fmean, after)), tuple(map(spread, after)),
        statistics.fmean(averages), spread(averages), 100 * statistics.fmean(one.forgotten for one in some),
        some[0].steps,
    )  # fmt: skip


def spread(figures: Sequence[float]) -> float:
    """The standard deviation; 0 of a single figure."""
    return statistics.stdev(figures) if len(figures) > 1 else 0.0


def markdown(found: Sequence[Row]) -> str:
    """The rows as tables, one for each data set."""
    return "\n".join(line for data in SETS for line in _table([one for one in found if one.data == data]))


def _table(some: Sequence[Row]) -> Iterator[str]:
    if not some:
        return
    names = (*(f"after {count}" for count in SHOWN), "average", "forgotten", "steps")
    yield f"### {NAMES[some[0].data]}\n"
    yield f"| kept examples | flash | {' | '.join(names)} |"
    yield f"| --- | --- |{' --- |' * len(names)}"
    for one in some:
        cells = [shown(one.accuracies[count - FIRST], one.spreads[count - FIRST]) for count in SHOWN]
        cells += [shown(one.average, one.average_spread), f"{one.forgotten:.1f}", f"{one.steps:,}"]
        yield f"| {one.name} | {one.flash} | {' | '.join(cells)} |"
    yield ""


def shown(mean: float, deviation: float) -> str:
    return f"{mean:.1f} ± {deviation:.1f}"


def picture(found: Sequence[Row]) -> Figure:
    """Accuracy on all classes seen so far as they arrive, a panel for each data set."""
    seen = tuple(map(float, range(FIRST, CLASSES + 1)))
    axes = Axis("classes seen", FIRST, CLASSES), Axis("top-1 of all classes seen, %", 0, 100)
    panels = []
    for data in SETS:
        lines = [
            Polyline(
                one.name, seen, one.accuracies, tuple(map(shown, one.accuracies, one.spreads)),
                COLOURS[MEMORIES.index(one.memory)], radius=3, legend=data == SETS[0],
            )
            for one in found
            if one.data == data and one.head == "whole"
        ]  # fmt: skip
        panels.append(Panel(NAMES[data], tuple(lines), *axes))
    return Figure("Top-1 as classes arrive, by how many examples are kept", tuple(panels), 480, (1.0, 1.0))
