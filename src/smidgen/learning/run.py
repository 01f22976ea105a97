"""Epochs of steps on a device: learn, test, save, go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from smidgen.data import Data, Samples, as_input, pixel_encoding
from smidgen.errors import InputError, SmidgenError
from smidgen.ir import Array, Graph
from smidgen.learning.checkpoint import (
    Checkpoint,
    CheckpointError,
    read_checkpoint,
    start_fingerprint,
    write_checkpoint,
)
from smidgen.learning.course import Course, Epoch, LearningProgress, RunPosition
from smidgen.learning.freezing import learned_graph
from smidgen.pipeline import Program
from smidgen.targets.device import Device

SAVE_STEPS = 1000  # steps between checkpoints within an epoch
SATURATED = 0.05  # of the trained weights may come to their limits before it is said
DIVERGED = 2.0  # times the loss of guessing
HARDLY = 0.85  # the same, and more: hardly anything was learned
UNLEARNED = 1.15  # the same of the first epoch: where little was learned, the rate was too high and not too low
FEW_STEPS = 100  # of an epoch: of fewer, the mean loss says little about the rate
LIMIT = 127  # of a trained int8 weight
ProgressCallback = Callable[[LearningProgress], None]


class LearningError(SmidgenError):
    """A run of learning cannot go on."""


@dataclass(frozen=True, eq=False)
class Learned:
    """What a run gave: top-1 before and after every epoch, warnings, all state, and the model learned."""

    name: str
    before: float
    accuracy: float  # after the last epoch
    record: tuple[Epoch, ...]
    warnings: tuple[str, ...]
    state: Mapping[str, Array]
    model: Graph

    def __str__(self) -> str:
        lines = [f"{self.name}: top-1 {self.before:.2%} before, {self.accuracy:.2%} after {len(self.record)} epochs"]
        return "\n".join([*lines, *map(str, self.record)])


def learn(
    program: Program,
    data: Data,
    course: Course,
    *,
    checkpoint: Path | None = None,
    resume: Path | None = None,
    on_progress: ProgressCallback = lambda _: None,
    save_steps: int = SAVE_STEPS,
) -> Learned:
    """Run the course on the program's target.

    `checkpoint` is written after every epoch and every `save_steps` steps; `resume` is one to continue from, and
    the run then ends as if it had never stopped. A loss that is not a number stops the run; the last checkpoint stays.
    """
    training = program.training
    if training is None:
        raise InputError(f"{program.graph.name} was compiled without a scheme and does not learn; give one")
    course.check()
    check_labels(program.graph, data)
    fresh = Checkpoint(
        start_fingerprint(program.graph), data.digest(), course, RunPosition(0, 0, 0.0, 0.0, 0.0, ()), {}
    )
    found = _read_matching(resume, fresh, len(data.train)) if resume else None
    with program.start() as device:
        run = _Run(device, data, fresh, checkpoint, on_progress, save_steps)
        run.start(found)
        while run.position.epoch < course.epochs:
            run.epoch()
        position, state = run.position, device.state()
    warnings = _warnings(position, course, _classes(program.graph), len(data.train))
    model = learned_graph(training, state)
    accuracy = position.record[-1].accuracy
    assert accuracy is not None
    return Learned(program.graph.name, position.before, accuracy, position.record, warnings, state, model)


def top1(device: Device, samples: Samples, on_progress: Callable[[int], None] = lambda _: None) -> float:
    """The share of images whose class the device predicts; `on_progress` gets how many were tried."""
    correct, encoding = 0, pixel_encoding(device.graph)
    for done, (image, label) in enumerate(zip(samples.images, samples.labels, strict=True), start=1):
        correct += device.predict(as_input(image, encoding)) == label
        on_progress(done)
    return correct / len(samples)


class _Run:
    """A run under way on a device."""

    def __init__(
        self,
        device: Device,
        data: Data,
        fresh: Checkpoint,
        path: Path | None,
        on_progress: ProgressCallback,
        save_steps: int,
    ) -> None:
        self.device, self.data, self.fresh, self.path = device, data, fresh, path
        self.on_progress, self.save_steps = on_progress, save_steps
        self.course, self.position = fresh.course, fresh.position

    def start(self, found: Checkpoint | None) -> None:
        """From the beginning, or from where a checkpoint was written."""
        if found is not None:
            self.device.restore(found.state)
            self.position = found.position
        else:
            share = saturation(self.device.graph, self.device.state())
            self.position = replace(self.position, before=self.test(0), saturated=share)

    def epoch(self) -> None:
        """The steps of the epoch that are left, the test after it, and its checkpoint."""
        train, number = self.data.train, self.position.epoch
        for step, index in enumerate(self.course.order(number, len(train))):
            if step < self.position.step:
                continue
            self.step(index)
            if (step + 1) % self.save_steps == 0 and step + 1 < len(train):
                self.save(self.position)
        state = self._finite_state()
        share = saturation(self.device.graph, state)
        accuracy = self.test(number + 1) if self.course.tests(number + 1) else None
        epoch = Epoch(number + 1, self.position.losses / len(train), accuracy, share)
        record = (*self.position.record, epoch)
        self.position = replace(self.position, epoch=number + 1, step=0, losses=0.0, record=record)
        self.save(self.position)

    def step(self, index: int) -> None:
        """Learn one sample."""
        train, at = self.data.train, self.position
        image = self.course.image(train.images[index], pixel_encoding(self.device.graph), at.epoch, index)
        rate = self.course.rate(at.epoch, at.step, len(train))
        loss = self.device.train(image, train.labels[index], rate)
        if not math.isfinite(loss):
            raise self._diverged(f"the loss is {loss}")
        self.position = replace(at, step=at.step + 1, losses=at.losses + loss)
        mean = self.position.losses / self.position.step
        self.on_progress(LearningProgress("learning", self.position.step, len(train), at.epoch + 1, mean, self._last()))

    def test(self, epoch: int) -> float:
        total, last = len(self.data.test), self._last()
        return top1(
            self.device,
            self.data.test,
            lambda done: self.on_progress(LearningProgress("testing", done, total, epoch, None, last)),
        )

    def save(self, position: RunPosition) -> None:
        if self.path is not None:
            write_checkpoint(replace(self.fresh, position=position, state=self._finite_state()), self.path)

    def _last(self) -> Epoch | None:
        return self.position.record[-1] if self.position.record else None

    def _finite_state(self) -> dict[str, Array]:
        state = self.device.state()
        if (name := not_finite(state)) is not None:
            raise self._diverged(f"%{name} holds numbers that are not finite")
        return state

    def _diverged(self, what: str) -> LearningError:
        kept = f"; {self.path} stays as it was" if self.path is not None and self.path.exists() else ""
        return LearningError(
            f"{what} at step {self.position.step + 1} of epoch {self.position.epoch + 1}: a learning rate of "
            f"{self.course.learning_rate:g} is too large; lower it{kept}"
        )


def not_finite(state: Mapping[str, Array]) -> str | None:
    """The first tensor of a state that holds a number that is not finite; None where there is none."""
    found = (name for name, array in state.items() if array.dtype.kind == "f" and not np.isfinite(array).all())
    return next(found, None)


def saturation(graph: Graph, state: Mapping[str, Array]) -> float:
    """The share of the trained int8 weights that stand at their limits, ±127."""
    weights = [state[v.name] for v in graph.updates if v.type.dtype == "int8"]
    at_limit = sum(int((np.abs(w.astype(np.int16)) >= LIMIT).sum()) for w in weights)
    return at_limit / max(sum(w.size for w in weights), 1)


def _warnings(position: RunPosition, course: Course, classes: int, steps: int) -> tuple[str, ...]:
    last, said = position.record[-1], []
    if last.saturated - position.saturated > SATURATED:
        said.append(
            f"{last.saturated:.1%} of the trained weights stand at their limits of ±127, {position.saturated:.1%} did "
            f"before: updates saturate at a learning rate of {course.learning_rate:g}; lower it"
        )
    guessing, first, rate = math.log(classes), position.record[0], course.learning_rate
    beside = f"that of guessing among {classes} classes {guessing:.4g}"
    if last.loss > DIVERGED * guessing:
        said.append(
            f"the loss of the last epoch is {last.loss:.4g}, {beside}: learning diverges at a rate of {rate:g}; lower "
            "it"
        )
    elif steps >= FEW_STEPS and last.loss > HARDLY * guessing:
        high = first.loss > UNLEARNED * guessing
        what = "high; lower it" if high else f"low for {course.epochs} epochs; raise it, learn longer"
        said.append(
            f"the loss of the first epoch is {first.loss:.4g} and of the last {last.loss:.4g}, {beside}: a learning "
            f"rate of {rate:g} looks too {what}, or let it be chosen"
        )
    return tuple(said)


def _classes(graph: Graph) -> int:
    return graph.scores.type.shape[1]


def check_labels(graph: Graph, data: Data) -> None:
    classes, largest = _classes(graph), max(*data.train.labels, *data.test.labels)
    if largest >= classes:
        raise InputError(
            f"{data.name} holds label {largest} ({data.classes[largest]!r}), the program learns the {classes} classes "
            f"0 to {classes - 1}; compile it for {len(data.classes)}"
        )


def _read_matching(path: Path, fresh: Checkpoint, steps: int) -> Checkpoint:
    """The checkpoint of this very run, or CheckpointError with what differs."""
    found = read_checkpoint(path)
    if found.program != fresh.program:
        raise CheckpointError(f"{path} belongs to another program; compile the same model, scheme and options")
    if found.data != fresh.data:
        raise CheckpointError(f"{path} was learned from other images; give the same data")
    was, now = asdict(found.course), asdict(fresh.course)
    for key in now:
        if was[key] != now[key]:
            raise CheckpointError(
                f"{path} belongs to a run with {key} {was[key]}, this one has {now[key]}; give the same value"
            )
    try:
        found.position.check(fresh.course, steps)
    except InputError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    return found
