"""How compile time grows with layers, and a step's cost with channels and size.

    python benchmarks/growth.py [--json]

Networks of blocks with residual connections, all weights alike (`experiments/chains.py`). Compile time is that of this
process, from the graph to the C of a program all of whose layers learn and whose early ones run row by row, on images
of 64 by 64. A step's cost is counted on an emulated Cortex-M7: the last six layers of twenty learn, 8-bit weights, the
image handed over by rows.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

import smidgen as sm
from shared import arguments_of, report
from smidgen.memory import ordering, streaming
from smidgen.results.profile import profile
from smidgen.targets import find
from smidgen.targets.boards import BOARDS, resize
from smidgen.targets.firmware import BoardTarget
from smidgen.training import Options, build_training, passes
from smidgen.training.scheme import load_scheme

sys.path.append(str(Path(__file__).parents[1]))
from experiments.chains import classifier

LAYERS = (20, 40, 80, 160)
SHAPES = ((8, 32), (16, 32), (32, 32), (64, 32), (8, 64), (8, 128))  # channels behind the first layer, pixels a side
DEPTH = 20  # layers of what is run
ROOM = "8MB"


@dataclass(frozen=True)
class Compiled:
    """Seconds to compile a network all of whose layers learn, and those of three stages."""

    layers: int
    nodes: int
    build: float  # gradients, updates and passes
    order: float  # another order of nodes
    place: float  # what runs row by row, and where everything lies
    seconds: float  # in all, C and checks included


@dataclass(frozen=True)
class Ran:
    """What a network takes on a Cortex-M7."""

    channels: int
    size: int
    macs: int
    forward: int
    step: int
    sram: int
    flash: int


@dataclass(frozen=True)
class Measured:
    """Both tables."""

    compiled: tuple[Compiled, ...]
    ran: tuple[Ran, ...]


def compiled(layers: int) -> Compiled:
    """Each stage by itself, then all of them as a user calls them."""
    model, working = classifier(layers, 64), find("host").working
    times = [time.process_time()]
    step = passes.run(build_training(model, load_scheme("full", model), Options(classes=10)).step)
    times.append(time.process_time())
    orders = ordering.candidates(step, working=working)
    times.append(time.process_time())
    for one in orders:
        streaming.stream_rows(one, working=working)
    times.append(time.process_time())
    sm.compile(model, "full", options=Options(classes=10), budget=ROOM)
    times.append(time.process_time())
    build, order, place, whole = (b - a for a, b in pairwise(times))
    return Compiled(layers, len(step.nodes), build, order, place, whole)


def ran(channels: int, size: int) -> Ran:
    board = BoardTarget(resize(BOARDS["mps2-an500"], sram="4MB"))
    options = Options(classes=10, weight_bits=8)
    program = sm.compile(classifier(DEPTH, size, channels), "last:6", board, options=options, streamed_input=True)
    found = profile(program, steps=1)
    macs = sum(cost.macs for cost in found.instructions.by_node)
    assert found.instructions.step is not None
    return Ran(
        channels, size, macs, found.instructions.forward, found.instructions.step, found.sram_bytes, found.flash_bytes
    )


def show(measured: Measured) -> None:
    console = Console(width=None if Console().is_terminal else 130)
    table = Table("layers", "nodes", "build", "order", "place", "in all", title="Seconds to compile")
    for one in measured.compiled:
        seconds = (f"{number:.2f}" for number in (one.build, one.order, one.place, one.seconds))
        table.add_row(str(one.layers), str(one.nodes), *seconds)
    console.print(table)
    table = Table("channels", "pixels", "MACs", "forward", "step", "SRAM", "flash", title="On a Cortex-M7")
    for run in measured.ran:
        numbers = (f"{number:,}" for number in (run.macs, run.forward, run.step, run.sram, run.flash))
        table.add_row(str(run.channels), f"{run.size} × {run.size}", *numbers)
    console.print(table)


def main() -> None:
    arguments = arguments_of(__doc__).parse_args()
    console = Console(stderr=True)
    deep = tuple(compiled(n) for n in track(LAYERS, "compiling", console=console, transient=True))
    wide = tuple(ran(*shape) for shape in track(SHAPES, "running", console=console, transient=True))
    report(Measured(deep, wide), show, arguments.json)


if __name__ == "__main__":
    main()
