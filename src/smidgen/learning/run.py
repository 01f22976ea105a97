"""Epochs of steps on a device: learn, test, save, go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from smidgen.data import Data, Samples, centre, intake
from smidgen.errors import InputError, SmidgenError
from smidgen.ir import Array, Graph
from smidgen.learning.checkpoint import Checkpoint, CheckpointError, fingerprint, read_checkpoint, write_checkpoint
from smidgen.learning.course import Course, Epoch, Place, Progress
from smidgen.learning.freezing import learned_graph
from smidgen.pipeline import Program
from smidgen.targets.device import Device

SAVE_STEPS = 1000  # steps between checkpoints within an epoch
SATURATED = 0.05  # of the trained weights may come to their limits before it is said
DIVERGED = 2.0  # times the loss of guessing
LIMIT = 127  # of a trained int8 weight
Listener = Callable[[Progress], None]


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
    hear: Listener = lambda _: None,
    save_steps: int = SAVE_STEPS,
) -> Learned:
    """Run the course on the program's target.

    `checkpoint` is written after every epoch and every `save_steps` steps; `resume` names one to go on from, and
    the run then ends as if it had never stopped. A loss that is no number stops the run, the last checkpoint stays.
    """
    training = program.training
    if training is None:
        raise InputError(f"{program.graph.name} was compiled without a scheme and does not learn; name one")
    course.check()
    _check_labels(program.graph, data)
    begun = Checkpoint(fingerprint(program.graph), data.digest(), course, Place(0, 0, 0.0, 0.0, 0.0, ()), {})
    found = _resumable(resume, begun) if resume else None
    with program.start() as device:
        run = _Run(device, data, begun, checkpoint, hear, save_steps)
        run.start(found)
        while run.place.epoch < course.epochs:
            run.epoch()
        place, state = run.place, device.state()
    warnings = _warnings(place, course, _classes(program.graph))
    model = learned_graph(training, state)
    accuracy = place.record[-1].accuracy
    assert accuracy is not None
    return Learned(program.graph.name, place.before, accuracy, place.record, warnings, state, model)


def top1(device: Device, samples: Samples, hear: Callable[[int], None] = lambda _: None) -> float:
    """The share of images whose class the device predicts; `hear` is told how many were tried."""
    correct, taken = 0, intake(device.graph)
    for done, (image, label) in enumerate(zip(samples.images, samples.labels, strict=True), start=1):
        correct += device.predict(centre(image, taken)) == label
        hear(done)
    return correct / len(samples)


class _Run:
    """A run under way on a device."""

    def __init__(
        self, device: Device, data: Data, begun: Checkpoint, path: Path | None, hear: Listener, save_steps: int
    ) -> None:
        self.device, self.data, self.begun, self.path = device, data, begun, path
        self.hear, self.save_steps, self.course, self.place = hear, save_steps, begun.course, begun.place

    def start(self, found: Checkpoint | None) -> None:
        """From the beginning, or from where a checkpoint was written."""
        if found is not None:
            self.device.restore(found.state)
            self.place = found.place
        else:
            share = saturation(self.device.graph, self.device.state())
            self.place = replace(self.place, before=self.test(0), saturated=share)

    def epoch(self) -> None:
        """The steps of the epoch that are left, the test after it, and its checkpoint."""
        train, number = self.data.train, self.place.epoch
        for step, index in enumerate(self.course.order(number, len(train))):
            if step < self.place.step:
                continue
            self.step(index)
            if (step + 1) % self.save_steps == 0 and step + 1 < len(train):
                self.save(self.place)
        state = self._sound_state()
        share = saturation(self.device.graph, state)
        accuracy = self.test(number + 1) if self.course.tests(number + 1) else None
        epoch = Epoch(number + 1, self.place.losses / len(train), accuracy, share)
        self.place = replace(self.place, epoch=number + 1, step=0, losses=0.0, record=(*self.place.record, epoch))
        self.save(self.place)

    def step(self, index: int) -> None:
        """Learn one sample."""
        train, at = self.data.train, self.place
        image = self.course.image(train.images[index], intake(self.device.graph), at.epoch, index)
        rate = self.course.rate(at.epoch, at.step, len(train))
        loss = self.device.train(image, train.labels[index], rate)
        if not math.isfinite(loss):
            raise self._too_far(f"the loss is {loss}")
        self.place = replace(at, step=at.step + 1, losses=at.losses + loss)
        mean = self.place.losses / self.place.step
        self.hear(Progress("learning", self.place.step, len(train), at.epoch + 1, mean, self._last()))

    def test(self, epoch: int) -> float:
        total, last = len(self.data.test), self._last()
        return top1(
            self.device, self.data.test, lambda done: self.hear(Progress("testing", done, total, epoch, None, last))
        )

    def save(self, place: Place) -> None:
        if self.path is not None:
            write_checkpoint(replace(self.begun, place=place, state=self._sound_state()), self.path)

    def _last(self) -> Epoch | None:
        return self.place.record[-1] if self.place.record else None

    def _sound_state(self) -> dict[str, Array]:
        state = self.device.state()
        for name, array in state.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise self._too_far(f"%{name} holds numbers that are not finite")
        return state

    def _too_far(self, what: str) -> LearningError:
        kept = f"; {self.path} stays as it was" if self.path is not None and self.path.exists() else ""
        return LearningError(
            f"{what} at step {self.place.step + 1} of epoch {self.place.epoch + 1}: a learning rate of "
            f"{self.course.learning_rate:g} is too large; lower it{kept}"
        )


def saturation(graph: Graph, state: Mapping[str, Array]) -> float:
    """The share of the trained int8 weights that stand at their limits, ±127."""
    weights = [state[v.name] for v in graph.updates if v.type.dtype == "int8"]
    at_limit = sum(int((np.abs(w.astype(np.int16)) >= LIMIT).sum()) for w in weights)
    return at_limit / max(sum(w.size for w in weights), 1)


def _warnings(place: Place, course: Course, classes: int) -> tuple[str, ...]:
    last, said = place.record[-1], []
    if last.saturated - place.saturated > SATURATED:
        said.append(
            f"{last.saturated:.1%} of the trained weights stand at their limits of ±127, {place.saturated:.1%} did "
            f"before: updates saturate at a learning rate of {course.learning_rate:g}; lower it"
        )
    if last.loss > DIVERGED * math.log(classes):
        said.append(
            f"the loss of the last epoch is {last.loss:.4g}, that of guessing among {classes} classes "
            f"{math.log(classes):.4g}: learning diverges at a rate of {course.learning_rate:g}; lower it"
        )
    return tuple(said)


def _classes(graph: Graph) -> int:
    return graph.scores.type.shape[1]


def _check_labels(graph: Graph, data: Data) -> None:
    classes, largest = _classes(graph), max(*data.train.labels, *data.test.labels)
    if largest >= classes:
        raise InputError(
            f"{data.name} holds label {largest} ({data.classes[largest]!r}), the program learns the {classes} classes "
            f"0 to {classes - 1}; compile it for {len(data.classes)}"
        )


def _resumable(path: Path, begun: Checkpoint) -> Checkpoint:
    """The checkpoint of this very run, or CheckpointError with what differs."""
    found = read_checkpoint(path)
    if found.program != begun.program:
        raise CheckpointError(f"{path} is of another program; compile the same model, scheme and options")
    if found.data != begun.data:
        raise CheckpointError(f"{path} was learned from other images; give the same data")
    was, now = asdict(found.course), asdict(begun.course)
    for key in now:
        if was[key] != now[key]:
            raise CheckpointError(f"{path} is of a run with {key} {was[key]}, this one has {now[key]}; give the same")
    return found
