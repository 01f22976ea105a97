"""A course for a whole fleet: every device learns from the same images in the same order, each at its own rate."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from smidgen.callbacks import ignore
from smidgen.data import Data, PixelEncoding, pixel_encoding
from smidgen.errors import InputError
from smidgen.ir import Array, Graph
from smidgen.learning import Course, Learned, LearningError, LearningProgress, learn
from smidgen.learning.run import ONCE
from smidgen.learning.testing import check_labels
from smidgen.numerics.one_pass import MOST_SAMPLES, Sums
from smidgen.pipeline import Program
from smidgen.simulation.images import CourseImages, centred
from smidgen.simulation.layout import in_parts
from smidgen.simulation.one_pass import teach
from smidgen.simulation.running import Simulation
from smidgen.targets.device import sums_in

Item = TypeVar("Item")
Result = TypeVar("Result")
CPU_STEPS = 64  # between two reports of progress: a processor takes seconds for as many
KEPT_BYTES = 1 << 33  # of the front's outputs for the test images: more is computed again at each test


@dataclass(frozen=True, eq=False)
class Simulated:
    """The results of a fleet: top-1 after the last epoch, the mean loss of each epoch, and all state of each device.

    A device whose loss was ever not a number has no accuracy: it is not a number either. Devices that learn in one pass
    do so before the first epoch; of those the top-1 after it and the sums are known, too.
    """

    accuracies: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]  # by epoch, then by device
    tests: tuple[tuple[float, ...] | None, ...]  # top-1 by epoch, then by device; None where the course has no test
    states: tuple[Mapping[str, Array], ...]
    fleets: tuple[int, ...]  # how many devices ran at once
    taught: tuple[float | None, ...]  # by device: top-1 after one pass; None without one
    sums: tuple[Sums | None, ...]

    @property
    def diverged(self) -> tuple[bool, ...]:
        """Return whether a loss of each device was not a number."""
        return tuple(not all(np.isfinite(epoch[d]) for epoch in self.losses) for d in range(len(self.accuracies)))

    def __str__(self) -> str:
        found = [a for a in self.accuracies if not math.isnan(a)]
        shares = f": top-1 {min(found):.2%} to {max(found):.2%}" if found else ""
        return f"{len(self.accuracies)} devices{shares}; {sum(self.diverged)} diverged"


@dataclass(frozen=True)
class FleetProgress:
    """The progress of a fleet: the step of an epoch, the epoch from 1, and the number of devices."""

    step: int
    steps: int
    epoch: int
    epochs: int
    devices: int


def simulate(
    programs: Sequence[Program], data: Data, course: Course | None, *, learning_rates: Sequence[float] | None = None,
    device: str = "cuda", on_progress: Callable[[FleetProgress], None] = ignore,
) -> Simulated:  # fmt: skip
    """Run the course on one simulated device per program, all at once: each learns the bytes it would learn alone.

    A program that learns in one pass does so first, and without a course nothing else. Programs may differ in scheme,
    options and seed; `learning_rates` gives each its own in place of the course's. Where the GPU's memory does not hold
    them all, the fleet is split and its parts run one after another. With `device` "host", each runs in C on a core of
    this machine, without PyTorch's part in it, and the result is the same.
    """
    if course is None and any(program.graph.one_pass is None for program in programs):
        raise InputError("a fleet without a course learns in one pass; give a course, or compile it with one_pass=True")
    course = course or replace(ONCE, epochs=0)
    rates = _checked(programs, data, course, learning_rates, device)
    if device == "host":
        return _run_on_host(programs, data, course, rates, on_progress)
    fleet = [(program.graph, rate) for program, rate in zip(programs, rates, strict=True)]

    def run(some: Sequence[tuple[Graph, float]]) -> Simulated:
        return _run([graph for graph, _ in some], data, course, [rate for _, rate in some], device, on_progress)

    return _joined(as_memory_allows(fleet, run, f"{device} has too little memory for one device of {fleet[0][0].name}"))


def as_memory_allows(fleet: Sequence[Item], run: Callable[[Sequence[Item]], Result], too_little: str) -> list[Result]:
    """Run a fleet in as many parts, one after another, as the GPU's memory asks for."""
    done, at_once = list[Result](), len(fleet)
    while fleet:
        try:
            done.append(run(fleet[:at_once]))
        except torch.OutOfMemoryError:
            if at_once == 1:
                raise InputError(too_little) from None
            at_once = -(-at_once // 2)
            torch.cuda.empty_cache()
            continue
        fleet = fleet[at_once:]
    return done


def _joined(parts: Sequence[Simulated]) -> Simulated:
    def beside(rows: Iterator[tuple[tuple[float, ...], ...]]) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(x for row in epoch for x in row) for epoch in rows)

    tests = tuple(
        None if epoch[0] is None else tuple(x for row in epoch for x in row or ())
        for epoch in zip(*(part.tests for part in parts), strict=True)
    )
    return Simulated(
        tuple(x for part in parts for x in part.accuracies), beside(zip(*(part.losses for part in parts), strict=True)),
        tests, tuple(state for part in parts for state in part.states), tuple(n for part in parts for n in part.fleets),
        tuple(x for part in parts for x in part.taught), tuple(x for part in parts for x in part.sums),
    )  # fmt: skip


