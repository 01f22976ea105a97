"""What a soak runs: tiny programs that learn, on the host, in numpy and on boards that lose bits or power."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

import smidgen as sm
from smidgen.codegen import Sources
from smidgen.errors import TargetError
from smidgen.frontends.network import build
from smidgen.ir import Array, Graph, evaluate_step
from smidgen.memory import state_bytes
from smidgen.ops.rules import Momentum
from smidgen.pipeline import Program
from smidgen.targets.board import EmulatedBoard
from smidgen.targets.counter import Counter
from smidgen.targets.firmware import LIMIT, BoardDevice, BoardTarget
from smidgen.targets.host import Host
from smidgen.targets.image import Image, read_image
from smidgen.training import Options
from smidgen.zoo.draw import draw
from smidgen.zoo.tables import BlockTable, Stage

State = Mapping[str, Array]
SIDE, CLASSES = 8, 3
TABLE = BlockTable(4, (Stage(1, 3, 1, 8), Stage(2, 3, 2, 8)))
OPTIONS = {
    "float32 head": Options(CLASSES),
    "int8 head": Options(CLASSES, weight_bits=8, rule=Momentum(0.9), head_dtype="int8"),
}
PAINT = b"\x5a"  # of SRAM that no program owns
# Two requests more for the main that serves the host: save to it, and load what it sends.
SAVING = """
static uint8_t kept[16 + MODEL_STATE_BYTES];
static int32_t position;

static int put(void *context, const void *data, int size) {
    (void)context;
    give(data, size);
    return 0;
}

static int get(void *context, void *data, int size) {
    (void)context;
    for (int i = 0; i < size; i++) ((uint8_t *)data)[i] = kept[position++];
    return 0;
}

static void save(void) {
    const int32_t failed = model_save(put, 0);
    give(&failed, sizeof failed);
}

static void load(void) {
    take(kept, sizeof kept);
    position = 0;
    const int32_t failed = model_load(get, 0);
    give(&failed, sizeof failed);
}

static void serve(char request) {
    switch (request) {
    case 'k': save(); break;
    case 'b': load(); break;
"""
SERVE = "\nstatic void serve(char request) {\n    switch (request) {\n"


def tiny_network() -> Graph:
    """A stem and two inverted residuals over 8×8 images; its weights are random."""
    return build(draw(TABLE, SIDE, CLASSES, seed=1), "soak")


def images(rng: np.random.Generator, count: int) -> Array:
    return rng.integers(-128, 128, (count, 1, SIDE, SIDE, 3)).astype(np.int8)


@dataclass(frozen=True)
class SavingBoard(BoardTarget):
    """A board whose program also saves and loads its state by `model_save` and `model_load`."""

    def server(self, graph: Graph, sources: Sources) -> str:
        text = super().server(graph, sources)
        assert text.count(SERVE) == 1
        return text.replace(SERVE, SAVING)


@dataclass(frozen=True)
class Soaked:
    """One way to learn, on both targets."""

    options: Options
    cache: Path

    @cached_property
    def on_host(self) -> Program:
        return self._compiled(Host(cache=self.cache))

    @cached_property
    def on_board(self) -> Program:
        return self._compiled(BoardTarget(cache=self.cache))

    @cached_property
    def initial(self) -> State:
        return {v.name: array for v, array in self.on_host.graph.state.items()}

    @cached_property
    def saving(self) -> Firmware:
        target = SavingBoard(cache=self.cache)
        program = self._compiled(target)
        return Firmware(program.graph, target, read_image(target.build(program.graph, program.sources)))

    def _compiled(self, target: Host | BoardTarget) -> Program:
        return sm.compile(tiny_network(), "full", target, options=self.options)

    def step_in_numpy(self, state: State, image: Array, label: int, rate: float) -> tuple[float, State]:
        """The loss, and the state after one step of the definition."""
        assert self.on_host.training is not None
        graph = self.on_host.training.step
        arrays = (image, np.array([label], np.int32), np.array([rate], np.float32))
        with np.errstate(all="ignore"):
            outputs, after = evaluate_step(graph, {v: state[v.name] for v in graph.state}, *arrays)
        return float(outputs[0].item()), {v.name: array for v, array in after.items()}


@dataclass(frozen=True)
class Firmware:
    """A program that saves and loads, and the board it is for."""

    graph: Graph
    target: BoardTarget
    image: Image

    def switch_on(self, rng: np.random.Generator) -> Powered:
        """From reset, with anything in SRAM, as after power came back."""
        sram, counter = self.target.board.sram, Counter(self.image, {}, (), 0)
        board = EmulatedBoard(self.target.board, self.image, counter, self.target.cache)
        board._uc.mem_write(sram.origin, rng.bytes(sram.bytes))
        powered = Powered(board, state_bytes(self.graph))
        powered.ask(b"")
        return powered


@dataclass(frozen=True)
class Powered:
    """A board that runs until its power fails."""

    board: EmulatedBoard
    state_bytes: int

    def ask(self, request: bytes, limit: int = LIMIT) -> bytes:
        return self.board.exchange(request, limit)

    def instructions(self, request: bytes) -> int:
        """How many a request takes."""
        before = self.board.counter.fields.total
        self.ask(request)
        return int(self.board.counter.fields.total - before)

    def fails(self, request: bytes, limit: int) -> bytes:
        """What of an answer left the board before its power failed, after so many instructions."""
        try:
            return self.ask(request, limit)
        except TargetError as error:
            if "instructions without an answer" not in str(error):
                raise
            return bytes(self.board._answers)

    def save(self) -> bytes:
        answer = self.ask(b"k")
        assert struct.unpack("<i", answer[-4:]) == (0,)
        return answer[:-4]

    def load(self, saved: bytes) -> bool:
        (failed,) = struct.unpack("<i", self.ask(b"b" + saved))
        return not failed

    def state(self) -> bytes:
        return self.ask(b"s")


def step_request(image: Array, label: int, rate: float) -> bytes:
    return b"t" + struct.pack("<if", label, rate) + image.tobytes()


def differing(a: State, b: State) -> list[str]:
    """Names of what differs; one NaN is as good as another, for processors make different ones."""
    return [name for name, array in a.items() if _bytes(array) != _bytes(b[name])]


def _bytes(array: Array) -> bytes:
    return (
        np.where(np.isnan(array), np.float32(np.nan), array).tobytes() if array.dtype.kind == "f" else array.tobytes()
    )


def flip(state: State, rng: np.random.Generator) -> dict[str, Array]:
    """A copy with one bit of it flipped, each as likely as any other."""
    copies = {name: array.copy() for name, array in state.items()}
    at = int(rng.integers(8 * sum(array.nbytes for array in copies.values())))
    for array in copies.values():
        if at < 8 * array.nbytes:
            array.reshape(-1).view(np.uint8)[at // 8] ^= 1 << at % 8
            return copies
        at -= 8 * array.nbytes
    raise AssertionError("a bit beyond the state")


class Fence:
    """SRAM behind all that the program on a board owns: painted, and seen to stay as it is."""

    def __init__(self, device: BoardDevice) -> None:
        board, end = device._running(), max(section.address + section.bytes for section in device.image.sections)
        assert isinstance(board, EmulatedBoard)  # QEMU's memory is not read
        sram = board.board.sram
        self._uc, self._at, self._size = board._uc, end, sram.origin + sram.bytes - end
        assert end in sram
        self._uc.mem_write(end, PAINT * self._size)

    def holds(self) -> bool:
        return bytes(self._uc.mem_read(self._at, self._size)) == PAINT * self._size
