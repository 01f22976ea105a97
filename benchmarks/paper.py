"""The paper's tables and figures, one command each: what a table still lacks is measured, then it is shown.

Results are kept in a file as fleets of runs are done: a command that was stopped goes on where it was, and tables share
the runs they have in common. `--plan` says what is left to do, `--page` writes
docs/results/accuracy.md from the results alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn

from smidgen.errors import InputError, SmidgenError
from smidgen.training.published import PUBLISHED

sys.path.append(str(Path(__file__).parents[1]))
from experiments.paper.cells import Table
from experiments.paper.engines import Simulators
from experiments.paper.fleets import Progress, fleets, unbuilt, wanted, work_off
from experiments.paper.page import ShownTable, page, show, text
from experiments.paper.sources import DataSets, network_of
from experiments.paper.store import Store, finite_json
from experiments.paper.tables import NAMES, Settings, tables

TOP = Path(__file__).parents[1]
RESULTS = TOP / "benchmarks" / "results" / "paper.jsonl"
PAGE = TOP / "docs" / "results" / "accuracy.md"
NETWORKS = tuple(network.name for network in PUBLISHED)
FLEET = 64
PLAIN_EVERY = 10  # percent between words of progress where there is no bar


@dataclass(frozen=True)
class Planned:
    """One fleet that is still to be run."""

    fleet: str
    runs: int
    steps: int


class Bar:
    """Progress on stderr: a bar where rich is installed and the terminal has one, else a line now and then."""

    def __init__(self) -> None:
        self.title, self._said = "", -PLAIN_EVERY

    def fleet(self, progress: Progress) -> None:
        self.title, self._said = f"{progress.number} of {progress.count}: {progress.fleet}", -PLAIN_EVERY
        self.steps(0, 1)

    def steps(self, done: int, of: int) -> None:
        share = 100 * done // max(of, 1)
        if share >= self._said + PLAIN_EVERY:
            print(f"{self.title}, {share} %", file=sys.stderr, flush=True)
            self._said = share


class RichBar(Bar):
    """The same with rich's bar."""

    def __init__(self, bar: object) -> None:
        super().__init__()
        from rich.progress import Progress as Rich

        assert isinstance(bar, Rich)
        self._bar, self._task = bar, bar.add_task("")

    def steps(self, done: int, of: int) -> None:
        self._bar.update(self._task, description=self.title, completed=done, total=max(of, 1))


@contextmanager
def progress_bar() -> Iterator[Bar]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Rich
    except ImportError:
        yield Bar()
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Bar()
        return
    parts = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Rich(TextColumn("{task.description}", markup=False), *parts, console=console) as bar:
        yield RichBar(bar)


def check_device(name: str) -> None:
    """Raise InputError where PyTorch cannot compute on this device."""
    import torch

    if name == "host":
        return
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError):
        raise InputError(
            f"PyTorch cannot compute on {name} here; run this where it can, or give --device host and, as that is "
            "slow, --limit, --epochs and --rates"
        ) from None


def plan(chosen: tuple[Table, ...], store: Store, data: DataSets, size: int, together: bool) -> list[Planned]:
    """The fleets that are due next; the seeds that follow at the best rates are not known yet."""
    due = []
    for fleet in fleets(wanted(chosen, store, together), size):
        run = fleet.runs[0]
        images = len(data.load(run.data).train)
        due.append(Planned(str(fleet), len(fleet.runs), run.steps(min(images, run.limit or images))))
    return due


