"""How long it takes to choose what runs row by row: chains of convolutions, and a network with residual blocks.

    python benchmarks/streaming.py [--json]

Images of 128 by 128 pixels, handed over by rows. Seconds of this process: to choose the groups, to choose and pack with
maps that overlap and without, and to check the plan.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shared import arguments_of, report
from smidgen import memory
from smidgen.ir import Graph
from smidgen.memory import streaming
from smidgen.targets import find

sys.path.append(str(Path(__file__).parents[1]))
from experiments.chains import chain, residual_network

CHAINS = (20, 40, 80, 160)
LAYERS = 100  # of the residual network
WORKING = find("cortex-m7").working


@dataclass(frozen=True)
class Measured:
    """Seconds for one network, and the bytes of its arena."""

    network: str
    nodes: int
    groups: int
    choose: float
    plan: float
    check: float
    arena: int
    lower_bound: int


def networks() -> Iterator[Graph]:
    yield from (chain(nodes) for nodes in CHAINS)
    yield residual_network(LAYERS)


def measure(graph: Graph) -> Measured:
    times = [time.process_time()]
    groups = streaming.groups_of(graph, streamed_input=True, working=WORKING)
    streaming.choose(graph, groups, WORKING, overlaps=True)
    times.append(time.process_time())
    layout = streaming.stream_rows(graph, streamed_input=True, working=WORKING)
    times.append(time.process_time())
    memory.check(layout.graph, layout.plan, layout.schedule, working=WORKING)
    times.append(time.process_time())
    choose, plan, check = (b - a for a, b in pairwise(times))
    count, bound = len(layout.schedule.groups), layout.plan.lower_bound
    return Measured(graph.name, len(graph.nodes), count, choose, plan, check, layout.peak, bound)


def show(results: list[Measured]) -> None:
    table = Table("", "nodes", "groups", "choose", "choose and pack", "check", "arena", "bound")
    for r in results:
        seconds = (f"{number:.2f} s" for number in (r.choose, r.plan, r.check))
        table.add_row(r.network, str(r.nodes), str(r.groups), *seconds, f"{r.arena:,}", f"{r.lower_bound:,}")
    Console(width=None if Console().is_terminal else 130).print(table)


def main() -> None:
    arguments = arguments_of(__doc__).parse_args()
    report([measure(graph) for graph in networks()], show, arguments.json)


if __name__ == "__main__":
    main()
