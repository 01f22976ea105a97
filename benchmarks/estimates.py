"""Cheap estimates of what layers are worth beside measured contributions: how well each ranks the layers.

`--write` keeps what some of them pick, for `benchmarks/selection.py estimates` to measure.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shared import arguments_of, report, start

sys.path.append(str(Path(__file__).parents[1]))
from experiments.estimates import candidates, gather, judge
from experiments.paper.sources import DataSets, network_of
from experiments.searched import ANALYSED, BITS, budget_of, compared
from experiments.searching import search_for, write_scheme
from smidgen.selection.contributions import read_contributions

TOP = Path(__file__).parents[1]
CONTRIBUTIONS = TOP / "src" / "smidgen" / "zoo" / "contributions"
SCHEMES = TOP / "benchmarks" / "results" / "schemes"
PICKING = ("rule", "gradient-excluding", "fisher", "movement-excluding")  # whose picks are measured


@dataclass(frozen=True)
class Row:
    """An estimate's rank correlation with measured contributions, over all layers and over those that widen."""

    network: str
    estimate: str
    every: float
    widening: float


def picked_for(network: str) -> tuple[str, ...]:
    """The SRAM of the published schemes of about 50 and 100 KB, with 12-bit weights."""
    return tuple(budget_of(scheme, bits) for scheme, bits in compared(network) if bits == BITS[0])[:2]


def show(rows: list[Row]) -> None:
    table = Table(title="Spearman's rank correlation with measured contributions, a layer's whole weights")
    for name in ("network", "estimate", "all layers measured", "those that widen"):
        table.add_column(name, justify="right" if "layers" in name or "those" in name else "left")
    for row in rows:
        table.add_row(row.network, row.estimate, f"{row.every:+.2f}", f"{row.widening:+.2f}")
    Console().print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--networks", nargs="+", default=["mcunet-5fps", "mbv2-w0.35"])
    parser.add_argument("--contributions", type=Path, default=CONTRIBUTIONS, help="the folder of measured ones")
    parser.add_argument("--data", action="append", default=[], metavar="NAME=PATH", help="where cars196 lies")
    parser.add_argument("--write", action="store_true", help="also keep the schemes that estimates pick")
    parser.add_argument("--schemes", type=Path, default=SCHEMES, help="the folder to keep them in")
    given = parser.parse_args()
    known = {name: read_contributions(given.contributions / f"{name}.json") for name in given.networks}
    data = DataSets(given.data).load(ANALYSED)
    rows: list[Row] = []
    for network, measured in known.items():
        graph = network_of(network)
        measured.check(graph)
        evidence = gather(graph, data, min(one.layer for one in measured.shares))
        judged = judge(graph, measured, candidates(graph, evidence))
        for one in judged if given.write else ():
            if one.name in PICKING:
                for budget in picked_for(network):
                    found = search_for(graph, one.contributions, budget)
                    write_scheme(given.schemes, network, budget, found, one.name)
        rows += [Row(network, one.name, one.every, one.widening) for one in judged]
    report(rows, show, given.json)


if __name__ == "__main__":
    start(main)
