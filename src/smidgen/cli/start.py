"""The verbs that do everything: fit, and demo, which fits a shipped network to CIFAR-10.

The demonstration also learns on an emulated board, and compares the bytes with those learned on this machine.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from smidgen.callbacks import ignore
from smidgen.cli import shared, verbs
from smidgen.cli.options import AUTO
from smidgen.cli.terminal import Progress, going_on, progress, show, spinner, warn
from smidgen.data import Augment, Data, Samples, examples, pixel_encoding
from smidgen.data.audio import with_front_end
from smidgen.data.layouts.cifar import read_sample
from smidgen.errors import InputError
from smidgen.fitting import SCHEME, FitProgress, Fitted, Limits, fit, fit_auto
from smidgen.ir import Graph
from smidgen.learning import Course, Learned, LearningProgress, learn
from smidgen.pipeline import compile
from smidgen.results.report.page import Fact, Facts, Section
from smidgen.selection.contributions import Contributions, read_several
from smidgen.selection.estimates import estimate, shipped_or_estimated
from smidgen.targets import find_board
from smidgen.targets.boards import parse_size
from smidgen.targets.device import Target
from smidgen.training import Options
from smidgen.training.scheme import load_scheme
from smidgen.zoo import is_zoo_name, load

NETWORK, BOARD, BUDGET = "mcunet-5fps", "cortex-m7", "128KB"
EPOCHS, AUGMENT = 10, Augment((0.5, 1.0))
BOARD_COURSE = Course(1, 0.02, augment=AUGMENT)  # so few images need longer steps
BOARD_TRAIN, BOARD_TEST = 10, 5  # images of each class: an emulated board is slow

ProgressCallback = Callable[[FitProgress], None]


def fit_(asked: verbs.Fit) -> None:
    board, budget = find_board(asked.target), parse_size(asked.budget)
    if budget > board.largest_budget:
        warn(
            f"{asked.target} has {board.board.sram.bytes:,} bytes of SRAM, of which a program can use "
            f"{board.largest_budget:,} beside the stack; the budget is that, not {budget:,}"
        )
    rate = None if asked.rate == AUTO else shared.parse_rate(asked.rate)
    if asked.model == AUTO:
        _fit_auto(asked, rate, min(budget, board.largest_budget), board)
        return
    graph, data = shared.read_both(asked)
    if asked.head == "extend":
        graph, data = _extended(asked, graph, data)
    with going_on(_kept(asked)), progress() as bar:
        fitted = _fit(asked, graph, data, rate, bar)
    _warn(fitted)
    show(fitted, asked.as_json)


def _fit(
    asked: verbs.Fit, graph: Graph, data: Data, rate: float | None, bar: Progress,
    known: Contributions | None = None, more: Callable[[], Section] | None = None,
) -> Fitted:  # fmt: skip
    known = read_several(asked.contributions) if asked.contributions else known
    return fit(
        graph, data, asked.output, budget=asked.budget, target=asked.target, epochs=asked.epochs,
        augment=shared.augmentation(asked, data.label_kind), seed=asked.seed, contributions=known,
        analysis=asked.analysis, effort=asked.effort, options=shared.learning_options(asked, None),
        loss=shared.chosen_loss(asked), learning_rate=rate, where=asked.machine, workers=asked.workers, ray=asked.ray,
        preprocessing=shared.given_pixels(asked, graph), command=asked.again(), more=more, force=asked.force,
        on_progress=lambda at: _show_stage(bar, at),
    )  # fmt: skip


def _fit_auto(asked: verbs.Fit, rate: float | None, budget: int, target: Target) -> None:
    """Find a network for the data, and fit it; what parts of one made from nothing add was never measured."""
    if asked.head == "extend":
        raise InputError(
            "--head extend is for a model that lacks classes, and auto makes one with all of them; leave it out"
        )
    with spinner(f"reading {asked.source}"):
        data = shared.read_data(asked, asked.source)

    def rest(graph: Graph, section: Callable[[], Section]) -> Fitted:
        known = None if asked.analysis or is_zoo_name(graph.name) else estimate(graph)
        return _fit(asked, with_front_end(graph, data.train.images, asked.audio), data, rate, bar, known, section)

    with going_on(_kept(asked)), progress() as bar:
        found = fit_auto(
            data, asked.output, Limits(budget, target, asked.effort, asked.workers), rest,
            options=shared.learning_options(asked, None), force=asked.force,
            on_progress=lambda at: _show_stage(bar, at),
        )  # fmt: skip
    for note in found.network.notes:
        warn(note)
    _warn(found.fitted)
    show(found, asked.as_json)


def _kept(asked: verbs.Fit | verbs.Demo) -> Callable[[], str]:
    """Return what says, of an interrupted fit, which stages it keeps."""
    return partial(asked.kept, asked.output, "the stages that are done are", "no stage was done yet")


def _warn(fitted: Fitted) -> None:
    for warning in (*fitted.choice.notes, *fitted.learned.warnings):
        warn(warning)


def _extended(asked: verbs.Fit, graph: Graph, data: Data) -> tuple[Graph, Data]:
    """Return a model that also scores the data's new classes; each class needs samples, by which a fit judges."""
    shared.check_int8(graph, asked.model, asked.source)
    both = shared.extended(graph, data)
    present = set(both.data.train.labels)
    if missing := [name for label, name in enumerate(both.data.classes) if label not in present]:
        raise InputError(
            f"a fit judges by every class, and {data.name} holds no samples of {missing[0]!r}, which {graph.name} "
            "knows; add some of each class, or run smidgen train --head extend"
        )
    return both.model, both.data


