"""The cost of a program on an emulated board: memory, instructions, and whether its bytes are right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from smidgen.errors import InputError
from smidgen.ir import Graph
from smidgen.memory import PeakParts
from smidgen.memory.peak import PeakPart
from smidgen.pipeline import Program
from smidgen.results.comparing import Exactness, check_learned, check_request, compare, random_inputs
from smidgen.results.flash import FlashPart, flash_parts
from smidgen.targets.boards import Clock, shown_time
from smidgen.targets.device import restart

NOTE = "Instructions are not cycles: a chip may issue two at a time, and waits for its flash."


@dataclass(frozen=True)
class Sram:
    """Bytes of SRAM in use."""

    arena: int
    state: int
    other: int  # static data besides
    stack: int  # at its deepest
    stack_bound: int  # which no run exceeds: every frame of the program, along its deepest calls


@dataclass(frozen=True)
class Flash:
    """Bytes of flash in use, and what holds them."""

    code: int
    constants: int
    parts: tuple[FlashPart, ...]


@dataclass(frozen=True)
class InstructionCost:
    """What a node, or all nodes of an op, take in one step, or in one run of a program that only infers."""

    name: str
    op: str
    nodes: int
    macs: int
    instructions: int


@dataclass(frozen=True)
class Instructions:
    """Instructions of a prediction and of a training step, from call to return."""

    forward: int
    step: int | None  # None where the program only infers
    between: int  # of these, outside the kernels
    by_op: tuple[InstructionCost, ...]  # most first
    by_node: tuple[InstructionCost, ...]  # in order

    @property
    def whole(self) -> int:
        """What `by_op` and `by_node` divide up."""
        return self.forward if self.step is None else self.step


@dataclass(frozen=True)
class TimeEstimate:
    """About how long the instructions take, and what that takes for granted."""

    forward_ms: float
    step_ms: float | None  # None where the program only infers
    mhz: int
    instructions_per_cycle: float

    def __str__(self) -> str:
        step = "" if self.step_ms is None else f", training step {shown_time(self.step_ms)}"
        return f"forward {shown_time(self.forward_ms)}{step} {Clock(self.mhz, self.instructions_per_cycle)}"


def estimate_time(clock: Clock, forward: int, step: int | None) -> TimeEstimate:
    """The times of a prediction and a step of so many instructions."""
    taken = None if step is None else clock.milliseconds(step)
    return TimeEstimate(clock.milliseconds(forward), taken, clock.mhz, clock.per_cycle)


@dataclass(frozen=True)
class PlannedArena:
    """The plan's arena."""

    peak_bytes: int
    lower_bound_bytes: int
    at_peak: PeakParts


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
    instructions: Instructions
    time: TimeEstimate
    plan: PlannedArena
    exact: Exactness

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
            f"plan          {self.plan.peak_bytes:>11,} bytes; no plan for this order of nodes needs less than "
            f"{self.plan.lower_bound_bytes:,}",
            f"at its peak   {self.plan.at_peak}",
            f"instructions  forward {i.forward:,}{step}",
            f"time          {self.time}: an estimate",
            str(self.exact),
            NOTE,
        ]
        return Group(_table(f"{self.model} on {self.target}", i.by_op, i), "", *map(Text, lines))

    def layers(self) -> Table:
        """Node by node."""
        return _table(f"{self.model} on {self.target}, node by node", self.instructions.by_node, self.instructions)


def profile_from(plain: dict[str, Any]) -> Profile:
    """A profile out of the JSON that it was written as."""
    flash, counts, plan = plain["flash"], plain["instructions"], plain["plan"]
    by_op, by_node = (tuple(InstructionCost(**one) for one in counts[key]) for key in ("by_op", "by_node"))
    parts = (PeakPart(**{**one, "tensors": tuple(one["tensors"])}) for one in plan["at_peak"]["parts"])
    at_peak = {**plan["at_peak"], "parts": tuple(parts)}
    return Profile(**{
        **plain,
        "sram": Sram(**plain["sram"]),
        "flash": Flash(**{**flash, "parts": tuple(FlashPart(**one) for one in flash["parts"])}),
        "instructions": Instructions(**{**counts, "by_op": by_op, "by_node": by_node}),
        "time": TimeEstimate(**plain["time"]),
        "plan": PlannedArena(**{**plan, "at_peak": PeakParts(**at_peak)}),
        "exact": Exactness(**plain["exact"]),
    })  # fmt: skip


