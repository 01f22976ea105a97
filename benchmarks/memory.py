"""The SRAM a training step takes, planned: the paper's ladder, and every published scheme next to its lower bound.

The ladder is the paper's figure of peak memory. Full update and the ~100 KB sparse scheme as a framework runs them:
the gradients of all weights first, updates last, every result in memory of its own. Then updates as soon as their
gradient exists and fused with it, masks and channels saved as soon as their tensor exists, results in place of what
is done with. Each with every map held whole, with the early layers run row by row, and with the image handed over by
rows too: the paper measured all its settings with patch-based inference of the early layers, so the columns that
stream are the ones to compare. All figures are state and arena together, 8-bit weights, a float32 head, 10 classes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from shared import NETWORKS, released
from smidgen import memory
from smidgen.errors import PlanError
from smidgen.ir import Graph
from smidgen.ir.rewriting import prune
from smidgen.memory import Buffer, ordering, streaming
from smidgen.memory.rows import WHOLE, Schedule
from smidgen.memory.streaming import Layout
from smidgen.results.lifecycle import kinds_of
from smidgen.training import Options, build_training, passes
from smidgen.training.head import layers
from smidgen.training.passes import Pass
from smidgen.training.scheme import PUBLISHED, load_scheme

Image = Literal["whole", "buffered", "streamed"]  # every map whole; early layers row by row; and the image by rows
OPTIONS = Options(classes=10, weight_bits=8)
UNORDERED: tuple[Pass, ...] = (prune, passes.share, passes.slice_channels)
IMAGES: tuple[Image, ...] = ("whole", "buffered", "streamed")
SPARSE = {"mbv2-w0.35": "99kb", "proxyless-w0.3": "98kb", "mcunet-5fps": "99kb"}
PAPER = {  # KB of the full update, and of the sparse one with all graph optimizations
    "mbv2-w0.35": (2939, 141),
    "proxyless-w0.3": (2745, 135),
    "mcunet-5fps": (3650, 173),
}
TARGET_GAP, TARGET_SECONDS = 0.01, 10.0


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


@dataclass(frozen=True)
class Published:
    """One published scheme, with the image handed over by rows and held whole."""

    network: str
    scheme: str
    plans: tuple[Planned, ...]


@dataclass(frozen=True)
class Measured:
    """Everything this benchmark shows."""

    ladders: tuple[Ladder, ...]
    schemes: tuple[Published, ...]


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


def schemes(graph: Graph) -> Iterator[Published]:
    """Every scheme published for a network."""
    for scheme in PUBLISHED[len(layers(graph))]:
        ordered = passes.run(step(graph, scheme))
        yield Published(graph.name, scheme, tuple(plan_step(ordered, image) for image in ("streamed", "buffered")))


def step(graph: Graph, scheme: str) -> Graph:
    """A training step; one image is enough, as its first exponents take the same memory whatever they are."""
    type_ = graph.image.type
    image = np.random.default_rng(0).integers(-100, 101, type_.shape).astype(type_.dtype)
    return build_training(graph, load_scheme(scheme, graph), OPTIONS, (image,)).step


def plan_step(graph: Graph, image: Image, in_place: bool = True) -> Planned:
    """A step's memory; where not `in_place`, no result takes the place of another."""
    began = time.perf_counter()
    best = _lay_out(graph, image, in_place)
    memory.check(best.graph, best.plan, best.schedule)
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


def _lay_out(graph: Graph, image: Image, in_place: bool) -> Layout:
    streamed = image == "streamed"
    if in_place:
        plans = (
            streaming.lay_out(one) if image == "whole" else streaming.stream_rows(one, streamed)
            for one in ordering.candidates(graph)
        )
        return min(plans, key=lambda layout: layout.peak)
    schedule = WHOLE if image == "whole" else streaming.choose(graph, streamed, slides=False)
    buffers = memory.buffers(graph, schedule)
    return Layout(graph, schedule, memory.packed(tuple(apart(graph, schedule, buffers))))


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


def show(measured: Measured) -> None:
    console = Console(width=None if Console().is_terminal else 130)
    for one in measured.ladders:
        console.print(_ladder_table(one))
        full, optimized = PAPER[one.network]
        for rung in one.rungs:
            console.print(f"{rung.name}, every map whole: {_parts(rung.plans[0])}")
        console.print(f"From the most to the least: {one.reduction():.1f}×; the paper's {full / optimized:.1f}×.\n")
    console.print(_scheme_table(measured.schemes))
    plans = [p for scheme in measured.schemes for p in scheme.plans]
    close = sum(p.gap <= TARGET_GAP for p in plans)
    quick = sum(p.seconds < TARGET_SECONDS for p in plans)
    console.print(
        f"{close} of {len(plans)} plans lie within {TARGET_GAP:.0%} of the lower bound, {quick} took under "
        f"{TARGET_SECONDS:.0f} s"
    )


def _ladder_table(one: Ladder) -> Table:
    full, optimized = PAPER[one.network]
    paper = (f"{full:,} KB", "7–9× less", f"{optimized} KB, 2.4–3.2× less")
    table = Table(title=f"Planned SRAM of a training step, {one.network}, in bytes")
    table.add_column()
    for column in ("every map whole", "early layers row by row", "the image by rows, too", "the paper's"):
        table.add_column(column, justify="right")
    above: tuple[Planned | None, ...] = (None,) * len(IMAGES)
    for rung, said in zip(one.rungs, paper, strict=True):
        table.add_row(rung.name, *map(_cell, above, rung.plans), said)
        above = rung.plans
    return table


def _parts(planned: Planned | None) -> str:
    """What is counted."""
    if planned is None:
        return "—"
    parts = {"state": planned.state, **planned.at_peak}
    return ", ".join(f"{what} {size:,}" for what, size in sorted(parts.items(), key=lambda part: -part[1]))


def _cell(above: Planned | None, here: Planned | None) -> str:
    if here is None:
        return "—"
    return f"{here.total:,}" + (f" {above.total / here.total:5.1f}×" if above is not None else "")


def _scheme_table(schemes: tuple[Published, ...]) -> Table:
    table = Table(title="Published schemes: bytes of state, arena, both, their lower bound, gap, seconds to plan")
    for column in ("network", "scheme", "image", "state", "arena", "total", "bound", "gap", "s"):
        table.add_column(column, justify="left" if column in ("network", "scheme", "image") else "right")
    for scheme in schemes:
        for p in scheme.plans:
            bound = p.state + p.lower_bound
            sizes = (f"{size:,}" for size in (p.state, p.arena, p.total, bound))
            table.add_row(scheme.network, scheme.scheme, p.image, *sizes, f"{p.gap:.2%}", f"{p.seconds:.1f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--network", choices=NETWORKS, action="append", help="one of them; all without this")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    ladders: list[Ladder] = []
    published: list[Published] = []
    for network in track(arguments.network or NETWORKS, "planning", console=console, transient=True):
        graph = released(network)
        ladders.append(ladder(graph, SPARSE[network]))
        published += schemes(graph)
    measured = Measured(tuple(ladders), tuple(published))
    if arguments.json:
        print(json.dumps(asdict(measured), indent=2))
    else:
        show(measured)


if __name__ == "__main__":
    main()
