"""One training step of one photograph: our C on this machine against PyTorch doing the same sparse update in fp32.

    python benchmarks/step.py [--network mcunet-5fps] [--scheme 99kb] [--all] [--steps 200] [--data …] [--json]

Both start from the same weights, train the same tensors and see the same photographs, one thread each. They take
turns, step by step, so that a busy machine slows both by the same amount; times are processor time of the process, and
medians are compared. Memory is measured in one process per side, which does nothing but learn.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import (
    NETWORKS,
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
from smidgen.data import Data
from smidgen.ir import Array, Graph, Node, Value
from smidgen.ops import Add, Conv2D, Depthwise, Mean
from smidgen.pipeline import Program
from smidgen.training import Options
from smidgen.training.head import ending_of, layers
from smidgen.training.published import published_for
from smidgen.training.scheme import Trained

if TYPE_CHECKING:
    from torch import Tensor

    Part = tuple[int, Tensor]  # an axis and places along it

RATE = 0.1 / 256  # the paper's for a batch of 256, of one sample
PHOTOGRAPHS = 32
CALIBRATION = 8  # photographs that set the first exponents
WARM_UP = 10  # steps of each before the clock starts
AIM = 10.0  # times as fast as PyTorch
LOWEST = -128  # of int8: where it stands for zero, the layer's output is rectified
WIDTH = 124  # columns the table takes, whatever the terminal has

Sample = tuple[Array, int]
Step = Callable[[Array, int], float]  # an input and its label → the loss before the step


class Side(Protocol):
    """Something that learns, in this process or, pickled, in one of its own."""

    def load(self) -> None:
        """Import what only this side needs."""

    def input(self, image: Array) -> Array:
        """An int8 image as this side takes it."""

    def start(self) -> Step: ...


@dataclass(frozen=True)
class Smidgen:
    """The compiled program on the host."""

    program: Program

    def load(self) -> None:
        """All of it is imported."""

    def input(self, image: Array) -> Array:
        return image

    def start(self) -> Step:
        device = self.program.start()
        return lambda image, label: device.train(image, label, RATE)


@dataclass(frozen=True)
class PyTorch:
    """A float32 network of the graph's architecture, run eagerly; `head` is [classes, features]."""

    graph: Graph
    trained: tuple[Trained, ...]
    head: Array

    def load(self) -> None:
        import torch  # here and below, so that our own process is measured without it

        torch.set_num_threads(1)

    def input(self, image: Array) -> Array:
        """Real numbers in the same order."""
        type = self.graph.image.type
        return (image.astype(np.float32) - type.zero) * np.float32(type.scale)

    def start(self) -> Step:
        import torch
        from torch.nn import functional as F

        self.load()
        network = FloatNetwork(self.graph, self.trained, self.head)

        def step(image: Array, label: int) -> float:
            x = torch.from_numpy(image).permute(0, 3, 1, 2)
            loss = F.cross_entropy(network.logits(x), torch.tensor([label]))
            network.descend(torch.autograd.grad(loss, network.learning))
            return loss.item()

        return step


