"""How well int8 follows float32: networks people bring, trained on CIFAR-10 or `--data`, quantized with the defaults.

Each is trained in PyTorch, read as a float graph, and quantized on images of the training part; how often each is
right, and how often they agree, is measured on test images that neither has seen.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from pictures import KEPT, pictures_of
from shared import add_data, arguments_of, report, start
from smidgen.data.layouts.cifar import CLASSES

sys.path.append(str(Path(__file__).parents[1]))
from experiments.agreement import Course, Outcome, measure
from experiments.tasks import NETWORKS, task_of


def table(outcomes: list[Outcome]) -> Table:
    shown = Table(box=None, pad_edge=False)
    shown.add_column("network")
    columns = ("parameters", "float32 %", "int8 %", "agree %", "errors", "output dB", "training s", "quantizing s")
    for column in columns:
        shown.add_column(column, justify="right")
    for o in outcomes:
        noise = "" if o.report.output is None else f"{o.report.output:.1f}"
        errors = "" if o.float_error is None else f"{o.float_error:.3f}, {o.int8_error:.3f}"
        shown.add_row(
            o.network, f"{o.parameters:,}", f"{o.float_right:.1f}", f"{o.int8_right:.1f}", f"{o.agreement:.1f}", errors,
            noise, f"{o.training_s:.0f}", f"{o.quantizing_s:.1f}",
        )  # fmt: skip
    return shown


def show(outcomes: list[Outcome], layers: bool) -> None:
    reports = [outcome.report.table() for outcome in outcomes] if layers else []
    Console(width=120).print(*reports, table(outcomes), sep="\n")


def _outcomes(arguments: argparse.Namespace) -> Iterator[Outcome]:
    data = pictures_of(arguments)
    if arguments.coarse and data.classes != CLASSES:
        sys.exit(f"{data.name} is not CIFAR-10, whose classes --coarse takes together; leave that option out")
    course = Course(arguments.epochs, arguments.device, arguments.seed)
    for name in arguments.networks:
        o = measure(name, data, course, task_of(name, arguments.coarse), arguments.images)
        shares = f"float32 {o.float_right:.1f} %, int8 {o.int8_right:.1f} %, alike {o.agreement:.1f} %"
        print(f"{name}: {shares}, trained in {o.training_s:.0f} s", file=sys.stderr, flush=True)
        yield o


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("networks", nargs="*", default=NETWORKS, help=", ".join(NETWORKS))
    add_data(parser, KEPT)
    parser.add_argument("--coarse", action="store_true", help="two classes, animals and vehicles, instead of ten")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where PyTorch trains")
    parser.add_argument("--images", type=int, default=500, help="test images")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--layers", action="store_true", help="show every layer's signal to noise, too")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.backends.cudnn.benchmark = True
    report(list(_outcomes(arguments)), partial(show, layers=arguments.layers), arguments.json)


if __name__ == "__main__":
    start(main)
