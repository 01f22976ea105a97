"""A fleet whose devices learn apart: each from other samples, at other rates and from another state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from smidgen.callbacks import ignore
from smidgen.ir import Array, Graph
from smidgen.simulation.courses import CPU_STEPS, as_memory_allows
from smidgen.simulation.running import Simulation

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
        lanes, lambda some: _run(some, device, on_progress), f"{device} has too little memory for one device"
    )
    return [found for part in parts for found in part]


def _run(lanes: Sequence[Lane], device: str, on_progress: Count) -> list[tuple[int, ...] | None]:
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
    sound = [bool(one) and _is_finite(fleet.state(number)) for number, one in enumerate(finite.tolist())]
    return [tuple(row[: lane.judges]) if one else None for lane, row, one in zip(lanes, classes, sound, strict=True)]


def _side_by_side(parts: Sequence[Array | None], count: int) -> torch.Tensor:
    """Return samples as [count, devices, …]; those of a device that has fewer, or none, end in zeros."""
    there = {number: part for number, part in enumerate(parts) if part is not None}
    first = next(iter(there.values()))
    made: Array = np.zeros((count, len(parts), *first.shape[1:]), first.dtype)
    for number, part in there.items():
        made[: len(part), number] = part
    return torch.from_numpy(made)


def _is_finite(state: Mapping[str, Array]) -> bool:
    return all(np.isfinite(array).all() for array in state.values() if array.dtype.kind == "f")
