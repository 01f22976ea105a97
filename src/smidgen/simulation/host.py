"""The same course in C: each program on a core of this machine, as many at once as there are cores."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from smidgen.data import Data
from smidgen.errors import InputError
from smidgen.learning import Course, Learned, LearningError, LearningProgress, learn
from smidgen.pipeline import Program
from smidgen.simulation.results import FleetProgress, Simulated


def run_on_host(
    programs: Sequence[Program],
    data: Data,
    course: Course,
    rates: Sequence[float],
    on_progress: Callable[[FleetProgress], None],
) -> Simulated:
    """The programs' own C learns while Python waits for it, so that threads keep all cores busy."""
    for program in programs:
        if program.target.name != "host":
            raise InputError(f"{program.graph.name} was compiled for {program.target.name}; compile it for the host")
    done = [0] * len(programs)

    def run(number: int) -> Learned | None:
        def tell(progress: LearningProgress) -> None:
            if progress.doing == "learning":
                done[number] = (progress.epoch - 1) * progress.total + progress.done
                step = sum(done) // len(done)
                epoch, rest = divmod(max(step - 1, 0), progress.total)
                on_progress(FleetProgress(rest + 1, progress.total, epoch + 1, course.epochs, len(programs)))

        try:
            own = replace(course, learning_rate=rates[number])
            return learn(programs[number], data, own, on_progress=tell, threads=1)
        except LearningError:  # its loss is not a number; the others go on
            return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        learned = list(pool.map(run, range(len(programs))))
    return _simulated(learned, course)


def _simulated(learned: Sequence[Learned | None], course: Course) -> Simulated:
    losses, tests = [], []
    for number in range(course.epochs):
        epochs = [None if one is None else one.record[number] for one in learned]
        losses.append(tuple(math.nan if epoch is None else epoch.loss for epoch in epochs))
        tested = tuple(math.nan if e is None or e.accuracy is None else e.accuracy for e in epochs)
        tests.append(tested if course.tests(number + 1) else None)
    accuracies = tuple(math.nan if one is None else one.accuracy for one in learned)
    states = tuple({} if one is None else one.state for one in learned)
    return Simulated(accuracies, tuple(losses), tuple(tests), states, (1,) * len(learned))
