"""The report of a training run, and how to make its results again."""

import hashlib
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from smidgen.data import Data
from smidgen.ir import Graph
from smidgen.ir.text import fingerprint
from smidgen.learning import Course, Learned
from smidgen.pipeline import Program
from smidgen.results.memory import life_cycle
from smidgen.results.profile import Profile
from smidgen.results.report.learned import before_learning, how_good, learning_section, quality_section
from smidgen.results.report.page import Fact, Facts, KeyNumber, Report, Section
from smidgen.results.report.program import instructions_section, memory_section, network_section
from smidgen.selection.choice import Choice, shown
from smidgen.selection.rates import ChosenRate, of_batch
from smidgen.tables import Cell, Table, counted, rows_of
from smidgen.targets.boards import BOARDS, KIB
from smidgen.training import Options
from smidgen.training.scheme import Scheme

CANDIDATES = (
    "What learns", "On samples held back", "SRAM in bytes", "Instructions per sample", "Rate", "Judged with",
)  # fmt: skip


def course_facts(course: Course) -> tuple[tuple[str, str], ...]:
    """Return the settings of a course, by name."""
    changed = course.augment
    crops = "samples unchanged"
    if changed is not None:
        flips = ", flipped half of the time" if changed.flip else ""
        crops = f"random crops of {changed.scale[0]:.0%} to {changed.scale[1]:.0%} of a picture{flips}"
    rate = f"{course.learning_rate:.6g} a sample, {course.schedule}" if course.learning_rate else course.schedule
    return (("Seed", str(course.seed)), ("Course", f"{course.epochs} epochs; learning rate {rate}; {crops}"))


def reproduce_section(
    command: str, model: Graph, data: Data, settings: Iterable[tuple[str, str]], files: Iterable[Path]
) -> Section:
    """Show the command, its input, and the digests that a second run must give."""
    facts = [Fact("Command", "", command)] if command else []
    facts += [Fact(*one) for one in settings]
    made_by = f"Smidgen {version('smidgen')}, Python {platform.python_version()}, numpy {np.__version__}"
    facts.append(Fact("Versions", made_by))
    facts += [
        Fact("Model", f"{model.name}, its fingerprint", fingerprint(model)),
        Fact(
            "Data", f"{data.name}, {len(data.train):,} samples to learn from, {len(data.test):,} to test", data.digest()
        ),
    ]
    facts += [Fact(path.name, "SHA-256", hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]
    intro = "The same input gives the same bytes: a second run ends with these digests."
    return Section("reproduce", "Do it again", intro, (Facts(tuple(facts)),))


def candidates_section(choice: Choice) -> Section:
    """Show every candidate with its score on samples held back, what it costs, and why one was kept."""
    intro = f"Kept: {choice}. "
    if choice.rows:
        intro += (
            f"Each candidate learned from some of {choice.samples:,} training samples and was judged on the rest. The "
            "test samples decided nothing."
        )
    rows = rows_of(
        (
            f"{row.name}, kept" if place == choice.chosen else row.name,
            Cell(shown(row, choice.chance), row.score, row.score if choice.chance is not None else None),
            counted(row.sram_bytes), counted(row.instructions),
            "" if row.learning_rate is None else of_batch(row.learning_rate),
            f"{row.judged_with:,} samples" + ("" if row.finalist else ", a shorter trial"),
        )
        for place, row in enumerate(choice.rows)
    )  # fmt: skip
    table = Table("Candidates, the best first", CANDIDATES, rows, folded=False)
    return Section("candidates", "What was tried on your samples", intro, (table,) if choice.rows else ())


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A finished run: the model it began with, the scheme, the data, the course, and the result."""

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
    choice: Choice | None = None  # of what learns; None where a scheme was given
    profile: Profile | None = None  # of a board; None where nothing was measured


def report_training(run: TrainingRun) -> Report:
    """Return the report of a run."""
    learned, where = run.learned, run.program.target.name
    labels = f"{len(run.data.classes)} classes" if run.data.classes else f"loss {run.options.loss}"
    summary = (
        f"{labels}, {run.scheme.name} on {where}: {learned.first} before, {learned.last} after {len(learned.record)} "
        f"epochs of {len(run.data.train):,} samples, one at a time."
    )
    title = f"{run.graph.name} trained on {run.data.name}"
    return Report(title, "Smidgen train", summary, tuple(_numbers(run)), learned.warnings, tuple(_sections(run)))


def _numbers(run: TrainingRun) -> Iterator[KeyNumber]:
    """Yield how good, how small, how much was learned, and how the loss went."""
    record = run.learned.record
    yield how_good(run.learned.first, run.learned.last, f"{len(run.data.test):,} test samples")
    memory, count = run.program.memory, len(run.data.train)
    planned, where = memory.sram / KIB, run.program.target.name
    if run.profile is not None:
        planned, board = run.profile.sram_bytes / KIB, BOARDS[where]
        room = f"of {board.sram.bytes / KIB:.0f} KB on {where}"
        yield KeyNumber("SRAM", f"{planned:.1f} KB", room, run.profile.sram_bytes / board.sram.bytes)
    else:
        yield KeyNumber("Memory to learn", f"{planned:.1f} KB", f"arena and state, as planned for {where}")
    yield KeyNumber("Steps", f"{len(record) * count:,}", f"{len(record)} epochs of {count:,} samples")
    yield KeyNumber("Loss of the last epoch", f"{record[-1].loss:.3f}", f"{record[0].loss:.3f} in the first")


def _sections(run: TrainingRun) -> Iterator[Section]:
    board = None if run.profile is None else BOARDS[run.profile.target]
    yield quality_section(before_learning(run.program), run.learned.model, run.data)
    yield network_section(run.graph, run.scheme, run.options)
    if run.choice is not None:
        yield candidates_section(run.choice)
    yield learning_section(run.learned.first, run.learned.record, run.chosen)
    yield memory_section(life_cycle(run.program), run.profile, board)
    if run.profile is not None:
        yield instructions_section(run.profile)
    yield reproduce_section(run.command, run.graph, run.data, course_facts(run.course), run.files)
