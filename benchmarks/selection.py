"""Searched schemes beside published ones, predicted gains beside real ones: what is missing is measured, then shown.

Results are kept in a file as fleets of runs are done: a command that was stopped goes on where it was. `--plan` says
what is left to do, `--page` writes docs/results/schemes.md from the results alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from paper import FLEET, NETWORKS, measure, plan, refuse, show_plan
from paper import RESULTS as PAPER

sys.path.append(str(Path(__file__).parents[1]))
from experiments.paper.cells import Table
from experiments.paper.fleets import unbuilt
from experiments.paper.page import ShownTable, show
from experiments.paper.runs import Build, Footprint, Outcome, Run
from experiments.paper.sources import DataSets, network_of
from experiments.paper.store import Store, finite_json
from experiments.paper.tables import Settings
from experiments.searched import NAMES, Searched, needed, predictions, read_searched
from experiments.searched_page import page, read_measured, section, tables
from smidgen.errors import InputError, SmidgenError
from smidgen.selection.contributions import Contributions

TOP = Path(__file__).parents[1]
RESULTS = TOP / "benchmarks" / "results" / "selection.jsonl"
SCHEMES = TOP / "benchmarks" / "results" / "schemes"
CONTRIBUTIONS = TOP / "src" / "smidgen" / "zoo" / "contributions"
PAGE = TOP / "docs" / "results" / "schemes.md"


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="*", choices=(*NAMES, "all", []), metavar="TABLE", help=", ".join(NAMES))
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    parser.add_argument("--page", action="store_true", help="write docs/results/schemes.md from the results")
    parser.add_argument("--search", action="store_true", help="search the schemes anew, from the contributions")
    parser.add_argument("--plan", action="store_true", help="say how much is left to do, and do nothing")
    parser.add_argument("--show", action="store_true", help="show what there is, measure nothing")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file in which results are kept")
    parser.add_argument("--schemes", type=Path, default=SCHEMES, help="the folder of searched schemes")
    parser.add_argument("--contributions", type=Path, default=CONTRIBUTIONS, help="the folder of contributions")
    parser.add_argument("--device", default="cuda", help="cuda, cpu, or host: devices in C, the rest on cpu")
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME=PATH", help="where a data set lies; may be repeated"
    )
    parser.add_argument("--sets", nargs="+", metavar="NAME", help="these data sets alone")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=["mcunet-5fps"])
    parser.add_argument("--epochs", type=int, help="instead of each data set's own")
    parser.add_argument("--seeds", type=int, help="how many, instead of each table's own")
    parser.add_argument("--rates", type=float, nargs="+", help="of a batch of 256, instead of each table's own")
    parser.add_argument("--limit", type=int, help="learn from and test with so many images only")
    parser.add_argument("--fleet", type=int, default=FLEET, help=f"runs at once, at most; {FLEET} unless given")
    parser.add_argument(
        "--budget-minutes", type=float, default=float("inf"), help="be done after so long, as far as one can tell"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that compile programs")
    parser.add_argument("--only", choices=("runs", "memory"), help="what needs a GPU, or what does not")
    parser.set_defaults(together=True)  # every rate with every seed: both sides of a comparison have the same choice
    return parser


def settings_of(given: argparse.Namespace) -> Settings:
    for what in ("epochs", "seeds", "limit", "fleet", "workers"):
        if getattr(given, what) is not None and getattr(given, what) < 1:
            raise InputError(f"--{what} is {getattr(given, what)}; give 1 or more")
    return Settings(
        tuple(given.networks), tuple(given.sets) if given.sets else None, given.epochs,
        tuple(range(given.seeds)) if given.seeds else None, tuple(given.rates) if given.rates else None, given.limit,
    )  # fmt: skip


def search_schemes(given: argparse.Namespace, measured: dict[str, Contributions]) -> None:
    """Write the schemes that the tables hold against published ones."""
    from experiments.searching import budgets, search_for, write_scheme  # here, because it needs the board's tools

    for network in given.networks:
        if network not in measured:
            raise InputError(f"there are no contributions of {network} in {given.contributions}; measure them first")
        for budget in budgets(network):
            found = search_for(network_of(network), measured[network], budget)
            write_scheme(given.schemes, network, budget, found)
            print(f"{budget}: {found}\n", file=sys.stderr, flush=True)


def known_already(chosen: tuple[Table, ...], store: Store) -> tuple[dict[Run, Outcome], dict[Build, Footprint]]:
    """What the paper's tables have measured, and these need, is not measured again."""
    if not PAPER.exists():
        return {}, {}
    known = Store(PAPER)
    runs = {run: known.runs[run] for run in needed(chosen) if run in known.runs and run not in store.runs}
    return runs, {build: known.builds[build] for build in unbuilt(chosen, store) if build in known.builds}


def print_tables(
    shown: tuple[ShownTable, ...], store: Store, searched: tuple[Searched, ...], measured: dict[str, Contributions],
    as_json: bool,
) -> None:  # fmt: skip
    if not as_json:
        for one in shown:
            print("\n".join(section(one, store.runs, searched, measured)))
        return
    plain = []
    for one in shown:
        told = predictions(measured[one.table.network], store.runs) if one.table.name == "predictions" else None
        plain.append(
            {
                "table": one.table.name,
                "network": one.table.network,
                "cells": [asdict(cell) for cell in one.cells],
                "memory": [{"row": row, **asdict(b), **(asdict(f) if f else {})} for row, b, f in one.footprints],
                "predictions": asdict(told) if told else None,
            }
        )
    print(json.dumps(finite_json(plain), indent=2, allow_nan=False))


def work(given: argparse.Namespace) -> None:
    store, measured = Store(given.results), read_measured(given.contributions)
    if given.search:
        search_schemes(given, measured)
    searched = read_searched(given.schemes)
    chosen = tables(NAMES if "all" in given.table else given.table, settings_of(given), searched, measured)
    runs, builds = known_already(chosen, store)
    if given.plan:
        store.runs.update(runs)
        store.builds.update(builds)
        due = plan(chosen, store, DataSets(given.data), given.fleet, given.together)
        if given.json:
            print(json.dumps([asdict(one) for one in due], indent=2))
        else:
            show_plan(due, len(unbuilt(chosen, store)))
        return
    if chosen and not given.show:
        if runs or builds:
            store.add(runs, builds)
        measure(chosen, store, given)
    if given.page:
        PAGE.write_text(page(store.runs, store.builds, searched, measured))
    print_tables(show(chosen, store.runs, store.builds), store, searched, measured, given.json)


def main() -> None:
    parser = arguments()
    given = parser.parse_args()
    if not (given.table or given.page or given.search):
        parser.error(f"name a table ({', '.join(NAMES)} or all), or give --page or --search")
    try:
        work(given)
    except SmidgenError as error:
        refuse(error)
    except KeyboardInterrupt:
        refuse(InputError(f"stopped; what was finished is in {given.results}"))


if __name__ == "__main__":
    main()
