"""Choose the learning rate by short trials of several rates, tested on images they did not learn from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Literal

from smidgen.callbacks import ignore
from smidgen.data import Data, DataError, as_input, pixel_encoding
from smidgen.errors import InputError
from smidgen.ir import Array, Graph, refuse_variables, roles_of
from smidgen.learning import Course, LearningError
from smidgen.learning.run import check_course, not_finite
from smidgen.learning.testing import check_labels, guess, label_of
from smidgen.ops.loss import MeanLoss
from smidgen.ops.losses import loss_of
from smidgen.pipeline import Program
from smidgen.selection.trials import hold_back
from smidgen.tables import Brief, bars
from smidgen.targets.device import Device, share_out
from smidgen.threads import threads_for

BATCH = 256  # samples, for which the paper gives its rates
RATES = tuple(rate / BATCH for rate in (0.0016, 0.0063, 0.025, 0.1, 0.4, 1.0, 2.0, 4.0, 10.0, 25.0))
HIGHER = tuple(rate / BATCH for rate in (63.0, 160.0, 400.0))  # for a mean over outputs or cells, whose slope is less
USUAL = slice(3, 7)  # the rates tried first; others follow where the best stands at an end of those tried
SHORT = 4096  # steps: a course up to here is tried whole,
SPED_UP = 768  # sped up to at most this many steps
FIRST, SECOND = 256, 512  # steps after which trials of the beginning of a longer one are compared
GO_ON = 3  # of them to the second comparison
LEARNED = 0.97  # of the loss of guessing: where no beginning comes below that, all are still on the plateau,
SAFE = 1.0 / BATCH  # and this rate, at which most courses learn well, is taken,
PLATEAU = 0.08  # unless its loss is worse than the best by more than this share of the loss of guessing
JUDGED = 128  # images held back that judge a trial, at most
TIE = (
    0.015  # of the loss of guessing: so close to the best beginning, the highest rate is taken; noise is annealed later
)

Shown = tuple[Array, int | Array | None]  # an image as the model takes it, and its label


@dataclass(frozen=True)
class RateTrial:
    """One rate, the steps it was tried for, and the mean loss of images it had not learned from."""

    learning_rate: float  # of one sample
    steps: int
    loss: float | None  # None where numbers were no longer finite

    def __str__(self) -> str:
        loss = "diverged" if self.loss is None else f"loss {self.loss:.3f}"
        return f"{of_batch(self.learning_rate):>9}  {self.steps:>4} steps  {loss}"


@dataclass(frozen=True, repr=False)
class ChosenRate(Brief):
    """The learning rate of one sample that short trials recommend, and these trials in ascending order of rates."""

    learning_rate: float
    best: float  # the rate of the trial that it follows
    longer: float  # how many times the steps of that trial the course has, where it was tried whole; else 1
    trials: tuple[RateTrial, ...]
    learned_from: int  # images
    held_back: int  # images
    guessing: float  # the loss of guessing, or of giving the mean of all targets

    @property
    def verdict(self) -> str:
        """Return the choice in one sentence."""
        rates = [trial.learning_rate for trial in self.trials]
        chosen = self.trials[rates.index(self.best)]
        text = (
            f"learning rate {of_batch(self.learning_rate)}, chosen from {len(rates)} between {of_batch(rates[0])} and "
            f"{of_batch(rates[-1])} by trials of up to {max(trial.steps for trial in self.trials)} steps"
        )
        if self.longer > 1:
            text += f"; {of_batch(self.best)} was best there, over √{self.longer:.2g} as the course is so much longer"
        if chosen.loss is not None and chosen.loss > LEARNED * self.guessing:
            text += f", none of which came clearly below the loss of guessing, {self.guessing:.2f}"
        return text + self._reason(chosen)

    def _reason(self, chosen: RateTrial) -> str:
        """Say why a trial is followed whose loss is not the least; nothing where it is."""
        best = _least(self.trials)
        assert best.loss is not None
        if chosen != best and best.loss > LEARNED * self.guessing:
            return f"; {of_batch(self.best)} is usually safe, and close to the least loss, {best.loss:.3f}"
        if chosen != best:
            least = f"the least loss, {best.loss:.3f} at {of_batch(best.learning_rate)}"
            return f"; {of_batch(self.best)} is the highest rate close to {least}"
        if any(one.loss is not None and one.loss < best.loss for one in self.trials):
            return f"; lower losses are of trials that ended before {best.steps} steps"
        return ""

    def __str__(self) -> str:
        return "\n".join([self.verdict, *map(str, self.trials)])

    def picture(self) -> str:
        """Draw the loss of each rate; one that diverged has none."""
        return bars("loss of each rate", [one.loss or 0.0 for one in self.trials], list(map(str, self.trials)))


@dataclass(frozen=True)
class RateProgress:
    """Steps done of all trials together."""

    done: int
    total: int


def of_batch(rate: float) -> str:
    """Return a rate of one sample as the command line takes it: that of a batch of 256, divided."""
    return f"{rate * BATCH:.4g}/{BATCH}"


def choose_rate(
    program: Program, data: Data, course: Course, *, on_progress: Callable[[RateProgress], None] = ignore
) -> ChosenRate:
    """Choose the rate for this course, whose own rate is ignored, by trials of the program in C on this machine.

    A quarter of the training images is held back, and trials learn from the rest. A short course is tried whole, sped
    up, and tested on the images held back. Of a longer one the beginning is tried. It is tested along the way on each
    image before it is first learned from, and once all were learned from on those held back.
    """
    if program.training is None or program.target.name != "host":
        raise InputError(f"rates are tried by programs that learn on this machine; {program.graph.name} is not one")
    course.check()
    refuse_variables(program.graph, "a trial of rates")
    check_labels(program.graph, data)
    check_course(course, data)
    try:
        parts = hold_back(data)
    except DataError as error:
        raise DataError(f"{error}; or give the learning rate as a number, which takes no trials") from None
    trials = _Trials(program, parts, course, on_progress)
    tried = trials.run()
    guessing = guess(program.graph, data.train).loss
    best = (_least(tried) if trials.short else _promising(tried, guessing)).learning_rate
    # The best rate of a course that is annealed to its end falls with the square root of its length.
    longer = course.epochs * len(data.train) / trials.second if trials.short else 1.0
    rate = best / math.sqrt(longer)
    return ChosenRate(rate, best, longer, tried, len(parts.train), len(parts.test), guessing)


def make_course(
    program: Program, data: Data, epochs: int, learning_rate: float | Literal["auto"] = "auto", **others: Any
) -> Course:
    """Make a course at a rate of one sample, or at the one that trials choose; `others` are fields of `Course`."""
    given = learning_rate != "auto"
    course = Course(epochs, float(learning_rate) if given else 0.0, **others)
    return course if given else replace(course, learning_rate=choose_rate(program, data, course).learning_rate)


def _least(tried: Sequence[RateTrial]) -> RateTrial:
    """Return the trial with the least loss among those that went farthest."""
    whole = [trial for trial in tried if trial.loss is not None]
    if not whole:
        lowest, highest = tried[0], tried[-1]
        raise LearningError(
            f"at every rate from {of_batch(lowest.learning_rate)} to {of_batch(highest.learning_rate)} numbers are no "
            "longer finite after a few steps; give a lower one as a number"
        )
    return min(whole, key=lambda trial: (-trial.steps, trial.loss))


def _promising(tried: Sequence[RateTrial], guessing: float) -> RateTrial:
    """Return the highest rate whose loss is close to the least; on a plateau the safe rate."""
    best = _least(tried)
    assert best.loss is not None
    least, farthest = best.loss, best.steps
    losses = [(trial, trial.loss) for trial in tried if trial.loss is not None]
    safe = [trial for trial, loss in losses if trial.learning_rate == SAFE and loss <= least + PLATEAU * guessing]
    if least > LEARNED * guessing and safe:
        return safe[0]
    return [trial for trial, loss in losses if trial.steps == farthest and loss <= least + TIE * guessing][-1]


class _Trials:
    """Trials under way, one per core; the numbers do not depend on which core runs which."""

    def __init__(
        self, program: Program, data: Data, course: Course, on_progress: Callable[[RateProgress], None]
    ) -> None:
        self.program, self.course, self.images = program, course, len(data.train)
        self.steps = course.epochs * self.images
        self.short = self.steps <= SHORT
        self.first, self.second = (min(self.steps, SPED_UP),) * 2 if self.short else (FIRST, SECOND)
        self.shown = tuple(_shown(program.graph, data, course, self.second))
        encoding, held = pixel_encoding(program.graph), data.test.spread(JUDGED)
        roles = roles_of(program.graph)
        self.held = tuple(
            (as_input(image, encoding), label_of(roles, held, place)) for place, image in enumerate(held.images)
        )
        self.on_progress, self.counting, self.done = on_progress, Lock(), 0
        self.total = len(RATES[USUAL]) * self.first + GO_ON * (self.second - self.first)
        self.rates = RATES + HIGHER if isinstance(loss_of(program.graph), MeanLoss) else RATES

    def run(self) -> tuple[RateTrial, ...]:
        """Run all trials; return them in ascending order of rates."""
        with self.program.start() as device:
            tried = self._go_on(device, [_Trial(rate) for rate in RATES[USUAL]], self.first)
            while (beyond := _beyond(tried, self.rates)) is not None:
                self.total += self.first
                tried |= self._go_on(device, [_Trial(beyond)], self.first)
            best = sorted((one for one in tried.values() if one.loss is not None), key=_Trial.order)[:GO_ON]
            if self.second > self.first:
                tried |= self._go_on(device, best, self.second)
        return tuple(RateTrial(rate, tried[rate].steps, tried[rate].loss) for rate in sorted(tried))

    def _go_on(self, device: Device, trials: Sequence[_Trial], until: int) -> dict[float, _Trial]:
        """Continue trials to step `until`, on the device and its twins."""
        threads = threads_for(len(trials), fewest=1)
        with closing(share_out(device, lambda one, trial: self._try(one, trial, until), trials, threads)) as done:
            return {one.rate: one for one in done}

    def _try(self, device: Device, trial: _Trial, until: int) -> _Trial:
        course, losses = replace(self.course, learning_rate=trial.rate), list(trial.losses)
        pace = self.steps / self.second if self.short else 1
        device.restore(trial.state or {v.name: array for v, array in self.program.graph.state.items()})
        for step in range(trial.steps, until):
            if not self.short and step >= self.images:
                losses.append(self._judge(device, *self.held[step % len(self.held)]))
            loss = device.train(*self.shown[step], course.rate(0, int(step * pace), self.images))
            if not self.short and step < self.images:
                losses.append(loss)
            self._count()
            if not math.isfinite(loss):
                return replace(trial, steps=step + 1, loss=None)
        if self.short:
            losses = [self._judge(device, *one) for one in self.held]
        later = losses if self.short else losses[until // 2 :]
        mean, state = math.fsum(later) / len(later), device.state()
        sound = math.isfinite(mean) and not_finite(state) is None
        return _Trial(trial.rate, until, mean if sound else None, tuple(losses), state)

    def _judge(self, device: Device, image: Array, label: int | Array | None) -> float:
        """Return the loss of an image, from which the device does not learn."""
        state = device.state()
        loss = device.train(image, label, 0.0)
        device.restore(state)
        return loss

    def _count(self) -> None:
        with self.counting:
            self.done += 1
            self.on_progress(RateProgress(self.done, self.total))


@dataclass(frozen=True, eq=False)
class _Trial:
    """A trial between two rounds."""

    rate: float
    steps: int = 0
    loss: float | None = None
    losses: tuple[float, ...] = ()
    state: Mapping[str, Array] | None = None

    def order(self) -> tuple[float, float]:
        """Return a sort key: least loss first; among trials that diverged the lowest rate."""
        return (math.inf if self.loss is None else self.loss, self.rate)


def _beyond(tried: Mapping[float, _Trial], rates: tuple[float, ...] = RATES) -> float | None:
    """Return the next rate to try where the best is the lowest or the highest tried; None where there is none."""
    best, lowest, highest = min(tried.values(), key=_Trial.order).rate, min(tried), max(tried)
    if best == lowest and lowest > rates[0]:
        return rates[rates.index(lowest) - 1]
    if best == highest and highest < rates[-1]:
        return rates[rates.index(highest) + 1]
    return None


def _shown(graph: Graph, data: Data, course: Course, steps: int) -> Iterator[Shown]:
    """Yield the samples of the first steps of the course."""
    encoding, train, roles = pixel_encoding(graph), data.train, roles_of(graph)
    for epoch in range(math.ceil(steps / len(train))):
        for index in course.order(epoch, len(train))[: steps - epoch * len(train)]:
            image = course.image(train.images[index], encoding, epoch, index)
            yield image, label_of(roles, train, index)
