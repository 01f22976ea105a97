"""Courses for whole fleets: all devices learn the same images in the same order, or each learns its own samples."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from smidgen.callbacks import ignore
from smidgen.data import Data, PixelEncoding, as_input, pixel_encoding
from smidgen.errors import InputError
from smidgen.ir import Array, Graph
from smidgen.learning import Course, LearningError, LearningProgress, learn
from smidgen.learning.run import ONCE, not_finite
from smidgen.learning.testing import check_labels
from smidgen.numerics.one_pass import MOST_SAMPLES, Sums
from smidgen.pipeline import Program
from smidgen.simulation.layout import in_parts
from smidgen.simulation.one_pass import teach
from smidgen.simulation.running import Simulation
from smidgen.targets.device import FEWEST, sums_in
from smidgen.threads import in_order, threads_for

Item = TypeVar("Item")
Result = TypeVar("Result")
CPU_STEPS = 64  # between two reports of progress: a processor takes seconds for as many


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
        return _simulated([[one] for one in _run_on_host(programs, data, course, rates, on_progress)], course)
    fleet = [(program.graph, rate) for program, rate in zip(programs, rates, strict=True)]

    def run(some: Sequence[tuple[Graph, float]]) -> list[_Device]:
        return _run([graph for graph, _ in some], data, course, [rate for _, rate in some], device, on_progress)

    too_little = f"{device} has too little memory for one device of {fleet[0][0].name}"
    return _simulated(as_memory_allows(fleet, run, too_little), course)


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


@dataclass(frozen=True, eq=False)
class _Device:
    """The results of a device: mean loss and top-1 by epoch, not a number where there was none, and its state."""

    losses: tuple[float, ...]
    tests: tuple[float, ...]
    state: Mapping[str, Array]
    taught: float | None = None  # top-1 after one pass
    sums: Sums | None = None

    @property
    def accuracy(self) -> float:
        """Top-1 in the end; not a number where a loss was not."""
        if not all(map(math.isfinite, self.losses)):
            return math.nan
        return self.tests[-1] if self.tests else math.nan if self.taught is None else self.taught


def _simulated(fleets: Sequence[Sequence[_Device]], course: Course) -> Simulated:
    """Return what the devices of several fleets found, beside each other."""
    devices = [one for fleet in fleets for one in fleet]
    tests = zip(*(one.tests for one in devices), strict=True)
    return Simulated(
        tuple(one.accuracy for one in devices),
        tuple(zip(*(one.losses for one in devices), strict=True)),
        tuple(row if course.tests(epoch) else None for epoch, row in enumerate(tests, start=1)),
        tuple(one.state for one in devices), tuple(map(len, fleets)),
        tuple(one.taught for one in devices), tuple(one.sums for one in devices),
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
) -> list[_Device]:  # fmt: skip
    fleet, encoding = Simulation(graphs, device), pixel_encoding(graphs[0])
    judged = _tensor(_made(partial(as_input, encoding=encoding), data.test.images), fleet)
    answers = torch.tensor(data.test.labels, device=fleet.place)
    taught = _teach(fleet, data, encoding, judged, answers)
    sums = [sums_in(graph, fleet.state(d)) if graph.one_pass else None for d, graph in enumerate(graphs)]
    steps, losses, tests = len(data.train), list[tuple[float, ...]](), list[tuple[float, ...]]()
    at_once = fleet.chunk(min(steps, CPU_STEPS) if device == "cpu" else steps)

    def image(epoch: int, index: int) -> Array:
        return course.image(data.train.images[index], encoding, epoch, index)

    for epoch in range(course.epochs):
        table, found, at = rate_table(course, rates, epoch, steps).to(device), list[Tensor](), 0
        on_progress(FleetProgress(0, steps, epoch + 1, course.epochs, len(graphs)))
        order = course.order(epoch, steps)
        shown = _made(partial(image, epoch), order)
        while part := list(islice(shown, at_once)):
            some = slice(at, at + len(part))
            labels = torch.tensor([data.train.labels[i] for i in order[some]], device=fleet.place)
            found.append(fleet.train(fleet.front(_tensor(part, fleet)), labels, table[some]))
            at += len(part)
            on_progress(FleetProgress(at, steps, epoch + 1, course.epochs, len(graphs)))
        losses.append(_means(torch.cat(found)))
        tests.append(_top1(fleet, judged, answers) if course.tests(epoch + 1) else (math.nan,) * len(graphs))
    return [
        _Device(tuple(row[d] for row in losses), tuple(row[d] for row in tests), fleet.state(d), taught[d], sums[d])
        for d in range(len(graphs))
    ]


def _teach(
    fleet: Simulation, data: Data, encoding: PixelEncoding, judged: Tensor, answers: Tensor
) -> tuple[float | None, ...]:
    """Let devices that learn in one pass do so; the top-1 of each after it, None of those that do not."""
    graphs = fleet.merged.graphs
    if not any(graph.one_pass for graph in graphs):
        return (None,) * len(graphs)
    train = data.train.spread(MOST_SAMPLES)
    teach(fleet, _tensor(_made(partial(as_input, encoding=encoding), train.images), fleet), train.labels)
    top1 = _top1(fleet, judged, answers)
    return tuple(one if graph.one_pass else None for graph, one in zip(graphs, top1, strict=True))


def _made(function: Callable[[Any], Array], items: Sequence[Any]) -> Iterator[Array]:
    """Make a model's inputs on all cores of this machine, in order."""
    return in_order(function, items, threads_for(len(items), FEWEST))


