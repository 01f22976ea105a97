"""The report of a fit: results in words, and pictures of what learns, how it learned and what it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from smidgen.data.files import write_whole
from smidgen.fitting.fitted import Fitted, Written
from smidgen.fitting.stages import REPORT, SCHEME, Stages
from smidgen.frontends.native import read_smg
from smidgen.results.memory import life_cycle
from smidgen.results.report import Report, Section, render
from smidgen.results.report.learned import before_learning, how_good, learning_section, quality_section
from smidgen.results.report.page import Chart, Fact, Facts, KeyNumber
from smidgen.results.report.training import (
    candidates_section,
    contributions_section,
    course_facts,
    instructions_section,
    memory_section,
    network_section,
    reproduce_section,
)
from smidgen.selection.found import Pareto
from smidgen.selection.searching import pareto
from smidgen.targets.boards import BOARDS, KIB, shown_time

LEARNED = "learned.smg"
BUDGETS = 8  # of the curve of what memory buys


def make_report(stages: Stages, fitted: Fitted, more: Callable[[], Section] | None = None) -> Written:
    """Write the report from the stages' files, with the section that `more` makes."""
    report = report_of(stages, fitted, () if more is None else (more(),))
    write_whole(stages.folder / REPORT, render(report).encode())
    pictures = sum(isinstance(block, Chart) for section in report.sections for block in section.blocks)
    return Written(pictures, "pictures; open it in a browser")


def report_of(stages: Stages, fitted: Fitted, more: tuple[Section, ...] = ()) -> Report:
    """Return the report of a fit, section by section."""
    classes = len(stages.data.classes)
    labels = f"{classes} classes" if classes else f"loss {stages.options.loss}"
    learned, profile, budget = fitted.learned, fitted.board, fitted.budget
    samples = f"{learned.train_images:,} samples, one at a time"
    summary = (
        f"{labels}: {learned.tested} after {learned.course} of {samples}. {fitted.choice}. "
        f"{profile.sram_bytes:,} bytes of SRAM on {profile.target}, the budget is {budget:,}."
    )
    sections = (
        _quality(stages),
        network_section(stages.graph, stages.scheme, stages.options),
        candidates_section(fitted.choice),
        *([learning_section(learned.first, learned.record, None)] if learned.record else []),
        memory_section(life_cycle(stages.there), profile, BOARDS[profile.target], budget),
        instructions_section(profile),
        *more,
        contributions_section(stages.contributions, _bought(stages)),
        Section("stages", "Stage by stage", "What each stage found, and the files it left.", (_stages(fitted),)),
        _reproduce(stages, fitted),
    )
    title = f"{fitted.model.name} fitted to {stages.data.name}"
    return Report(title, "Smidgen fit", summary, _numbers(fitted), (*fitted.choice.notes, *learned.warnings), sections)


def _numbers(fitted: Fitted) -> tuple[KeyNumber, ...]:
    """Return the key numbers: how good, how small, how large, how fast."""
    learned, board, memory = fitted.learned, fitted.board, BOARDS[fitted.board.target]
    budget, tests = fitted.budget, f"{learned.test_images:,} test samples"
    return (
        how_good(learned.first, learned.last, tests),
        KeyNumber(
            "SRAM", f"{board.sram_bytes / KIB:.1f} KB", f"of a budget of {budget / KIB:.0f} KB",
            board.sram_bytes / budget,
        ),
        KeyNumber(
            "Flash", f"{board.flash_bytes / KIB:.0f} KB", f"of {memory.flash.bytes / KIB:,.0f} KB on {board.target}",
            board.flash_bytes / memory.flash.bytes,
        ),
        KeyNumber(
            "A training step", shown_time(board.time.step_ms or 0.0),
            f"{(board.instructions.step or 0) / 1e6:.1f} M instructions at {board.time.mhz} MHz",
        ),
    )  # fmt: skip


def _quality(stages: Stages) -> Section:
    stages.show("testing once more, sample by sample", 0, 0)
    return quality_section(before_learning(stages.there), read_smg(stages.folder / LEARNED), stages.data)


def _bought(stages: Stages) -> Pareto | None:
    """Return what less memory would achieve on the board; None for estimated contributions, too vague for that."""
    if not stages.contributions.conditions.judged_with:
        return None
    return pareto(
        stages.graph, stages.contributions, stages.wish.budget, stages.wish.target, options=stages.options,
        streamed_input=stages.streamed, points=BUDGETS,
        on_plan=lambda plans: stages.show(f"what less memory would buy, scheme {plans}", 0, 0),
    )  # fmt: skip


def _stages(fitted: Fitted) -> Facts:
    """Return the stages and, where classes were learned, how to go on in a browser."""
    facts = [Fact(one.stage, f"{one.said} → {', '.join(one.files)}") for one in fitted.stages]
    if fitted.model.classes:
        facts.append(
            Fact("Play with it", "A page that goes on learning in a browser, from this folder:", "smidgen play .")
        )
    return Facts(tuple(facts))


def _reproduce(stages: Stages, fitted: Fitted) -> Section:
    course = replace(stages.wish.course, learning_rate=fitted.choice.learning_rate)
    settings = (*course_facts(course), ("Compiler", fitted.board.compiler))
    files = [stages.folder / name for name in (SCHEME, *stages.models)]
    return reproduce_section(stages.wish.command, stages.source, stages.data, settings, files)
