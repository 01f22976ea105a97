"""The learning rate that short trials choose, beside the best of full runs: four data sets, five schemes, MCUNet-5FPS.

Full runs at 0.1, 0.4 and 1 are those of the paper's tables; `--measure` makes those at other rates that were chosen.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import arguments_of, report, start
from smidgen.data import examples, pixel_encoding
from smidgen.selection.rates import BATCH, ChosenRate, choose_rate

sys.path.append(str(Path(__file__).parents[1]))
from experiments.paper.cells import Cell, table
from experiments.paper.engines import Simulators
from experiments.paper.fleets import work_off
from experiments.paper.runs import Run
from experiments.paper.sources import DataSets, network_of
from experiments.paper.store import Store
from experiments.paper.tables import DEVICE_EPOCHS, RATES, SETS

RESULTS = Path(__file__).parent / "results"
NETWORK = "mcunet-5fps"
SCHEMES = ("head", "bias:22", "49kb", "99kb", "last:6")


@dataclass(frozen=True)
class Compared:
    """One data set and scheme: rates as of a batch of 256, top-1 of full runs in percent."""

    data: str
    scheme: str
    chosen: float
    seconds: float  # that the choice took
    top1: float | None  # at that rate; None where there was no full run
    least: float  # the rate whose trial had the least loss: what would be chosen without the rule for ties
    least_top1: float | None
    best: float
    best_top1: float

    @property
    def lost(self) -> float | None:
        """Points between the rate chosen and the best."""
        return None if self.top1 is None else self.best_top1 - self.top1

    @property
    def lost_by_least(self) -> float | None:
        """The same without the rule for ties."""
        return None if self.least_top1 is None else self.best_top1 - self.least_top1


def run_of(data: str, scheme: str, rate: float) -> Run:
    return Run(NETWORK, data, scheme, "device", rate, DEVICE_EPOCHS[data])


def choose(sets: DataSets, run: Run) -> tuple[ChosenRate, float]:
    """The choice for a course, and the seconds it took."""
    graph, data = network_of(NETWORK), sets.load(run.data)
    images = examples(data.train, pixel_encoding(graph))
    program = sm.compile(graph, run.scheme, options=sm.Options(len(data.classes)), images=images)
    with program.start():  # builds it
        begun = time.monotonic()
    found = choose_rate(program, data, sm.Course(run.epochs, 0.0))
    return found, time.monotonic() - begun


def least_loss(chosen: ChosenRate) -> float:
    """The rate of the trial that had the least loss, of those that went farthest."""
    farthest = max(one.steps for one in chosen.trials if one.loss is not None)
    finished = [one for one in chosen.trials if one.steps == farthest and one.loss is not None]
    return min(finished, key=lambda one: one.loss or 0.0).learning_rate


def top1(stores: tuple[Store, ...], run: Run) -> float | None:
    """Of the first seed; None where there is no such run."""
    found = [store.runs[run].accuracy for store in stores if run in store.runs]
    return 100 * found[0] if found else None


def compare(sets: DataSets, stores: tuple[Store, ...], names: list[str], schemes: list[str]) -> Iterator[Compared]:
    for data in names:
        for scheme in schemes:
            run = run_of(data, scheme, 0.0)
            chosen, seconds = choose(sets, run)
            rate, least = (round(r * BATCH, 6) for r in (chosen.learning_rate, least_loss(chosen)))
            full = {r: top1(stores, replace(run, rate=r)) for r in {*RATES, rate, least}}
            known = {r: found for r, found in full.items() if found is not None}
            best = max(known, key=lambda r: known[r])
            print(f"{data} {scheme}\n{chosen}", file=sys.stderr, flush=True)
            yield Compared(data, scheme, rate, seconds, full[rate], least, full[least], best, known[best])


def measure(sets: DataSets, store: Store, found: list[Compared], device: str) -> None:
    """Make the full runs at the rates that were chosen and not yet run."""
    missing = [run_of(one.data, one.scheme, one.chosen) for one in found if one.top1 is None]
    cells = [Cell(run.scheme, run, (run.rate,), (0,)) for run in missing]
    engine = Simulators(network_of, sets.load, device)
    try:
        work_off([table("rates", NETWORK, "Rates", "", cells)], store, engine, size=64)
    finally:
        engine.close()


def show(found: list[Compared]) -> None:
    shown = Table("data", "scheme", "chosen", "seconds", "top-1 %", "best of all", "top-1 %", "points lost")
    for one in found:
        there = "—" if one.top1 is None else f"{one.top1:.1f}"
        lost = "—" if one.lost is None else f"{one.lost:.1f}"
        shown.add_row(
            one.data, one.scheme, f"{one.chosen:g}", f"{one.seconds:.1f}", there, f"{one.best:g}",
            f"{one.best_top1:.1f}", lost,
        )  # fmt: skip
    Console().print(shown)
    known = [one.lost for one in found if one.lost is not None]
    if known:
        print(
            f"points lost: {statistics.fmean(known):.2f} on average, {max(known):.1f} at most, of {len(known)} courses"
        )


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--schemes", nargs="+", default=list(SCHEMES))
    parser.add_argument("--measure", metavar="DEVICE", help="make missing full runs on host, cpu or cuda")
    given = parser.parse_args()
    sets, own = DataSets(), Store(RESULTS / "rates.jsonl")
    stores = (Store(RESULTS / "paper.jsonl"), own)
    found = list(compare(sets, stores, given.sets, given.schemes))
    if given.measure:
        measure(sets, own, found, given.measure)
        found = [
            replace(
                one, top1=now, best=one.chosen if now > one.best_top1 else one.best, best_top1=max(now, one.best_top1)
            )
            for one in found
            if (now := top1(stores, run_of(one.data, one.scheme, one.chosen))) is not None
        ]
    report(found, show, given.json)


if __name__ == "__main__":
    start(main)
