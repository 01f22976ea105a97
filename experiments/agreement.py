"""How well int8 follows float32: networks people bring, trained on CIFAR-10, then quantized with the defaults.

Each is trained in PyTorch, read as a float graph, and quantized on images of the training part; how often both are
right, and how often they agree, is measured on test images that neither has seen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

import smidgen as sm
from experiments.tasks import Decide, Task, build
from smidgen.data import Data, PixelEncoding, Samples, centre
from smidgen.ir import Array, Graph, Type, Value
from smidgen.numerics import dequantize
from smidgen.quantization import QuantizationReport
from smidgen.quantization.batch import run_batch

DECAY = 1e-2  # of weights
BATCHES = 100  # an epoch, about
SMALLEST, LARGEST = 32, 512  # batches
SHIFT = 8  # pictures are shifted by up to an eighth of their sides
CALIBRATED = 128
TESTED_AT_ONCE = 50


@dataclass(frozen=True)
class Course:
    """How a network is trained."""

    epochs: int
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """A network in float32 and in int8: right and alike in percent of the test images, times in seconds.

    What is right or alike is the first choice, or whether the autoencoder finds a picture odd; its errors are those of
    its copies, as shares of the variance.
    """

    network: str
    parameters: int
    float_right: float
    int8_right: float
    agreement: float
    float_error: float | None
    int8_error: float | None
    training_s: float
    quantizing_s: float
    report: QuantizationReport


def train(module: nn.Module, x: Tensor, answers: Tensor, task: Task, course: Course) -> None:
    """AdamW with one cycle of the rate, on pictures [n, colours, rows, columns] that are varied a little."""
    x, answers = x.to(course.device), answers.to(course.device)
    module.to(course.device).train()
    size = min(max(len(x) // BATCHES, SMALLEST), LARGEST, len(x))
    steps = len(x) // size
    optimizer = torch.optim.AdamW(module.parameters(), task.rate, weight_decay=DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, task.rate, course.epochs * steps)
    for _ in range(course.epochs):
        for batch in torch.randperm(len(x), device=x.device)[: steps * size].reshape(steps, size):
            shown = vary(x[batch]).reshape(size, *task.shape[1:])
            loss = task.goal.loss(shown, module(shown), answers[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    module.cpu().eval()


def vary(x: Tensor) -> Tensor:
    """Each picture shifted and mirrored by chance of its own; what a shift lays bare repeats the edge."""
    n, colours, *sides = x.shape
    places = []
    for side in sides:
        reach = side // SHIFT
        shift = torch.randint(-reach, reach + 1, (n, 1), device=x.device)
        places.append((torch.arange(side, device=x.device) + shift).clamp(0, side - 1))
    rows, columns = places
    mirrored = torch.rand((n, 1), device=x.device) < 0.5
    columns = torch.where(mirrored, sides[1] - 1 - columns, columns)
    every, colour = torch.arange(n, device=x.device), torch.arange(colours, device=x.device)
    return x[every[:, None, None, None], colour[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]


def inputs(images: Sequence[Array], task: Task, type: Type) -> Array:
    """Images as a graph's input of this type, samples first."""
    taken = PixelEncoding(replace(type, shape=(1, *task.picture)), task.preprocessing)
    return np.stack([centre(image, taken).reshape(type.shape) for image in images])


def outputs(graph: Graph, images: Sequence[Array], task: Task) -> Array:
    """What a graph makes of each image, in real numbers."""
    found: list[Array] = []

    def look(value: Value, array: Array) -> None:
        if value == graph.outputs[0]:
            found.append(array if value.type.q is None else dequantize(array, value.type.q))

    for at in range(0, len(images), TESTED_AT_ONCE):
        run_batch(graph, inputs(images[at : at + TESTED_AT_ONCE], task, graph.inputs[0].type), look)
    return np.concatenate(found)


def quantized(graph: Graph, images: Sequence[Array], task: Task) -> sm.Quantized:
    """A graph in int8: calibrated on the images themselves where it takes any, else on what it is given of them."""
    type = graph.inputs[0].type
    takes_images = type.shape == (1, *task.picture)
    samples = list(images) if takes_images else list(inputs(images, task, type))
    return sm.quantize(graph, samples, preprocessing=task.preprocessing if takes_images else None)


def learn(learned: Samples, module: nn.Module, task: Task, course: Course) -> Decide:
    """Train a module, and say how its outputs decide."""
    pixels = inputs(learned.images, task, Type((1, *task.picture), "float32"))[:, 0]
    x = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))
    train(module, x, torch.from_numpy(task.goal.answers(np.array(learned.labels))).long(), task, course)
    return task.goal.rule(module, x.reshape(-1, *task.shape[1:]))


def measure(name: str, data: Data, course: Course, task: Task, tested: int = 500, width: float = 0) -> Outcome:
    """Train, quantize and test one network, at the width given or its usual one."""
    learned = data.train.at(np.flatnonzero(task.goal.learned(np.array(data.train.labels))))
    test = data.test.spread(tested)
    module = build(name, width, course.seed, len(data.classes))
    begun = time.monotonic()
    decide = learn(learned, module, task, course)
    trained = time.monotonic()
    graph = sm.from_torch(module, torch.zeros(task.shape))
    quantizing = time.monotonic()
    result = quantized(graph, learned.spread(CALIBRATED).images, task)
    done = time.monotonic()
    x = inputs(test.images, task, graph.inputs[0].type)
    y, rounded = (outputs(g, test.images, task) for g in (graph, result.graph))
    real, whole, answers = decide(x, y), decide(x, rounded), task.goal.answers(np.array(test.labels))
    return Outcome(
        network=name,
        parameters=sum(p.numel() for p in module.parameters()),
        float_right=_percent(real == answers),
        int8_right=_percent(whole == answers),
        agreement=_percent(real == whole),
        float_error=task.goal.misfit(x, y),
        int8_error=task.goal.misfit(x, rounded),
        training_s=trained - begun,
        quantizing_s=done - quantizing,
        report=result.report,
    )


def _percent(true: Array) -> float:
    return 100 * float(np.mean(true))