def check_device(device: str) -> None:
    """Raise InputError if PyTorch cannot run on this device."""
    if device == "host":
        return
    try:
        where = torch.device(device)
    except RuntimeError:
        raise InputError(f"{device!r} is not a device of PyTorch; give cuda, cpu or host") from None
    if where.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"PyTorch {torch.__version__} finds no CUDA device here; use the host's C, or give cpu")
    if where.type not in ("cuda", "cpu"):
        raise InputError(f"fleets run on cuda or cpu, not on {where.type}")


def _checked(
    programs: Sequence[Program], data: Data, course: Course, learning_rates: Sequence[float] | None, device: str
) -> list[float]:
    """Return the rate of each device; raise InputError if the arguments do not fit together."""
    check_device(device)
    if course.epochs:
        course.check()
    if not programs:
        raise InputError("a fleet of no devices cannot run; give at least one program")
    for program in programs:
        if program.training is None:
            raise InputError(f"{program.graph.name} was compiled without a scheme and does not learn; give one")
        check_labels(program.graph, data)
    rates = [course.learning_rate] * len(programs) if learning_rates is None else list(learning_rates)
    if len(rates) != len(programs):
        raise InputError(f"{len(rates)} learning rates do not fit {len(programs)} programs; give one for each")
    for rate in rates:
        replace(course, epochs=max(course.epochs, 1), learning_rate=rate).check()
    return rates


def _run(
    graphs: Sequence[Graph], data: Data, course: Course, rates: Sequence[float], device: str,
    on_progress: Callable[[FleetProgress], None],
) -> Simulated:  # fmt: skip
    fleet, encoding = Simulation(graphs, device), pixel_encoding(graphs[0])
    images = CourseImages(data.train, encoding, course, device)
    tested = _Tested(fleet, data, encoding, device)
    steps, losses, tests = len(data.train), [], []
    last = _teach(fleet, data, encoding, device, tested)
    once = tuple(None if graph.one_pass is None else one for graph, one in zip(graphs, last, strict=True))
    sums = tuple(sums_in(graph, fleet.state(d)) if graph.one_pass else None for d, graph in enumerate(graphs))
    for epoch in range(course.epochs):
        table = rate_table(course, rates, epoch, steps).to(device)
        found, at = [], 0
        on_progress(FleetProgress(0, steps, epoch + 1, course.epochs, len(graphs)))
        for shown, labels in images.chunks(epoch, fleet.chunk(min(steps, CPU_STEPS) if device == "cpu" else steps)):
            found.append(fleet.train(fleet.front(shown), labels, table[at : at + len(labels)]))
            at += len(labels)
            on_progress(FleetProgress(at, steps, epoch + 1, course.epochs, len(graphs)))
        losses.append(_means(torch.cat(found)))
        tests.append(tested.top1() if course.tests(epoch + 1) else None)
    last = tests[-1] or last if tests else last
    states = tuple(fleet.state(d) for d in range(len(graphs)))
    lost = [not all(math.isfinite(epoch[d]) for epoch in losses) for d in range(len(graphs))]
    accuracies = tuple(math.nan if gone else accuracy for accuracy, gone in zip(last, lost, strict=True))
    return Simulated(accuracies, tuple(losses), tuple(tests), states, (len(graphs),), once, sums)


