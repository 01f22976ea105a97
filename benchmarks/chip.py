"""Instructions on the emulated Cortex-M7: single layers beside others' kernels, and a whole network beside the paper's.

Layers are those that TFLite Micro's reference kernels, CMSIS-NN and the paper's released engine were measured on the
same way: instructions a multiply-accumulate, requantization and all else included, with no activation, maps held
whole. The network is MCUNet-5FPS with the scheme 49kb, 8-bit weights, 10 classes and a streamed image; beside it the
paper's released C for it, built by gcc 12 -Ofast. Instructions are not cycles: the chip issues two at a time, and
waits for its flash.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table

from shared import arguments_of, released
from smidgen import ops
from smidgen.ir import Builder, Graph, Op, QParams, Type
from smidgen.ops.window import same_pad
from smidgen.pipeline import compile
from smidgen.results.profile import NOTE, Profile, profile
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget
from smidgen.training import Options

TARGET = BoardTarget(BOARDS["cortex-m7"])


@dataclass(frozen=True)
class LayerCase:
    """A layer, and the instructions per MAC that others take for it."""

    name: str
    size: tuple[int, int, int]
    k: int
    out: int | None  # None: depthwise
    stride: int
    tflite_micro: float
    cmsis_nn: float
    paper: float

    def graph(self) -> Graph:
        rng, channels = np.random.default_rng(0), self.size[2]
        pad = same_pad((1, *self.size), (self.k, self.k), (self.stride, self.stride))
        deep = self.out is None
        op: Op = (ops.Depthwise if deep else ops.Conv2D)((self.stride, self.stride), pad)
        n = channels if self.out is None else self.out
        shape = (1, self.k, self.k, channels) if deep else (n, self.k, self.k, channels)
        g = Builder("layer")
        scales = QParams.per_channel(0.01 * 2.0 ** rng.uniform(-2, 2, n), 3 if deep else 0)
        w = g.constant("w", rng.integers(-127, 128, shape).astype(np.int8), scales)
        b = g.constant("b", rng.integers(-3000, 3001, n).astype(np.int32))
        x = g.input("x", Type((1, *self.size), "int8", QParams.per_tensor(0.05, -3)))
        return g.graph(g.emit(op, x, w, b, q=QParams.per_tensor(0.1, 5)))


LAYERS = (
    LayerCase("1×1, 16×16×48→96", (16, 16, 48), 1, 96, 1, 9.7, 2.24, 2.19),
    LayerCase("depthwise 3×3, 32×32×48", (32, 32, 48), 3, None, 1, 28.4, 8.7, 6.3),
    LayerCase("depthwise 5×5, 16×16×96", (16, 16, 96), 5, None, 1, 19.7, 8.9, 4.7),
    LayerCase("3×3 stride 2, 64×64×3→16", (64, 64, 3), 3, 16, 2, 19.7, 4.9, 1.98),
)


@dataclass(frozen=True)
class Measured:
    """Instructions per MAC."""

    layer: str
    smidgen: float
    tflite_micro: float
    cmsis_nn: float
    paper: float
    exact: bool


@dataclass(frozen=True)
class Whole:
    """A network's training on a board."""

    forward: int  # instructions
    step: int
    sram: int  # bytes: static data and the stack at its deepest
    flash: int
    exact: bool


PAPER = Whole(forward=65_000_000, step=106_400_000, sram=252_712, flash=666_388, exact=False)


def measure(layer: LayerCase, target: BoardTarget = TARGET) -> Measured:
    result = profile(compile(layer.graph(), target=replace(target, frugal=False)), steps=1)
    (cost,) = result.instructions.by_op
    return Measured(
        layer.name, cost.instructions / cost.macs, layer.tflite_micro, layer.cmsis_nn, layer.paper, result.exact.equal
    )


def train(target: BoardTarget = TARGET) -> Profile:
    options = Options(classes=10, weight_bits=8)
    return profile(compile(released("mcunet-5fps"), "49kb", target, options=options, streamed_input=True))


def whole(result: Profile) -> Whole:
    step = result.instructions.step
    assert step is not None
    return Whole(result.instructions.forward, step, result.sram_bytes, result.flash_bytes, result.exact.equal)


def layer_table(rows: list[Measured], target: BoardTarget = TARGET) -> Table:
    table = Table(title=f"Instructions per MAC on the emulated {target.board.core.title}")
    for column in ("layer", "Smidgen", "TFLM reference, M7", "CMSIS-NN, M7", "the paper's engine, M7", "exact"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    for row in rows:
        figures = (row.smidgen, row.tflite_micro, row.cmsis_nn, row.paper)
        table.add_row(row.layer, *(f"{figure:.2f}" for figure in figures), "yes" if row.exact else "NO")
    return table


def network_table(own: Whole) -> Table:
    table = Table(title="MCUNet-5FPS, scheme 49kb, image streamed")
    for column in ("", "Smidgen", "the paper's engine, M7", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    names = {"forward": "instructions, forward", "step": "instructions, training step", "sram": "SRAM, bytes",
             "flash": "flash, bytes"}  # fmt: skip
    for field, name in names.items():
        ours, theirs = getattr(own, field), getattr(PAPER, field)
        table.add_row(name, f"{ours:,}", f"{theirs:,}", f"{ours / theirs:.2f}")
    return table


def main() -> None:
    parser = arguments_of(__doc__)
    cores = [name for name, board in BOARDS.items() if name in (board.core.name, "riscv32")]
    parser.add_argument("--core", default=TARGET.name, choices=cores, help="the others' figures are of a Cortex-M7")
    options = parser.parse_args()
    target = BoardTarget(BOARDS[options.core])
    rows, result = [measure(layer, target) for layer in LAYERS], train(target)
    own = whole(result)
    if options.json:
        by_op = {cost.op: cost.instructions for cost in result.instructions.by_op}
        network = {"smidgen": asdict(own), "paper": asdict(PAPER), "by_op": by_op}
        print(json.dumps({"layers": [asdict(row) for row in rows], "network": network}))
        return
    console = Console()
    console.print(layer_table(rows, target), network_table(own), NOTE)


if __name__ == "__main__":
    main()
