"""How near int8 gradients come to PyTorch's fp32 ones, tensor by tensor, on real photographs.

For each released backbone and its schemes of about 50, 100 and 150 KB: the cosine between what an int8 training
step learns from and PyTorch's fp32 gradient of the same quantized graph, at the first weights, averaged over
photographs of the test split. The first exponents come from photographs of the train split, and are carried from
one photograph to the next as in training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from shared import (
    NETWORKS,
    Int8Gradients,
    add_data,
    add_model,
    arguments_of,
    images_of,
    inputs,
    networks_of,
    report,
    schemes_for,
    start,
)
from smidgen.data import Data, examples, pixel_encoding
from smidgen.ir import Array, Graph
from smidgen.training import Options, build_training
from smidgen.training.scheme import load_scheme
from smidgen.training.weights import with_drawn_head

sys.path.append(str(Path(__file__).parents[1]))
from experiments.baselines import Simulator

SCHEMES = ("49kb", "98kb", "99kb", "138kb", "148kb")
NEIGHBOURS, EVERYWHERE = 0.99, 0.95  # cosines required
CALIBRATION = 16  # photographs that set the first exponents
WORST = 3
WIDTH = 120  # columns the table takes, whatever the terminal has


@dataclass(frozen=True)
class TensorCosine:
    """One tensor that learns: its mean cosine over the photographs, and the least of them."""

    name: str
    mean: float
    least: float
    neighbour: bool  # of the head: the last bias and the last weights before it


@dataclass(frozen=True)
class Measured:
    """All tensors of a network under a scheme, from the first layer that learns to the last."""

    network: str
    scheme: str
    images: int
    tensors: tuple[TensorCosine, ...]

    def worst(self, neighbours: bool = False) -> tuple[TensorCosine, ...]:
        return tuple(sorted((t for t in self.tensors if t.neighbour or not neighbours), key=lambda t: t.mean))

    @property
    def good(self) -> bool:
        return self.worst()[0].mean >= EVERYWHERE and self.worst(neighbours=True)[0].mean >= NEIGHBOURS


def cosine(a: Array, b: Array) -> float:
    """Of two gradients; not a number where one of them is nothing."""
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    norms = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / norms) if norms > 0 else float("nan")


def measure(graph: Graph, scheme: str, data: Data, images: int) -> Measured:
    calibration = examples(data.train, pixel_encoding(graph), CALIBRATION)
    training = build_training(graph, load_scheme(scheme, graph), Options(len(data.classes)), calibration)
    drawn, reference = with_drawn_head(training.step, 0), with_drawn_head(training.reference.loss_graph(), 0)
    ours, theirs = Int8Gradients(replace(training, step=drawn)), Simulator(reference)
    trained, cosines = tuple(ours.steps), []
    for image, label in inputs(data.test.spread(images), graph):
        found = ours.next(image, label)
        expected = theirs.gradients(trained, image, label)
        cosines.append([cosine(found[v], e) for v, e in zip(trained, expected, strict=True)])
    means, least = np.nanmean(cosines, axis=0), np.nanmin(cosines, axis=0)
    neighbours = {[v.name for v in trained if v.type.dtype == dtype][-1] for dtype in ("int8", "int32")}
    tensors = tuple(
        TensorCosine(v.name, float(m), float(low), v.name in neighbours)
        for v, m, low in zip(trained, means, least, strict=True)
    )
    return Measured(graph.name, scheme, images, tensors)


def measure_all(given: argparse.Namespace) -> Iterator[Measured]:
    data = images_of(given)
    for graph in networks_of(given, given.network or NETWORKS):
        for scheme in given.scheme or schemes_for(graph, SCHEMES):
            print(f"{graph.name} {scheme}", file=sys.stderr)
            yield measure(graph, scheme, data, given.images)


def show(results: list[Measured]) -> None:
    console = Console()
    console.width = max(console.width, WIDTH)
    table = Table("network", "scheme", "tensors", "least", "mean", "head's neighbours", "worst tensors")
    for r in results:
        worst = "\n".join(f"{t.name} {t.mean:.4f}" for t in r.worst()[:WORST])
        means = [t.mean for t in r.tensors]
        near = "\n".join(f"{t.name} {t.mean:.4f}" for t in r.worst(neighbours=True))
        table.add_row(r.network, r.scheme, str(len(means)), f"{min(means):.4f}", f"{np.mean(means):.4f}", near, worst)
    console.print(table)
    bad = [f"{r.network} {r.scheme}" for r in results if not r.good]
    console.print(
        f"cosines averaged over {results[0].images} photographs; required are {NEIGHBOURS} for the head's neighbours "
        f"and {EVERYWHERE} for every tensor: {'missed by ' + ', '.join(bad) if bad else 'met everywhere'}"
    )


def main() -> None:
    parser = arguments_of(__doc__)
    add_data(parser)
    add_model(parser)
    parser.add_argument("--network", choices=NETWORKS, action="append", help="only this one; may be repeated")
    parser.add_argument("--scheme", action="append", help="only this one; may be repeated")
    parser.add_argument("--images", type=int, default=64)
    arguments = parser.parse_args()
    results = list(measure_all(arguments))
    report(results, show, arguments.json)
    sys.exit(0 if all(r.good for r in results) else 1)


if __name__ == "__main__":
    start(main)
