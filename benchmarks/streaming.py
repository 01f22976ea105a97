"""How long it takes to choose what runs row by row: chains of convolutions, and a network with residual blocks.

    python benchmarks/streaming.py [--json]

Images of 128 by 128 pixels, handed over by rows. Seconds of this process: to choose the groups, to choose and pack with
maps that overlap and without, and to check the plan.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from rich.console import Console
from rich.table import Table

from shared import arguments_of, report
from smidgen import memory
from smidgen.ir import Builder, Graph, QParams, Type, Value
from smidgen.memory import streaming
from smidgen.ops import Add, Conv2D, Depthwise
from smidgen.targets.finding import find

CHAINS = (20, 40, 80, 160)
LAYERS = 100  # of the residual network
Q = QParams.per_tensor(0.05)
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


def chain(nodes: int, size: int = 128) -> Graph:
    """Convolutions of 3 by 3, one behind another; every tenth, while the map is large, halves it."""
    g = Builder(f"chain of {nodes}")
    x = g.input("x", Type((1, size, size, 3), "int8", Q))
    for index in range(nodes):
        x = conv(g, x, 4, 3, stride=2 if index % 10 == 0 and x.type.shape[1] > 8 else 1)
    return g.graph(x)


def residual_network(layers: int, size: int = 128) -> Graph:
    """MobileNet-like: blocks of expand, depthwise and project, three of four with the input added to the result."""
    g = Builder(f"residual network of {layers}")
    x = conv(g, g.input("x", Type((1, size, size, 3), "int8", Q)), 8, 3, stride=2)
    block, emitted = 0, 1
    while emitted < layers:
        halve = block % 4 == 0 and x.type.shape[1] > 8
        y = depthwise(g, conv(g, x, 3 * x.type.shape[3]), stride=2 if halve else 1)
        y = conv(g, y, 16 if halve and x.type.shape[3] < 16 else x.type.shape[3])
        adds = y.type.shape == x.type.shape
        x = g.emit(Add(), x, y, q=Q) if adds else y
        block, emitted = block + 1, emitted + 3 + adds
    return g.graph(x)


def conv(g: Builder, x: Value, out: int, k: int = 1, stride: int = 1, pad: int | None = None) -> Value:
    """A convolution whose weights are all alike."""
    w = g.constant("w", np.ones((out, k, k, x.type.shape[3]), np.int8), QParams.per_tensor(0.01))
    b = g.constant("b", np.zeros(out, np.int32))
    around = k // 2 if pad is None else pad
    return g.emit(Conv2D((stride, stride), (around,) * 4), x, w, b, q=Q)


def depthwise(g: Builder, x: Value, stride: int = 1) -> Value:
    """A depthwise convolution of 3 by 3 whose weights are all alike."""
    channels = x.type.shape[3]
    w = g.constant("w", np.ones((1, 3, 3, channels), np.int8), QParams.per_tensor(0.01))
    b = g.constant("b", np.zeros(channels, np.int32))
    return g.emit(Depthwise((stride, stride), (1, 1, 1, 1)), x, w, b, q=Q)


def measure(graph: Graph) -> Measured:
    times = [time.process_time()]
    streaming.choose(graph, streamed_input=True, working=WORKING)
    times.append(time.process_time())
    layout = streaming.stream_rows(graph, streamed_input=True, working=WORKING)
    times.append(time.process_time())
    memory.check(layout.graph, layout.plan, layout.schedule, working=WORKING)
    times.append(time.process_time())
    choose, plan, check = (b - a for a, b in pairwise(times))
    groups, bound = len(layout.schedule.groups), layout.plan.lower_bound
    return Measured(graph.name, len(graph.nodes), groups, choose, plan, check, layout.peak, bound)


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
