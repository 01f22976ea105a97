"""Tests of a device: the share of right answers, or the mean loss if a loss has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from smidgen.callbacks import ignore
from smidgen.data import Data, Samples, as_input, pixel_encoding
from smidgen.errors import InputError
from smidgen.ir import Array, Graph, Roles, roles_of
from smidgen.ops.loss import Chance
from smidgen.ops.losses import loss_node, loss_of
from smidgen.targets.device import FEWEST, Device, restart, share_out
from smidgen.threads import threads_for
from smidgen.training.options import check_label_kind

Count = Callable[[int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")
GUESSED = 256  # samples, at most, whose variance is taken
LEAST = 1e-12  # that a loss can be compared with: targets may all be the same


@dataclass(frozen=True)
class Tested:
    """The results of a test: the share of right answers, if there are any, and the mean loss unless it is top-1.

    An answer is right if the largest of a cell's logits is its class, or if a logit is above 0 exactly for yes.
    """

    accuracy: float | None
    error: float | None = None

    def fits(self, graph: Graph) -> bool:
        """Return whether a test of a program gives these figures."""
        judged = loss_of(graph).judged_by
        right, mean = judged != "error", judged != "top-1"
        return (self.accuracy is not None, self.error is not None) == (right, mean)

    def __str__(self) -> str:
        if self.error is None:
            return f"top-1 {self.accuracy:.2%}"
        return f"error {self.error:.4g}" + ("" if self.accuracy is None else f", {self.accuracy:.2%} right")


def measure(device: Device, samples: Samples, on_progress: Count = ignore, *, threads: int | None = None) -> Tested:
    """Test a device that learns on the samples, a streaming network on one stream; `on_progress` gets how many.

    Many samples are shared out among the cores of this machine, or `threads` of them, if the device runs on it.
    """
    restart(device)
    loss = loss_of(device.graph)
    if loss.judged_by == "top-1":
        return Tested(top1(device, samples, on_progress, threads=threads))
    judged = _counted(device, lambda one, place: _judge(one, samples, place), range(len(samples)), threads, on_progress)
    losses, right, answers = zip(*judged, strict=True)
    share = sum(right) / max(sum(answers), 1) if loss.judged_by == "answers" else None
    return Tested(share, math.fsum(losses) / len(losses))


def _judge(device: Device, samples: Samples, place: int) -> tuple[float, int, int]:
    """Return the loss of a sample, and how many of its answers are right, of how many."""
    loss, roles = loss_of(device.graph), roles_of(device.graph)
    image = as_input(samples.images[place], pixel_encoding(device.graph))
    label = loss.label(label_of(roles, samples, place), device.graph)
    device.predict(image)
    logits = device.outputs()[device.graph.outputs.index(roles.logits)]
    target = image if label is None else label
    return (_loss(device.graph, logits, target), *loss.right(logits, target))


def score_samples(device: Device, samples: Samples) -> tuple[float, ...]:
    """Return the score of each sample, higher is better: 1 or 0 by top-1, else minus its loss."""
    restart(device)
    if loss_of(device.graph).judged_by != "top-1":
        return tuple(-_judge(device, samples, place)[0] for place in range(len(samples)))
    encoding = pixel_encoding(device.graph)
    pairs = zip(samples.images, samples.labels, strict=True)
    return tuple(float(device.predict(as_input(image, encoding)) == label) for image, label in pairs)


def top1(device: Device, samples: Samples, on_progress: Count = ignore, *, threads: int | None = None) -> float:
    """Return the share of images whose class the device predicts; `on_progress` gets how many were tried."""
    encoding = pixel_encoding(device.graph)
    predicted = _counted(
        device, lambda one, image: one.predict(as_input(image, encoding)), samples.images, threads, on_progress
    )
    return sum(one == label for one, label in zip(predicted, samples.labels, strict=True)) / len(samples)


def _counted(
    device: Device,
    function: Callable[[Device, Item], Result],
    items: Sequence[Item],
    threads: int | None,
    on_progress: Count,
) -> list[Result]:
    """Return function(device, item) of every item; `on_progress` gets how many are done."""
    found: list[Result] = []
    with closing(share_out(device, function, items, threads_for(len(items), FEWEST, threads))) as results:
        for result in results:
            found.append(result)
            on_progress(len(found))
    return found


def label_of(roles: Roles, samples: Samples, place: int) -> int | Array | None:
    """Return a sample's label; None if the sample itself is the target."""
    return None if roles.label is None else samples.target(place)


def _loss(graph: Graph, logits: Array, target: Array) -> float:
    """Return the loss of these logits, computed as the device computes it."""
    node = loss_node(graph)
    found = node.op.ref(node, logits, target)
    return float(found[0][0])


def check_labels(graph: Graph, data: Data) -> None:
    """Raise InputError unless a program can learn from the labels of every sample."""
    loss = loss_of(graph)
    check_label_kind(loss.loss, data, graph.name)
    if roles_of(graph).label is None:
        return
    if data.label_kind == "classes":
        _check_classes(graph, data)
        return
    for samples in (data.train, data.test):
        for place in range(len(samples)):
            try:
                loss.label(samples.target(place), graph)
            except InputError as error:
                raise InputError(f"sample {place} of {data.name}: {error}") from None


def _check_classes(graph: Graph, data: Data) -> None:
    outputs = graph.scores.type.shape[1]
    classes, largest = max(outputs, 2), max(*data.train.labels, *data.test.labels)
    if largest >= classes:
        raise InputError(
            f"{data.name} holds label {largest} ({data.classes[largest]!r}), the program learns the {classes} classes "
            f"0 to {classes - 1}; compile it for {len(data.classes)}"
        )


def guess(graph: Graph, samples: Samples) -> Chance:
    """Return the loss to compare with: that of guessing, or of giving the mean of all targets."""
    chance = loss_of(graph).chance(graph.scores.type.shape[-1])
    if chance is not None:
        return chance
    if roles_of(graph).label is not None:
        targets: Array = np.array(samples.targets, np.float64)
    else:
        encoding = pixel_encoding(graph)
        some = [as_input(image, encoding) for image in samples.spread(GUESSED).images]
        targets = np.array(some, np.float64) * encoding.type.scale
    return Chance(max(float(targets.var(axis=0).mean()), LEAST), "that of giving the mean")
