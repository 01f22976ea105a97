"""The paper's baselines: many runs of float training at once, on the same images in the same order.

"int8" is the paper's simulation of training on a device: the int8 graph with fp32 weights and fp32 gradients. Weights
are kept in quantized units and the forward pass reads them unrounded; activations are rounded to int8. QAS multiplies
each gradient by 1 / s_w² (weights) or 1 / (s_x·s_w)² (biases) before the optimizer sees it. "fp32" is the real-valued
network behind the int8 one: the same first weights in real units, nothing rounded; activations keep the limits of
their int8 range, which are what the network's ReLU6 has become. The classifier is fp32 in both.

The gradient of a step is the mean over its batch. The learning rate is the paper's bs256_lr, that of a batch of 256: a
step of `batch` samples takes batch / 256 of it, and for SGD at batch 1 this is 256 times the rate a `Course` has. The
last batch of an epoch holds the samples that are left and its mean counts like any other. Weight decay is 0 in the
paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import torch
from torch import Tensor

from experiments.baselines.copies import Front
from experiments.baselines.images import CourseImages, centred
from experiments.baselines.optimizers import corrections
from experiments.baselines.runs import Baseline, Precision, Runs
from experiments.baselines.simulator import check_learns_always
from smidgen.data import Data, pixel_encoding
from smidgen.errors import InputError
from smidgen.ir import Graph, refuse_variables
from smidgen.learning.course import Course
from smidgen.ops.losses import check_softmax
from smidgen.training import Training

RATE_BATCH = 256  # samples, of the step that a learning rate is given for
FRONT_BATCH = 256  # images that go through the front at once
Found = tuple[Tensor, ...]  # what the front found of images


@dataclass(frozen=True)
class BaselineResult:
    """How a run ended: top-1 on the test images after the last epoch, and the mean loss of each epoch."""

    run: Baseline
    accuracy: float
    losses: tuple[float, ...]


@dataclass(frozen=True)
class BaselineProgress:
    """The epoch that was finished, from 1, of how many, and its mean loss in every run."""

    epoch: int
    epochs: int
    losses: tuple[float, ...]


def train_baselines(
    training: Training,
    runs: Sequence[Baseline],
    data: Data,
    course: Course,
    *,
    batch: int,
    device: str = "cuda",
    together: int = 128,
    on_progress: Callable[[BaselineProgress], None] = lambda _: None,
) -> tuple[BaselineResult, ...]:
    """Train what the training's scheme trains, in every run, and test after the last epoch.

    Of the course the epochs, the images, their order, the schedule and the warm-up count; the rates are the runs' own.
    At most `together` runs are computed at once, which bounds memory and changes nothing else.
    """
    check_softmax(training.step, "training in float32")
    check_learns_always(training.step, "training in float32")
    _check(training.forward, runs, data, course, batch, together)
    place = torch.device(device)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        fronts, groups = _groups(training, runs, batch, place, together)
        encoding = pixel_encoding(training.forward)
        images = CourseImages(data.train, encoding, course, place)
        losses: list[tuple[float, ...]] = []
        for epoch in range(course.epochs):
            losses.append(_epoch(fronts, groups, images, course, epoch, len(data.train), batch))
            on_progress(BaselineProgress(epoch + 1, course.epochs, losses[-1]))
        accuracy = _top1(fronts, groups, centred(data.test, encoding, place), data.test.labels, batch)
    return tuple(BaselineResult(run, accuracy[i], tuple(epoch[i] for epoch in losses)) for i, run in enumerate(runs))


@dataclass(frozen=True, eq=False)
class _Group:
    """Runs of one precision that are computed at once, and their places among all."""

    precision: Precision
    places: tuple[int, ...]
    runs: Runs


def _groups(
    training: Training, runs: Sequence[Baseline], batch: int, device: torch.device, together: int
) -> tuple[dict[Precision, Front], list[_Group]]:
    """A front for each precision that runs have, and the runs in groups, those of one optimizer side by side."""
    forward = training.forward
    fronts: dict[Precision, Front] = {}
    groups: list[_Group] = []
    pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
    for precision in get_args(Precision):
        rounded = precision == "int8"
        chosen = [i for i, run in enumerate(runs) if run.precision == precision]
        chosen.sort(key=lambda i: runs[i].optimizer)
        if chosen:
            fronts[precision] = Front(forward, rounded=rounded, device=device)
        for start in range(0, len(chosen), together):
            places = tuple(chosen[start : start + together])
            some = tuple(runs[i] for i in places)
            made = Runs(forward, some, batch, rounded, device, pool)
            groups.append(_Group(precision, places, made))
    return fronts, groups


def _epoch(
    fronts: dict[Precision, Front],
    groups: list[_Group],
    images: CourseImages,
    course: Course,
    epoch: int,
    count: int,
    batch: int,
) -> tuple[float, ...]:
    """Learn from every image once; the mean loss of each run."""
    found, labels = _through(fronts, images.chunks(epoch, FRONT_BATCH))
    steps = -(-count // batch)
    device = labels.device
    shape = replace(course, learning_rate=1.0)
    clock = torch.tensor(
        [
            (shape.rate(epoch, step, steps) * batch / RATE_BATCH, *corrections(epoch * steps + step + 1))
            for step in range(steps)
        ],
        dtype=torch.float32,
    ).to(device)
    places, shares = (table.to(device) for table in _batches(count, batch))
    losses = [math.nan] * sum(len(group.places) for group in groups)
    for group in groups:
        features = found[group.precision]
        for step in range(steps):
            rows = places[step]
            group.runs.step(tuple(x[rows] for x in features), labels[rows], shares[step], clock[step])
    for group in groups:
        for place, loss in zip(group.places, group.runs.losses(count).tolist(), strict=True):
            losses[place] = loss
    return tuple(losses)


def _through(
    fronts: dict[Precision, Front], chunks: Iterator[tuple[Tensor, Tensor]]
) -> tuple[dict[Precision, Found], Tensor]:
    """What each front finds of all images, and their labels."""
    parts: dict[Precision, list[Found]] = {precision: [] for precision in fronts}
    labels: list[Tensor] = []
    for images, some in chunks:
        labels.append(some)
        for precision, front in fronts.items():
            parts[precision].append(front.run(images))
    found = {
        precision: tuple(torch.cat(values) for values in zip(*some, strict=True)) for precision, some in parts.items()
    }
    return found, torch.cat(labels)


def _batches(count: int, batch: int) -> tuple[Tensor, Tensor]:
    """The samples of each step, [steps, batch], and their shares of its mean.

    The last step is filled up with its first sample, again and again with a share of 0: all steps have one shape.
    """
    steps = -(-count // batch)
    at = torch.arange(steps * batch)
    places = torch.where(at < count, at, (steps - 1) * batch).reshape(steps, batch)
    shares = (at < count).float().reshape(steps, batch)
    return places, shares / shares.sum(dim=1, keepdim=True)


def _top1(
    fronts: dict[Precision, Front], groups: list[_Group], images: Tensor, labels: Sequence[int], batch: int
) -> list[float]:
    """The share of test images whose class each run predicts."""
    truth = torch.tensor(labels, dtype=torch.int64, device=images.device)
    parts = (slice(start, start + FRONT_BATCH) for start in range(0, len(labels), FRONT_BATCH))
    found, _ = _through(fronts, ((images[part], truth[part]) for part in parts))
    accuracy = [math.nan] * sum(len(group.places) for group in groups)
    for group in groups:
        correct = torch.zeros(len(group.places), dtype=torch.int64, device=images.device)
        for start in range(0, len(labels), batch):
            rows = slice(start, start + batch)
            correct += group.runs.correct(tuple(x[rows] for x in found[group.precision]), truth[rows])
        for place, right in zip(group.places, correct.tolist(), strict=True):
            accuracy[place] = right / len(labels)
    return accuracy


def _check(forward: Graph, runs: Sequence[Baseline], data: Data, course: Course, batch: int, together: int) -> None:
    course.check()
    refuse_variables(forward, "a simulation")
    for run in runs:
        run.check()
    if not runs:
        raise InputError("there are no runs to train; give at least one")
    for what, number in (("a batch", batch), ("a group of runs", together)):
        if number < 1:
            raise InputError(f"{what} of {number} cannot be used; give 1 or more")
    classes, largest = forward.scores.type.shape[-1], max(*data.train.labels, *data.test.labels)
    if largest >= classes:
        raise InputError(
            f"{data.name} holds label {largest}, {forward.name} learns the {classes} classes 0 to {classes - 1}; "
            f"build its training for {len(data.classes)}"
        )
