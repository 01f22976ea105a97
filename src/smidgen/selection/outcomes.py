"""The trials of an analysis as they are run: each trains a program, and tests it on the images held back."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from smidgen.data import Data, examples, pixel_encoding
from smidgen.ir import Array, Graph
from smidgen.learning import Course, LearningError, learn
from smidgen.pipeline import Program, compile
from smidgen.selection.launchers import FLEET, PartCallback, Results
from smidgen.selection.trials import Trial
from smidgen.selection.workers import share_out
from smidgen.targets.host import Host
from smidgen.training import Options
from smidgen.training.head import layers

EXAMPLES = 2  # images that set a program's first exponents, which learning soon corrects: each takes time
SMALL = 16  # devices: a fleet this large is closed where the next trial would slow it down


@dataclass(frozen=True)
class Outcome:
    """Top-1 on the images held back and the mean loss of the last epoch; 0 and None where the run diverged."""

    accuracy: float
    loss: float | None


DIVERGED = Outcome(0.0, None)


@dataclass(frozen=True, eq=False)
class Setup:
    """The model, data and course that all trials of an analysis share."""

    model: Graph
    data: Data  # its test images are those held back
    course: Course

    def run(self, trial: Trial) -> Outcome:
        """Train and test in C on one core, and remove what was built for it."""
        program = compile_trial(self, trial)
        built = Host().build(program.sources)
        try:
            learned = learn(program, self.data, self.course, threads=1)
        except LearningError:  # its loss is not a number
            return DIVERGED
        finally:
            shutil.rmtree(built.parent, ignore_errors=True)
        return Outcome(learned.accuracy, learned.record[-1].loss)

    def on_cores(self, trials: Sequence[Trial], workers: int) -> Results[Trial, Outcome]:
        """Run each in a process: planning a program takes a core as well."""
        yield from share_out(Setup.run, self, trials, workers)

    def fleets(self, trials: Sequence[Trial]) -> list[list[Trial]]:
        """Group trials that begin to learn at about the same layer: what none of them trains is computed once."""
        sizes = [node.out.type.size for node in layers(self.model)]
        grouped: list[list[Trial]] = []
        least = math.inf
        for trial in sorted(trials, key=lambda one: one.scheme.biases):
            behind = sum(sizes[len(sizes) - trial.scheme.biases :])
            if not grouped or len(grouped[-1]) == FLEET or (len(grouped[-1]) >= SMALL and behind > 2 * least):
                grouped.append([])
                least = behind
            grouped[-1].append(trial)
        return grouped

    def run_fleet(self, trials: Sequence[Trial], device: str, workers: int, on_part: PartCallback) -> list[Outcome]:
        """Train and test many programs at once, in PyTorch."""
        from smidgen.simulation import FleetProgress, simulate

        few = replace(self.data, train=self.data.train.spread(EXAMPLES), test=self.data.test.spread(1))
        slim = replace(self, data=few)  # all that compiling needs
        with closing(share_out(compile_trial, slim, trials, workers)) as compiled:
            programs = dict(compiled)

        def report(at: FleetProgress) -> None:
            on_part(at.devices * ((at.epoch - 1) * at.steps + at.step) / (at.epochs * at.steps))

        ordered = [programs[trial] for trial in trials]
        done = simulate(ordered, self.data, self.course, device=device, on_progress=report)
        ends = zip(done.accuracies, done.losses[-1], done.diverged, done.states, strict=True)
        return [
            DIVERGED if gone or not _finite(state) else Outcome(accuracy, loss) for accuracy, loss, gone, state in ends
        ]


def compile_trial(setup: Setup, trial: Trial) -> Program:
    """Compile the program of a trial for this machine."""
    options = Options(len(setup.data.classes), trial.weight_bits, seed=trial.seed)
    images = examples(setup.data.train, pixel_encoding(setup.model), EXAMPLES)
    return compile(setup.model, trial.scheme, Host(), options=options, images=images)


def _finite(state: Mapping[str, Array]) -> bool:
    """Return whether all numbers of a state are finite; otherwise `learn` counts a run as diverged, too."""
    return all(np.isfinite(array).all() for array in state.values() if array.dtype.kind == "f")
