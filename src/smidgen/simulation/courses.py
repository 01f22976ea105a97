"""A course for a whole fleet: every device learns from the same images in the same order, each at its own rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from smidgen.data import Data, PixelEncoding, pixel_encoding
from smidgen.errors import InputError
from smidgen.ir import Graph
from smidgen.learning.course import Course
from smidgen.learning.testing import check_labels
from smidgen.pipeline import Program
from smidgen.simulation.host import run_on_host
from smidgen.simulation.images import CourseImages, centred
from smidgen.simulation.layout import in_parts
from smidgen.simulation.results import FleetProgress, Simulated
from smidgen.simulation.running import Simulation

KEPT_BYTES = 1 << 33  # of what the front gives for the test images: more is computed anew at each test


def simulate(
    programs: Sequence[Program],
    data: Data,
    course: Course,
    *,
    learning_rates: Sequence[float] | None = None,
    device: str = "cuda",
    on_progress: Callable[[FleetProgress], None] = lambda _: None,
) -> Simulated:
    """Run the course on one simulated device per program, all at once: the bytes that each would learn by itself.

    Programs may differ in scheme, options and seed; `learning_rates` gives each its own in place of the course's. Where
    the GPU's memory does not hold them all, the fleet is split and its parts run one after another. With `device`
    "host", each runs in C on a core of this machine, without PyTorch's part in it, and the result is the same.
    """
    rates = _checked(programs, data, course, learning_rates, device)
    if device == "host":
        return run_on_host(programs, data, course, rates, on_progress)
    graphs, done = [p.graph for p in programs], []
    at_once = len(graphs)
    while graphs:
        try:
            part = _run(graphs[:at_once], data, course, rates[:at_once], device, on_progress)
        except torch.OutOfMemoryError:
            if at_once == 1:
                raise InputError(f"{device} has too little memory for one device of {graphs[0].name}") from None
            at_once = -(-at_once // 2)
            torch.cuda.empty_cache()
            continue
        done.append(part)
        graphs, rates = graphs[at_once:], rates[at_once:]
    return _joined(done)


def _joined(parts: Sequence[Simulated]) -> Simulated:
    def beside(rows: Iterator[tuple[tuple[float, ...], ...]]) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(x for row in epoch for x in row) for epoch in rows)

    tests = tuple(
        None if epoch[0] is None else tuple(x for row in epoch for x in row or ())
        for epoch in zip(*(part.tests for part in parts), strict=True)
    )
    return Simulated(
        tuple(x for part in parts for x in part.accuracies),
        beside(zip(*(part.losses for part in parts), strict=True)),
        tests,
        tuple(state for part in parts for state in part.states),
        tuple(n for part in parts for n in part.fleets),
    )


def check_device(device: str) -> None:
    """Raise InputError where PyTorch cannot run there."""
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
    """The rate of each device; raises where something does not fit."""
    check_device(device)
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
        replace(course, learning_rate=rate).check()
    return rates


def _run(
    graphs: Sequence[Graph],
    data: Data,
    course: Course,
    rates: Sequence[float],
    device: str,
    on_progress: Callable[[FleetProgress], None],
) -> Simulated:
    fleet, encoding = Simulation(graphs, device), pixel_encoding(graphs[0])
    images = CourseImages(data.train, encoding, course, device)
    tested = _Tested(fleet, data, encoding, device)
    steps, losses, tests = len(data.train), [], []
    for epoch in range(course.epochs):
        table = rate_table(course, rates, epoch, steps).to(device)
        found, at = [], 0
        for shown, labels in images.chunks(epoch, fleet.chunk(steps)):
            found.append(fleet.train(fleet.front(shown), labels, table[at : at + len(labels)]))
            at += len(labels)
            on_progress(FleetProgress(at, steps, epoch + 1, course.epochs, len(graphs)))
        losses.append(_means(torch.cat(found)))
        tests.append(tested.top1() if course.tests(epoch + 1) else None)
    last = tests[-1]
    assert last is not None
    states = tuple(fleet.state(d) for d in range(len(graphs)))
    lost = [not all(math.isfinite(epoch[d]) for epoch in losses) for d in range(len(graphs))]
    accuracies = tuple(math.nan if gone else accuracy for accuracy, gone in zip(last, lost, strict=True))
    return Simulated(accuracies, tuple(losses), tuple(tests), states, (len(graphs),))


def _means(losses: Tensor) -> tuple[float, ...]:
    """The mean loss of each device, added up step by step as `learn` does it."""
    sums = np.cumsum(losses.double().cpu().numpy(), axis=0)[-1]
    return tuple((sums / len(losses)).tolist())


def rate_table(course: Course, rates: Sequence[float], epoch: int, steps: int) -> Tensor:
    """The learning rate of each step of an epoch and each device, as float32 [steps, devices]."""
    columns = {
        rate: [replace(course, learning_rate=rate).rate(epoch, step, steps) for step in range(steps)]
        for rate in set(rates)
    }
    return torch.from_numpy(np.array([columns[rate] for rate in rates], np.float32).T.copy())


class _Tested:
    """The test images; what the front gives for them is kept where it is not too much."""

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
