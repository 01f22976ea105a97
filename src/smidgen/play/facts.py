"""The program behind a page, what the page has to know of it, and what it takes on boards."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from smidgen.data.inputs import takes_images
from smidgen.data.pixels import PixelEncoding, pixel_encoding, pixel_table
from smidgen.errors import InputError
from smidgen.fitting import SCHEME
from smidgen.fitting.report import LEARNED
from smidgen.ir import Graph
from smidgen.ir.text import fingerprint
from smidgen.memory import state_bytes, state_offsets
from smidgen.memory.streaming import streams_input
from smidgen.pipeline import Program, compile
from smidgen.results.profile import profile
from smidgen.targets import find_board
from smidgen.targets.boards import BOARDS
from smidgen.training import Options
from smidgen.training.head import ending_of
from smidgen.training.published import PUBLISHED

CLASSES = 8  # that a new head has room for, by default
LEAST_SIDE = 8  # pixels of a picture; with fewer, an input of three channels is a recording of three axes
MOST_CLASSES = 64  # a page shows a card for each
USUAL = "last:2"  # the scheme of a network for which none was published


@dataclass(frozen=True)
class Asked:
    """A page to make: the model's name or file, what learns by steps, and how many classes there is room for."""

    model: str
    scheme: str
    options: Options
    kept: bool  # the head knows classes already
    audio: str | None = None

    @property
    def learning(self) -> str:
        """Return the options of the command line by which any verb compiles the same program."""
        words = ["--one-pass", "--scheme", self.scheme]
        if self.options.classes is not None:
            words += ["--classes", str(self.options.classes)]
        return shlex.join([*words, *(["--audio", self.audio] if self.audio else [])])


@dataclass(frozen=True)
class PixelFacts:
    """Pixels of an input, and the input's value for each of 256 in each colour, in base64."""

    rows: int
    columns: int
    colours: int
    gray: bool
    bgr: bool
    stretch: bool
    table: str


@dataclass(frozen=True)
class AudioFacts:
    """Samples of a recording that make an input."""

    rate: int
    samples: int


@dataclass(frozen=True)
class NumberFacts:
    """Quantization of an input of numbers."""

    scale: float
    zero: int


@dataclass(frozen=True)
class TrainedFacts:
    """A tensor of the state that steps change, and where it lies in the state."""

    name: str
    layer: str  # in words
    at: int
    bytes: int
    dtype: str


@dataclass(frozen=True)
class BoardFacts:
    """Costs of a program on a board; instructions are measured on an emulated one of the same core."""

    name: str
    title: str
    sram: int
    sram_room: int
    flash: int
    flash_room: int
    forward: int
    step: int
    mhz: int
    per_cycle: float


@dataclass(frozen=True)
class Commands:
    """Commands that go on from what a page saves."""

    compile: str
    load: str
    fit: str


@dataclass(frozen=True)
class Facts:
    """All that a page has to know of its program."""

    model: str
    kind: str
    classes: tuple[str, ...]
    room: int
    kept: bool
    one_pass: bool
    distances: bool
    scheme: str
    fingerprint: str
    state_bytes: int
    input_bytes: int
    shape: tuple[int, ...]
    pixels: PixelFacts | None
    audio: AudioFacts | None
    numbers: NumberFacts | None
    trained: tuple[TrainedFacts, ...]
    boards: tuple[BoardFacts, ...]
    commands: Commands


def begin(model: str, scheme: str | None) -> tuple[str, str | None]:
    """Return the model's file and the scheme's in the folder of a fit; others unchanged."""
    folder = Path(model)
    if not folder.is_dir():
        return model, scheme
    if not (folder / LEARNED).is_file() or not (folder / SCHEME).is_file():
        raise InputError(
            f"{folder} is not the folder of a fit: it holds no {LEARNED} with a {SCHEME}; run smidgen fit, or name a "
            "model file"
        )
    return str(folder / LEARNED), scheme or str(folder / SCHEME)


def plan(graph: Graph, model: str, scheme: str | None, options: Options, audio: str | None = None) -> Asked:
    """Return the page to make for a model: its own classes where it names a few, else room for some new ones."""
    ending = ending_of(graph)
    knows = options.classes is None and bool(graph.classes) and 2 <= ending.outputs <= MOST_CLASSES
    room = None if knows else options.classes or CLASSES
    if room is not None and not 2 <= room <= MOST_CLASSES:
        raise InputError(f"a page shows a card for each class and has room for 2 to {MOST_CLASSES}, not {room:,}")
    chosen = replace(options, classes=room, head=options.head or ("keep" if knows else "new"), head_dtype="float32")
    return Asked(model, scheme or usual_scheme(graph), chosen, chosen.head == "keep", audio)


