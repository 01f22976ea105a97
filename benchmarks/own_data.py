"""What `smidgen fit --budget 128KB` keeps, beside the head alone, published and searched schemes, and everything.

Six data sets, with 5 and 20 samples of each class and with all; MCUNet and MobileNetV2 with the ImageNet weights of the
paper and with those of the zoo. The results of each case are kept as it ends, and a case that is known is not run
again. Data sets lie in `../shared/data`; others are given as NAME=PATH (experiments/public_sets.py makes two).
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import arguments_of, report, start
from smidgen.data import Data
from smidgen.ir import Graph
from smidgen.records import from_plain
from smidgen.selection.judging import Recipe

sys.path.append(str(Path(__file__).parents[1]))
from experiments.own_data import Case, Way, offered, ways_of
from experiments.paper.sources import DataSets, network_of

RESULTS = Path(__file__).parent / "results" / "own_data.jsonl"
SETS = ("cifar10", "vww", "flowers102", "cars196", "caltech101", "cartoons")
NETWORKS = {"mcunet-5fps": "49kb", "mbv2-w0.35": "49kb"}  # and the published scheme of the budget, with 12 bits
SEEDS = {"mcunet-5fps": 3, "mbv2-w0.35": 1}
WHOLE = ("cifar10", "vww", "cartoons")  # whose few classes let everything learn in minutes, from 5 samples of each
SETTINGS: dict[str, Any] = {}  # of a process


BUDGETS = {"cars196": "256KB"}  # where 128 KB do not hold the head of MCUNet: 196 classes


def cases(each: Iterable[int | None], weights: Iterable[str], networks: Iterable[str], sets: list[str]) -> list[Case]:
    """Return the cases, those of the first seed first."""
    found = []
    for seed, few, held, network, name in product(range(3), each, weights, networks, sets):
        if seed < (SEEDS[network] if few else 1):
            found.append(Case(network, held, name, few, seed, BUDGETS.get(name, "128KB")))
    return found


def begin(given: list[str]) -> None:
    SETTINGS["sets"] = DataSets(given)


@cache
def graph_of(case: Case) -> Graph:
    return network_of(case.network) if case.weights == "released" else sm.load(case.network)


@cache
def candidates_of(case: Case, classes: int) -> tuple[Recipe, ...]:
    """Return the candidates of a fit, planned once for each network and number of classes."""
    return offered(case, graph_of(replace(case, data="", each=None)), classes)


def run(case: Case) -> list[Way]:
    """Measure every way of a case."""
    whole: Data = SETTINGS["sets"].load(case.data)
    alike = replace(case, data="", each=None, seed=0)
    everything = ("full",) if case.data in WHOLE and case.each == 5 and case.seed == 0 else ()
    found = candidates_of(alike, len(whole.classes))
    return list(ways_of(case, graph_of(alike), whole, found, (NETWORKS[case.network], *everything), 1))


def known(path: Path) -> Iterator[Way]:
    if path.exists():
        for line in path.read_text().splitlines():
            yield from_plain(Way, json.loads(line))


def summed(ways: Iterable[Way]) -> dict[tuple[str, str, str, int | None], dict[str, list[Way]]]:
    """Return the ways by network, weights, data and samples of a class, then by name."""
    found: dict[tuple[str, str, str, int | None], dict[str, list[Way]]] = {}
    for one in ways:
        key = (one.case.network, one.case.weights, one.case.data, one.case.each)
        found.setdefault(key, {}).setdefault(one.way, []).append(one)
    return found


def show(ways: list[Way]) -> None:
    names = list(dict.fromkeys(one.way for one in ways))
    shown = Table("network", "weights", "data", "of a class", *names, "kept")
    for (network, weights, name, each), by_way in sorted(summed(ways).items(), key=str):
        means = [f"{100 * statistics.fmean(w.top1 for w in by_way[n]):.1f}" if n in by_way else "" for n in names]
        kept = ", ".join(dict.fromkeys(one.kept for one in by_way.get("fit", ())))
        shown.add_row(network, weights, name, str(each or "all"), *means, kept)
    Console(width=180).print(shown)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--data", metavar="NAME=PATH", action="append", default=[], help="where a data set lies")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--each", nargs="+", type=int, default=[5, 20, 0], help="samples of a class; 0 for all")
    parser.add_argument("--weights", nargs="+", default=["released", "zoo"], choices=("released", "zoo"))
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=tuple(NETWORKS))
    parser.add_argument("--seeds", type=int, help="instead of three of MCUNet and one of MobileNetV2")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file in which results are kept")
    parser.add_argument("--jobs", type=int, default=2, help="cases at once")
    parser.add_argument("--show", action="store_true", help="show what there is, measure nothing")
    given = parser.parse_args()
    done = list(known(given.results))
    wanted = cases([one or None for one in given.each], given.weights, given.networks, given.sets)
    if given.seeds is not None:
        wanted = [case for case in wanted if case.seed < given.seeds]
    missing = [case for case in wanted if case not in {one.case for one in done}]
    if missing and not given.show:
        begin(given.data)
        for name in dict.fromkeys(case.data for case in missing):
            SETTINGS["sets"].load(name)  # before processes are forked, which share it
        with ProcessPoolExecutor(given.jobs) as pool, given.results.open("a") as file:
            for future in as_completed([pool.submit(run, case) for case in missing]):
                try:
                    ways = future.result()
                except sm.SmidgenError as error:
                    print(error, file=sys.stderr)
                    continue
                file.writelines(json.dumps(asdict(way)) + "\n" for way in ways)
                file.flush()
                done += ways
                print(f"{ways[0].case}: " + ", ".join(f"{w.way} {w.top1:.1%}" for w in ways), file=sys.stderr)
    report(done, show, given.json)


if __name__ == "__main__":
    start(main)