def show_plan(due: list[Planned], builds: int) -> None:
    for one in due:
        print(f"{one.steps:9,} steps  {one.fleet}")
    print(
        f"{sum(one.steps for one in due):9,} steps of {len(due)} fleets, {sum(one.runs for one in due)} runs; ", end=""
    )
    print(f"{builds} programs to be planned")


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    parser.add_argument(
        "table", nargs="*", choices=(*NAMES, "all", []), metavar="TABLE", help=", ".join((*NAMES, "all"))
    )
    parser.add_argument("--page", action="store_true", help="write docs/results/accuracy.md from the results")
    parser.add_argument("--plan", action="store_true", help="say how much is left to do, and do nothing")
    parser.add_argument("--show", action="store_true", help="show what there is, measure nothing")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file in which results are kept")
    parser.add_argument("--device", default="cuda", help="cuda, cpu, or host: devices in C, the rest on cpu")
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME=PATH", help="where a data set lies; may be repeated"
    )
    parser.add_argument("--sets", nargs="+", metavar="NAME", help="these data sets alone")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=["mcunet-5fps"])
    parser.add_argument("--epochs", type=int, help="instead of each table's own")
    parser.add_argument("--seeds", type=int, help="how many, instead of each table's own")
    parser.add_argument("--rates", type=float, nargs="+", help="of a batch of 256, instead of each table's own")
    parser.add_argument("--limit", type=int, help="learn from and test with so many images only")
    parser.add_argument("--together", action="store_true", help="run all seeds at every rate, not at the best alone")
    parser.add_argument("--fleet", type=int, default=FLEET, help=f"runs at once, at most; {FLEET} unless given")
    parser.add_argument(
        "--budget-minutes", type=float, default=float("inf"), help="be done after so long, as far as one can tell"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that compile programs")
    parser.add_argument("--only", choices=("runs", "memory"), help="what needs a GPU, or what does not")
    parser.add_argument("--take", type=Path, action="append", default=[], help="take over the results of another file")
    return parser


def chosen_tables(given: argparse.Namespace) -> tuple[Table, ...]:
    for what in ("epochs", "seeds", "limit", "fleet", "workers"):
        if getattr(given, what) is not None and getattr(given, what) < 1:
            raise InputError(f"--{what} is {getattr(given, what)}; give 1 or more")
    settings = Settings(
        tuple(given.networks), tuple(given.sets) if given.sets else None, given.epochs,
        tuple(range(given.seeds)) if given.seeds else None, tuple(given.rates) if given.rates else None, given.limit,
    )  # fmt: skip
    names = tuple(name for name in NAMES if name in given.table or "all" in given.table)
    return tables(names, settings)


def measure(chosen: tuple[Table, ...], store: Store, given: argparse.Namespace) -> None:
    """Make what is missing."""
    if given.only == "memory":
        chosen = tuple(replace(one, cells=()) for one in chosen)
    if wanted(chosen, store, given.together):
        check_device(given.device)
    with progress_bar() as bar:
        data = DataSets(given.data)
        engine = Simulators(network_of, data.load, given.device, workers=given.workers, on_steps=bar.steps)
        try:
            done = work_off(
                chosen, store, engine, size=given.fleet, together=given.together, seconds=60 * given.budget_minutes,
                builds=given.only != "runs", on_fleet=bar.fleet,
            )  # fmt: skip
        finally:
            engine.close()
    if done.left:
        print(f"time is up: {done.left} runs are left; the same command goes on with them", file=sys.stderr)


def print_tables(shown: tuple[ShownTable, ...], as_json: bool) -> None:
    if as_json:
        plain = [
            {
                "table": one.table.name,
                "network": one.table.network,
                "cells": [asdict(cell) for cell in one.cells],
                "memory": [
                    {"row": row, **asdict(build), **(asdict(found) if found else {})}
                    for row, build, found in one.footprints
                ],
            }
            for one in shown
        ]
        print(json.dumps(finite_json(plain), indent=2, allow_nan=False))
        return
    for one in shown:
        print(text(one))


def run(given: argparse.Namespace) -> None:
    store = Store(given.results)
    for other in map(Store, given.take):
        runs = {run: outcome for run, outcome in other.runs.items() if run not in store.runs}
        store.add(runs, {build: found for build, found in other.builds.items() if build not in store.builds})
    if given.page:
        PAGE.write_text(page(store.runs, store.builds))
    chosen = chosen_tables(given)
    if given.plan:
        due = plan(chosen, store, DataSets(given.data), given.fleet, given.together)
        if given.json:
            print(json.dumps([asdict(one) for one in due], indent=2))
        else:
            show_plan(due, len(unbuilt(chosen, store)))
        return
    if chosen and not given.show:
        measure(chosen, store, given)
    print_tables(show(chosen, store.runs, store.builds), given.json)


def refuse(error: Exception) -> NoReturn:
    print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
    raise SystemExit(2)


def main() -> None:
    parser = arguments()
    given = parser.parse_args()
    if not (given.table or given.page or given.take):
        parser.error(f"name a table ({', '.join(NAMES)} or all), or give --page")
    try:
        run(given)
    except SmidgenError as error:
        refuse(error)
    except KeyboardInterrupt:
        refuse(InputError(f"stopped; what was finished is in {given.results}"))


if __name__ == "__main__":
    main()
