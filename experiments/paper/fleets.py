"""Runs that share their images as fleets, in the order in which tables need them; and how fleets are worked off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from experiments.paper.cells import Table
from experiments.paper.channels import depth
from experiments.paper.runs import Build, Footprint, Outcome, Run
from experiments.paper.store import ResultsError, Store

SHALLOW = 12  # layers from the last on


@dataclass(frozen=True)
class Fleet:
    """Runs that are made at once: one network, one data set, the same images in the same order."""

    runs: tuple[Run, ...]

    def __str__(self) -> str:
        run = self.runs[0]
        how = "device arithmetic" if run.engine == "device" else "float baselines"
        one = "" if run.engine == "device" else f", {run.scheme}"
        drawn = ", channels redrawn" if run.channels == "rotating" else ""
        return (
            f"{run.network} on {run.data}, {how}, batch {run.batch}, {run.epochs} epochs{one}{drawn}: "
            f"{len(self.runs)} runs"
        )


def fleets(runs: Sequence[Run], size: int) -> tuple[Fleet, ...]:
    """Runs grouped, at most `size` to a fleet and evenly; first those that were named first."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(_together(run), []).append(run)
    made = []
    for group in groups.values():
        count = -(-len(group) // size)
        made += [Fleet(tuple(group[len(group) * i // count : len(group) * (i + 1) // count])) for i in range(count)]
    place = {run: index for index, run in enumerate(runs)}
    return tuple(sorted(made, key=lambda fleet: min(place[run] for run in fleet.runs)))


def _together(run: Run) -> tuple[object, ...]:
    """What runs of one fleet have in common."""
    common = (run.network, run.data, run.engine == "device", run.batch, run.course)
    if run.engine == "device":  # what learns little is not held up by what learns much
        return (*common, _load(run), run.channels == "rotating")
    return (*common, run.scheme, run.head, run.bits)


def _load(run: Run) -> str:
    """How much of the network learns."""
    reach = depth(run)
    return "whole" if reach is None else "deep" if reach > SHALLOW else "shallow"


def wanted(tables: Iterable[Table], store: Store, together: bool) -> tuple[Run, ...]:
    """The runs that the tables need next, each once, in the tables' order."""
    found = (run for table in tables for cell in table.cells for run in cell.wanted(store.runs, together))
    return tuple(dict.fromkeys(found))


def unbuilt(tables: Iterable[Table], store: Store) -> tuple[Build, ...]:
    found = (build for table in tables for _, build in table.builds if build not in store.builds)
    return tuple(dict.fromkeys(found))


class Engine(Protocol):
    """What makes runs."""

    def prepare(self, fleet: Fleet) -> None:
        """Begin what can be done before the fleet's turn."""

    def run(self, fleet: Fleet) -> Mapping[Run, Outcome]:
        """Make the runs."""

    def digest(self, run: Run) -> str:
        """A fingerprint of the run's data."""

    def weights(self, run: Run) -> str:
        """A fingerprint of the run's network."""

    def images(self, run: Run) -> int:
        """How many images the run learns from."""

    def build(self, build: Build) -> Footprint:
        """Plan a program, or run it on the emulated board."""


@dataclass(frozen=True)
class Progress:
    """Which of the fleets under way or being begun, and what is left undone for want of time."""

    fleet: str
    number: int
    count: int


@dataclass(frozen=True)
class Done:
    """What was made, and what the budget left over."""

    runs: int
    builds: int
    left: int  # runs that were due when time ran out; later seeds not counted


def _expected(fleet: Fleet, store: Store, engine: Engine) -> float:
    """Seconds the fleet will take, if it goes as the slowest like it did; 0 where there was none."""

    def alike(run: Run) -> tuple[object, ...]:
        return (run.network, run.engine == "device", run.batch, run.limit, _load(run))

    first = fleet.runs[0]
    known = [o.seconds / r.steps(o.train) for r, o in store.runs.items() if alike(r) == alike(first)]
    return max(known, default=0.0) * first.steps(engine.images(first))


def _check_same(fleet: Fleet, store: Store, engine: Engine) -> None:
    """Raise ResultsError where results of these data or this network are there already, but they were others."""
    run = fleet.runs[0]
    images = {o.digest for r, o in store.runs.items() if (r.data, r.limit) == (run.data, run.limit)}
    weights = {o.weights for r, o in store.runs.items() if r.network == run.network}
    for what, name, known, own in (
        ("images", run.data, images, engine.digest(run)),
        ("weights", run.network, weights, engine.weights(run)),
    ):
        if known - {own}:
            raise ResultsError(
                f"{store.path} holds results of other {what} under the name {name}; give the same, or another file"
            )


def work_off(
    tables: Sequence[Table],
    store: Store,
    engine: Engine,
    *,
    size: int,
    together: bool = False,
    builds: bool = True,
    seconds: float = float("inf"),
    on_fleet: Callable[[Progress], None] = lambda _: None,
) -> Done:
    """Make all runs the tables need and the store lacks.

    No fleet is begun once `seconds` have passed, nor one that would not be done by then if it went as those before.
    """
    begun, runs, built, left = time.monotonic(), 0, 0, 0
    while due := fleets(wanted(tables, store, together), size):
        for number, fleet in enumerate(due):
            passed = time.monotonic() - begun
            if passed >= seconds or passed + _expected(fleet, store, engine) > seconds:
                left += len(fleet.runs)
                continue
            _check_same(fleet, store, engine)
            store.check_writable()
            engine.prepare(fleet)
            if number + 1 < len(due):
                engine.prepare(due[number + 1])
            on_fleet(Progress(str(fleet), number + 1, len(due)))
            outcomes = engine.run(fleet)
            assert set(outcomes) == set(fleet.runs)
            store.add(outcomes)
            runs += len(outcomes)
        if left:
            break
    for build in unbuilt(tables, store) if builds else ():
        if time.monotonic() - begun >= seconds:
            break
        store.add(builds={build: engine.build(build)})
        built += 1
    return Done(runs, built, left)
