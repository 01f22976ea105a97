"""The SRAM a training step takes, planned: the paper's ladder, and every published scheme next to its lower bound.

`experiments/ladder.py` says what the rungs are. The paper measured all its settings with patch-based inference of the
early layers, so the columns that stream are the ones to compare.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from shared import NETWORKS, arguments_of, released, report
from smidgen.ir import Graph
from smidgen.training import passes
from smidgen.training.published import published_for

sys.path.append(str(Path(__file__).parents[1]))
from experiments.ladder import IMAGES, Image, Ladder, Planned, ladder, plan_step, step

SHOWN: tuple[Image, ...] = ("streamed", "buffered")  # of each published scheme
SPARSE = {"mbv2-w0.35": "99kb", "proxyless-w0.3": "98kb", "mcunet-5fps": "99kb"}
PAPER = {  # KB of the full update, and of the sparse one with all graph optimizations
    "mbv2-w0.35": (2939, 141),
    "proxyless-w0.3": (2745, 135),
    "mcunet-5fps": (3650, 173),
}
TARGET_GAP, TARGET_SECONDS = 0.01, 10.0


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


def schemes(graph: Graph) -> Iterator[Published]:
    """Every scheme published for a network."""
    for scheme in published_for(graph):
        ordered = passes.run(step(graph, scheme))
        yield Published(graph.name, scheme, tuple(plan_step(ordered, image) for image in SHOWN))


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
    parser = arguments_of(__doc__)
    parser.add_argument("--network", choices=NETWORKS, action="append", help="one of them; all without this")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    ladders: list[Ladder] = []
    published: list[Published] = []
    for network in track(arguments.network or NETWORKS, "planning", console=console, transient=True):
        graph = released(network)
        ladders.append(ladder(graph, SPARSE[network]))
        published += schemes(graph)
    measured = Measured(tuple(ladders), tuple(published))
    report(measured, show, arguments.json)


if __name__ == "__main__":
    main()
