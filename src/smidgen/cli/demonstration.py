"""The demonstration: a shipped network is fitted to CIFAR-10 here, and learns on an emulated board, the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from smidgen.data import Augment, Data, Samples, examples, pixel_encoding
from smidgen.data.layouts.cifar import read_sample
from smidgen.fitting import FitProgress, Fitted, fit
from smidgen.fitting.stages import SCHEME
from smidgen.ir import Graph
from smidgen.learning import Course, Learned, LearningProgress, learn
from smidgen.pipeline import compile
from smidgen.results.report.page import Fact, Facts, Section
from smidgen.selection.estimates import shipped_or_estimated
from smidgen.training import Options
from smidgen.training.scheme import load_scheme
from smidgen.zoo.loading import load

NETWORK, BOARD, BUDGET = "mcunet-5fps", "cortex-m7", "128KB"
EPOCHS, AUGMENT = 10, Augment((0.5, 1.0))
BOARD_COURSE = Course(1, 0.02, augment=AUGMENT)  # the few images it sees want longer steps
BOARD_TRAIN, BOARD_TEST = 10, 5  # images of each class: an emulated board takes its time

ProgressCallback = Callable[[FitProgress], None]


@dataclass(frozen=True)
class Demonstration:
    """A fit, and what the board learned by itself."""

    fitted: Fitted
    board_steps: int
    board_test_images: int
    board_before: float
    board_after: float
    board_equals_host: bool  # all state after the last step

    def __str__(self) -> str:
        here = "the same bytes as on this machine" if self.board_equals_host else "OTHER bytes than on this machine"
        return (
            f"{self.fitted}\n"
            f"on the board  it learned {self.board_steps} images there: top-1 {self.board_before:.0%} before, "
            f"{self.board_after:.0%} after ({self.board_test_images} to test), {here}"
        )


@dataclass(frozen=True)
class BoardLearned:
    """What the board learned by itself, from the first images of each class."""

    steps: int
    test_images: int
    before: float
    after: float
    loss: float  # mean of the steps
    equals_host: bool

    def section(self) -> Section:
        """The same for the report."""
        same = "the same bytes as on this machine" if self.equals_host else "OTHER bytes than on this machine"
        facts = (
            Fact("Steps on the board", f"{self.steps:,}, one image each, mean loss {self.loss:.3f}"),
            Fact("Right before", f"{self.before:.0%} of {self.test_images:,} test images"),
            Fact("Right after", f"{self.after:.0%}"),
            Fact("State after the last step", same),
        )
        said = (
            f"The emulated {BOARD} also learned by itself: the program starts from reset and is handed one image after "
            "the other, a few of each class, for an emulator takes its time."
        )
        return Section("on-the-board", "Learned on the board", said, (Facts(facts),))


def demonstrate(
    folder: Path, on_progress: ProgressCallback = lambda _: None, force: bool = False, command: str = ""
) -> Demonstration:
    """Fit the network to the sample, and let the emulated board learn a few images."""
    graph, data = load(NETWORK), read_sample()

    @cache
    def learned() -> BoardLearned:
        return _learn_on_board(graph, data, folder, on_progress)

    fitted = fit(
        graph, data, folder, budget=BUDGET, target=BOARD, epochs=EPOCHS, augment=AUGMENT,
        contributions=shipped_or_estimated(graph),  # an analysis would take too long here
        command=command, more=lambda: learned().section(), force=force, on_progress=on_progress,
    )  # fmt: skip
    board = learned()
    return Demonstration(fitted, board.steps, board.test_images, board.before, board.after, board.equals_host)


def _learn_on_board(graph: Graph, data: Data, folder: Path, on_progress: ProgressCallback) -> BoardLearned:
    options, images = Options(len(data.classes)), examples(data.train, pixel_encoding(graph))
    scheme = load_scheme(str(folder / SCHEME), graph)
    here = compile(graph, scheme, options=options, images=images)
    there = compile(graph, scheme, BOARD, options=options, images=images, streamed_input=True)
    train, test = first_of_each_class(data.train, BOARD_TRAIN), first_of_each_class(data.test, BOARD_TEST)
    part = Data(data.name, data.classes, train, test)

    def on_board(at: LearningProgress) -> None:
        on_progress(FitProgress(f"emulated {BOARD}", at.doing, at.done, at.total))

    board = learn(there, part, BOARD_COURSE, on_progress=on_board)
    same = _equal_states(board, learn(here, part, BOARD_COURSE))
    return BoardLearned(len(train), len(test), board.before, board.accuracy, board.record[-1].loss, same)


def first_of_each_class(samples: Samples, each: int) -> Samples:
    """The first so many of each class."""
    seen: dict[int, int] = {}
    places = []
    for place, label in enumerate(samples.labels):
        seen[label] = seen.get(label, 0) + 1
        if seen[label] <= each:
            places.append(place)
    return samples.at(places)


def _equal_states(a: Learned, b: Learned) -> bool:
    """Whether two runs left the same bytes of state."""
    return a.state.keys() == b.state.keys() and all(np.array_equal(a.state[name], b.state[name]) for name in a.state)