def _tensor(inputs: Iterable[Array], fleet: Simulation) -> Tensor:
    return torch.from_numpy(np.concatenate(list(inputs))).to(fleet.place)


def _top1(fleet: Simulation, images: Tensor, answers: Tensor) -> tuple[float, ...]:
    """Return the share of the test images that each device is right on."""
    parts = in_parts(images, fleet.chunk(len(images)))
    found = torch.cat([fleet.predict(fleet.front(part)) for part in parts], dim=1)
    return tuple((found == answers).double().mean(1).tolist())


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


def _run_on_host(
    programs: Sequence[Program], data: Data, course: Course, rates: Sequence[float],
    on_progress: Callable[[FleetProgress], None],
) -> list[_Device]:  # fmt: skip
    """Run each program's C on a core of this machine: threads only wait for it, and keep all cores busy."""
    for program in programs:
        if program.target.name != "host":
            raise InputError(f"{program.graph.name} was compiled for {program.target.name}; compile it for the host")
    done = [0] * len(programs)

    def run(number: int) -> _Device:
        def report(progress: LearningProgress) -> None:
            if progress.doing == "learning":
                done[number] = (progress.epoch - 1) * progress.total + progress.done
                step = sum(done) // len(done)
                epoch, rest = divmod(max(step - 1, 0), progress.total)
                on_progress(FleetProgress(rest + 1, progress.total, epoch + 1, course.epochs, len(programs)))

        try:
            own = replace(course, learning_rate=rates[number])
            steps = own if course.epochs else None
            learned = learn(programs[number], data, steps, on_progress=report, threads=1)
        except LearningError:  # its loss is not a number; the others go on
            nothing = (math.nan,) * course.epochs
            return _Device(nothing, nothing, {})
        tests = (math.nan if epoch.accuracy is None else epoch.accuracy for epoch in learned.record)
        taught = None if learned.taught is None else learned.taught.accuracy
        sums = None if learned.sums is None else learned.sums.sums
        return _Device(tuple(epoch.loss for epoch in learned.record), tuple(tests), learned.state, taught, sums)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(run, range(len(programs))))


Count = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Lane:
    """One device: the state it begins with, the samples it learns from, and those it is judged with."""

    graph: Graph
    state: Mapping[str, Array]
    labels: Array  # of each step
    rates: Array
    learned: Callable[[range], Array]  # the samples of some steps, one behind the other
    judged: Callable[[range], Array]  # and some of those whose class it predicts after them
    judges: int


def learn_apart(
    lanes: Sequence[Lane], device: str = "cuda", on_progress: Count = ignore
) -> list[tuple[int, ...] | None]:
    """Return the classes that each device predicts after its steps; None where a number was not finite.

    All take the same number of steps, of which `on_progress` gets how many are done. Each device learns the bytes it
    would learn alone.
    """
    parts = as_memory_allows(
        lanes, lambda some: _run_apart(some, device, on_progress), f"{device} has too little memory for one device"
    )
    return [found for part in parts for found in part]


def _run_apart(lanes: Sequence[Lane], device: str, on_progress: Count) -> list[tuple[int, ...] | None]:
    fleet = Simulation([lane.graph for lane in lanes], device, own_samples=True)
    for number, lane in enumerate(lanes):
        fleet.restore(number, lane.state)
    labels, rates = (np.stack(rows, axis=1) for rows in zip(*((one.labels, one.rates) for one in lanes), strict=True))
    finite, steps = torch.ones(len(lanes), dtype=torch.bool, device=fleet.place), len(labels)
    at_once = fleet.chunk(min(steps, CPU_STEPS) if fleet.place.type == "cpu" else max(steps, 1))
    for start in range(0, steps, at_once):
        some = range(start, min(start + at_once, steps))
        shown = _side_by_side([lane.learned(some) for lane in lanes], len(some))
        part = (torch.from_numpy(rows[some.start : some.stop]).to(fleet.place) for rows in (labels, rates))
        finite &= fleet.train(fleet.front(shown), *part).isfinite().all(0)
        on_progress(some.stop)
    found, most = list[torch.Tensor](), max(lane.judges for lane in lanes)
    for start in range(0, most, at_once := fleet.chunk(most)):
        some = range(start, min(start + at_once, most))
        parts = [
            lane.judged(range(start, stop)) if (stop := min(some.stop, lane.judges)) > start else None for lane in lanes
        ]
        found.append(fleet.predict(fleet.front(_side_by_side(parts, len(some)))))
    classes = torch.cat(found, dim=1).tolist()
    sound = [bool(one) and not_finite(fleet.state(number)) is None for number, one in enumerate(finite.tolist())]
    return [tuple(row[: lane.judges]) if one else None for lane, row, one in zip(lanes, classes, sound, strict=True)]


def _side_by_side(parts: Sequence[Array | None], count: int) -> torch.Tensor:
    """Return samples as [count, devices, …]; those of a device that has fewer, or none, end in zeros."""
    there = {number: part for number, part in enumerate(parts) if part is not None}
    first = next(iter(there.values()))
    made: Array = np.zeros((count, len(parts), *first.shape[1:]), first.dtype)
    for number, part in there.items():
        made[: len(part), number] = part
    return torch.from_numpy(made)
