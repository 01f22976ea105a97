"""What a fleet gives, and how far it has come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from smidgen.ir import Array


@dataclass(frozen=True, eq=False)
class Simulated:
    """How devices learned: top-1 after the last epoch, the mean loss of each epoch, and all state of each device.

    A device whose loss was not a number once has no accuracy, which is then not a number either.
    """

    accuracies: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]  # by epoch, then by device
    tests: tuple[tuple[float, ...] | None, ...]  # top-1 by epoch, then by device; None where the course has no test
    states: tuple[Mapping[str, Array], ...]
    fleets: tuple[int, ...]  # how many devices ran at once

    @property
    def diverged(self) -> tuple[bool, ...]:
        """Whether a loss of the device was not a number."""
        return tuple(not all(np.isfinite(epoch[d]) for epoch in self.losses) for d in range(len(self.accuracies)))

    def __str__(self) -> str:
        found = [a for a in self.accuracies if not math.isnan(a)]
        said = f": top-1 {min(found):.2%} to {max(found):.2%}" if found else ""
        return f"{len(self.accuracies)} devices{said}; {sum(self.diverged)} diverged"


@dataclass(frozen=True)
class FleetProgress:
    """How far a fleet has come: steps done of how many, of which epoch, from 1, of how many; and its size."""

    step: int
    steps: int
    epoch: int
    epochs: int
    devices: int
