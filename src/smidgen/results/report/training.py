"""The report of a training run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from smidgen.data import Data
from smidgen.ir import Graph
from smidgen.learning import Course, Learned
from smidgen.pipeline import Program
from smidgen.results.lifecycle import life_cycle
from smidgen.results.profiling import Profile
from smidgen.results.report.learned import (
    EpochShown,
    before_learning,
    how_good,
    learning_section,
    quality_section,
)
from smidgen.results.report.memory import instructions_section, memory_section
from smidgen.results.report.network import network_section
from smidgen.results.report.parts import KeyNumber, Report, Section
from smidgen.results.report.reproducing import course_facts, reproduce_section
from smidgen.selection.rates import ChosenRate
from smidgen.targets.boards import BOARDS, KIB
from smidgen.training import Options
from smidgen.training.scheme import Scheme


@dataclass(frozen=True, eq=False)
class Trained:
    """A run that is done: the model it began with, what learned, from what, how, and what came of it."""

    graph: Graph
    scheme: Scheme
    options: Options
    program: Program
    data: Data
    course: Course
    chosen: ChosenRate | None  # None where the rate was given
    learned: Learned
    command: str
    files: tuple[Path, ...]  # that the run wrote
    profile: Profile | None = None  # of a board; None where nothing was measured


def report_training(run: Trained) -> Report:
    """What a run found, section by section."""
    learned, where = run.learned, run.program.target.name
    told = f"{len(run.data.classes)} classes" if run.data.classes else f"loss {run.options.loss}"
    said = (
        f"{told}, {run.scheme.name} on {where}: {learned.first} before, {learned.last} after {len(learned.record)} "
        f"epochs of {len(run.data.train):,} samples, one at a time."
    )
    title = f"{run.graph.name} trained on {run.data.name}"
    return Report(title, "Smidgen train", said, tuple(_numbers(run)), learned.warnings, tuple(_sections(run)))


def _numbers(run: Trained) -> Iterator[KeyNumber]:
    """How good, how small, how much was learned, and how the loss went."""
    first, last, record = run.learned.first, run.learned.last, run.learned.record
    tests = f"{len(run.data.test):,} test samples"
    yield how_good(first.accuracy, last.accuracy, first.error, last.error, tests)
    memory, count = run.program.memory, len(run.data.train)
    planned, where = (memory.peak + memory.state) / KIB, run.program.target.name
    if run.profile is not None:
        planned, board = run.profile.sram_bytes / KIB, BOARDS[where]
        room = f"of {board.sram.bytes / KIB:.0f} KB on {where}"
        yield KeyNumber("SRAM", f"{planned:.1f} KB", room, run.profile.sram_bytes / board.sram.bytes)
    else:
        yield KeyNumber("Memory to learn", f"{planned:.1f} KB", f"arena and state, as planned for {where}")
    yield KeyNumber("Steps", f"{len(record) * count:,}", f"{len(record)} epochs of {count:,} samples")
    yield KeyNumber("Loss of the last epoch", f"{record[-1].loss:.3f}", f"{record[0].loss:.3f} in the first")


def _sections(run: Trained) -> Iterator[Section]:
    board = None if run.profile is None else BOARDS[run.profile.target]
    yield quality_section(before_learning(run.program), run.learned.model, run.data)
    yield network_section(run.graph, run.scheme, run.options)
    epochs = [EpochShown(one.number, one.loss, one.accuracy, one.error) for one in run.learned.record]
    yield learning_section(epochs, run.chosen)
    yield memory_section(life_cycle(run.program), run.profile, board)
    if run.profile is not None:
        yield instructions_section(run.profile)
    yield reproduce_section(run.command, run.graph, run.data, course_facts(run.course), run.files)
