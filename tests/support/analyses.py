"""A small analysis, the processes that work for it, and a launcher with made-up outcomes."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from smidgen.callbacks import ignore
from smidgen.data import Data
from smidgen.ir import Graph
from smidgen.selection import AnalysisProgress, Contributions, analyze
from smidgen.selection.trials import Outcome, Setup, Trial
from tests.support.networks import inverted_residual
from tests.support.shapes import draw_shapes

RUNS = 9  # of the small analysis
EPOCHS, RATE = 2, 0.01
PATIENCE = 60  # seconds until something must have begun to work


def model() -> Graph:
    return inverted_residual(3)


def data() -> Data:
    return draw_shapes(8, 4)


def small_analysis(output: Path | None = None, **settings: object) -> Contributions:
    """Nine short runs: the last two layers of a small network."""
    chosen = {"reach": 2, "quick": True, "epochs": EPOCHS, "learning_rate": RATE, **settings}
    return analyze(model(), data(), output=output, **chosen)  # type: ignore[arg-type]


class Interrupted(Exception):
    """Raised by a test to stop an analysis."""


def stop_after(count: int) -> object:
    def on_progress(progress: AnalysisProgress) -> None:
        if progress.done == count:
            raise Interrupted

    return on_progress


def working_for(process: int, mark: bytes) -> Iterator[int]:
    """The processes under this one in whose command line the mark stands."""
    for child in _children(process):
        try:
            marked = mark in Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if marked:
            yield child
        yield from working_for(child, mark)


def _children(process: int) -> Iterator[int]:
    """The processes that a process has started, whichever of its threads did; none where it has ended."""
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):  # a thread may end meanwhile
                yield from map(int, (task / "children").read_text().split())


class PretendedLauncher:
    """Outcomes that depend on the trial alone, for which nothing is trained."""

    def __init__(self) -> None:
        self.asked: list[Trial] = []

    def launch(
        self, setup: Setup, trials: Sequence[Trial], on_part: Callable[[float], None] = ignore
    ) -> Generator[tuple[Trial, Outcome]]:
        for trial in trials:
            self.asked.append(trial)
            yield trial, pretended(trial)


def pretended(trial: Trial) -> Outcome:
    digest = hashlib.sha256(repr(trial).encode()).digest()
    return Outcome(digest[0] / 255, digest[1] / 16)


def kill_one(mark: bytes, signal: int) -> int:
    """End the first process that works for this one, as soon as there is one; its number."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        for chosen in working_for(os.getpid(), mark):
            os.kill(chosen, signal)
            return chosen
        time.sleep(0.001)
    raise TimeoutError(f"for {PATIENCE} seconds nothing named {mark!r} has worked for this process")