def _show_stage(bar: Progress, at: FitProgress) -> None:
    bar.update(at.done, at.total, f"{at.stage}: {at.doing}" if at.doing else at.stage)


def demo_(asked: verbs.Demo) -> None:
    with going_on(_kept(asked)), progress() as bar:
        result = demonstrate(asked.output, lambda at: _show_stage(bar, at), asked.force, asked.again())
    show(result, asked.as_json)


@dataclass(frozen=True)
class Demonstration:
    """A fit, and how an emulated board learned a few images."""

    fitted: Fitted
    board_steps: int
    board_test_images: int
    board_before: float
    board_after: float
    board_equals_host: bool  # all state after the last step

    def as_plain(self) -> dict[str, Any]:
        return {**{one.name: getattr(self, one.name) for one in fields(self)}, "fitted": self.fitted.as_plain()}

    def __str__(self) -> str:
        return (
            f"{self.fitted}\n"
            f"on the board  it learned {self.board_steps} images there: top-1 {self.board_before:.0%} before, "
            f"{self.board_after:.0%} after ({self.board_test_images} to test), {_compared(self.board_equals_host)}\n"
            f"teach it in your browser: {shlex.join(('smidgen', 'play', self.fitted.folder))}"
        )


def demonstrate(
    folder: Path, on_progress: ProgressCallback = ignore, force: bool = False, command: str = ""
) -> Demonstration:
    """Fit the network to the sample, and let the emulated board learn a few images."""
    graph, data = load(NETWORK), read_sample()
    few = first_of_each_class(data.train, BOARD_TRAIN), first_of_each_class(data.test, BOARD_TEST)
    part = Data(data.name, data.classes, *few)

    @cache
    def on_board() -> tuple[Learned, bool]:
        return _learn_on_board(graph, data, part, folder, on_progress)

    fitted = fit(
        graph, data, folder, budget=BUDGET, target=BOARD, epochs=EPOCHS, augment=AUGMENT,
        contributions=shipped_or_estimated(graph), effort="quick",  # more would take too long here
        command=command, more=lambda: _section(part, *on_board()), force=force, on_progress=on_progress,
    )  # fmt: skip
    learned, same = on_board()
    return Demonstration(fitted, len(part.train), len(part.test), learned.before, learned.accuracy, same)


def _learn_on_board(
    graph: Graph, data: Data, part: Data, folder: Path, on_progress: ProgressCallback
) -> tuple[Learned, bool]:
    """Return what the board learned, and whether all its state equals that learned on this machine."""
    options, images = Options(len(data.classes)), examples(data.train, pixel_encoding(graph))
    scheme = load_scheme(str(folder / SCHEME), graph)
    here = compile(graph, scheme, options=options, images=images)
    there = compile(graph, scheme, BOARD, options=options, images=images, streamed_input=True)

    def on_board(at: LearningProgress) -> None:
        on_progress(FitProgress(f"emulated {BOARD}", at.doing, at.done, at.total))

    a, b = learn(there, part, BOARD_COURSE, on_progress=on_board), learn(here, part, BOARD_COURSE)
    same = a.state.keys() == b.state.keys() and all(np.array_equal(a.state[name], b.state[name]) for name in a.state)
    return a, same


def _section(part: Data, learned: Learned, same: bool) -> Section:
    """Return what the board learned as a section of the report."""
    facts = (
        Fact("Steps on the board", f"{len(part.train):,}, one image each, mean loss {learned.record[-1].loss:.3f}"),
        Fact("Right before", f"{learned.before:.0%} of {len(part.test):,} test images"),
        Fact("Right after", f"{learned.accuracy:.0%}"),
        Fact("State after the last step", _compared(same)),
    )
    text = (
        f"The emulated {BOARD} also learned by itself: the program starts from reset and is handed one image after the "
        "other, a few of each class because an emulator is slow."
    )
    return Section("on-the-board", "Learned on the board", text, (Facts(facts),))


def _compared(same: bool) -> str:
    return "the same bytes as on this machine" if same else "OTHER bytes than on this machine"


def first_of_each_class(samples: Samples, each: int) -> Samples:
    """Return the first samples of each class, at most `each`."""
    places = [[i for i, label in enumerate(samples.labels) if label == one][:each] for one in set(samples.labels)]
    return samples.at(sorted(place for some in places for place in some))
