"""The settings of a training run, and how far it has come."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from smidgen.data import Augment, PixelEncoding, as_input
from smidgen.data.audio import shifted_audio
from smidgen.data.images import Crop, centre_box
from smidgen.data.inputs import kind_of
from smidgen.errors import InputError
from smidgen.ir import Array
from smidgen.learning.testing import Tested
from smidgen.ops.rules import check_rate

RateSchedule = Literal["cosine", "constant"]
_ORDER, _CROP = 0, 1  # what a generator is for: the order of an epoch, or one image's crop


@dataclass(frozen=True)
class Course:
    """Epochs of steps of one sample each; with the seed it fixes every image and rate of the run.

    The learning rate is that of one sample: the paper's bs256_lr of 0.1 is 0.1 / 256 here, however many samples
    are added up to a step.
    """

    epochs: int
    learning_rate: float
    schedule: RateSchedule = "cosine"
    warmup: float = 0.0  # epochs over which the rate rises to its full height
    augment: Augment | None = field(default_factory=Augment)
    seed: int = 0
    test_every: int = 1  # epochs; after the last there is always a test

    def check(self) -> None:
        """Raise InputError if a number is out of range."""
        if not 1 <= self.epochs <= 100_000:
            raise InputError(f"{self.epochs} epochs cannot be run; give 1 to 100,000")
        check_rate(self.learning_rate)
        if self.schedule not in get_args(RateSchedule):
            raise InputError(f"there is no schedule {self.schedule!r}; known are {', '.join(get_args(RateSchedule))}")
        if not 0 <= self.warmup <= self.epochs:
            raise InputError(
                f"a warm-up of {self.warmup} epochs does not fit {self.epochs} epochs; give 0 to {self.epochs}"
            )
        if self.test_every < 1:
            raise InputError(f"a test every {self.test_every} epochs cannot be made; give 1 or more")
        if self.seed < 0:
            raise InputError(f"a seed of {self.seed} cannot be used; give a number from 0 up")
        if self.augment is not None:
            self.augment.check()

    def tests(self, epoch: int) -> bool:
        """Return whether a test follows an epoch, counted from 1."""
        return epoch % self.test_every == 0 or epoch == self.epochs

    def rate(self, epoch: int, step: int, steps: int) -> float:
        """Return the learning rate of a step of an epoch of `steps`."""
        at, total, rise = epoch * steps + step, self.epochs * steps, self.warmup * steps
        if at < rise:
            return self.learning_rate * (at + 1) / math.ceil(rise)
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * (at - rise) / (total - rise))) / 2

    def order(self, epoch: int, count: int) -> tuple[int, ...]:
        """Return the sample that each step of an epoch takes."""
        return tuple(int(i) for i in np.random.default_rng((self.seed, _ORDER, epoch)).permutation(count))

    def image(self, sample: Array, encoding: PixelEncoding, epoch: int, index: int) -> Array:
        """Return sample `index` as the model's input in this epoch: pictures cropped and flipped, audio shifted."""
        kind = kind_of(sample, encoding.type)
        if self.augment is None or kind == "tensor":
            return as_input(sample, encoding)
        if kind == "audio":
            return shifted_audio(sample, encoding, self._generator(epoch, index))
        return self.augment.apply(sample, encoding, self._generator(epoch, index))

    def view(self, height: int, width: int, encoding: PixelEncoding, epoch: int, index: int) -> tuple[Crop, bool]:
        """Return the crop of sample `index`, of this size, in an epoch, and whether it is flipped."""
        if self.augment is None:
            return centre_box(height, width, encoding), False
        return self.augment.draw(height, width, encoding, self._generator(epoch, index))

    def _generator(self, epoch: int, index: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, _CROP, epoch, index))


@dataclass(frozen=True)
class Epoch:
    """The results of an epoch: the mean loss of its steps, the test after it, and weights at their limits."""

    number: int  # from 1
    loss: float
    accuracy: float | None  # None where the course has no test, or the loss no right answers
    saturated: float  # share of the trained int8 weights that stand at ±127
    error: float | None = None  # the mean loss of the test, where that is not of top-1
    skipped: float = 0.0  # share of the steps whose loss was too small to learn from

    def __str__(self) -> str:
        tested = f"  {self.tested}" if self.tested else ""
        skipped = f"  skipped {self.skipped:.1%}" if self.skipped else ""
        return f"epoch {self.number:<4} loss {self.loss:.4f}{tested}{skipped}"

    @property
    def tested(self) -> Tested | None:
        """The results of the test after it; None if there was none."""
        return None if self.accuracy is None and self.error is None else Tested(self.accuracy, self.error)


@dataclass(frozen=True)
class RunPosition:
    """The progress of a run: epochs done, steps done of the one under way and the sum of their losses."""

    epoch: int
    step: int
    losses: float
    before: float | None  # accuracy before learning, None if the loss has no right answers
    saturated: float  # likewise
    record: tuple[Epoch, ...]
    error: float | None = None  # the mean loss of that test, where it is not of top-1
    skipped: int = 0  # of the steps of the epoch under way

    @property
    def tests(self) -> tuple[Tested, ...]:
        """The results of each test, the one before learning first."""
        after = (epoch.tested for epoch in self.record)
        return (Tested(self.before, self.error), *(tested for tested in after if tested))

    def check(self, course: Course, steps: int) -> None:
        """Raise InputError unless a run of this course, `steps` to an epoch, can be here: after them it tests."""
        if not 0 <= self.epoch <= course.epochs or not 0 <= self.step <= (steps if self.epoch < course.epochs else 0):
            raise InputError(
                f"step {self.step} of epoch {self.epoch + 1} is not one of {steps} steps and {course.epochs} epochs"
            )
        if [epoch.number for epoch in self.record] != list(range(1, self.epoch + 1)):
            raise InputError(f"{len(self.record)} epochs are on record, {self.epoch} are done")
        if any((epoch.tested is None) == course.tests(epoch.number) for epoch in self.record):
            raise InputError("the tests on record are not those of the course")
        figures = [share for epoch in self.record for share in (epoch.accuracy or 0.0, epoch.saturated, epoch.skipped)]
        if not all(0 <= share <= 1 for share in (self.before or 0.0, self.saturated, *figures)):
            raise InputError("a share on record is not between 0 and 1")
        if not 0 <= self.skipped <= self.step:
            raise InputError(f"{self.skipped} of {self.step} steps are on record as skipped")


@dataclass(frozen=True)
class LearningProgress:
    """The steps or tests done so far, their mean loss and the last finished epoch."""

    doing: Literal["testing", "observing", "learning"]
    done: int
    total: int
    epoch: int  # under way, from 1; 0 for the test before learning
    loss: float | None
    last: Epoch | None
