"""A board at the end of a line, as a device and a target that survive a bad line and a restart, and ports to one."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from smidgen.codegen import Sources
from smidgen.errors import InputError
from smidgen.ir import Array, Graph, check_inputs
from smidgen.ir.text import fingerprint
from smidgen.link.frames import BAUD, BoardFailed, Command, LinkError, ProcessStream, Restarted, SerialStream, Stream
from smidgen.link.line import CODE, LOSS, Hello, Line, Statistics, Timing
from smidgen.memory import Plan, state_bytes
from smidgen.ops.one_pass import Distance
from smidgen.pipeline import Program
from smidgen.targets import device as checks
from smidgen.targets.device import Device, Target, read_state, state_block, tensor

REMEMBERED = 1000  # steps that are kept to be done again, at most: then a copy of the state is taken instead
RESTARTS = 5  # in a row, after which a board is given up
EMULATED, PROCESS = "emulated:", "exec:"  # ports that are not serial begin with one of these
Done = TypeVar("Done")


Action = Callable[
    [], float
]  # that changes a board: a step, a sample, an image of a stream; gives a loss, class or code


class LinkedDevice(Device):
    """A board that runs a program, from the state it is found in.

    A copy of its state lies here, and every step since: a board that restarts is brought back to where it was, from
    what it had saved where that is later than the copy, and never learns a sample twice or not at all.
    """

    def __init__(self, graph: Graph, line: Line, save_every: int = 0) -> None:
        """LinkError where the board runs another program; it saves after every `save_every` steps, 0 for never."""
        self.graph, self.learns, self.line = graph, graph.roles is not None, line
        self.restarts, self.save_every, self.keeps = 0, save_every, True
        self._unsaved = 0  # steps
        self.found = self._greet()
        self._copy = self._read_state()
        self._steps: list[tuple[Action, float]] = []  # with what each gave
        self._shown: Action | None = None  # the image whose outputs may be asked for, unless it is the last step's
        self._saved: dict[int, int] = {}  # CRC-32 of a state that was saved: how many steps it holds

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """Run a program that infers once: inputs in, outputs out."""
        if self.learns:
            raise InputError(f"{self.graph.name} learns; predict or train with it")
        self.predict(*arrays)
        return self.outputs()

    def predict(self, *arrays: Array) -> int:
        step = partial(self._run, self._image(arrays))
        best = self._surviving(step)
        self._shown = step
        if self.graph.variables:
            self._note(step, best)
        return int(best)

    def train(self, image: Array, label: int | Array | None, learning_rate: float) -> float:
        given = checks.check_step(self, label, learning_rate)
        sent = b"" if given is None else given.tobytes()
        return self._change(partial(self._train, self._image((image,)), sent, learning_rate))

    def count(self, image: Array, label: int, sign: int) -> None:
        checks.one_pass_of(self.graph)
        self._change(partial(self._observe, self._image((image,)), label, sign), checked=True)

    def solve(self) -> None:
        checks.one_pass_of(self.graph)
        self._change(self._solve, checked=True)

    def distance(self) -> float:
        checks.one_pass_of(self.graph)
        take = partial(self.line.take, Command.OUTPUT, LOSS.size, bytes([len(self.graph.outputs)]))
        return float(LOSS.unpack(self._surviving(take))[0])

    def _change(self, step: Action, checked: bool = False) -> float:
        """Do what changes the board, and keep it to do it again; of what works on sums the code is checked first."""
        gave = self._surviving(step)
        self._shown = None
        if checked:
            checks.check_code(self.graph, int(gave))
        self._note(step, gave)
        return gave

    def audio_features(self, samples: Array) -> Array:
        """Raise InputError: a link hands over what a network reads, and no sound."""
        raise InputError("a link takes a network's input, not sound; give the board a microphone")

    def outputs(self) -> tuple[Array, ...]:
        return tuple(self.output(i) for i in range(len(self.graph.outputs)))

    def output(self, index: int) -> Array:
        """Return one of the outputs."""
        value = self.graph.outputs[index]
        take = partial(self.line.take, Command.OUTPUT, value.type.bytes, bytes([index]))
        return tensor(value, self._surviving(take))

    def state(self) -> dict[str, Array]:
        self._remember(self._surviving(self._read_state))
        return read_state(self.graph, self._copy)

    def restore(self, state: Mapping[str, Array]) -> None:
        self._remember(state_block(self.graph, state))
        self._surviving(lambda: self.line.write_state(self._copy))

    def save(self) -> None:
        """Let the board keep what it learned, where it outlives a reset."""
        held = self.statistics().state_sum
        self._saved[held] = len(self._steps)
        self._surviving(lambda: self.line.ask(Command.SAVE))

    def keep(self) -> bool:
        """Save, unless the board has nowhere to keep it; return whether it is kept."""
        try:
            self.save()
        except BoardFailed:
            self.keeps = False
        self._unsaved = 0
        return self.keeps

    def reset(self) -> None:
        """Let the board forget all that it learned: it is as its firmware begins."""
        self._remember(self._surviving(lambda: self._read_state(Command.RESET, b"\1")))
        self._shown = None

    def load(self) -> None:
        """Let the board take back what it kept; LinkError where it has nothing, and all is as it was."""
        self._remember(self._surviving(self._read_state))
        try:
            self._remember(self._surviving(lambda: self._read_state(Command.LOAD)))
        except BoardFailed:
            self._recover()
            raise
        self._shown = None

    def statistics(self) -> Statistics:
        """Return the board's counts since it started."""
        return self._surviving(self.line.statistics)

    def close(self) -> None:
        self.line.close()

    def _greet(self) -> Hello:
        hello, graph = self.line.hello(), self.graph
        expected = fingerprint(graph)[: len(hello.fingerprint)]
        if hello.fingerprint != expected:
            raise LinkError(
                f"{self.line.stream.name} runs another program: its fingerprint is {hello.fingerprint}, that of "
                f"{graph.name} with these options {expected}; give the model, scheme and options that it was compiled "
                "from, or flash it again"
            )
        return hello

    def _surviving(self, do: Callable[[], Done]) -> Done:
        """Do it; where the board has restarted, bring it back to where it was, and do it then."""
        for _ in range(RESTARTS):
            try:
                return do()
            except Restarted:
                self.restarts += 1
                self._recover()
        raise LinkError(f"{self.line.stream.name} restarted {RESTARTS} times in a row; check its power")

    def _recover(self) -> None:
        """Bring the board back from what it saved, or from the copy, and then step by step."""
        for _ in range(RESTARTS):
            try:
                found = self._greet().state_sum
                if found not in self._saved and found != zlib.crc32(self._copy):
                    self.line.write_state(self._copy)
                for step, before in self._steps[self._saved.get(found, 0) :]:
                    if struct.pack("<d", gave := step()) != struct.pack("<d", before):
                        raise LinkError(
                            f"{self.line.stream.name} restarted, and a step that was taken before now gives {gave:g}, "
                            f"not {before:g}: its memory or its program has changed; flash it again"
                        )
                if self._shown is not None and not self.graph.variables:
                    self._shown()
                return
            except Restarted:
                self.restarts += 1

    def _note(self, step: Action, gave: float) -> None:
        """Keep what was done to do it again, up to so much of it."""
        self._steps.append((step, gave))
        self._unsaved += 1
        if self.save_every and self.keeps and self._unsaved >= self.save_every:
            self.keep()
        if len(self._steps) >= REMEMBERED:
            self._remember(self._surviving(self._read_state))

    def _remember(self, state: bytes) -> None:
        """Take a copy of the state for the beginning of what may have to be done again."""
        self._copy = state
        self._steps.clear()
        self._saved = {}

    def _image(self, arrays: tuple[Array, ...]) -> bytes:
        check_inputs(self.graph, arrays, self.graph.prediction_inputs)
        return np.ascontiguousarray(arrays[0]).tobytes()

    def _run(self, image: bytes) -> float:
        return float(self.line.read(CODE, Command.ROWS, self.line.put(Command.ROWS, image))[0])

    def _train(self, image: bytes, label: bytes, rate: float) -> float:
        if label:
            self.line.put(Command.LABEL, label)
        self._run(image)
        return float(self.line.read(LOSS, Command.TRAIN, self.line.ask(Command.TRAIN, LOSS.pack(rate)))[0])

    def _observe(self, image: bytes, label: int, sign: int) -> float:
        self._run(image)
        asked = self.line.ask(Command.OBSERVE, struct.pack("<ii", label, sign))
        return float(self.line.read(CODE, Command.OBSERVE, asked)[0])

    def _solve(self) -> float:
        return float(self.line.read(CODE, Command.SOLVE, self.line.ask(Command.SOLVE))[0])

    def _read_state(self, after: Command | None = None, data: bytes = b"") -> bytes:
        """Return the board's state, after a request that gives it another if there is one."""
        if after is not None:
            self.line.ask(after, data)
        return self.line.take(Command.READ, state_bytes(self.graph)) if self.graph.state else b""


