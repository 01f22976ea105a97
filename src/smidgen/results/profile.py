"""The cost of a program: memory and instructions on an emulated board, or time on this machine, by op and by node."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from rich.console import Group
from rich.text import Text

from smidgen.codegen.spelling import identifiers
from smidgen.errors import InputError
from smidgen.ir import Array, Graph
from smidgen.memory import Memory, Sram
from smidgen.pipeline import Program
from smidgen.results import comparison
from smidgen.tables import Cell, Table, counted
from smidgen.targets.boards import Clock, shown_time
from smidgen.targets.device import restart
from smidgen.targets.host import Host, TimedDevice, start_timed
from smidgen.targets.image import Image, Symbol

NOTE = "Instructions are not cycles: a chip may issue two at a time, and waits for its flash."
TIME_NOTE = "Medians of a machine that does other things, too: compare shares, and times of one run."
WARM_UP = 5  # runs before the clock counts
REST = "vectors and padding"
TABLES = {  # by the beginning of their names, after the program's prefix
    "multiplier": "multipliers", "shift": "shifts", "correction": "corrections of factors", "order": "orders of rows",
    "channel": "numbers of channels",
}  # fmt: skip


@dataclass(frozen=True)
class _Cost:
    """The cost of a node, or of all nodes of an op, in one step, or in one run of a program that only infers."""

    name: str
    op: str
    nodes: int
    macs: int
    unit: ClassVar[str]
    rate: ClassVar[str]
    form: ClassVar[str]

    @property
    def title(self) -> str:
        return self.op if self.name == self.op else f"{self.name} {self.op}"


@dataclass(frozen=True)
class InstructionCost(_Cost):
    """A cost in instructions."""

    instructions: int
    unit, rate, form = "Instructions", "Per MAC", ","

    @property
    def amount(self) -> int:
        return self.instructions

    @staticmethod
    def rated(macs: int, amount: float) -> Cell:
        """Return the amount per MAC."""
        return Cell(f"{amount / macs:.2f}", amount / macs)


@dataclass(frozen=True)
class TimeCost(_Cost):
    """A cost in time."""

    microseconds: float
    unit, rate, form = "µs", "MACs per ns", ",.1f"

    @property
    def amount(self) -> float:
        return self.microseconds

    @staticmethod
    def rated(macs: int, amount: float) -> Cell:
        """Return the MACs per nanosecond."""
        return Cell(f"{macs / (1000 * amount):.1f}", macs / amount) if amount else Cell("")


Cost = TypeVar("Cost", InstructionCost, TimeCost)
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Costs(Generic[Cost, Number]):
    """Instructions or microseconds of a prediction and of a training step."""

    forward: Number
    step: Number | None  # None where the program only infers
    between: Number  # of these, outside the kernels
    by_op: tuple[Cost, ...]  # most first
    by_node: tuple[Cost, ...]  # in order

    @property
    def whole(self) -> Number:
        """The amount that `by_op` and `by_node` divide up."""
        return self.forward if self.step is None else self.step

    def table(self, title: str, costs: Sequence[Cost], folded: bool = True) -> Table:
        """Return a row for each of some costs and for what lies between the kernels, and their sums."""
        kind, most = type(costs[0]) if costs else InstructionCost, max((cost.amount for cost in costs), default=1)

        def row(name: str, nodes: int | None, macs: int, amount: float) -> tuple[Cell, ...]:
            share, rate = amount / (self.whole or 1), kind.rated(macs, amount) if macs else Cell("")
            spent = Cell(f"{amount:{kind.form}}", amount, amount / most)
            return Cell(name), counted(nodes), counted(macs or None), spent, Cell(f"{share:.1%}", amount), rate

        rows = [row(cost.title, cost.nodes, cost.macs, cost.amount) for cost in costs]
        rows.append(row("between kernels", None, 0, self.between))
        totals = row("total", sum(cost.nodes for cost in costs), sum(cost.macs for cost in costs), self.whole)
        columns = ("Op", "Nodes", "MACs", kind.unit, "Share", kind.rate)
        return Table(title, columns, tuple(rows), folded, tuple(cell.text for cell in totals))


def count_costs(
    graph: Graph, kind: Callable[..., Cost], forward: Number, step: Number | None, amounts: Sequence[Number]
) -> Costs[Cost, Number]:
    """Return the costs of a program from the amount of each node, with that between the nodes last."""
    by_node = tuple(
        kind(node.outs[0].name, node.op.title, 1, node.op.macs(node), amount)
        for node, amount in zip(graph.nodes, amounts[:-1], strict=True)
        if amount  # a view runs no code
    )
    groups: dict[str, list[Cost]] = {}
    for cost in by_node:
        groups.setdefault(cost.op, []).append(cost)
    sums = (
        kind(op, op, len(group), sum(c.macs for c in group), sum(c.amount for c in group))
        for op, group in groups.items()
    )
    return Costs(forward, step, amounts[-1], tuple(sorted(sums, key=lambda cost: -cost.amount)), by_node)


@dataclass(frozen=True)
class FlashPart:
    """Symbols of one kind."""

    what: str
    symbols: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.what} {self.bytes:,}"


@dataclass(frozen=True)
class Flash:
    """Bytes of flash in use, and what holds them."""

    code: int
    constants: int
    parts: tuple[FlashPart, ...]


@dataclass(frozen=True)
class TimeEstimate:
    """An estimate of the time the instructions take, and its assumptions."""

    forward_ms: float
    step_ms: float | None  # None where the program only infers
    mhz: int
    instructions_per_cycle: float

    def __str__(self) -> str:
        step = "" if self.step_ms is None else f", training step {shown_time(self.step_ms)}"
        return f"forward {shown_time(self.forward_ms)}{step} {Clock(self.mhz, self.instructions_per_cycle)}"


def estimate_time(clock: Clock, forward: int, step: int | None) -> TimeEstimate:
    """Estimate the times of a prediction and a step from their instructions."""
    taken = None if step is None else clock.milliseconds(step)
    return TimeEstimate(clock.milliseconds(forward), taken, clock.mhz, clock.per_cycle)


@dataclass(frozen=True)
class Profile:
    """A program measured on an emulated board."""

    model: str
    target: str
    compiler: str
    streamed_input: bool
    sram_bytes: int
    sram: Sram
    flash_bytes: int
    flash: Flash
    instructions: Costs[InstructionCost, int]
    time: TimeEstimate
    plan: Memory
    exact: comparison.Exactness

    def __rich__(self) -> Group:
        s, f, i = self.sram, self.flash, self.instructions
        step = "" if i.step is None else f", training step {i.step:,}"
        image = "streamed" if self.streamed_input else "buffered"
        lines = [
            f"SRAM          {self.sram_bytes:>11,} bytes: arena {s.arena:,}, state {s.state:,}, other {s.other:,}, "
            f"stack {s.stack:,}; image {image}",
            f"stack         {s.stack_bound:>11,} bytes at most, whatever it runs; built by {self.compiler}",
            f"flash         {self.flash_bytes:>11,} bytes: code {f.code:,}, constants {f.constants:,}",
            f"of it         {', '.join(map(str, f.parts))}",
            f"plan          {self.plan.peak:>11,} bytes; no plan for this order of nodes needs less than "
            f"{self.plan.lower_bound:,}",
            f"at its peak   {self.plan.at_peak}",
            f"instructions  forward {i.forward:,}{step}",
            f"time          {self.time}: an estimate",
            str(self.exact),
            NOTE,
        ]
        return Group(i.table(f"{self.model} on {self.target}", i.by_op), "", *map(Text, lines))

    def as_plain(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        plan = {"peak_bytes": self.plan.peak, "lower_bound_bytes": self.plan.lower_bound}
        return {**asdict(self), "plan": {**plan, "at_peak": asdict(self.plan.at_peak)}}

    def layers(self) -> Table:
        """Show the costs node by node."""
        return self.instructions.table(f"{self.model} on {self.target}, node by node", self.instructions.by_node)


def profile(program: Program, steps: int = 3, seed: int = 0) -> Profile:
    """Run a program on its emulated board: one prediction, then `steps` steps beside the reference."""
    from smidgen.targets.firmware import BoardDevice  # here, because an emulator takes a while to import

    comparison.check_request(steps, seed)
    with program.start() as device:
        if not isinstance(device, BoardDevice):
            raise InputError(f"instructions are not counted on {program.target.name}; name a board, such as cortex-m7")
        rng = np.random.default_rng(seed)
        device.predict(*comparison.random_inputs(program.graph.prediction_inputs, rng))
        forward = device.counts()
        restart(device)
        exact = comparison.compare(program, device, steps, rng)
        if program.training:
            comparison.check_learned(device)
        counts, sram = device.counts() if program.training else forward, device.memory()
    step, image = counts.total if program.training else None, device.image
    code, constants = image.flash_bytes - image.constant_bytes, image.constant_bytes
    return Profile(
        program.graph.name, program.target.name, device.compiler, program.sources.streamed_input, sram.bytes, sram,
        image.flash_bytes, Flash(code, constants, flash_parts(program, image)),
        count_costs(program.graph, InstructionCost, forward.total, step, (*counts.by_node, counts.between)),
        estimate_time(device.clock, forward.total, step), program.memory, exact,
    )  # fmt: skip


WARM = 3  # steps until a head that began at zero sends gradients on


def sample_instructions(program: Program) -> int:
    """Return the instructions that learning one sample takes on an emulated board: by a step, or in one pass."""
    from smidgen.targets.firmware import BoardDevice

    graph, rng = program.graph, np.random.default_rng(0)
    with program.start() as device:
        assert isinstance(device, BoardDevice)
        for step in range(WARM):
            (image,) = comparison.random_inputs(graph.prediction_inputs, rng)
            _, label = comparison.noise_label(graph, step)
            if graph.one_pass is not None:
                device.observe(image, int(label or 0))
            else:
                device.train(image, label, comparison.LEARNING_RATE)
        return device.counts().total


def flash_parts(program: Program, image: Image) -> tuple[FlashPart, ...]:
    """Return what every byte of flash holds, largest first; bytes that no symbol claims come last."""
    graph, prefix = program.graph, program.sources.prefix
    names = identifiers((*graph.inputs, *graph.constants, *graph.state), graph.nodes)
    held = (v for v in (*graph.constants, *graph.state) if v.type.dtype == "int8" and len(v.type.shape) > 1)
    weights = {f"{prefix}_const_{names[v]}" for v in held}
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    first = min(at for at, _ in image.loads)
    for symbol in image.symbols:
        if symbol.bytes and (symbol.is_code or first <= symbol.address < first + image.flash_bytes):
            what = _content(symbol, prefix, weights)
            sizes[what] += symbol.bytes
            counts[what] += 1
    parts = tuple(FlashPart(what, counts[what], size) for what, size in sizes.most_common())
    return (*parts, FlashPart(REST, 0, image.flash_bytes - sum(sizes.values())))


def _content(symbol: Symbol, prefix: str, weights: Iterable[str]) -> str:
    name = symbol.name
    if symbol.is_code:
        return "code of the model" if name.startswith(f"{prefix}_") else "code of kernels and start-up"
    if name in weights:
        return "weights"
    if name.startswith(f"{prefix}_const_"):
        return "biases and other constants"
    kinds = (what for begin, what in TABLES.items() if name.startswith(f"{prefix}_{begin}_"))
    return next(kinds, "parameters and places")


@dataclass(frozen=True)
class TimeProfile:
    """A program timed on this machine, one thread; microseconds from the first kernel's call to the last's return."""

    model: str
    target: str
    compiler: str
    runs: int
    times: Costs[TimeCost, float]
    exact: comparison.Exactness

    def __rich__(self) -> Group:
        t = self.times
        step = "" if t.step is None else f", training step {t.step:,.0f} µs"
        lines = [
            f"time          forward {t.forward:,.0f} µs{step}: medians of {self.runs} runs; built by {self.compiler}",
            str(self.exact),
            TIME_NOTE,
        ]
        return Group(t.table(f"{self.model} on {self.target}", t.by_op), "", *map(Text, lines))

    def layers(self) -> Table:
        """Show the times node by node."""
        return self.times.table(f"{self.model} on {self.target}, node by node", self.times.by_node)


def time_program(program: Program, steps: int = 3, seed: int = 0, runs: int = 50) -> TimeProfile:
    """Run a program on this machine: `steps` steps beside the reference, then `runs` timed predictions and steps."""
    comparison.check_request(steps, seed)
    if runs < 1:
        raise InputError(f"{runs} runs cannot be timed; give 1 or more")
    host = program.target
    if not isinstance(host, Host):
        raise InputError(f"no time is measured on {host.name}, which is emulated; name host")
    rng = np.random.default_rng(seed)
    with start_timed(host, program.graph, program.sources) as device:
        exact = comparison.compare(program, device, steps, rng)
        restart(device)
        arrays = comparison.random_inputs(program.graph.prediction_inputs, rng)
        forward = _median(device, lambda: device.predict(*arrays), runs)
        whole = forward
        if program.training:
            _, label = comparison.noise_label(program.graph, 0)
            whole = _median(device, lambda: device.train(arrays[0], label, comparison.LEARNING_RATE), runs)
            comparison.check_learned(device)
    step = float(whole.sum()) if program.training else None
    times = count_costs(program.graph, TimeCost, float(forward.sum()), step, whole.tolist())
    return TimeProfile(program.graph.name, host.name, host.found_compiler().title, runs, times, exact)


def _median(device: TimedDevice, run: Callable[[], object], runs: int) -> Array:
    """Return the microseconds of each node, and between them: the median over the runs."""
    taken = []
    for _ in range(WARM_UP + runs):
        device.times()
        run()
        taken.append(device.times())
    median: Array = np.median(taken[WARM_UP:], axis=0) / 1000
    return median