class FloatNetwork:
    """The backbone as an fp32 network has it, its weights the dequantized ones, gradients for a scheme's alone.

    Tensors are in memory as PyTorch's channels_last has them, in which it is the faster here.
    Of weights whose input channels learn in part PyTorch finds the whole gradient, then the chosen channels are
    updated: weights joined of a trained and a frozen part would cost the same gradient and the joining too.
    """

    def __init__(self, graph: Graph, trained: tuple[Trained, ...], head: Array) -> None:
        import torch

        self._image, self._features = graph.image, ending_of(graph).features
        self._head = torch.from_numpy(head.copy()), torch.zeros(len(head))
        self.learning = list(self._head)
        self._parts: list[Part | None] = [None, None]  # of each that learns, what does; None means all
        learns = {t.layer: t for t in trained}
        places = {id(node): i for i, node in enumerate(layers(graph))}
        self._nodes = [
            (node, self._function(graph, node, learns.get(places.get(id(node), -1))), forgotten)
            for node, forgotten in last_reads(graph, self._features)
        ]
        for tensor in self.learning:
            tensor.requires_grad_()

    def logits(self, image: Tensor) -> Tensor:
        from torch.nn import functional as F

        values = {self._image: image}
        for node, function, forgotten in self._nodes:
            values[node.out] = function(*(values[v] for v in node.ins if v in values))
            for value in forgotten:
                values.pop(value, None)
        return F.linear(values[self._features], *self._head)

    def descend(self, gradients: tuple[Tensor, ...]) -> None:
        """A step of plain SGD."""
        import torch

        with torch.no_grad():
            for w, dw, part in zip(self.learning, gradients, self._parts, strict=True):
                if part is None:
                    w.sub_(dw, alpha=RATE)
                else:
                    w.index_add_(*part, dw.index_select(*part), alpha=-RATE)

    def _function(self, graph: Graph, node: Node, layer: Trained | None) -> Callable[..., Tensor]:
        import torch

        match node.op:
            case Conv2D() | Depthwise():
                return self._convolution(graph, node, layer)
            case Add():
                return torch.add
            case Mean():
                return partial(torch.mean, dim=(2, 3))
        raise SystemExit(f"{graph.name} holds a {type(node.op).__name__}, which this benchmark has no PyTorch for")

    def _convolution(self, graph: Graph, node: Node, layer: Trained | None) -> Callable[..., Tensor]:
        import torch
        from torch.nn import functional as F

        op = node.op
        assert isinstance(op, Conv2D | Depthwise)
        assert op.pad[::2] == op.pad[1::2], f"{node.out.name} is padded unevenly"
        w, b = (torch.from_numpy(array) for array in real_weights(graph, node))
        w = w.contiguous(memory_format=torch.channels_last)
        if layer is not None:
            self._learn(b, None)
            if layer.channels:
                axis = 1 if isinstance(op, Conv2D) else 0
                self._learn(w, (axis, torch.tensor(layer.channels)) if layer.partial else None)
        groups = op.groups if isinstance(op, Conv2D) else node.ins[0].type.shape[3]

        def run(x: Tensor) -> Tensor:
            return F.conv2d(x, w, b, op.stride, op.pad[::2], op.dilation, groups)

        return (lambda x: F.relu6(run(x), inplace=True)) if node.out.type.zero == LOWEST else run

    def _learn(self, tensor: Tensor, part: Part | None) -> None:
        self.learning.append(tensor)
        self._parts.append(part)


def last_reads(graph: Graph, features: Value) -> Iterator[tuple[Node, tuple[Value, ...]]]:
    """The nodes up to the features, each with the values nobody reads after it."""
    end = 1 + next(i for i, node in enumerate(graph.nodes) if features in node.outs)
    last = {v: i for i, node in enumerate(graph.nodes[:end]) for v in node.ins}
    for i, node in enumerate(graph.nodes[:end]):
        yield node, tuple(v for v in node.ins if last[v] == i)


def real_weights(graph: Graph, node: Node) -> tuple[Array, Array]:
    """The float32 weights, [out, in, rows, columns], and bias that a convolution's int8 and int32 stand for."""
    x, w, b = node.ins
    assert w.type.q is not None
    scales = np.broadcast_to(np.array(w.type.q.scale), b.type.shape)
    order = (0, 3, 1, 2) if isinstance(node.op, Conv2D) else (3, 0, 1, 2)
    weights = graph.constants[w].transpose(order) * scales.reshape(-1, 1, 1, 1)
    return weights.astype(np.float32), (graph.constants[b] * (x.type.scale * scales)).astype(np.float32)


# --- measuring


@dataclass(frozen=True)
class Cost:
    """What a side takes: microseconds per step, and bytes, of which `learning` came after the imports."""

    microseconds: float
    loss: float  # the mean over the timed steps
    process: int
    learning: int


@dataclass(frozen=True)
class Measured:
    """Both sides of a network and scheme; `ratio` is the median of PyTorch's time over ours, pair by pair."""

    network: str
    scheme: str
    steps: int
    smidgen: Cost
    pytorch: Cost
    ratio: float
    sram: int  # bytes a microcontroller needs: the planned arena and the state
    flash: int


@dataclass(frozen=True)
class Peak:
    """The most memory a process held, in bytes, and how much of it came after its imports."""

    process: int
    learning: int