def connect(
    port: str,
    program: Program,
    *,
    baud: int = BAUD,
    timing: Timing | None = None,
    save_every: int = 0,
    project: str | Path | None = None,
    flash: str | Path | None = None,
) -> LinkedDevice:
    """Return the board at a port, which runs this program, as a device that learns and predicts.

    A port is a serial one (/dev/ttyACM0, COM3), "exec:COMMAND" for a program that serves on stdin and stdout, or
    "emulated:cortex-m7" for a board that is emulated here: with firmware made for it, or with that of the `project` in
    a folder; `flash` is a file for what it keeps. LinkError where nothing answers, or another program does. The board
    is asked to save every `save_every` steps, where that is not 0.
    """
    stream = open_port(port, baud, project, flash, program)
    try:
        return LinkedDevice(program.graph, Line(stream, timing), save_every)
    except BaseException:
        stream.close()
        raise


def open_port(
    port: str,
    baud: int = BAUD,
    project: str | Path | None = None,
    flash: str | Path | None = None,
    program: Program | None = None,
) -> Stream:
    """Open the stream to a board that is there already, or to an emulated one with firmware of a project or program."""
    if port.startswith(EMULATED):
        return _emulated(port, project, None if flash is None else Path(flash), program)
    if project is not None or flash is not None:
        raise InputError(f"--project and --flash are for emulated boards, {port} is none; leave them out")
    return ProcessStream(port.removeprefix(PROCESS)) if port.startswith(PROCESS) else SerialStream(port, baud)


