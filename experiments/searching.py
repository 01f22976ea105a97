"""Schemes searched for the SRAM of published ones, and the files that keep them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import smidgen as sm
from experiments.searched import budget_of, compared
from smidgen.data.files import write_whole
from smidgen.ir import Graph
from smidgen.selection import Contributions, Found, search
from smidgen.selection.searching import Planner
from smidgen.targets import find
from smidgen.targets.boards import parse_size
from smidgen.training.scheme import Scheme, load_scheme

BOARD = "cortex-m7"
PLANNED = sm.Options(classes=10)  # as the memory of the paper's tables
ROUND = "128KB"  # the other budget that is searched for


def budgets(network: str) -> tuple[str, ...]:
    """What schemes are searched for: the SRAM of published ones, and a round number."""
    return (*(budget_of(scheme, bits) for scheme, bits in compared(network)), ROUND)


def budget_bytes(graph: Graph, budget: str) -> int:
    """The SRAM, everything counted, of the published scheme that a budget is named after; or the size it says."""
    name, _, bits = budget.partition("-")
    if not bits:
        return parse_size(budget)
    scheme = replace(load_scheme(name, graph), weight_bits=int(bits.removesuffix("bit")))
    return Planner(graph, find(BOARD), PLANNED, streamed_input=True)(scheme).sram


def search_for(graph: Graph, contributions: Contributions, budget: str) -> Found:
    """The best scheme that takes no more SRAM than a budget allows."""
    return search(graph, contributions, budget_bytes(graph, budget), BOARD, options=PLANNED)


def write_scheme(folder: Path, network: str, budget: str, found: Found, how: str | None = None) -> Scheme:
    """Keep a scheme under the name by which the tables know it."""
    scheme = replace(found.scheme, name=f"searched for {budget}" + (f" by {how}" if how else ""))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{network}-{budget}{f'-by-{how}' if how else ''}.json"
    write_whole(file, f"{scheme.to_json()}\n".encode())
    return scheme
