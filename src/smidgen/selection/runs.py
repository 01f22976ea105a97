"""Trials run by whatever is there: this machine's cores, a GPU, or a Ray cluster, with the same numbers."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from smidgen.data import Data, examples, pixel_encoding
from smidgen.errors import InputError
from smidgen.ir import Array, Graph
from smidgen.learning import Course, LearningError, learn
from smidgen.pipeline import Program, compile
from smidgen.selection.trials import Trial
from smidgen.selection.workers import share_out
from smidgen.targets.host import Host
from smidgen.training import Options
from smidgen.training.head import layers

FLEET = 64  # devices on a GPU at once
EXAMPLES = 2  # images that set a program's first exponents, which learning soon corrects: each takes time
SMALL = 16  # devices: a fleet this large is closed where the next trial would slow it down


@dataclass(frozen=True, eq=False)
class Setup:
    """What all trials of an analysis have in common."""

    model: Graph
    data: Data  # its test images are those held back
    course: Course


@dataclass(frozen=True)
class Outcome:
    """Top-1 on the images held back and the mean loss of the last epoch; 0 and none where the run diverged."""

    accuracy: float
    loss: float | None


DIVERGED = Outcome(0.0, None)


def say_nothing(_: float) -> None:
    """Nobody wants to know how much of a trial is done."""


class Launcher(Protocol):
    """What runs trials; which one does changes no number."""

    def launch(
        self, setup: Setup, trials: Sequence[Trial], on_part: Callable[[float], None] = say_nothing
    ) -> Generator[tuple[Trial, Outcome]]:
        """The outcome of every trial, in the order in which they come to an end.

        `on_part` gets how much is done of those under way, in trials, where that is known.
        """


@dataclass(frozen=True)
class OnHost:
    """Programs in C, each by itself, in as many processes."""

    workers: int

    def launch(
        self, setup: Setup, trials: Sequence[Trial], on_part: Callable[[float], None] = say_nothing
    ) -> Generator[tuple[Trial, Outcome]]:
        yield from share_out(run_trial, setup, trials, self.workers)


@dataclass(frozen=True)
class OnDevice:
    """Fleets of simulated devices in PyTorch, on a GPU; programs are compiled in as many processes."""

    workers: int
    device: str = "cuda"

    def launch(
        self, setup: Setup, trials: Sequence[Trial], on_part: Callable[[float], None] = say_nothing
    ) -> Generator[tuple[Trial, Outcome]]:
        _check_device(self.device)
        few = replace(setup.data, train=setup.data.train.spread(EXAMPLES), test=setup.data.test.spread(1))
        slim = replace(setup, data=few)  # all that compiling needs
        for fleet in fleets(setup.model, trials):
            with closing(share_out(compile_trial, slim, fleet, self.workers)) as compiled:
                programs = dict(compiled)
            found = run_fleet(setup, [programs[trial] for trial in fleet], self.device, on_part)
            yield from zip(fleet, found, strict=True)


def compile_trial(setup: Setup, trial: Trial) -> Program:
    """The program of a trial, for this machine."""
    options = Options(len(setup.data.classes), trial.weight_bits, seed=trial.seed)
    images = examples(setup.data.train, pixel_encoding(setup.model), EXAMPLES)
    return compile(setup.model, trial.scheme, Host(), options=options, images=images)


def run_trial(setup: Setup, trial: Trial) -> Outcome:
    """Learn and judge in C on one core; what was built for it alone is removed again."""
    program = compile_trial(setup, trial)
    built = Host().build(program.sources)
    try:
        learned = learn(program, setup.data, setup.course, threads=1)
    except LearningError:  # its loss is not a number
        return DIVERGED
    finally:
        shutil.rmtree(built.parent, ignore_errors=True)
    return Outcome(learned.accuracy, learned.record[-1].loss)


def run_fleet(
    setup: Setup, programs: Sequence[Program], device: str, on_part: Callable[[float], None]
) -> list[Outcome]:
    """The same of many programs at once, in PyTorch."""
    from smidgen.simulation import FleetProgress, simulate

    def tell(at: FleetProgress) -> None:
        on_part(at.devices * ((at.epoch - 1) * at.steps + at.step) / (at.epochs * at.steps))

    done = simulate(programs, setup.data, setup.course, device=device, on_progress=tell)
    return [
        DIVERGED if gone or not _finite(state) else Outcome(accuracy, loss)
        for accuracy, loss, gone, state in zip(
            done.accuracies, done.losses[-1], done.diverged, done.states, strict=True
        )
    ]


def _check_device(device: str) -> None:
    """Raise InputError where fleets cannot run there, before anything is compiled for them."""
    try:
        from smidgen.simulation.courses import check_device
    except ImportError:
        raise InputError(f"{device} needs PyTorch, which is not installed; run: pip install 'smidgen[torch]'") from None
    check_device(device)


def _finite(state: Mapping[str, Array]) -> bool:
    """Whether all numbers of a state are finite, without which `learn` calls a run diverged, too."""
    return all(np.isfinite(array).all() for array in state.values() if array.dtype.kind == "f")


def fleets(model: Graph, trials: Sequence[Trial]) -> list[list[Trial]]:
    """Trials that learn from about the same layer on together: what no device of a fleet trains is computed once."""
    sizes = [node.out.type.size for node in layers(model)]
    grouped: list[list[Trial]] = []
    least = math.inf
    for trial in sorted(trials, key=lambda one: one.scheme.biases):
        behind = sum(sizes[len(sizes) - trial.scheme.biases :])
        if not grouped or len(grouped[-1]) == FLEET or (len(grouped[-1]) >= SMALL and behind > 2 * least):
            grouped.append([])
            least = behind
        grouped[-1].append(trial)
    return grouped