def _emulated(port: str, folder: str | Path | None, flash: Path | None, program: Program | None) -> Stream:
    """Start a board of that name, from reset on."""
    if folder is None and program is None:
        raise InputError(
            f"{port} starts over each time: there is nothing on it yet; train, test or predict with it, or give "
            "--project"
        )
    from smidgen.targets.firmware import BoardTarget  # here, because an emulator takes a while to import
    from smidgen.targets.lines import line_to, read_project

    name = port.removeprefix(EMULATED)
    if folder is not None:
        project = read_project(Path(folder), name)
        return line_to(port, project.target, project.build(), flash)
    assert program is not None
    target = program.target
    if not isinstance(target, BoardTarget) or target.board.name != name:
        raise InputError(f"{port} runs programs for {name}, this one is for {target.name}; compile it for it")
    return line_to(port, target, target.linked(program.graph, program.sources), flash)


def fitting_target(port: str, project: str | Path | None = None) -> str | Target:
    """Return the target to compile for, of a program at a port: an emulated board, or this machine."""
    if not port.startswith(EMULATED):
        return "host"
    name = port.removeprefix(EMULATED)
    if project is None:
        return name
    from smidgen.targets.lines import read_project

    return read_project(Path(project), name).target


class LinkTarget(Target):
    """A target whose device runs already; programs are compiled as for the target given."""

    def __init__(self, device: LinkedDevice, like: Target) -> None:
        self.device, self._like = device, like

    @property
    def name(self) -> str:
        return self.device.line.stream.name

    @property
    def frugal(self) -> bool:
        return self._like.frugal

    @property
    def overhead(self) -> int:
        return self._like.overhead

    @property
    def folders(self) -> tuple[str, ...]:
        return self._like.folders

    def project(self, graph: Graph, sources: Sources, fields: Mapping[str, object]) -> dict[str, str]:
        return self._like.project(graph, sources, fields)

    def check(self, graph: Graph, layout: Plan, sources: Sources) -> None:
        """It is there already."""

    def start(self, graph: Graph, sources: Sources) -> LentDevice:
        """Return the device, whatever the graph: one that only infers is asked of what the device has learned."""
        return LentDevice(self.device, graph)


class LentDevice(LinkedDevice):
    """A linked device that somebody else closes, asked for what a graph gives."""

    __slots__ = ("_asked",)  # all else is the device's own

    def __init__(self, device: LinkedDevice, asked: Graph) -> None:
        self.__dict__ = device.__dict__
        self._asked = asked

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the outputs of a program that infers; of one that learns its scores, in place of what is asked for."""
        if not self.learns:
            return super().run(*arrays)
        self.predict(*arrays)
        scores = self.output(self.graph.outputs.index(self.graph.scores))
        far = {node.out for node in self._asked.nodes if isinstance(node.op, Distance)}
        distance = np.array([[self.distance()]], np.float32) if far else scores
        return tuple(distance if value in far else scores for value in self._asked.outputs)

    def close(self) -> None:
        """Its line stays open."""
