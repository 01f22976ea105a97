"""The demonstration: a network from file to C that learns, here and on an emulated board, the same bytes everywhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smidgen.data import Augment, centre, intake
from smidgen.data.shapes import draw_shapes
from smidgen.frontends.files import write_whole
from smidgen.frontends.native import read_smg, write_smg
from smidgen.inspection import describe
from smidgen.ir import Array, evaluate_step
from smidgen.learning import Course, learn
from smidgen.loading import load
from smidgen.pipeline import Program, compile
from smidgen.profiling import profile
from smidgen.report import draw_memory
from smidgen.training import Options

NETWORK, SCHEME, BOARD = "mcunet-5fps", "49kb", "cortex-m7"
TRAIN, TEST = 60, 25  # images of each shape
COURSE = Course(epochs=6, learning_rate=0.03, augment=Augment(scale=(0.7, 1.0)))
COMPARED = 3  # steps that numpy takes beside the C


@dataclass(frozen=True)
class Demonstration:
    """What was done, what it takes, and how the C compares with the reference."""

    network: str
    scheme: str
    layers: int
    macs: int
    parameters: int
    same_after_file: bool
    arena_bytes: int
    arena_lower_bound_bytes: int
    state_bytes: int
    constant_bytes: int
    steps: int
    equal_steps: int
    milliseconds: float  # of one step of the C on this machine, the mean, tests included
    classes: int
    before: float
    after: float
    board: str
    board_sram_bytes: int
    board_flash_bytes: int
    board_instructions: int  # of one step
    board_equal: bool
    model_file: str
    project: str
    picture: str

    def __str__(self) -> str:
        kept = "equal after the file" if self.same_after_file else "CHANGED by the file"
        same = "same bytes as the reference" if self.board_equal else "OTHER bytes than the reference"
        return (
            f"network   {self.network}: {self.layers} layers, {self.macs:,} MACs, {self.parameters:,} parameters; its "
            "weights are random until trained ones ship\n"
            f"file      {self.model_file} ({kept})\n"
            f"memory    scheme {self.scheme}: arena {self.arena_bytes:,} (at least {self.arena_lower_bound_bytes:,}) + "
            f"state {self.state_bytes:,} bytes of SRAM, {self.constant_bytes:,} bytes of flash for constants\n"
            f"exact     {self.equal_steps} of {self.steps} training steps give the same bytes in C and in numpy\n"
            f"learning  {self.classes} shapes drawn in code: top-1 {self.before:.0%} before, {self.after:.0%} after "
            f"{COURSE.epochs} epochs of {TRAIN * self.classes} images, {self.milliseconds:.1f} ms a step in C here, "
            "tests included\n"
            f"board     emulated {self.board}: {self.board_sram_bytes:,} bytes of SRAM, {self.board_flash_bytes:,} of "
            f"flash, {self.board_instructions:,} instructions a step, {same}\n"
            f"project   {self.project}: C sources, header, example and how to build it\n"
            f"picture   {self.picture}: every byte of the arena over time; open it in a browser"
        )


def demonstrate(folder: Path, say: Callable[[str], None] = lambda _: None) -> Demonstration:
    """Take a network through every stage; `say` hears of each."""
    say(f"writing {NETWORK} and reading it back")
    original, file = load(NETWORK), folder / f"{NETWORK}.smg"
    folder.mkdir(parents=True, exist_ok=True)
    again = file.exists()
    write_smg(original, file)
    graph = read_smg(file)
    say("compiling it to C that learns")
    data = draw_shapes(TRAIN, TEST)
    options = Options(len(data.classes), weight_bits=8)
    program = compile(graph, SCHEME, options=options, streamed_input=True)
    project, picture = folder / "project", folder / "memory.html"
    if again:  # an earlier demonstration's
        shutil.rmtree(project, ignore_errors=True)
    program.write(project)
    write_whole(picture, draw_memory(program).encode())
    say("comparing C with numpy")
    images = tuple(centre(image, intake(graph)) for image in data.train.images[:COMPARED])
    equal = _equal_steps(program, images, data.train.labels)
    say("learning shapes")
    began = time.perf_counter()
    learned = learn(program, data, COURSE)
    steps = COURSE.epochs * len(data.train)
    seconds = time.perf_counter() - began
    say(f"running it on an emulated {BOARD}")
    measured = profile(compile(graph, SCHEME, BOARD, options=options, streamed_input=True), steps=1)
    summary, memory = describe(graph), program.memory
    return Demonstration(
        network=NETWORK,
        scheme=SCHEME,
        layers=len(summary.layers),
        macs=summary.macs,
        parameters=summary.parameters,
        same_after_file=graph == original,
        arena_bytes=memory.peak,
        arena_lower_bound_bytes=memory.lower_bound,
        state_bytes=memory.state,
        constant_bytes=memory.constants,
        steps=COMPARED,
        equal_steps=equal,
        milliseconds=1e3 * seconds / steps,
        classes=len(data.classes),
        before=learned.before,
        after=learned.accuracy,
        board=BOARD,
        board_sram_bytes=measured.sram_bytes,
        board_flash_bytes=measured.flash_bytes,
        board_instructions=measured.instructions.step or 0,
        board_equal=measured.exact.equal,
        model_file=str(file),
        project=str(project),
        picture=str(picture),
    )


def _equal_steps(program: Program, images: tuple[Array, ...], labels: tuple[int, ...]) -> int:
    """How many steps of the C leave every byte of state as numpy's do."""
    state, equal = dict(program.graph.state), 0
    with program.start() as device:
        for image, label in zip(images, labels, strict=False):
            rate = np.array([COURSE.learning_rate], np.float32)
            _, state = evaluate_step(program.graph, state, image, np.array([label], np.int32), rate)
            device.train(image, label, COURSE.learning_rate)
            found = device.state()
            equal += all(np.array_equal(array, found[value.name]) for value, array in state.items())
    return equal