def usual_scheme(graph: Graph) -> str:
    """Return the smallest scheme that was published for a network, or one that fits any."""
    for network in PUBLISHED:
        if network.difference(graph) is None:
            return next(iter(network.schemes))
    return USUAL


def compiled(graph: Graph, asked: Asked, target: str = "wasm", streamed: bool = False) -> Program:
    """Return the program of a page, or the same one for a board."""
    return compile(graph, asked.scheme, target, options=asked.options, streamed_input=streamed, one_pass=True)


def measure(
    graph: Graph, asked: Asked, names: Sequence[str], on_board: Callable[[str], None]
) -> tuple[BoardFacts, ...]:
    """Measure the program on emulated boards, and return what it takes on all that have one of their cores."""
    found: list[BoardFacts] = []
    for name in names:
        where = find_board(name)
        on_board(name)
        program = compiled(graph, asked, name, streams_input(graph, where.working))
        measured, core = profile(program, 1), BOARDS[name].core
        step = measured.instructions.step
        assert step is not None
        same = [one for one in BOARDS.values() if one.core == core]
        found += (
            BoardFacts(
                one.name, f"{one.name}, {core.title} at {one.mhz} MHz", measured.sram_bytes, one.sram.bytes,
                measured.flash_bytes, one.flash.bytes, measured.instructions.forward, step, one.mhz, core.per_cycle,
            )
            for one in sorted(same, key=lambda one: one.name != name)
            if one.name not in [other.name for other in found]
        )  # fmt: skip
    return tuple(found)


def facts_of(program: Program, asked: Asked, boards: tuple[BoardFacts, ...]) -> Facts:
    """Return the facts about a program that was compiled for a page."""
    graph = program.graph
    encoding, image = pixel_encoding(graph), graph.image.type
    if graph.one_pass is None or image.dtype != "int8" or image.q is None:
        raise InputError(
            f"{graph.name} takes {image.dtype} and cannot be played with; bring a model with an int8 input"
        )
    audio = encoding.audio
    shows = takes_images(image.shape) and min(image.shape[1:3]) >= LEAST_SIDE
    pixels = _pixels(encoding) if audio is None and shows else None
    return Facts(
        model=graph.name, kind="audio" if audio else "picture" if pixels else "tensor",
        classes=graph.classes if asked.kept else (), room=graph.scores.type.shape[-1], kept=asked.kept,
        one_pass=True, distances=True, scheme=asked.scheme, fingerprint=fingerprint(graph)[:16],
        state_bytes=state_bytes(graph), input_bytes=image.bytes, shape=image.shape, pixels=pixels,
        audio=AudioFacts(audio.rate, audio.samples(image.shape)) if audio else None,
        numbers=None if audio or pixels else NumberFacts(image.scale, image.zero),
        trained=tuple(_trained(graph)), boards=boards, commands=_commands(graph, asked),
    )  # fmt: skip


def _pixels(encoding: PixelEncoding) -> PixelFacts:
    _, rows, columns, colours = encoding.type.shape
    stated = encoding.preprocessing
    return PixelFacts(
        rows, columns, colours, stated is not None and stated.order == "gray",
        stated is not None and stated.order == "bgr", stated is not None and stated.fit == "stretch",
        base64.b64encode(pixel_table(encoding).tobytes()).decode(),
    )  # fmt: skip


def _trained(graph: Graph) -> list[TrainedFacts]:
    """Return the tensors that steps change, in order, the head last; not what only serves the steps."""
    parts = graph.one_pass
    assert parts is not None
    found, aside = [], {*parts.sums, *parts.lasting[2:]}
    for value, at in state_offsets(graph).items():
        if value not in aside and value.name != "step_state" and not value.name.endswith(".fraction"):
            found.append(TrainedFacts(value.name, _in_words(value.name), at, value.type.bytes, value.type.dtype))
    return found


def _in_words(name: str) -> str:
    """Return the name of a tensor as a page shows it."""
    layer, _, rest = name.removesuffix(".trained").removesuffix(".difference").rpartition(".")
    kind = {"w": "weights", "b": "biases"}.get(rest.partition("_")[0], rest)
    return f"{layer} {kind}"


def _commands(graph: Graph, asked: Asked) -> Commands:
    model, state = shlex.quote(asked.model), shlex.quote(f"{graph.name}.state")
    return Commands(
        f"smidgen compile {model} {asked.learning} --target cortex-m7 -o board",
        f"smidgen device PORT load -i {state}",
        f"smidgen fit {model} --data samples.zip --budget 128KB -o out",
    )
