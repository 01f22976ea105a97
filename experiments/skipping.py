"""Steps below a loss skipped: what a network learns all the same, how many steps that spares, and what one costs.

A run learns from latents, as `experiments/incremental.py` makes them: the same bytes as from the images, without
random crops. Instructions are those of the whole program on an emulated board, the image handed over by rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import smidgen as sm
from experiments.incremental import BATCH, Cut, Latents
from smidgen.data import Data, pixel_encoding
from smidgen.data.samples import evenly
from smidgen.ir import Graph, roles_of
from smidgen.learning import Course
from smidgen.targets.firmware import BoardDevice
from smidgen.training import Options

EXAMPLES = 8  # images that set the first exponents
ALWAYS = 1e9  # a loss that no step reaches


@dataclass(frozen=True)
class SkippingRun:
    """A course with steps below a loss skipped."""

    data: str
    below: float
    seed: int
    images: int  # to learn from
    epochs: int
    rate: float  # of a batch of 256, along a cosine
    scheme: str = "99kb"


@dataclass(frozen=True)
class Skipped:
    """What came of it: the share of test images told right, and of each epoch's steps the share that was skipped."""

    accuracy: float
    skipped: tuple[float, ...]

    @property
    def whole(self) -> float:
        """Of all steps."""
        return float(np.mean(self.skipped))


@dataclass(frozen=True)
class StepCost:
    """Instructions on a board."""

    board: str
    forward: int
    step: int
    skipped: int

    def saved(self, share: float) -> float:
        """Of all instructions of a course, those that are spared where this share of its steps is skipped."""
        return share * (self.step - self.skipped) / self.step


def run(trial: SkippingRun, parts: Cut, data: Data, latents: Latents) -> Skipped:
    """Learn and test on this machine's C."""
    course = Course(trial.epochs, trial.rate / BATCH, augment=None, seed=trial.seed)
    places = evenly(range(len(data.train)), trial.images)
    options = Options(len(data.classes), seed=trial.seed, skip_below=trial.below)
    first = tuple(latents.train(place) for place in evenly(places, EXAMPLES))
    program, shares = sm.compile(parts.tail, parts.scheme, options=options, images=first), []
    with program.start() as device:
        for epoch in range(trial.epochs):
            skipped = 0
            for step, index in enumerate(course.order(epoch, len(places))):
                label = data.train.labels[places[index]]
                rate = course.rate(epoch, step, len(places))
                loss = device.train(latents.train(places[index]), label, rate)
                skipped += int(roles_of(device.graph).skips(loss))
            shares.append(skipped / len(places))
        right = sum(device.predict(latents.test(i)) == label for i, label in enumerate(data.test.labels))
    return Skipped(right / len(data.test), tuple(shares))


def cost(model: Graph, scheme: str, classes: int, board: str) -> StepCost:
    """Instructions of a prediction, of a step, and of one that is skipped."""
    image = np.random.default_rng(0).integers(-128, 128, model.image.type.shape).astype(np.int8)
    counts = []
    for below in (0.0, ALWAYS):
        options = Options(classes, skip_below=below)
        with sm.compile(model, scheme, board, options=options, streamed_input=True).start() as device:
            assert isinstance(device, BoardDevice)
            assert pixel_encoding(device.graph).type.shape == image.shape
            device.predict(image)
            counts.append(device.counts().total)
            device.train(image, 0, 0.01)
            counts.append(device.counts().total)
    forward, step, _, skipped = counts
    return StepCost(board, forward, step, skipped)
