"""Flowers-102, or `--data`, learned one photograph at a time: int8 in C on this machine against fp32 in PyTorch.

MCUNet-5FPS, the 99kb scheme, 12 epochs, bs256_lr 0.1 with a cosine schedule. All learners start from the same
weights and see the same crops in the same order, step by step together.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import NETWORKS, add_data, add_model, arguments_of, images_of, networks_of, report, schemes_for, start
from smidgen.data import Data, Samples, centre, examples, pixel_encoding
from smidgen.ir import Array, Graph
from smidgen.learning import Course, top1
from smidgen.training import Options, build_training
from smidgen.training.scheme import load_scheme

sys.path.append(str(Path(__file__).parents[1]))
from experiments.baselines import FloatTraining

BATCH = 256  # to which the paper's learning rate refers
TEST_BATCH = 64
SPOKEN = 500  # steps between words of progress


@dataclass
class Learner:
    """Something that learns a sample at a time, and what became of it."""

    name: str
    step: Callable[[Array, int, float], float]
    test: Callable[[Samples], float]
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def learn(self, image: Array, label: int, rate: float) -> None:
        begun = time.perf_counter()
        self.losses.append(self.step(image, label, rate))
        self.seconds += time.perf_counter() - begun


@dataclass(frozen=True)
class Outcome:
    """Top-1 after the last epoch, the mean loss of that epoch's steps, and the time of a step."""

    learner: str
    top1: float
    loss: float
    milliseconds: float


@dataclass(frozen=True)
class Experiment:
    network: str
    scheme: str
    data: str
    qas: bool
    epochs: int
    learning_rate: float  # of one sample
    train: int
    test: int
    outcomes: tuple[Outcome, ...]


def fp32_learner(graph: Graph, scheme: str, data: Data, qas: bool) -> Learner:
    options = Options(len(data.classes), qas=qas)
    training = FloatTraining(build_training(graph, load_scheme(scheme, graph), options))
    taken = pixel_encoding(graph)

    def test(samples: Samples) -> float:
        correct = 0
        for at in range(0, len(samples), TEST_BATCH):
            batch = np.concatenate([centre(image, taken) for image in samples.images[at : at + TEST_BATCH]])
            correct += int((training.predict(batch) == samples.labels[at : at + TEST_BATCH]).sum())
        return correct / len(samples)

    return Learner("fp32 weights, fp32 gradients", training.train, test)


def int8_learner(bits: int, bias_bits: int, graph: Graph, scheme: str, data: Data, qas: bool) -> Learner:
    images = examples(data.train, pixel_encoding(graph))
    options = Options(len(data.classes), weight_bits=bits, qas=qas, bias_bits=bias_bits)
    device = sm.compile(graph, scheme, "host", options=options, images=images).start()
    biases = "" if bias_bits == 32 else f" and {bias_bits}-bit biases"
    return Learner(f"{bits}-bit weights{biases}, int8 gradients", device.train, lambda samples: top1(device, samples))


def run(learners: list[Learner], graph: Graph, data: Data, course: Course) -> tuple[Outcome, ...]:
    """Every learner takes every step of the course, then the test."""
    count = len(data.train)
    for epoch in range(course.epochs):
        for step, index in enumerate(course.order(epoch, count)):
            image = course.image(data.train.images[index], pixel_encoding(graph), epoch, index)
            for learner in learners:
                learner.learn(image, data.train.labels[index], course.rate(epoch, step, count))
            if (step + 1) % SPOKEN == 0 or step + 1 == count:
                said = ", ".join(f"{np.mean(learner.losses[-SPOKEN:]):.3f}" for learner in learners)
                print(f"epoch {epoch + 1}, step {step + 1}: losses {said}", file=sys.stderr, flush=True)
    return tuple(
        Outcome(
            learner.name, learner.test(data.test), float(np.mean(learner.losses[-count:])),
            1000 * learner.seconds / len(learner.losses),
        )
        for learner in learners
    )  # fmt: skip


def show(experiment: Experiment) -> None:
    table = Table(
        "learner",
        "top-1 %",
        "loss",
        "ms per step",
        title=f"{experiment.network}, {experiment.scheme}, {experiment.data}",
    )
    for o in experiment.outcomes:
        table.add_row(o.learner, f"{100 * o.top1:.2f}", f"{o.loss:.3f}", f"{o.milliseconds:.1f}")
    console = Console()
    console.print(table)
    console.print(
        f"{experiment.epochs} epochs of {experiment.train:,} photographs, tested on {experiment.test:,}; a learning "
        f"rate of {experiment.learning_rate:.3g} a sample, cosine, {'with' if experiment.qas else 'without'} QAS"
    )


LEARNERS: dict[str, Callable[[Graph, str, Data, bool], Learner]] = {
    "fp32": fp32_learner,
    **{str(bits): partial(int8_learner, bits, 32) for bits in (12, 10, 8)},
    "12-16": partial(int8_learner, 12, 16),
}


def main() -> None:
    parser = arguments_of(__doc__)
    add_data(parser)
    add_model(parser)
    parser.add_argument("--network", choices=NETWORKS, default="mcunet-5fps")
    parser.add_argument("--scheme", help="99kb otherwise, or what is published for the network that is like it")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.1, help="for a batch of 256, as the paper gives it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="learn from and test with so many photographs only")
    parser.add_argument("--learner", choices=LEARNERS, action="append", help="only this one; may be repeated")
    parser.add_argument("--no-qas", action="store_true", help="without quantization-aware scaling")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    (graph,), data = networks_of(arguments, [arguments.network]), images_of(arguments)
    if arguments.limit:
        data = Data(data.name, data.classes, data.train.spread(arguments.limit), data.test.spread(arguments.limit))
    scheme = arguments.scheme or schemes_for(graph, ["99kb", "98kb"])[0]
    course = Course(arguments.epochs, arguments.lr / BATCH, seed=arguments.seed)
    chosen = arguments.learner or ["fp32", "12", "8"]
    qas = not arguments.no_qas
    learners = [LEARNERS[name](graph, scheme, data, qas) for name in chosen]
    experiment = Experiment(
        graph.name, scheme, Path(data.name).name, qas, course.epochs, course.learning_rate,
        len(data.train), len(data.test), run(learners, graph, data, course),
    )  # fmt: skip
    report(experiment, show, arguments.json)


if __name__ == "__main__":
    start(main)