def _teach(fleet: Simulation, data: Data, encoding: PixelEncoding, device: str, tested: _Tested) -> tuple[float, ...]:
    """Let devices that learn in one pass do so; the top-1 of every device behind it, not a number where none does."""
    if not any(graph.one_pass for graph in fleet.merged.graphs):
        return (math.nan,) * len(fleet.merged.graphs)
    train = data.train.spread(MOST_SAMPLES)
    teach(fleet, centred(train, encoding, device), train.labels)
    return tested.top1()


def _means(losses: Tensor) -> tuple[float, ...]:
    """Return the mean loss of each device, added up step by step as `learn` does it."""
    sums = np.cumsum(losses.double().cpu().numpy(), axis=0)[-1]
    return tuple((sums / len(losses)).tolist())


def rate_table(course: Course, rates: Sequence[float], epoch: int, steps: int) -> Tensor:
    """Return the learning rate of each step of an epoch and each device, as float32 [steps, devices]."""
    columns = {
        rate: [replace(course, learning_rate=rate).rate(epoch, step, steps) for step in range(steps)]
        for rate in set(rates)
    }
    return torch.from_numpy(np.array([columns[rate] for rate in rates], np.float32).T.copy())


class _Tested:
    """The test images, and the front's outputs for them if they are not too large to keep."""

    def __init__(self, fleet: Simulation, data: Data, encoding: PixelEncoding, device: str) -> None:
        self.fleet, self.labels = fleet, torch.tensor(data.test.labels, device=device)
        self.images = centred(data.test, encoding, device)
        keeps = fleet.boundary_bytes * len(self.images) <= KEPT_BYTES
        self.kept = fleet.front(self.images) if keeps else None

    def top1(self) -> tuple[float, ...]:
        if self.kept is not None:
            found = self.fleet.predict(self.kept)
        else:
            parts = in_parts(self.images, self.fleet.chunk(len(self.images)))
            found = torch.cat([self.fleet.predict(self.fleet.front(part)) for part in parts], dim=1)
        return tuple((found == self.labels).double().mean(1).tolist())


def _run_on_host(
    programs: Sequence[Program], data: Data, course: Course, rates: Sequence[float],
    on_progress: Callable[[FleetProgress], None],
) -> Simulated:  # fmt: skip
    """Run each program's C on a core of this machine: threads only wait for it, and keep all cores busy."""
    for program in programs:
        if program.target.name != "host":
            raise InputError(f"{program.graph.name} was compiled for {program.target.name}; compile it for the host")
    done = [0] * len(programs)

    def run(number: int) -> Learned | None:
        def report(progress: LearningProgress) -> None:
            if progress.doing == "learning":
                done[number] = (progress.epoch - 1) * progress.total + progress.done
                step = sum(done) // len(done)
                epoch, rest = divmod(max(step - 1, 0), progress.total)
                on_progress(FleetProgress(rest + 1, progress.total, epoch + 1, course.epochs, len(programs)))

        try:
            own = replace(course, learning_rate=rates[number])
            steps = own if course.epochs else None
            return learn(programs[number], data, steps, on_progress=report, threads=1)
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
    taught = tuple(None if one is None or one.taught is None else one.taught.accuracy for one in learned)
    sums = tuple(None if one is None or one.sums is None else one.sums.sums for one in learned)
    return Simulated(accuracies, tuple(losses), tuple(tests), states, (1,) * len(learned), taught, sums)
