"""The ratio of weight norm to gradient norm of every tensor, in fp32, in int8, and in int8 with QAS.

The paper's figure per layer: int8 ratios are far larger than those of fp32 and zigzag between weights and biases,
so that no learning rate suits all; quantization-aware scaling (QAS) brings them back. fp32 is the same network
without any rounding, differentiated by PyTorch with respect to real weights; int8 is the training step's own
gradient. All are of the mean loss over some photographs, at the first weights. Channels that the backbone's own
training switched off (scales almost zero) are left out of every norm.
"""

from __future__ import annotations

import sys
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
    start,
)
from smidgen.data import Data, examples, pixel_encoding
from smidgen.ir import Array, Graph
from smidgen.ops.update import Step, WeightStep
from smidgen.results.figures import Axis, Figure, Panel, Polyline
from smidgen.results.report.page import page_of
from smidgen.training import Options, build_training
from smidgen.training.scheme import load_scheme
from smidgen.training.weights import with_drawn_head

sys.path.append(str(Path(__file__).parents[1]))
from experiments.baselines import Simulator

DEAD = 0.02  # of the median scale of a tensor's channels


@dataclass(frozen=True)
class Ratio:
    """log10 ‖W‖ / ‖G‖ of one tensor."""

    tensor: str
    fp32: float
    int8: float
    qas: float
    dead: int  # channels left out


@dataclass(frozen=True)
class Ratios:
    """All tensors in the order of the forward pass, and how far the two int8 curves stray from fp32's."""

    network: str
    scheme: str
    images: int
    tensors: tuple[Ratio, ...]

    def strays(self) -> tuple[float, float]:
        """The spread about fp32 of int8 without and with QAS, an offset common to all tensors taken off."""
        fp32, int8, qas = (np.array([getattr(t, kind) for t in self.tensors]) for kind in ("fp32", "int8", "qas"))
        return float(np.std(int8 - fp32)), float(np.std(qas - fp32))


def measure(graph: Graph, scheme: str, data: Data, images: int) -> Ratios:
    calibration = examples(data.train, pixel_encoding(graph))
    training = build_training(graph, load_scheme(scheme, graph), Options(len(data.classes)), calibration)
    drawn, reference = with_drawn_head(training.step, 0), with_drawn_head(training.reference.loss_graph(), 0)
    ours, real = Int8Gradients(replace(training, step=drawn)), Simulator(reference, rounded=False)
    samples = list(inputs(data.test.spread(images), graph))
    int8 = [ours.next(*sample) for sample in samples]
    fp32 = [real.gradients(tuple(ours.steps), *sample) for sample in samples]
    tensors = []
    for index, (w, op) in enumerate(ours.steps.items()):
        found = np.mean([gradients[w] for gradients in int8], axis=0)
        expected = np.mean([gradients[index] for gradients in fp32], axis=0)
        tensors.append(_ratio(w.name, training.step.state[w].astype(np.float64), found, expected, op))
    return Ratios(graph.name, scheme, images, tuple(tensors))


def _ratio(name: str, w: Array, int8: Array, fp32: Array, op: Step) -> Ratio:
    """In fp32, weights are s · w and their gradients G / s, where s² is what QAS divides by."""
    axis = op.axis if isinstance(op, WeightStep) else 0
    factors = np.array(op.factors)
    alive = np.flatnonzero(factors**-0.5 > DEAD * np.median(factors**-0.5))
    w, int8, fp32 = (np.moveaxis(a, axis, -1)[..., alive] for a in (w, int8, fp32))
    scale = factors[alive] ** -0.5

    def log_ratio(weights: Array, gradients: Array) -> float:
        return float(np.log10(np.linalg.norm(weights) / np.linalg.norm(gradients)))

    return Ratio(
        name, log_ratio(w * scale, fp32 / scale), log_ratio(w, int8), log_ratio(w, int8 / scale**2),
        len(factors) - len(alive),
    )  # fmt: skip


def show(result: Ratios) -> None:
    console = Console()
    table = Table("tensor", "fp32", "int8", "int8 + QAS", "dead channels", title=f"log10 ‖W‖/‖G‖ of {result.network}")
    for t in result.tensors:
        table.add_row(t.tensor, f"{t.fp32:.2f}", f"{t.int8:.2f}", f"{t.qas:.2f}", str(t.dead or ""))
    console.print(table)
    without, with_qas = result.strays()
    console.print(
        f"about fp32's curve, an offset aside, int8 strays by {without:.2f} decades and int8 + QAS by {with_qas:.2f} "
        f"({result.scheme}, {len(result.tensors)} tensors, the mean loss of {result.images} photographs)"
    )


def plot(result: Ratios, file: Path) -> None:
    names = [t.tensor for t in result.tensors]
    lines = []
    for kind, label, colour in (
        ("fp32", "fp32", "#000000"),
        ("int8", "int8", "#e69f00"),
        ("qas", "int8 + QAS", "#009e73"),
    ):
        y = tuple(getattr(t, kind) for t in result.tensors)
        told = tuple(f"{name}, {label}: {ratio:.2f}" for name, ratio in zip(names, y, strict=True))
        lines.append(Polyline(label, tuple(range(len(y))), y, told, colour))
    panel = Panel("", tuple(lines), Axis("tensor"), Axis("log10 ‖W‖ / ‖G‖"))
    title = f"Weight norm over gradient norm, {result.network}"
    file.write_text(page_of(title, result.scheme, [Figure("", (panel,), 500)]))


def main() -> None:
    parser = arguments_of(__doc__)
    add_data(parser)
    add_model(parser)
    parser.add_argument("--network", choices=NETWORKS, default="mcunet-5fps")
    parser.add_argument("--scheme", default="full")
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--plot", type=Path, help="an HTML file to draw the curves into")
    arguments = parser.parse_args()
    (graph,) = networks_of(arguments, [arguments.network])
    # The option that switches QAS off changes the steps' factors, not the gradients: one training gives both curves.
    result = measure(graph, arguments.scheme, images_of(arguments), arguments.images)
    report(result, show, arguments.json)
    if arguments.plot:
        plot(result, arguments.plot)


if __name__ == "__main__":
    start(main)
