"""What a projection of the features costs one pass: accuracy by how many numbers are left of them, and on a chip.

    python benchmarks/projection.py accuracy [--data NAME…] [--network NAME…] [--json]
    python benchmarks/projection.py chip [--json]

`accuracy` makes heads in one pass from 5 and 20 samples of each class: of all features, of projections of them, and of
as many features chosen at random, which costs no arithmetic. Networks have ImageNet weights: MCUNet-5FPS with its 160
features; the same without its last convolution, whose 576 channels, averaged, stand for networks with many features;
and a public MobileNet with 256. Features are those that benchmarks/one_pass.py keeps. `chip` counts the instructions of
a sample on an emulated Cortex-M7, and the SRAM, of MCUNet-5FPS for 10 and 102 classes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import smidgen as sm
from one_pass import SEEDS, Features, drawn, features, logits_of, sums_of
from shared import SHARED, arguments_of, released, report, start, there
from smidgen.ir import Array, Builder, Graph, QParams
from smidgen.ir.rewriting import producers, prune
from smidgen.numerics.projection import project
from smidgen.ops import Dense, Mean
from smidgen.training import Options
from smidgen.training.head import ending_of
from smidgen.training.projection import projection
from smidgen.training.weights import flat_features

sys.path.append(str(Path(__file__).parents[1]))
from experiments.paper.sources import DataSets

SETS = ("flowers102", "cifar10", "cars196", "vww")
NETWORKS = ("mcunet-5fps", "mcunet-5fps cut", "mobilenet-v1-0.25")
MOBILENET = SHARED / "models" / "wild" / "coral-mobilenet_v1_0.25_128_quant.tflite"
EACH = (5, 20)  # samples of a class
COUNTS = (192, 128, 96, 64, 32)
CHIP = ((10, None), (10, 96), (10, 32), (102, None), (102, 96), (102, 32))  # classes, numbers


@dataclass(frozen=True)
class Projected:
    """Top-1 of one pass on a projection, and on as many features chosen at random, in percent, the mean of seeds."""

    network: str
    data: str
    each: int
    count: int  # of all features in the rows without a projection
    projected: float
    chosen: float


@dataclass(frozen=True)
class Cost:
    """Instructions of a sample, and SRAM, of a program that learns in one pass on an emulated Cortex-M7."""

    classes: int
    count: int | None
    forward: int
    observe: int  # with the forward pass
    solve: int
    sums: int  # bytes
    sram: int


def network(name: str) -> Graph:
    if name == "mobilenet-v1-0.25":
        return sm.import_model(there(MOBILENET))
    whole = released(name.split()[0])
    return without_last(whole) if name.endswith(" cut") else whole


def without_last(graph: Graph) -> Graph:
    """The network with the mean of what its last convolution reads as features, and a head that nobody asks."""
    made_by = producers(graph)
    pooled = made_by[ending_of(graph).features]
    read = made_by[pooled.ins[0]].ins[0]
    front = prune(replace(graph, outputs=(read,), classes=()))
    g = Builder.before(front)
    for node in front.nodes:
        g.append(node)
    mean = g.emit(Mean(), read, q=read.type.q, name="wide")
    w = g.constant("w", np.zeros((2, mean.type.shape[1]), np.int8), QParams.per_channel([1.0, 1.0], 0))
    b = g.constant("b", np.zeros(2, np.int32))
    return g.graph(g.emit(Dense(), mean, w, b, q=QParams.per_tensor(1.0, 0), name="scores"))


def shift_of(graph: Graph, count: int) -> int:
    """The shift that a program of this network has."""
    g = Builder("flat")
    read = ending_of(graph).features
    return projection(graph, flat_features(g, g.input("x", read.type)), count).shift


def top1(found: Features, train: Array, test: Array, each: int) -> float:
    right = []
    for seed in range(SEEDS):
        chosen = drawn(found, each, seed)
        sums = sums_of(train[chosen], found.train_labels[chosen], found.classes)
        right.append((logits_of(sums, test).argmax(axis=1) == found.test_labels).mean() * 100)
    return round(float(np.mean(right)), 2)


def measure(names: Sequence[str], data: Sequence[str]) -> Iterator[Projected]:
    sets = DataSets()
    for name in names:
        graph = network(name)
        for one in data:
            found = features(graph, sets.load(one))
            for row in _rows(name, one, graph, found):
                print(row, file=sys.stderr, flush=True)
                yield row


def _rows(name: str, data: str, graph: Graph, found: Features) -> Iterator[Projected]:
    x, d = (found.train, found.test), found.train.shape[1]
    order = np.random.default_rng(0).permutation(d)
    for each in EACH:
        whole = top1(found, *x, each)
        yield Projected(name, data, each, d, whole, whole)
        for count in (count for count in COUNTS if count < d):
            shift, some = shift_of(graph, count), order[:count]
            fewer = [project(part, count, shift).astype(np.int64) for part in x]
            chosen = top1(found, x[0][:, some], x[1][:, some], each)
            yield Projected(name, data, each, count, top1(found, fewer[0], fewer[1], each), chosen)


def cost(classes: int, count: int | None) -> Cost:
    from smidgen.targets.firmware import BoardDevice  # here, since only this needs an emulator

    graph, options = sm.load("mcunet-5fps"), Options(classes, project=count)
    program = sm.compile(graph, None, "cortex-m7", options=options, streamed_input=True, one_pass=True)
    rng, counts = np.random.default_rng(0), dict[str, int]()
    with program.start() as device:
        assert isinstance(device, BoardDevice)
        images = [rng.integers(-128, 128, graph.image.type.shape).astype(np.int8) for _ in range(4)]
        device.predict(images[0])
        counts["forward"] = device.counts().total
        for label, image in enumerate(images):
            device.observe(image, label % 2)
        counts["observe"] = counts["forward"] + device.counts().total
        device.solve()
        counts["solve"] = device.counts().total
    assert program.graph.one_pass is not None
    sums = sum(v.type.bytes for v in program.graph.one_pass.sums)
    return Cost(classes, count, **counts, sums=sums, sram=program.memory.peak + program.memory.state)


def show(rows: Sequence[Projected | Cost]) -> None:
    table = Table()
    for column in rows[0].__dataclass_fields__:
        table.add_column(column)
    for row in rows:
        table.add_row(*(str(getattr(row, column)) for column in row.__dataclass_fields__))
    Console(width=160).print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("what", choices=("accuracy", "chip"))
    parser.add_argument("--data", nargs="*", default=SETS, help="data sets beside the checkout")
    parser.add_argument("--network", nargs="*", default=NETWORKS)
    given = parser.parse_args()
    if given.what == "accuracy":
        report(list(measure(given.network, given.data)), show, given.json)
    else:
        report([cost(*one) for one in CHIP], show, given.json)


if __name__ == "__main__":
    start(main)
