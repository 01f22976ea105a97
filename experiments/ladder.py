"""The paper's figure of peak memory, planned: from the full update down to the sparse one with all optimizations.

Full update and a sparse scheme as a framework runs them: the gradients of all weights first, updates last, every
result in memory of its own. Then updates as soon as their gradient exists and fused with it, masks and channels saved
as soon as their tensor exists, results in place of what is done with. Each with every map held whole, with the early
layers run row by row, and with the image handed over by rows too. All figures are state and arena together, 8-bit
weights, a float32 head, 10 classes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from smidgen import memory
from smidgen.errors import PlanError
from smidgen.ir import Graph
from smidgen.ir.rewriting import prune
from smidgen.memory import Buffer, ordering, streaming
from smidgen.memory.rows import WHOLE, Schedule
from smidgen.memory.streaming import PlannedSchedule
from smidgen.results.memory import kinds_of
from smidgen.targets import find
from smidgen.training import Options, build_training, passes
from smidgen.training.passes import Pass
from smidgen.training.scheme import load_scheme

Image = Literal["whole", "buffered", "streamed"]  # every map whole; early layers row by row; and the image by rows
OPTIONS = Options(classes=10, weight_bits=8)
UNORDERED: tuple[Pass, ...] = (prune, passes.share, passes.slice_channels)
WORKING = find("cortex-m7").working
IMAGES: tuple[Image, ...] = ("whole", "buffered", "streamed")


@dataclass(frozen=True)
class Planned:
    """The plan of one training step, in bytes."""

    image: Image
    state: int
    arena: int
    lower_bound: int  # of the arena
    seconds: float  # to choose what is streamed, plan, and check the plan
    at_peak: dict[str, int]  # bytes alive where most are, by what they hold; what shares memory counts for each

    @property
    def total(self) -> int:
        return self.state + self.arena

    @property
    def gap(self) -> float:
        """How far state and arena lie above what no plan of this order can go below."""
        return self.total / (self.state + self.lower_bound) - 1


@dataclass(frozen=True)
class Rung:
    """One way to run a step, with each way to take the image."""

    name: str
    plans: tuple[Planned | None, ...]  # in the order of IMAGES; None where the backward pass reads the image again


@dataclass(frozen=True)
class Ladder:
    """A network's rungs, from the full update down."""

    network: str
    rungs: tuple[Rung, ...]

    def reduction(self) -> float:
        """The most over the least."""
        totals = [p.total for rung in self.rungs for p in rung.plans if p is not None]
        return max(totals) / min(totals)


def ladder(graph: Graph, scheme: str) -> Ladder:
    """The rungs of a network, the sparse ones with this scheme."""
    full, sparse = step(graph, "full"), step(graph, scheme)
    rungs = (
        ("full update", passes.run(full, UNORDERED), False),
        (f"sparse update, {scheme}", passes.run(sparse, UNORDERED), False),
        ("+ reordered, fused, in place", passes.run(sparse), True),
    )
    return Ladder(
        graph.name,
        tuple(Rung(name, tuple(_possible(one, image, in_place) for image in IMAGES)) for name, one, in_place in rungs),
    )


def _possible(graph: Graph, image: Image, in_place: bool) -> Planned | None:
    try:
        return plan_step(graph, image, in_place)
    except PlanError:
        return None


def step(graph: Graph, scheme: str) -> Graph:
    """A training step; one image is enough, as its first exponents take the same memory whatever they are."""
    type_ = graph.image.type
    image = np.random.default_rng(0).integers(-100, 101, type_.shape).astype(type_.dtype)
    return build_training(graph, load_scheme(scheme, graph), OPTIONS, (image,)).step


def plan_step(graph: Graph, image: Image, in_place: bool = True) -> Planned:
    """A step's memory; where not `in_place`, no result takes the place of another."""
    began = time.perf_counter()
    best = _lay_out(graph, image, in_place)
    memory.check(best.graph, best.plan, best.schedule, working=WORKING)
    seconds = time.perf_counter() - began
    alive = best.plan.at_peak()
    at_peak: Counter[str] = Counter()
    for buffer, kind in zip(alive, kinds_of(best.graph, alive), strict=True):
        at_peak[_held(buffer, kind)] += buffer.bytes
    return Planned(image, memory.state_bytes(graph), best.peak, best.plan.lower_bound, seconds, dict(at_peak))


def _held(buffer: Buffer, kind: str) -> str:
    """Gradients of weights are int32 sums, those of maps int8."""
    whole = bool(buffer.values) and kind == "gradient" and buffer.values[0].type.dtype == "int32"
    return "gradients of weights" if whole else kind


def _lay_out(graph: Graph, image: Image, in_place: bool) -> PlannedSchedule:
    streamed = image == "streamed"
    if in_place:
        plans = (
            streaming.lay_out(one, working=WORKING)
            if image == "whole"
            else streaming.stream_rows(one, streamed, working=WORKING)
            for one in ordering.candidates(graph, working=WORKING)
        )
        return min(plans, key=lambda layout: layout.peak)
    schedule = WHOLE
    if image != "whole":
        groups = streaming.groups_of(graph, streamed, WORKING)
        schedule = streaming.choose(graph, groups, WORKING, overlaps=False)
    buffers = memory.buffers(graph, schedule, working=WORKING)
    return PlannedSchedule(graph, schedule, memory.packed(tuple(apart(graph, schedule, buffers))))


def apart(graph: Graph, schedule: Schedule, buffers: tuple[Buffer, ...]) -> Iterator[Buffer]:
    """Buffers divided where one value takes the place of another; views stay with what they show."""
    made = {v: (i, node) for i, node in enumerate(graph.nodes) for v in node.outs}
    last = {v: schedule.span(i)[1] for i, node in enumerate(graph.nodes) for v in node.ins}
    for buffer in buffers:
        parts: list[Buffer] = []
        for value in buffer.values:
            index, node = made.get(value, (0, None))
            start, end = schedule.span(index)
            end = buffer.end if value in graph.outputs else last.get(value, end)
            if parts and node is not None and node.op.view:
                parts[-1] = replace(parts[-1], end=max(parts[-1].end, end), values=(*parts[-1].values, value))
            else:
                parts.append(Buffer(value.name, schedule.bytes(value), start, end, (value,)))
        yield from parts or (buffer,)
