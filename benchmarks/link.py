"""What a link costs: SRAM, flash and instructions on emulated boards, and bytes sent over lines with faults.

A program of MCUNet, its image streamed, once with a main that only calls it and once with the example that serves a
link. Bytes that go over the line are counted for a small image, at several shares of bytes that are lost, repeated or
flipped.
"""

from __future__ import annotations

import sys
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import arguments_of, released, report, start
from smidgen.link import Line, LinkedDevice, connect
from smidgen.pipeline import Program
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.image import bound_stack, read_image
from smidgen.targets.lines import KEPT, EmulatedStream

sys.path.append(str(Path(__file__).parents[1]))
from experiments.lines import Faulty

CASES = ("cortex-m7", "cortex-m4", "cortex-m0plus")
FAULTS = (0.0, 0.001, 0.003, 0.01)
STEPS = 20
# All that a program with a link calls and that keeps nothing, and no link.
CALLS = """#include "model.h"
volatile int number;
volatile float rate, loss;
static void read_row(void *context, void *row, int index) { (void)context; *(volatile char *)row = (char)index; }
int main(void) {
    model_init();
    model_source(read_row, 0);
    for (;;) {
        number = model_predict();
        loss = model_learn(number, rate) + *(const float *)model_output(0);
    }
}
"""


@dataclass(frozen=True)
class Added:
    """Bytes of memory."""

    sram: int
    stack: int
    flash: int


@dataclass(frozen=True)
class Cost:
    """What a link adds to a program, what a store adds to that, and instructions of a step with and without a link."""

    board: str
    link: Added
    store: Added
    kept: int  # bytes of flash that hold what was learned
    image_bytes: int
    step: int
    linked_step: int


@dataclass(frozen=True)
class Traffic:
    """Bytes sent both ways for each byte of the images, and how often a request was sent."""

    faults: float
    bytes_per_byte: float
    tries: float
    piece: int  # at the end


@dataclass(frozen=True)
class Measured:
    """What all of it found."""

    costs: tuple[Cost, ...]
    lines: tuple[Traffic, ...]


def compiled(board: str) -> Program:
    options = sm.Options(classes=10, weight_bits=8)
    return sm.compile(released("mcunet-5fps"), "99kb", BoardTarget(BOARDS[board]), options=options, streamed_input=True)


def noise(program: Program) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    return np.random.default_rng(0).integers(-128, 128, program.graph.image.type.shape).astype(np.int8)


def cost(board: str) -> Cost:
    program = compiled(board)
    target, image = BoardTarget(BOARDS[board]), noise(program)
    files = (
        target.build(program.graph, program.sources, {"main.c": CALLS}),
        target.linked(program.graph, program.sources, keeps=False),
        target.linked(program.graph, program.sources),
    )
    link, store = (_added(one, other) for one, other in pairwise(files))
    with connect(f"emulated:{board}", program) as device:
        assert isinstance(device.line.stream, EmulatedStream)
        fields = device.line.stream.board.counter.fields
        before = int(fields.total)
        device.train(image, 1, 0.01)
        linked_step = int(fields.total) - before
    with target.start(program.graph, program.sources) as alone:
        alone.train(image, 1, 0.01)
        step = alone.counts().total
    return Cost(board, link, store, read_image(files[-1]).section(KEPT).bytes, image.nbytes, step, linked_step)


def _added(before: Path, after: Path) -> Added:
    """What one firmware takes more than another."""
    images, stacks = (
        [read_image(file) for file in (before, after)],
        [bound_stack(file).bytes for file in (before, after)],
    )
    sram, flash = ([getattr(image, name) for image in images] for name in ("static_bytes", "flash_bytes"))
    return Added(*(after - before for before, after in (sram, stacks, flash)))


class Counted(Faulty):
    """A line that counts the bytes that go over it."""

    went = 0

    def _spoiled(self, data: bytes) -> bytes:
        self.went += len(data)
        return super()._spoiled(data)


def traffic(share: float) -> Traffic:
    program = compiled("cortex-m7")
    found = connect("emulated:cortex-m7", program)
    line = Counted(found.line.stream, share)
    device = LinkedDevice(program.graph, Line(line))
    image, sent = noise(program), 0
    line.went = device.line.sent = device.line.sent_in_all = 0
    for _ in range(STEPS):
        device.train(image, 1, 0.01)
        sent += image.nbytes
    return Traffic(share, line.went / sent, device.line.sent_in_all / device.line.sent, device.line.piece)


def show(found: Measured) -> None:
    console = Console()
    table = Table(title="A link on emulated boards: what it adds", title_justify="left")
    memory = [f"{part}: {what}" for part in ("link", "store") for what in ("SRAM", "stack", "flash")]
    for column in ("board", *memory, "kept", "image", "step", "step over a link"):
        table.add_column(column, justify="left" if column == "board" else "right")
    for one in found.costs:
        figures = (*astuple(one.link), *astuple(one.store), one.kept, one.image_bytes, one.step, one.linked_step)
        table.add_row(one.board, *(f"{figure:,}" for figure in figures))
    console.print(table)
    table = Table(title=f"{STEPS} steps over a line with faults", title_justify="left")
    for column in ("bytes spoiled", "bytes sent per byte of image", "tries per request", "piece at the end"):
        table.add_column(column, justify="right")
    for each in found.lines:
        table.add_row(f"{each.faults:.1%}", f"{each.bytes_per_byte:.2f}", f"{each.tries:.2f}", f"{each.piece}")
    console.print(table)


def main() -> None:
    given = arguments_of(__doc__).parse_args()
    found = Measured(tuple(map(cost, CASES)), tuple(map(traffic, FAULTS)))
    report(found, show, given.json)


if __name__ == "__main__":
    start(main)
