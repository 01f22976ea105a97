"""How good a device is: the share of right answers, or the mean loss where a loss has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from smidgen.data import Data, Samples, as_input, pixel_encoding
from smidgen.errors import InputError
from smidgen.ir import Array, Graph, Roles, Told, roles_of
from smidgen.ops.loss import Loss, loss_kind, loss_node
from smidgen.targets.device import FEWEST, Device, restart, share_out, told_array
from smidgen.threads import threads_for

Count = Callable[[int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")
GUESSED = 256  # samples, at most, whose variance is taken
LEAST = 1e-12  # that a loss can be compared with: targets may all be the same
TEACHES: dict[Loss, tuple[Told, ...]] = {
    "softmax": ("classes",), "sigmoid": ("classes", "vectors"), "mse": ("vectors",), "cells": ("maps",),
    "reconstruction": ("classes", "vectors", "maps", "nothing"),
}  # fmt: skip


@dataclass(frozen=True)
class Tested:
    """What a test gave: the share of right answers, where there are any, and unless it is top-1 the mean loss.

    An answer is right where the largest of a cell's logits is its class, or where a logit that says yes is above 0.
    """

    accuracy: float | None
    error: float | None = None

    def fits(self, graph: Graph) -> bool:
        """Whether a test of a program gives such figures."""
        loss = loss_kind(graph) or "softmax"
        right, mean = loss not in ("mse", "reconstruction"), loss != "softmax"
        return (self.accuracy is not None, self.error is not None) == (right, mean)

    def __str__(self) -> str:
        if self.error is None:
            return f"top-1 {self.accuracy:.2%}"
        return f"error {self.error:.4g}" + ("" if self.accuracy is None else f", {self.accuracy:.2%} right")


def measure(
    device: Device, samples: Samples, on_progress: Count = lambda _: None, *, threads: int | None = None
) -> Tested:
    """Test a device that learns with the samples, of a streaming network one stream; `on_progress` gets how many.

    Many samples are shared out among the cores of this machine, or so many threads, where the device runs on it.
    """
    restart(device)
    if loss_kind(device.graph) in (None, "softmax"):
        return Tested(top1(device, samples, on_progress, threads=threads))
    roles, encoding = roles_of(device.graph), pixel_encoding(device.graph)
    loss, place = loss_kind(device.graph), device.graph.outputs.index(roles.logits)

    def judge(one: Device, sample: int) -> tuple[float, int, int]:
        image = as_input(samples.images[sample], encoding)
        told = told_array(one.graph, roles, label_of(roles, samples, sample))
        one.predict(image)
        logits = one.outputs()[place]
        return (_loss(one.graph, logits, image if told is None else told), *_right(loss, logits, told))

    judged = _counted(device, judge, range(len(samples)), threads, on_progress)
    losses, right, answers = zip(*judged, strict=True)
    share = sum(right) / max(sum(answers), 1) if loss in ("sigmoid", "cells") else None
    return Tested(share, math.fsum(losses) / len(losses))


def top1(device: Device, samples: Samples, on_progress: Count = lambda _: None, *, threads: int | None = None) -> float:
    """The share of images whose class the device predicts; `on_progress` gets how many were tried."""
    encoding = pixel_encoding(device.graph)
    said = _counted(
        device, lambda one, image: one.predict(as_input(image, encoding)), samples.images, threads, on_progress
    )
    return sum(one == label for one, label in zip(said, samples.labels, strict=True)) / len(samples)


def _counted(
    device: Device,
    function: Callable[[Device, Item], Result],
    items: Sequence[Item],
    threads: int | None,
    on_progress: Count,
) -> list[Result]:
    """function(device, item) of every item; `on_progress` gets how many are done."""
    found: list[Result] = []
    with closing(share_out(device, function, items, threads_for(len(items), FEWEST, threads))) as results:
        for result in results:
            found.append(result)
            on_progress(len(found))
    return found


def label_of(roles: Roles, samples: Samples, place: int) -> int | Array | None:
    """What a step is told of a sample; nothing where the sample itself is the target."""
    return None if roles.label is None else samples.target(place)


def _loss(graph: Graph, logits: Array, target: Array) -> float:
    """The loss of these logits, by the rule of the device."""
    node = loss_node(graph)
    found = node.op.ref(node, logits, target)
    return float(found[0][0])


def _right(loss: Loss | None, logits: Array, told: Array | None) -> tuple[int, int]:
    """How many answers are right, and of how many."""
    if told is None or loss not in ("sigmoid", "cells"):
        return 0, 0
    if loss == "sigmoid":
        return int(((logits > 0) == (told > 0.5)).sum()), told.size
    known = told < logits.shape[-1]
    return int((logits.argmax(axis=-1) == told)[known].sum()), int(known.sum())


def check_labels(graph: Graph, data: Data) -> None:
    """Raise InputError unless a program can learn from what is known of every sample."""
    loss, roles = loss_kind(graph) or "softmax", roles_of(graph)
    if data.told not in TEACHES[loss]:
        fitting = " or ".join(name for name, told in TEACHES.items() if data.told in told)
        raise InputError(
            f"{data.name} tells {data.told} of its samples, {graph.name} learns by {loss} from "
            f"{' or '.join(TEACHES[loss])}; choose the loss {fitting}"
        )
    if loss == "reconstruction":
        return
    if data.told == "classes":
        _check_classes(graph, data)
        return
    for samples in (data.train, data.test):
        for place in range(len(samples)):
            try:
                told_array(graph, roles, samples.target(place))
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


@dataclass(frozen=True)
class Guess:
    """The loss of a network that has learned nothing, and what it does."""

    loss: float
    said: str


def guess(graph: Graph, samples: Samples) -> Guess:
    """What a loss is to be compared with: that of guessing, or of giving the mean of all targets."""
    loss, outputs = loss_kind(graph) or "softmax", graph.scores.type.shape[-1]
    if loss in ("softmax", "cells"):
        return Guess(math.log(outputs), f"that of guessing among {outputs} classes")
    if loss == "sigmoid":
        return Guess(math.log(2), "that of guessing yes or no")
    if loss == "mse":
        targets: Array = np.array(samples.targets, np.float64)
    else:
        encoding = pixel_encoding(graph)
        some = [as_input(image, encoding) for image in samples.spread(GUESSED).images]
        targets = np.array(some, np.float64) * encoding.type.scale
    return Guess(max(float(targets.var(axis=0).mean()), LEAST), "that of giving the mean")
