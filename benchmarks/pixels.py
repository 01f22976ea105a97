"""Whether `quantize` finds out how pixels become numbers: networks trained in each convention, then asked for it.

Each is trained in PyTorch on CIFAR-10 or `--data` with its pixels in one convention, and read as a float graph that
does not say which. Every convention is then tried on test images with their labels, and on other images without.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import smidgen as sm
from pictures import KEPT, pictures_of
from shared import add_data, arguments_of, report, start
from smidgen.data import Data, Samples
from smidgen.quantization import CONVENTIONS, settle_pixels

sys.path.append(str(Path(__file__).parents[1]))
from experiments.agreement import Course, learn
from experiments.tasks import NETWORKS, build, task_of


@dataclass(frozen=True)
class Found:
    """What was found for a network trained in one convention."""

    trained_in: str
    by_labels: str
    by_mirrors: str


def trained(name: str, data: Data, convention: str, course: Course) -> sm.Graph:
    """A network that learned from pixels in one convention, and does not say so."""
    task = replace(task_of(name), preprocessing=CONVENTIONS[convention])
    module = build(name, 0, course.seed, len(data.classes))
    learn(data.train, module, task, course)
    return sm.from_torch(module, torch.zeros(task.shape))


def ask(graph: sm.Graph, data: Data, labelled: Samples | None) -> str:
    try:
        choice = settle_pixels(graph, data.train.images, labelled)
    except sm.QuantizationError as unclear:
        return f"none; {unclear}"
    assert choice is not None
    return f"{choice.convention}; {', '.join(map(str, choice.tried))}"


def measure(arguments: argparse.Namespace) -> Iterator[Found]:
    data = pictures_of(arguments)
    course = Course(arguments.epochs, arguments.device, arguments.seed)
    for convention in arguments.conventions:
        graph = trained(arguments.network, data, convention, course)
        yield Found(convention, ask(graph, data, data.test), ask(graph, data, None))
        print(f"{convention}: trained and asked", file=sys.stderr, flush=True)


def show(found: list[Found]) -> None:
    shown = Table("trained in", "found by labels; accuracy of each", "found without; bits of each", box=None)
    for one in found:
        shown.add_row(one.trained_in, one.by_labels, one.by_mirrors)
    Console(width=160).print(shown)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("conventions", nargs="*", default=list(CONVENTIONS), help=", ".join(CONVENTIONS))
    parser.add_argument("--network", default="resnet8", choices=NETWORKS)
    add_data(parser, KEPT)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where PyTorch trains")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    report(list(measure(arguments)), show, arguments.json)


if __name__ == "__main__":
    start(main)
