"""Instructions per multiply-accumulate on the emulated Cortex-M7, layer by layer: where kernels do not keep up.

`python benchmarks/odd_shapes.py` measures shapes that networks from elsewhere have, streaming audio's above all;
`python benchmarks/odd_shapes.py model.tflite …` the layers of int8 model files, maps held whole. Each layer's bytes are
compared with numpy's on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import arguments_of, report, start
from smidgen import ops
from smidgen.ir import Builder, Graph, QParams, Type
from smidgen.pipeline import compile
from smidgen.results.profile import profile
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget

TARGET = replace(BoardTarget(BOARDS["mps2-an500"]), frugal=False)  # a Cortex-M7 with room for any map


@dataclass(frozen=True)
class Shape:
    """A layer over a map: what it is, and the instructions per MAC that it took before this benchmark was."""

    name: str
    map: tuple[int, int, int]
    k: tuple[int, int]
    out: int | None = None  # None: depthwise
    before: float | None = None

    def graph(self) -> Graph:
        rng, (_, _, c) = np.random.default_rng(0), self.map
        n, deep = self.out or c, self.out is None
        g = Builder("layer")
        x = g.input("x", Type((1, *self.map), "int8", QParams.per_tensor(0.05, -3)))
        shape = (1, *self.k, c) if deep else (n, *self.k, c)
        scales = QParams.per_channel(0.01 * 2.0 ** rng.uniform(-2, 2, n), 3 if deep else 0)
        w = g.constant("w", rng.integers(-127, 128, shape).astype(np.int8), scales)
        b = g.constant("b", rng.integers(-3000, 3001, n).astype(np.int32))
        op = ops.Depthwise() if deep else ops.Conv2D()
        return g.graph(g.emit(op, x, w, b, q=QParams.per_tensor(0.3, 5)))


SHAPES = (
    Shape("depthwise 5×1, one column", (5, 1, 32), (5, 1), before=97.5),
    Shape("depthwise 13×1, one column", (13, 1, 48), (13, 1), before=71.2),
    Shape("depthwise 29×1, one column", (29, 1, 64), (29, 1), before=62.2),
    Shape("depthwise 1×3, a row of 24", (1, 24, 32), (1, 3), before=89.0),
    Shape("depthwise 3×3, 3×3 outputs", (5, 5, 128), (3, 3), before=47.7),
    Shape("5×1, one column, 40→32", (5, 1, 40), (5, 1), 32, 5.3),
    Shape("1×1, one pixel, 48→48", (1, 1, 48), (1, 1), 48, 6.3),
)


@dataclass(frozen=True)
class Measured:
    """A layer's multiply-accumulates and instructions for each."""

    layer: str
    macs: int
    per_mac: float
    before: float | None
    exact: bool


def measure(graph: Graph, name: str = "", before: float | None = None) -> Iterator[Measured]:
    result = profile(compile(graph, target=TARGET), steps=1)
    made = {node.outs[0].name: node for node in graph.nodes}
    for cost in result.instructions.by_node:
        if cost.macs:
            node = made[cost.name]
            shapes = "×".join(map(str, node.ins[0].type.shape[1:])), "×".join(map(str, node.ins[1].type.shape))
            said = name or f"{cost.op} {shapes[1]} over {shapes[0]}"
            yield Measured(said, cost.macs, cost.instructions / cost.macs, before, result.exact.equal)


def show(rows: list[Measured]) -> None:
    table = Table(title="Instructions per MAC on the emulated Cortex-M7")
    for column in ("layer", "MACs", "per MAC", "before", "exact"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    for row in rows:
        before = "" if row.before is None else f"{row.before:.1f}"
        table.add_row(row.layer, f"{row.macs:,}", f"{row.per_mac:.2f}", before, "yes" if row.exact else "NO")
    Console().print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("models", metavar="MODEL", type=Path, nargs="*", help="int8 model files; without any, shapes")
    given = parser.parse_args()
    rows = [row for path in given.models for row in measure(sm.import_model(path))]
    if not given.models:
        rows = [row for shape in SHAPES for row in measure(shape.graph(), shape.name, shape.before)]
    report(rows, show, given.json)


if __name__ == "__main__":
    start(main)
