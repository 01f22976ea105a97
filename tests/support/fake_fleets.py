"""Made-up runs of the paper's tables: an engine that learns nothing, and its results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from experiments.paper.fleets import Fleet
from experiments.paper.runs import Build, Footprint, Outcome, Run

RUN = Run("mcunet-5fps", "flowers102", "99kb", "device", 0.4, 12)


def outcome(
    accuracy: float = 0.5, losses: tuple[float, ...] = (2.0, 1.0), digest: str = "abc", weights: str = "w"
) -> Outcome:
    return Outcome(accuracy, losses, None, 2040, 6149, 102, digest, weights, 1.5, 4, "cpu")


@dataclass
class Pretended:
    """An engine that learns nothing: a run's accuracy is its rate and a little of its seed."""

    digests: str = "abc"
    network: str = "w"
    breaks_at: int | None = None  # the fleet, from 0, at which the power fails
    made: list[Fleet] = field(default_factory=list)
    prepared: list[Fleet] = field(default_factory=list)

    def prepare(self, fleet: Fleet) -> None:
        self.prepared.append(fleet)

    def run(self, fleet: Fleet) -> Mapping[Run, Outcome]:
        if len(self.made) == self.breaks_at:
            raise KeyboardInterrupt
        self.made.append(fleet)
        return {run: outcome(accuracy(run), digest=self.digests, weights=self.network) for run in fleet.runs}

    def digest(self, run: Run) -> str:
        return self.digests

    def weights(self, run: Run) -> str:
        return self.network

    def images(self, run: Run) -> int:
        return 2040

    def build(self, build: Build) -> Footprint:
        return Footprint(1000, 2000, True)


def accuracy(run: Run) -> float:
    """Best at a rate of 0.4."""
    return 0.8 - abs(math.log10(run.rate / 0.4)) / 10 + run.seed / 1000
