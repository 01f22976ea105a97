"""Steps below a loss skipped: accuracy, the share of steps, and the instructions on a Cortex-M7 that this spares.

    python benchmarks/skipping.py [--measure] [--markdown | --json]

Shows what is in results/skipping.jsonl; with `--measure` what is missing there is measured first, on this machine's C.
What steps cost is counted each time, on the emulated board. `experiments/skipping.py` says how a network learns here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import arguments_of, report, start

sys.path.append(str(Path(__file__).parents[1]))
from experiments.appended import Appended
from experiments.incremental import Latents, cut
from experiments.paper.sources import DataSets, network_of
from experiments.skipping import Skipped, SkippingRun, StepCost, cost, run
from experiments.skipping_page import CLASSES, COLUMNS, COURSES, SEEDS, Row, markdown, rows, saved, trials

RESULTS = Path(__file__).parent / "results" / "skipping.jsonl"
NETWORK, SCHEME, BOARD = "mcunet-5fps", "99kb", "cortex-m7"


@dataclass(frozen=True)
class Measured:
    """Both tables."""

    rows: tuple[Row, ...]
    costs: Mapping[str, StepCost]  # by data set: heads differ


def measure(kept: Appended[SkippingRun, Skipped], wanted: Sequence[SkippingRun], sets: DataSets) -> None:
    """Make the runs that are missing, in their order."""
    parts, missing = cut(network_of(NETWORK), SCHEME), kept.missing(wanted)
    with sm.compile(parts.front).start() as device:
        data = {name: sets.load(name) for name in dict.fromkeys(trial.data for trial in missing)}
        latents = {name: Latents(one, parts.front, device) for name, one in data.items()}
        for number, trial in enumerate(missing, start=1):
            begun = time.monotonic()
            found = run(trial, parts, data[trial.data], latents[trial.data])
            kept.add(trial, found)
            said = f"{number} of {len(missing)}: {trial} {found} {time.monotonic() - begun:.0f} s"
            print(said, file=sys.stderr, flush=True)


def show(measured: Measured) -> None:
    console = Console(width=None if Console().is_terminal else 130)
    table = Table(*COLUMNS, "instructions saved", "seeds")
    for one in measured.rows:
        table.add_row(*one.cells(), saved(one, measured.costs), str(one.seeds))
    console.print(table)
    table = Table("head", "forward", "step", "skipped step", title=f"Instructions on {BOARD}")
    for data, each in measured.costs.items():
        numbers = (f"{number:,}" for number in (each.forward, each.step, each.skipped))
        table.add_row(f"{CLASSES[data]} classes", *numbers)
    console.print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--data", action="append", default=[], metavar="NAME=PATH", help="where a data set lies")
    parser.add_argument("--sets", nargs="+", choices=COURSES, default=list(COURSES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--measure", action="store_true", help="make the runs that have no results yet")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/internals/skipping.md")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file that results are kept in")
    given = parser.parse_args()
    kept = Appended(given.results, SkippingRun, Skipped)
    wanted = trials(given.sets, given.seeds)
    if given.measure:
        measure(kept, wanted, DataSets(given.data))
    costs = {data: cost(network_of(NETWORK), SCHEME, CLASSES[data], BOARD) for data in given.sets}
    found = Measured(rows(kept.found, wanted), costs)
    if given.markdown:
        print("\n".join(markdown(found.rows, costs)))
    else:
        report(found, show, given.json)


if __name__ == "__main__":
    start(main)