def _table(title: str, costs: tuple[InstructionCost, ...], instructions: Instructions) -> Table:
    table = Table(title=Text(title), title_justify="left", show_footer=True, box=None, pad_edge=False)
    macs = sum(cost.macs for cost in costs)
    table.add_column("op", "total", overflow="fold")
    table.add_column("nodes", f"{sum(cost.nodes for cost in costs)}", justify="right")
    table.add_column("MACs", f"{macs:,}", justify="right")
    table.add_column("instructions", f"{instructions.whole:,}", justify="right")
    table.add_column("share", justify="right")
    table.add_column("per MAC", _ratio(instructions.whole, macs), justify="right")
    for cost in costs:
        share = f"{cost.instructions / max(instructions.whole, 1):.1%}"
        count, used = f"{cost.macs:,}" if cost.macs else "", f"{cost.instructions:,}"
        name = cost.op if cost.name == cost.op else f"{cost.name} {cost.op}"
        table.add_row(name, str(cost.nodes), count, used, share, _ratio(cost.instructions, cost.macs))
    table.add_row("between kernels", "", "", f"{instructions.between:,}", "", "")
    return table


def _ratio(instructions: int, macs: int) -> str:
    return f"{instructions / macs:.2f}" if macs else ""


def profile(program: Program, steps: int = 3, seed: int = 0) -> Profile:
    """Run a program on its emulated board: one prediction, then `steps` steps beside the reference."""
    from smidgen.targets.firmware import BoardDevice  # here, because an emulator takes a while to import

    check_request(steps, seed)
    with program.start() as device:
        if not isinstance(device, BoardDevice):
            raise InputError(f"instructions are not counted on {program.target.name}; name a board, such as cortex-m7")
        rng = np.random.default_rng(seed)
        device.predict(*random_inputs(program.graph.prediction_inputs, rng))
        forward = device.counts()
        restart(device)
        exact = compare(program, device, steps, rng)
        if program.training:
            check_learned(device)
        counts, memory = device.counts() if program.training else forward, device.memory()
    by_node = tuple(_node_costs(program.graph, counts.by_node))
    step = counts.total if program.training else None
    return Profile(
        model=program.graph.name,
        target=program.target.name,
        compiler=device.compiler,
        streamed_input=program.sources.streamed_input,
        sram_bytes=memory.sram,
        sram=Sram(memory.arena, memory.state, memory.other, memory.stack, memory.stack_bound),
        flash_bytes=memory.flash,
        flash=Flash(memory.code, memory.constants, flash_parts(program, device.image)),
        instructions=Instructions(forward.total, step, counts.between, _costs_by_op(by_node), by_node),
        time=estimate_time(device.clock, forward.total, step),
        plan=PlannedArena(program.plan.peak, program.plan.lower_bound, program.memory.at_peak),
        exact=exact,
    )


def _node_costs(graph: Graph, instructions: tuple[int, ...]) -> Iterator[InstructionCost]:
    for node, count in zip(graph.nodes, instructions, strict=True):
        if count:  # a view runs no code
            yield InstructionCost(node.outs[0].name, node.op.title, 1, node.op.macs(node), count)


def _costs_by_op(costs: tuple[InstructionCost, ...]) -> tuple[InstructionCost, ...]:
    """By op, the most instructions first."""
    groups: dict[str, list[InstructionCost]] = {}
    for cost in costs:
        groups.setdefault(cost.op, []).append(cost)
    sums = (
        InstructionCost(op, op, len(group), sum(c.macs for c in group), sum(c.instructions for c in group))
        for op, group in groups.items()
    )
    return tuple(sorted(sums, key=lambda cost: -cost.instructions))
