"""What a search that trusts measurements more or less finds on one analysis, judged by another of other seeds.

Schemes are searched, analytically and with 12 bits, on one of two analyses of a network, and their gains are summed up
as the other measured them, which chose nothing. The mean of eight budgets, both ways round.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import NETWORKS, arguments_of, report, start
from smidgen.selection.contributions import Contributions, read_contributions
from smidgen.selection.smoothing import smoothed
from smidgen.zoo import load_zoo

ANALYSES = Path(__file__).parent / "results" / "analyses"
BUDGETS = ("40KB", "50KB", "60KB", "80KB", "100KB", "120KB", "150KB", "200KB")
CAUTIONS = (None, 0.0, 0.5, 1.0, 1.5, 2.0)  # None: measurements as they are


@dataclass(frozen=True)
class Row:
    """Points of top-1 that schemes gain by the other analysis, and how many layers' weights they train."""

    network: str
    caution: float | None
    gain: float
    layers: float


def judge(network: str, caution: float | None) -> Row:
    first, second = (read_contributions(ANALYSES / f"{network}-16-epochs-seed-{seed}.json") for seed in (0, 1))
    found = list(_found(network, caution, ((first, second), (second, first))))
    gains, layers = zip(*found, strict=True)
    return Row(network, caution, 100 * statistics.fmean(gains), statistics.fmean(layers))


def _found(
    network: str, caution: float | None, ways: tuple[tuple[Contributions, Contributions], ...]
) -> Iterator[tuple[float, int]]:
    graph = load_zoo(network)
    for chosen_by, judged_by in ways:
        trusted = chosen_by if caution is None else smoothed(chosen_by, caution)
        final = replace(trusted, conditions=replace(trusted.conditions, seeds=()))  # which searches take as it is
        for budget in BUDGETS:
            scheme = sm.search(graph, final, budget, options=sm.Options(196, 12), analytic=True).scheme
            yield judged_by.predict_gain(scheme), len(scheme.weights)


def show(rows: list[Row]) -> None:
    table = Table(title="Searched on one analysis, summed up by the other: points of top-1 (layers trained)")
    table.add_column("network")
    for caution in CAUTIONS:
        table.add_column("as measured" if caution is None else f"fit less {caution:g}", justify="right")
    for network in dict.fromkeys(row.network for row in rows):
        cells = [f"{row.gain:.2f} ({row.layers:.1f})" for row in rows if row.network == network]
        table.add_row(network, *cells)
    Console().print(table)


def main() -> None:
    given = arguments_of(__doc__).parse_args()
    report([judge(network, caution) for network in NETWORKS for caution in CAUTIONS], show, given.json)


if __name__ == "__main__":
    start(main)
