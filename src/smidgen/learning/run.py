"""Epochs of steps on a device: learn, test, save, go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from smidgen.callbacks import ignore
from smidgen.data import Data, as_input, pixel_encoding
from smidgen.errors import InputError, SmidgenError
from smidgen.ir import Array, Graph, roles_of
from smidgen.learning.checkpoint import (
    Checkpoint,
    CheckpointError,
    read_checkpoint,
    start_fingerprint,
    write_checkpoint,
)
from smidgen.learning.course import Course, Epoch, LearningProgress, RunPosition
from smidgen.learning.models import learned_graph
from smidgen.learning.sums import KeptSums
from smidgen.learning.testing import Tested, check_labels, guess, label_of, measure
from smidgen.numerics.one_pass import MOST_SAMPLES
from smidgen.ops.loss import Chance
from smidgen.pipeline import Program
from smidgen.tables import Brief, Table, bars, counted, measured, percent, rows_of
from smidgen.targets.device import Device, restart
from smidgen.training.one_pass import features_fingerprint

ONCE = Course(1, 0.0, augment=None)  # of a run that takes no step
SAVE_STEPS = 1000  # steps between checkpoints within an epoch
SATURATED = 0.05  # of the trained weights may come to their limits without a warning
DIVERGED = 2.0  # times the loss of guessing
HARDLY = 0.85  # the same, and more: hardly anything was learned
UNLEARNED = 1.15  # the same of the first epoch: where little was learned, the rate was too high and not too low
FEW_STEPS = 100  # of an epoch: the mean loss of fewer is no evidence about the rate
LIMIT = 127  # of a trained int8 weight
ProgressCallback = Callable[[LearningProgress], None]


class LearningError(SmidgenError):
    """A run of learning cannot go on."""


@dataclass(frozen=True, eq=False, repr=False)
class Learned(Brief):
    """The results of a run: its tests before and after every epoch, warnings, all state, and the model learned."""

    name: str
    first: Tested  # before learning
    last: Tested  # after the last epoch
    record: tuple[Epoch, ...]
    warnings: tuple[str, ...]
    state: Mapping[str, Array]
    model: Graph
    taught: Tested | None = None  # after one pass, where there was one
    sums: KeptSums | None = None  # that the head was made of

    @property
    def before(self) -> float:
        """The share of right answers before learning."""
        return self._share(self.first)

    @property
    def accuracy(self) -> float:
        """The share of right answers after the last epoch."""
        return self._share(self.last)

    def _share(self, tested: Tested) -> float:
        if tested.accuracy is None:
            raise InputError(f"{self.name} learned by a loss that knows no right answers; take its error")
        return tested.accuracy

    def picture(self) -> str:
        """Draw the mean loss of each epoch."""
        return bars("mean loss of each epoch", [one.loss for one in self.record], list(map(str, self.record)))

    def tables(self) -> tuple[Table, ...]:
        rows = rows_of(
            (counted(one.number), measured(one.loss, ".4f"), percent(one.accuracy), measured(one.error, ".4f"))
            for one in self.record
        )
        return (Table("Every epoch", ("Epoch", "Mean loss", "Right in the test", "Error of the test"), rows),)

    def __str__(self) -> str:
        once = f"{self.taught} after one pass" if self.taught else ""
        steps = f"{self.last} after {len(self.record)} epochs" if self.record else ""
        lines = [f"{self.name}: " + ", ".join(filter(None, (f"{self.first} before", once, steps)))]
        return "\n".join([*lines, *map(str, self.record)])


def learn(
    program: Program,
    data: Data,
    course: Course | None = None,
    *,
    checkpoint: Path | None = None,
    resume: Path | None = None,
    on_progress: ProgressCallback = ignore,
    save_steps: int = SAVE_STEPS,
    stop: Callable[[], object] = ignore,
    threads: int | None = None,
) -> Learned:
    """Run the course on the program's target; a program that learns in one pass does so first, or does nothing else.

    `checkpoint` is written after every epoch and every `save_steps` steps; `resume` is one to continue from, and
    the run then ends as if it had never stopped. If the course has another number of epochs than that of the
    checkpoint, the remaining epochs take the rates of the course given. `stop` is called after every step and test:
    once it returns True, the checkpoint is written and the run ends with KeyboardInterrupt. A loss that is not a number
    stops the run; the last checkpoint stays. Tests take all cores of this machine, or `threads` of them.
    """
    training = program.training
    if training is None:
        raise InputError(f"{program.graph.name} was compiled without a scheme and does not learn; give one")
    if course is None and program.graph.one_pass is None:
        raise InputError(f"{program.graph.name} learns by steps; give a course, or compile it with one_pass=True")
    course, epochs = (ONCE, 0) if course is None else (course, course.epochs)
    course.check()
    check_labels(program.graph, data)
    check_course(course, data)
    fresh = Checkpoint(
        start_fingerprint(program.graph), data.digest(), course, RunPosition(0, 0, 0.0, None, 0.0, ()), {}
    )
    found = _read_matching(resume, fresh, len(data.train)) if resume else None
    if found and not all(tested.fits(program.graph) for tested in found.position.tests):
        raise CheckpointError(f"{resume} is damaged: the tests on record are not those of the loss")
    with program.start() as device:
        run = _Run(device, data, fresh, checkpoint, on_progress, save_steps, stop, threads)
        run.start(found)
        taught = run.teach() if program.graph.one_pass and found is None else None
        while run.position.epoch < epochs:
            run.epoch()
        if epochs:
            run.finish()
        position, state = run.position, device.state()
    frozen = {} if epochs else {v.name: data for v, data in training.forward.state.items()}  # no step changed these
    model, tests = learned_graph(training, {**frozen, **state}), position.tests
    last = tests[-1] if epochs or taught is None else taught
    return Learned(program.graph.name, tests[0], last, position.record, run.warnings(), state, model, taught, run.sums)


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
        stop: Callable[[], object],
        threads: int | None,
    ) -> None:
        self.device, self.data, self.fresh, self.path = device, data, fresh, path
        self.on_progress, self.save_steps, self.stop, self.threads = on_progress, save_steps, stop, threads
        self.course, self.position = fresh.course, fresh.position
        self.sums: KeptSums | None = None

    def start(self, found: Checkpoint | None) -> None:
        """Start from the beginning, or from a checkpoint."""
        if found is not None:
            self.device.restore(found.state)
            self.position = found.position
        else:
            share = saturation(self.device.graph, self.device.state())
            tested = self.test(0)
            self.position = replace(self.position, before=tested.accuracy, error=tested.error, saturated=share)

    def teach(self) -> Tested:
        """Observe every training sample once, as many as sums hold, make the head of them, and test it."""
        train, graph = self.data.train.spread(MOST_SAMPLES), self.device.graph
        encoding = pixel_encoding(graph)
        for index, (image, label) in enumerate(zip(train.images, train.labels, strict=True)):
            self.device.observe(as_input(image, encoding), label)
            self.on_progress(LearningProgress("observing", index + 1, len(train), 0, None, None))
            if self.stop():
                raise KeyboardInterrupt
        self.device.solve()
        self.sums = KeptSums(self.device.sums(), features_fingerprint(graph), graph.classes)
        return self.test(0)

    def warnings(self) -> tuple[str, ...]:
        """Return what looks wrong about the steps, and that sums did not hold all samples."""
        graph, train = self.device.graph, self.data.train
        found = _warnings(self.position, self.course, guess(graph, train), len(train)) if self.position.record else ()
        if self.sums is None or len(train) <= MOST_SAMPLES:
            return found
        return (*found, f"one pass saw {MOST_SAMPLES:,} of {len(train):,} samples, spread evenly: sums hold no more")

    def epoch(self) -> None:
        """Run the remaining steps of the epoch, the test after it, and write its checkpoint."""
        train, number = self.data.train, self.position.epoch
        if self.position.step == 0:
            restart(self.device)
        for step, index in enumerate(self._order(number, len(train))):
            if step < self.position.step:
                continue
            self.step(index)
            self.stop_where_asked()
            if (step + 1) % self.save_steps == 0 and step + 1 < len(train):
                self.save(self.position)
        state = self._finite_state()
        share = saturation(self.device.graph, state)
        tested = self.test(number + 1) if self.course.tests(number + 1) else Tested(None)
        loss, skipped = self.position.losses / len(train), self.position.skipped / len(train)
        epoch = Epoch(number + 1, loss, tested.accuracy, share, tested.error, skipped)
        record = (*self.position.record, epoch)
        self.position = replace(self.position, epoch=number + 1, step=0, losses=0.0, record=record, skipped=0)
        self.save(self.position)

    def _order(self, epoch: int, count: int) -> Sequence[int]:
        """Return the sample that each step takes; a streaming network takes them in their order."""
        return range(count) if self.device.graph.variables else self.course.order(epoch, count)

    def finish(self) -> None:
        """Test after the last epoch, if the run was longer before and no test was due after this epoch."""
        *before, last = self.position.record
        if last.tested is None:
            tested = self.test(last.number)
            last = replace(last, accuracy=tested.accuracy, error=tested.error)
            self.position = replace(self.position, record=(*before, last))
            self.save(self.position)

    def stop_where_asked(self) -> None:
        if self.stop():
            self.save(self.position)
            raise KeyboardInterrupt

    def step(self, index: int) -> None:
        """Learn one sample."""
        train, at = self.data.train, self.position
        image = self.course.image(train.images[index], pixel_encoding(self.device.graph), at.epoch, index)
        rate = self.course.rate(at.epoch, at.step, len(train))
        loss = self.device.train(image, label_of(roles_of(self.device.graph), train, index), rate)
        if not math.isfinite(loss):
            raise self._diverged(f"the loss is {loss}")
        skipped = at.skipped + int(roles_of(self.device.graph).skips(loss))
        self.position = replace(at, step=at.step + 1, losses=at.losses + loss, skipped=skipped)
        mean = self.position.losses / self.position.step
        self.on_progress(LearningProgress("learning", self.position.step, len(train), at.epoch + 1, mean, self._last()))

    def test(self, epoch: int) -> Tested:
        total, last = len(self.data.test), self._last()

        def tested(done: int) -> None:
            self.on_progress(LearningProgress("testing", done, total, epoch, None, last))
            if epoch:
                self.stop_where_asked()
            elif self.stop():
                raise KeyboardInterrupt  # nothing is learned yet that could be kept

        return measure(self.device, self.data.test, tested, threads=self.threads)

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
    """Return the first tensor of a state that holds a number that is not finite; None if all are."""
    found = (name for name, array in state.items() if array.dtype.kind == "f" and not np.isfinite(array).all())
    return next(found, None)


def saturation(graph: Graph, state: Mapping[str, Array]) -> float:
    """Return the share of the trained int8 weights that are at their limits, ±127."""
    variables = graph.variables
    learned = (v for v in graph.updates if v.type.dtype == "int8" and v not in variables)
    weights = [state[v.name] for v in learned if v.name in state]  # while samples are observed, nothing else learns
    at_limit = sum(int((np.abs(w.astype(np.int16)) >= LIMIT).sum()) for w in weights)
    return at_limit / max(sum(w.size for w in weights), 1)


def _warnings(position: RunPosition, course: Course, guessed: Chance, steps: int) -> tuple[str, ...]:
    last, messages = position.record[-1], []
    if last.saturated - position.saturated > SATURATED:
        messages.append(
            f"{last.saturated:.1%} of the trained weights are at their limits of ±127, {position.saturated:.1%} were "
            f"before: updates saturate at a learning rate of {course.learning_rate:g}; lower it"
        )
    guessing, first, rate = guessed.loss, position.record[0], course.learning_rate
    beside = f"{guessed.text} {guessing:.4g}"
    if last.loss > DIVERGED * guessing:
        messages.append(
            f"the loss of the last epoch is {last.loss:.4g}, {beside}: learning diverges at a rate of {rate:g}; lower "
            "it"
        )
    elif steps >= FEW_STEPS and last.loss > HARDLY * guessing:
        high = first.loss > UNLEARNED * guessing
        what = "high; lower it" if high else f"low for {course.epochs} epochs; raise it, learn longer"
        messages.append(
            f"the loss of the first epoch is {first.loss:.4g} and of the last {last.loss:.4g}, {beside}: a learning "
            f"rate of {rate:g} looks too {what}, or let it be chosen"
        )
    return tuple(messages)


def check_course(course: Course, data: Data) -> None:
    """Raise InputError if pictures would be cropped or flipped but not the maps of their cells."""
    if data.label_kind == "maps" and course.augment is not None:
        raise InputError(
            f"{data.name} has maps as labels, and random crops and flips would move the pictures but not the maps; "
            "give Course(augment=None)"
        )


def _read_matching(path: Path, fresh: Checkpoint, steps: int) -> Checkpoint:
    """Return the checkpoint of this run; raise CheckpointError with the difference if it belongs to another."""
    found = read_checkpoint(path)
    if found.program != fresh.program:
        raise CheckpointError(f"{path} belongs to another program; compile the same model, scheme and options")
    if found.data != fresh.data:
        raise CheckpointError(f"{path} was learned from other images; give the same data")
    was, now = asdict(found.course), asdict(fresh.course)
    for key in now:
        if was[key] != now[key] and key != "epochs":
            raise CheckpointError(
                f"{path} belongs to a run with {key} {was[key]}, this one has {now[key]}; give the same value"
            )
    try:
        found.position.check(found.course, steps)
    except InputError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    position = found.position
    if (begun := position.epoch + (position.step > 0)) > fresh.course.epochs:
        raise CheckpointError(
            f"{path} is in epoch {begun} of its run, which cannot end after {fresh.course.epochs}; ask for "
            f"{begun} epochs or more, or start again"
        )
    return replace(found, position=_as_if_asked(position, fresh.course))


def _as_if_asked(position: RunPosition, course: Course) -> RunPosition:
    """Return the position as a run of this course has it: without tests that only another last epoch called for."""
    record = (one if course.tests(one.number) else replace(one, accuracy=None) for one in position.record)
    return replace(position, record=tuple(record))
