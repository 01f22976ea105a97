"""The shipped backbones learn the CIFAR-10 sample, or `--data`: the head alone, biases, and the published schemes.

Each scheme learns one image at a time with the device's own arithmetic, on the host's C; top-1 after the last epoch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import mean

from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import NETWORKS, add_data, arguments_of, images_of, report, start
from smidgen.data import Augment, Data, examples, pixel_encoding
from smidgen.learning import Course

SCHEMES = {
    "mbv2-w0.35": ("head", "bias:12", "49kb", "99kb"),
    "proxyless-w0.3": ("head", "bias:12", "49kb", "98kb"),
    "mcunet-5fps": ("head", "bias:12", "49kb", "99kb"),
}


@dataclass(frozen=True)
class Run:
    """One scheme learned from one seed."""

    network: str
    scheme: str
    seed: int
    epochs: int
    learning_rate: float
    weight_bits: int


@dataclass(frozen=True)
class Outcome:
    """A scheme's top-1 in percent, one for each seed."""

    network: str
    scheme: str
    top1: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean(self.top1)


def learn(data: Data, run: Run) -> float:
    """Top-1 in percent after the last epoch."""
    graph = sm.load(run.network)
    options = sm.Options(len(data.classes), weight_bits=run.weight_bits, seed=run.seed)
    images = examples(data.train, pixel_encoding(graph))
    program = sm.compile(graph, run.scheme, options=options, images=images)
    course = Course(run.epochs, run.learning_rate, augment=Augment((0.5, 1.0)), seed=run.seed, test_every=run.epochs)
    return 100 * sm.learn(program, data, course).accuracy


def outcomes(data: Data, runs: list[Run], jobs: int) -> Iterator[Outcome]:
    """Every run, as many at once as there are jobs; a word of progress for each."""
    with ProcessPoolExecutor(jobs) as pool:
        found: dict[tuple[str, str], list[float]] = {}
        for run, top in zip(runs, pool.map(partial(learn, data), runs), strict=True):
            print(f"{run.network} {run.scheme} seed {run.seed}: {top:.1f}", file=sys.stderr, flush=True)
            found.setdefault((run.network, run.scheme), []).append(top)
    for (network, scheme), tops in found.items():
        yield Outcome(network, scheme, tuple(tops))


def show(results: list[Outcome], data: Data) -> None:
    title = f"{data.name}, {len(data.train):,} to learn, {len(data.test):,} to test"
    table = Table("network", "scheme", "top-1 %, mean", "by seed", title=title)
    for o in results:
        table.add_row(o.network, o.scheme, f"{o.mean:.1f}", "  ".join(f"{t:.1f}" for t in o.top1))
    Console().print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--network", choices=NETWORKS, action="append", help="only this one; may be repeated")
    parser.add_argument("--scheme", action="append", help="only this one; may be repeated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=0.005, help="of one sample")
    parser.add_argument("--weight-bits", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=2)
    add_data(parser, kept=None)
    given = parser.parse_args()
    data = images_of(given, kept=None)
    networks = given.network or NETWORKS
    runs = [
        Run(network, scheme, seed, given.epochs, given.lr, given.weight_bits)
        for network in networks
        for scheme, seed in product(given.scheme or SCHEMES[network], range(given.seeds))
    ]
    results = list(outcomes(data, runs, given.jobs))
    report(results, partial(show, data=data), given.json)


if __name__ == "__main__":
    start(main)
