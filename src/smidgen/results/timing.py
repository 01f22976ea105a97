"""Where the time of a program goes on this machine: by op and by node, and whether its bytes are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from smidgen.errors import InputError
from smidgen.ir import Array, Graph, roles_of
from smidgen.ops.losses import example_label
from smidgen.pipeline import Program
from smidgen.results.comparing import LEARNING_RATE, Exactness, check_learned, check_request, compare, random_inputs
from smidgen.targets.device import restart
from smidgen.targets.host import Host
from smidgen.targets.timing import TimedDevice, start_timed

WARM_UP = 5  # runs before the clock counts
NOTE = "Medians of a machine that does other things, too: compare shares, and times of one run."


@dataclass(frozen=True)
class TimeCost:
    """What a node, or all nodes of an op, take in one step, or in one run of a program that only infers."""

    name: str
    op: str
    nodes: int
    macs: int
    microseconds: float


@dataclass(frozen=True)
class Times:
    """Microseconds of a prediction and of a training step, from the first kernel's call to the last one's return."""

    forward: float
    step: float | None  # None where the program only infers
    between: float  # of these, outside the kernels
    by_op: tuple[TimeCost, ...]  # most first
    by_node: tuple[TimeCost, ...]  # in order

    @property
    def whole(self) -> float:
        """What `by_op` and `by_node` divide up."""
        return self.forward if self.step is None else self.step


@dataclass(frozen=True)
class TimeProfile:
    """A program timed on this machine, one thread."""

    model: str
    target: str
    compiler: str
    runs: int
    times: Times
    exact: Exactness

    def __rich__(self) -> Group:
        t = self.times
        step = "" if t.step is None else f", training step {t.step:,.0f} µs"
        lines = [
            f"time          forward {t.forward:,.0f} µs{step}: medians of {self.runs} runs; built by {self.compiler}",
            str(self.exact),
            NOTE,
        ]
        return Group(_table(f"{self.model} on {self.target}", t.by_op, t), "", *map(Text, lines))

    def layers(self) -> Table:
        """Node by node."""
        return _table(f"{self.model} on {self.target}, node by node", self.times.by_node, self.times)


def time_program(program: Program, steps: int = 3, seed: int = 0, runs: int = 50) -> TimeProfile:
    """Run a program on this machine: `steps` steps beside the reference, then `runs` timed predictions and steps."""
    check_request(steps, seed)
    if runs < 1:
        raise InputError(f"{runs} runs cannot be timed; give 1 or more")
    host = program.target
    if not isinstance(host, Host):
        raise InputError(f"no time is measured on {host.name}, which is emulated; name host")
    rng = np.random.default_rng(seed)
    with start_timed(host, program.graph, program.sources) as device:
        exact = compare(program, device, steps, rng)
        restart(device)
        arrays = random_inputs(program.graph.prediction_inputs, rng)
        forward = _median(device, lambda: device.predict(*arrays), runs)
        whole = _median(device, _step(program, device, arrays[0]), runs) if program.training else forward
        if program.training:
            check_learned(device)
    by_node = tuple(_node_costs(program.graph, whole))
    step = float(whole.sum()) if program.training else None
    times = Times(float(forward.sum()), step, float(whole[-1]), _by_op(by_node), by_node)
    return TimeProfile(program.graph.name, host.name, host.found_compiler().title, runs, times, exact)


def _step(program: Program, device: TimedDevice, image: Array) -> Callable[[], object]:
    """A step on one sample."""
    roles = roles_of(program.graph)
    told = example_label(roles.label, roles.logits, 0)
    label = told[0] if told else None
    given = label if label is None or roles.label_kind != "classes" else int(label[0])
    return lambda: device.train(image, given, LEARNING_RATE)


def _median(device: TimedDevice, run: Callable[[], object], runs: int) -> Array:
    """Microseconds of each node, and between them: the median over the runs."""
    taken = []
    for _ in range(WARM_UP + runs):
        device.times()
        run()
        taken.append(device.times())
    median: Array = np.median(taken[WARM_UP:], axis=0) / 1000
    return median


def _node_costs(graph: Graph, times: Array) -> Iterator[TimeCost]:
    for node, taken in zip(graph.nodes, times[:-1].tolist(), strict=True):
        if taken:  # a view runs no code
            yield TimeCost(node.outs[0].name, node.op.title, 1, node.op.macs(node), taken)


def _by_op(costs: tuple[TimeCost, ...]) -> tuple[TimeCost, ...]:
    """By op, the longest first."""
    groups: dict[str, list[TimeCost]] = {}
    for cost in costs:
        groups.setdefault(cost.op, []).append(cost)
    sums = (
        TimeCost(op, op, len(group), sum(c.macs for c in group), sum(c.microseconds for c in group))
        for op, group in groups.items()
    )
    return tuple(sorted(sums, key=lambda cost: -cost.microseconds))


def _table(title: str, costs: tuple[TimeCost, ...], times: Times) -> Table:
    table = Table(title=Text(title), title_justify="left", show_footer=True, box=None, pad_edge=False)
    macs = sum(cost.macs for cost in costs)
    table.add_column("op", "total", overflow="fold")
    table.add_column("nodes", f"{sum(cost.nodes for cost in costs)}", justify="right")
    table.add_column("MACs", f"{macs:,}", justify="right")
    table.add_column("µs", f"{times.whole:,.1f}", justify="right")
    table.add_column("share", justify="right")
    table.add_column("MACs per ns", _rate(macs, times.whole), justify="right")
    for cost in costs:
        count, share = f"{cost.macs:,}" if cost.macs else "", f"{cost.microseconds / max(times.whole, 1e-9):.1%}"
        name = cost.op if cost.name == cost.op else f"{cost.name} {cost.op}"
        rate = _rate(cost.macs, cost.microseconds)
        table.add_row(name, str(cost.nodes), count, f"{cost.microseconds:,.1f}", share, rate)
    table.add_row("between kernels", "", "", f"{times.between:,.1f}", "", "")
    return table


def _rate(macs: int, microseconds: float) -> str:
    return f"{macs / (1000 * microseconds):.1f}" if macs and microseconds else ""
