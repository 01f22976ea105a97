"""The stack of a training step: measured on the emulated board, and its bound, for both compilers.

Every published scheme, image streamed, and `full`, image held whole, of the three networks: one step on noise with
8-bit weights and 10 classes, on a Cortex-M7 with memory for the largest. The bound adds up frames along the program's
calls; a build whose bound is more than its linker script reserves is refused. Without the released networks, those of
the zoo are taken.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import smidgen as sm
from shared import NETWORKS, arguments_of, released, report
from smidgen.pipeline import Program
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.toolchain import GCC, TOOLCHAINS, Toolchain
from smidgen.training.published import published_for

BOARD = BOARDS["mps2-an500"]


@dataclass(frozen=True)
class Stack:
    """Bytes of stack of one program, built by one compiler."""

    compiler: Toolchain
    measured: int
    bound: int


@dataclass(frozen=True)
class Row:
    """One scheme of a network."""

    network: str
    scheme: str
    reserved: int
    stacks: tuple[Stack, ...]


def measure(program: Program, compiler: Toolchain) -> Stack:
    """The stack of one step, and its bound."""
    image = np.random.default_rng(0).integers(-128, 128, program.graph.image.type.shape).astype(np.int8)
    with BoardTarget(BOARD, compiler).start(program.graph, program.sources) as device:
        device.train(image, 1, 0.01)
        memory = device.memory()
    return Stack(compiler, memory.stack, memory.stack_bound)


def rows(compilers: tuple[Toolchain, ...]) -> Iterator[Row]:
    graphs = {name: released(name) for name in NETWORKS}
    cases = [(name, graph, scheme) for name, graph in graphs.items() for scheme in (*published_for(graph), "full")]
    options = sm.Options(classes=10, weight_bits=8)
    for name, graph, scheme in track(cases, "measuring", console=Console(stderr=True)):
        program = sm.compile(graph, scheme, BoardTarget(BOARD), options=options, streamed_input=scheme != "full")
        yield Row(name, scheme, BOARD.stack, tuple(measure(program, compiler) for compiler in compilers))


def show(found: list[Row]) -> None:
    table = Table(title="Bytes of stack in a training step, emulated Cortex-M7", title_justify="left")
    for column in ("network", "scheme"):
        table.add_column(column)
    for stack in found[0].stacks:
        table.add_column(f"{stack.compiler}, measured", justify="right")
        table.add_column(f"{stack.compiler}, bound", justify="right")
    table.add_column("reserved", justify="right")
    for row in found:
        figures = (f"{number:,}" for stack in row.stacks for number in (stack.measured, stack.bound))
        table.add_row(row.network, row.scheme, *figures, f"{row.reserved:,}")
    Console().print(table)


def main() -> None:
    options = arguments_of(__doc__).parse_args()
    compilers = tuple(kind for kind in TOOLCHAINS if kind == "zig" or shutil.which(GCC["thumb"]))
    if len(compilers) < len(TOOLCHAINS):
        print(f"SKIPPED: gcc, for there is no {GCC['thumb']}", file=sys.stderr)
    report(list(rows(compilers)), show, options.json)


if __name__ == "__main__":
    main()
