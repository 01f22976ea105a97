"""What `smidgen fit --budget 128KB` keeps, beside the head alone, published and searched schemes.

Every candidate learns at every rate in every case, in fleets on a GPU: `python benchmarks/own_data.py --cases
mcunet-5fps:released:vww:5,20:0,1 --data vww=vww.zip` measures these cases and adds a file to the results. 0 samples
of a class are all, and `--device host` runs this machine's C. Without cases it shows what there is. (Where several
processes share the GPU, CUDA's MPS makes this about ten times as fast.)
"""

from __future__ import annotations

import gzip
import json
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import product
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import arguments_of, report, start
from smidgen.data import load_data
from smidgen.ir import Graph

sys.path.append(str(Path(__file__).parents[1]))
from experiments.own_data import Bed, Case, bed_of, measure, offered
from experiments.own_data_page import COLUMNS, PUBLISHED, Outcome, gains, outcomes, page, read, rows, verdicts
from experiments.paper.sources import network_of

RESULTS = Path(__file__).parent / "results" / "own_data"
PAGE = Path(__file__).parents[1] / "docs" / "results" / "own-data.md"
BUDGETS = {"cars196": "256KB"}  # where 128 KB do not hold the head of MCUNet: 196 classes
SECONDS = 520  # after which no fleet begins on a GPU


def graph_of(network: str, weights: str) -> Graph:
    return network_of(network) if weights == "released" else sm.load(network)


def cases_of(listed: list[str]) -> dict[tuple[str, str, str], list[Case]]:
    """Return cases by network, weights and data set, from lists as they are given."""
    found: dict[tuple[str, str, str], list[Case]] = {}
    for one in listed:
        for network, weights, data, each, seed in product(*(part.split(",") for part in one.split(":"))):
            case = Case(network, weights, data, int(each) or None, int(seed), BUDGETS.get(data, "128KB"))
            found.setdefault((network, weights, data), []).append(case)
    return found


def run(cases: list[Case], path: str, output: Path, device: str, end: float) -> None:
    """Measure the cases of one network and one data set."""
    data, first = load_data(path), cases[0]
    graph = graph_of(first.network, first.weights)
    candidates = offered(first, graph, len(data.classes), (PUBLISHED,))

    def prepared(case: Case) -> Bed:
        return bed_of(case, graph, data, candidates, device)

    with ThreadPoolExecutor(2) as pool, gzip.open(output, "wt") as file:
        for arm in measure(list(pool.map(prepared, cases)), device, end):
            file.write(json.dumps(asdict(arm)) + "\n")


def show(found: list[Outcome]) -> None:
    shown = Table(*COLUMNS)
    for row in rows(found):
        shown.add_row(*row)
    console = Console(width=180)
    console.print(shown)
    for line in verdicts(found):
        console.print(line)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--data", metavar="NAME=PATH", action="append", default=[], help="where a data set lies")
    parser.add_argument(
        "--cases", nargs="+", default=[], metavar="NETWORK:WEIGHTS:SET:EACH:SEED", help="lists by commas"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--page", action="store_true", help="write docs/results/own-data.md from the results")
    parser.add_argument("--gains", action="store_true", help="show what kinds of candidates gain over the head")
    tolerance = "of expected gain, within which the cheapest is kept"
    parser.add_argument("--tolerance", type=float, default=0.0, metavar="POINTS", help=tolerance)
    given = parser.parse_args()
    paths, context, end = (
        dict(one.split("=", 1) for one in given.data),
        get_context("spawn"),
        math.inf if given.device == "host" else time.time() + SECONDS,
    )
    processes = []
    for key, some in cases_of(given.cases).items():
        name = "-".join((*key, *dict.fromkeys(f"{case.each or 'all'}-{case.seed}" for case in some)))
        output = RESULTS / f"{name}.jsonl.gz"
        processes.append(context.Process(target=run, args=(some, paths[key[2]], output, given.device, end)))
        processes[-1].start()
    for process in processes:
        process.join()
    found = read(RESULTS)
    if given.page:
        PAGE.write_text(page(found))
    if given.gains:
        for few in (True, False):
            for kind, by_rate in gains(found, few).items():
                listed = ", ".join(f"{rate:g}: {gain:+.1f}" for rate, gain in by_rate.items())
                print(f"{'five' if few else 'twenty'} of a class, {' then '.join(kind)}: {listed}")
        return
    report(list(outcomes(found, given.tolerance / 100)), show, given.json)


if __name__ == "__main__":
    start(main)
