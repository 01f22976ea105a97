"""Classes that arrive one after another: what MCUNet-5FPS knows of all of them, by how many old examples are kept.

    python benchmarks/incremental.py [--measure] [--picture FILE.html] [--markdown | --json]

Shows what is in results/incremental.jsonl; with `--measure` what is missing there is measured first, on this machine's
C, one stream after another, each appended when it is done. `experiments/incremental.py` says how a stream is run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import arguments_of, report, start
from smidgen.data import Data
from smidgen.results.report.page import page_of

sys.path.append(str(Path(__file__).parents[1]))
from experiments.appended import Appended
from experiments.incremental import FIRST, Followed, Latents, Stream, cut, follow
from experiments.incremental_page import (
    NAMES,
    SEEDS,
    SETS,
    SHOWN,
    Row,
    markdown,
    picture,
    rows,
    shown,
    streams,
)
from experiments.paper.sources import DataSets, network_of, some_classes

RESULTS = Path(__file__).parent / "results" / "incremental.jsonl"
NETWORK = "mcunet-5fps"
FLOWERS = (45, 50, 72, 73, 76, 77, 80, 87, 88, 93)  # those with the most photographs to test with: 117 to 238


def load(sets: DataSets, name: str) -> Data:
    return some_classes(sets.load(name), FLOWERS) if name == "flowers102" else sets.load(name)


def measure(kept: Appended[Stream, Followed], wanted: Sequence[Stream], sets: DataSets) -> None:
    """Run the streams that are missing, those of one scheme after those of another."""
    say, missing = partial(print, file=sys.stderr, flush=True), kept.missing(wanted)
    for scheme in dict.fromkeys(stream.scheme for stream in missing):
        some = [stream for stream in missing if stream.scheme == scheme]
        parts = cut(network_of(NETWORK), scheme)
        with sm.compile(parts.front).start() as device:
            data = {name: load(sets, name) for name in dict.fromkeys(stream.data for stream in some)}
            latents = {name: Latents(one, parts.front, device) for name, one in data.items()}
            for number, stream in enumerate(some, start=1):
                begun = time.monotonic()
                kept.add(stream, follow(stream, parts, data[stream.data], latents[stream.data], say))
                say(f"{number} of {len(some)} streams by {scheme}: {time.monotonic() - begun:.0f} s")


def show(found: Sequence[Row]) -> None:
    console = Console(width=None if Console().is_terminal else 150)
    for data in SETS:
        names = (*(f"after {count}" for count in SHOWN), "average", "forgotten", "steps", "seeds")
        table = Table("kept examples", "flash", *names, title=f"{NAMES[data]}: top-1 %")
        for one in (one for one in found if one.data == data):
            cells = [shown(one.accuracies[count - FIRST], one.spreads[count - FIRST]) for count in SHOWN]
            cells += [shown(one.average, one.average_spread), f"{one.forgotten:.1f}", f"{one.steps:,}", str(one.seeds)]
            table.add_row(one.name, one.flash, *cells)
        console.print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--data", action="append", default=[], metavar="NAME=PATH", help="where a data set lies")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--measure", action="store_true", help="run the streams that have no results yet")
    parser.add_argument("--markdown", action="store_true", help="print the tables of docs/results/incremental.md")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file that results are kept in")
    parser.add_argument("--picture", type=Path, help="also draw accuracy as classes arrive, in this HTML file")
    given = parser.parse_args()
    kept = Appended(given.results, Stream, Followed)
    wanted = streams(given.sets, given.seeds)
    if given.measure:
        measure(kept, wanted, DataSets(given.data))
    found = rows(kept.found, wanted)
    if given.picture:
        given.picture.write_text(page_of("Class by class", str(__doc__).splitlines()[0], [picture(found)]))
    if given.markdown:
        print(markdown(found))
    else:
        report(found, show, given.json)


if __name__ == "__main__":
    start(main)