def measure(graph: Graph, scheme: str, data: Data, steps: int) -> Measured:
    samples = [(image, int(label[0])) for image, label in inputs(data.train.spread(PHOTOGRAPHS), graph)]
    images = tuple(image for image, _ in samples[:: PHOTOGRAPHS // CALIBRATION])
    program = sm.compile(graph, scheme, "host", options=Options(len(data.classes)), images=images)
    assert program.training is not None
    (head,) = (array for v, array in program.graph.state.items() if v.name == "head.w")
    sides = (Smidgen(replace(program, training=None)), PyTorch(graph, program.training.trained, head))
    (ours, our_losses), (theirs, their_losses) = race(sides, samples, steps)
    peaks = [memory(side, samples, steps) for side in sides]
    costs = [
        Cost(1e6 * statistics.median(seconds), statistics.mean(losses), peak.process, peak.learning)
        for seconds, losses, peak in ((ours, our_losses, peaks[0]), (theirs, their_losses, peaks[1]))
    ]
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    took = program.memory
    return Measured(graph.name, scheme, steps, costs[0], costs[1], ratio, took.peak + took.state, took.constants)


def race(sides: tuple[Side, ...], samples: list[Sample], steps: int) -> list[tuple[list[float], list[float]]]:
    """The seconds and the losses of each side's steps, taken in turns in this process."""
    runs = [(side.start(), [side.input(image) for image, _ in samples]) for side in sides]
    found: list[tuple[list[float], list[float]]] = [([], []) for _ in sides]
    for index in range(WARM_UP + steps):
        place = index % len(samples)
        for (step, images), (seconds, losses) in zip(runs, found, strict=True):
            begun = time.process_time()
            loss = step(images[place], samples[place][1])
            seconds.append(time.process_time() - begun)
            losses.append(loss)
    return [(seconds[WARM_UP:], losses[WARM_UP:]) for seconds, losses in found]


def memory(side: Side, samples: list[Sample], steps: int) -> Peak:
    """The peak of a process that does nothing but a side's steps."""
    with tempfile.NamedTemporaryFile() as task:
        pickle.dump((side, [(side.input(image), label) for image, label in samples], steps), task)
        task.flush()
        done = subprocess.run([sys.executable, __file__, "--task", task.name], stdout=subprocess.PIPE, check=True)
    return Peak(**json.loads(done.stdout))


def learn_alone(task: Path) -> Peak:
    """Do what `memory` wrote down, in this process.

    The kernel's count of this process is read from /proc: what getrusage gives begins at its parent's.
    """
    with task.open("rb") as file:
        side, samples, steps = pickle.load(file)
    side.load()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    step = side.start()
    for image, label in islice(cycle(samples), steps):
        step(image, label)
    peak = resident("VmHWM")
    return Peak(peak, peak - before)


def resident(field: str) -> int:
    """A count of this process's memory, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return 1024 * int(kilobytes)


# --- showing


def show(results: list[Measured]) -> None:
    console = Console()
    console.width = max(console.width, WIDTH)
    steps = results[0].steps
    table = Table(title=f"One training step of one photograph, median of {steps}, one thread; peak memory in MB")
    for column in ("network", "scheme"):
        table.add_column(column)
    for column in (
        "Smidgen C\nms", "PyTorch\nms", "times\nfaster", "Smidgen\nprocess", "PyTorch\nprocess", "Smidgen\nlearning",
        "PyTorch\nlearning", "planned\nSRAM", "our loss,\ntheirs",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for r in results:
        ours, theirs = r.smidgen, r.pytorch
        times = (f"{ours.microseconds / 1e3:.2f}", f"{theirs.microseconds / 1e3:.2f}", f"{r.ratio:.2f}")
        sizes = (ours.process, theirs.process, ours.learning, theirs.learning)
        shown = (*(f"{size / 1e6:.1f}" for size in sizes), f"{r.sram / 1e6:.3f}")
        table.add_row(r.network, r.scheme, *times, *shown, f"{ours.loss:.2f}, {theirs.loss:.2f}")
    console.print(table)
    missed = [f"{r.network} {r.scheme}" for r in results if r.ratio < AIM]
    console.print(
        "“learning” is what a process held beyond its imports and the photographs: weights, activations, and code as "
        f"it is first touched.\nThe aim is {AIM:g} times PyTorch's speed: "
        f"{'missed by ' + ', '.join(missed) if missed else 'met everywhere'}."
    )


def chosen(arguments: argparse.Namespace) -> Iterator[tuple[Graph, str]]:
    """The networks and schemes asked for."""
    for graph in networks_of(arguments, NETWORKS if arguments.all else arguments.network or ["mcunet-5fps"]):
        published = list(published_for(graph))
        for scheme in published if arguments.all else arguments.scheme or schemes_for(graph, ["99kb", "98kb"]):
            yield graph, scheme


def main() -> None:
    parser = arguments_of(__doc__)
    add_data(parser)
    add_model(parser)
    parser.add_argument("--network", choices=NETWORKS, action="append", help="may be repeated; mcunet-5fps otherwise")
    parser.add_argument("--scheme", action="append", help="may be repeated; 99kb otherwise")
    parser.add_argument("--all", action="store_true", help="all networks, each with all its published schemes")
    parser.add_argument("--steps", type=int, default=200, help="timed steps of each")
    parser.add_argument("--task", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        print(json.dumps(asdict(learn_alone(arguments.task))))
        return
    data, results = images_of(arguments), []
    for graph, scheme in chosen(arguments):
        print(f"{graph.name} {scheme}", file=sys.stderr)
        results.append(measure(graph, scheme, data, arguments.steps))
    report(results, show, arguments.json)


if __name__ == "__main__":
    start(main)
