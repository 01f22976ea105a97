"""The demonstration: a shipped network learns CIFAR-10 on this machine and on an emulated board, the same bytes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from smidgen.data import Augment, Data, Samples, examples, pixel_encoding
from smidgen.data.files import made_folder, write_whole
from smidgen.data.sample import read_sample
from smidgen.frontends.native import write_smg
from smidgen.learning import Course, Learned, LearningProgress, learn
from smidgen.pipeline import Program, compile
from smidgen.results.drawing import draw_memory
from smidgen.results.inspection import describe
from smidgen.results.profiling import profile
from smidgen.training import Options
from smidgen.zoo.loading import load

NETWORK, SCHEME, BOARD = "mcunet-5fps", "49kb", "cortex-m7"
COURSE = Course(epochs=10, learning_rate=0.005, augment=Augment((0.5, 1.0)), test_every=10)
BOARD_COURSE = replace(COURSE, epochs=1, learning_rate=0.02)  # the few images it sees want longer steps
BOARD_TRAIN, BOARD_TEST = 10, 5  # images of each class: an emulated board takes its time
COMPARED = 2  # steps of the board that numpy takes too

StatusCallback = Callable[[str], None]


@dataclass(frozen=True)
class Demonstration:
    """What was learned, what it takes, and whether the bytes are the same everywhere."""

    network: str
    scheme: str
    layers: int
    macs: int
    parameters: int
    classes: int
    train_images: int
    test_images: int
    epochs: int
    before: float  # top-1 of the test images
    after: float
    milliseconds: float  # of one step of the C on this machine, the mean, tests included
    board: str
    board_sram_bytes: int
    board_flash_bytes: int
    board_forward_instructions: int
    board_step_instructions: int
    board_steps: int
    board_test_images: int
    board_before: float
    board_after: float
    board_equals_host: bool  # all state after the last step
    board_equals_numpy: bool  # outputs and all that learns, for the first steps
    model_file: str
    project: str
    picture: str

    def __str__(self) -> str:
        here = "the same bytes as on this machine" if self.board_equals_host else "OTHER bytes than on this machine"
        numpy = "equal" if self.board_equals_numpy else "UNEQUAL"
        return (
            f"network   {self.network}: {self.layers} layers, {self.macs:,} MACs, {self.parameters:,} parameters, "
            f"scheme {self.scheme}\n"
            f"here      CIFAR-10 sample, {self.classes} classes: top-1 {self.before:.1%} before, {self.after:.1%} "
            f"after {self.epochs} epochs of {self.train_images:,} images, one at a time ({self.test_images} to test); "
            f"{self.milliseconds:.1f} ms per step\n"
            f"board     emulated {self.board}: {self.board_sram_bytes:,} bytes of SRAM, {self.board_flash_bytes:,} of "
            f"flash; {self.board_forward_instructions:,} instructions per prediction, "
            f"{self.board_step_instructions:,} per training step\n"
            f"          it learned {self.board_steps} images: top-1 {self.board_before:.0%} before, "
            f"{self.board_after:.0%} after ({self.board_test_images} to test), {here}; numpy {numpy} too\n"
            f"model     {self.model_file}: what was learned here\n"
            f"project   {self.project}: C sources for the board, header, example and how to build it\n"
            f"picture   {self.picture}: every byte of the arena over time; open it in a browser"
        )


def demonstrate(folder: Path, on_status: StatusCallback = lambda _: None) -> Demonstration:
    """Take the network through every stage; `on_status` gets the name of each."""
    on_status(f"compiling {NETWORK}")
    graph, data = load(NETWORK), read_sample()
    options = Options(len(data.classes))
    images = examples(data.train, pixel_encoding(graph))
    here = compile(graph, SCHEME, options=options, images=images)
    there = compile(graph, SCHEME, BOARD, options=options, images=images, streamed_input=True)
    project, picture = _write(there, folder)
    on_status("measuring a step on the emulated board")
    measured = profile(there, steps=COMPARED)
    train, test = first_of_each_class(data.train, BOARD_TRAIN), first_of_each_class(data.test, BOARD_TEST)
    part = Data(data.name, data.classes, train, test)
    board = learn(there, part, BOARD_COURSE, on_progress=_in_words(f"emulated {BOARD}", on_status))
    same = _equal_states(board, learn(here, part, BOARD_COURSE))
    began = time.perf_counter()
    learned = learn(here, data, COURSE, on_progress=_in_words("this machine", on_status))
    seconds = time.perf_counter() - began
    file = folder / f"{NETWORK}.smg"
    write_smg(learned.model, file)
    summary = describe(graph)
    return Demonstration(
        network=NETWORK,
        scheme=SCHEME,
        layers=len(summary.layers),
        macs=summary.macs,
        parameters=summary.parameters,
        classes=len(data.classes),
        train_images=len(data.train),
        test_images=len(data.test),
        epochs=COURSE.epochs,
        before=learned.before,
        after=learned.accuracy,
        milliseconds=1e3 * seconds / (COURSE.epochs * len(data.train)),
        board=BOARD,
        board_sram_bytes=measured.sram_bytes,
        board_flash_bytes=measured.flash_bytes,
        board_forward_instructions=measured.instructions.forward,
        board_step_instructions=measured.instructions.step or 0,
        board_steps=len(part.train),
        board_test_images=len(part.test),
        board_before=board.before,
        board_after=board.accuracy,
        board_equals_host=same,
        board_equals_numpy=measured.exact.equal,
        model_file=str(file),
        project=str(project),
        picture=str(picture),
    )


def _write(program: Program, folder: Path) -> tuple[Path, Path]:
    """Write the board's project and a picture of its memory, in place of an earlier demonstration's."""
    project, picture = folder / "project", folder / "memory.html"
    with made_folder(folder):
        if picture.exists():
            shutil.rmtree(project, ignore_errors=True)
        program.write(project)
        write_whole(picture, draw_memory(program).encode())
    return project, picture


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


def _in_words(where: str, on_status: StatusCallback) -> Callable[[LearningProgress], None]:
    """Report progress as sentences."""

    def on_progress(progress: LearningProgress) -> None:
        loss = "" if progress.loss is None else f", loss {progress.loss:.3f}"
        on_status(f"{where}: {progress.doing}, epoch {progress.epoch}, {progress.done} of {progress.total}{loss}")

    return on_progress
