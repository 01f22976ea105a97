"""A program on a board at the end of a line, as a device: what it learns survives a bad line and a restart."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from smidgen.errors import InputError
from smidgen.ir import Array, Graph, check_inputs
from smidgen.ir.text import fingerprint
from smidgen.link.frames import BoardFailed, Command, LinkError, Restarted
from smidgen.link.line import CODE, LOSS, Hello, Line, Statistics
from smidgen.memory import state_bytes
from smidgen.targets.device import Device, check_step, read_state, state_block, tensor

REMEMBERED = 1000  # steps that are kept to be done again, at most: then a copy of the state is taken instead
RESTARTS = 5  # in a row, after which a board is given up
Done = TypeVar("Done")


@dataclass(frozen=True)
class _Step:
    """An action that changed a board: a step, or without a rate an image of a stream that was run."""

    image: bytes
    label: bytes = b""
    rate: float | None = None
    gave: float = 0.0  # the loss, or the class


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
        self._steps: list[_Step] = []
        self._shown: _Step | None = None  # the image whose outputs may be asked for, unless it is the last step's
        self._saved: dict[int, int] = {}  # CRC-32 of a state that was saved: how many steps it holds

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """One run of a program that infers: inputs in, outputs out."""
        if self.learns:
            raise InputError(f"{self.graph.name} learns; predict or train with it")
        self.predict(*arrays)
        return self.outputs()

    def predict(self, *arrays: Array) -> int:
        step = _Step(self._image(arrays))
        best = self._surviving(lambda: self._do(step))
        self._shown = step
        if self.graph.variables:
            self._note(replace(step, gave=best))
        return int(best)

    def train(self, image: Array, label: int | Array | None, learning_rate: float) -> float:
        given = check_step(self, label, learning_rate)
        step = _Step(self._image((image,)), b"" if given is None else given.tobytes(), learning_rate)
        loss = self._surviving(lambda: self._do(step))
        self._shown = None
        self._note(replace(step, gave=loss))
        return loss

    def audio_features(self, samples: Array) -> Array:
        """A link hands over what a network reads, and no sound."""
        raise InputError("a link takes a network's input, not sound; give the board a microphone")

    def outputs(self) -> tuple[Array, ...]:
        return tuple(self.output(i) for i in range(len(self.graph.outputs)))

    def output(self, index: int) -> Array:
        """One of them."""
        value = self.graph.outputs[index]
        take = partial(self.line.take, Command.OUTPUT, value.type.bytes, bytes([index]))
        return tensor(value, self._surviving(take))

    def state(self) -> dict[str, Array]:
        self._remember(self._surviving(self._read_state))
        return read_state(self.graph, self._copy)

    def restore(self, state: Mapping[str, Array]) -> None:
        self._remember(state_block(self.graph, state))
        self._surviving(lambda: self._write_state(self._copy))

    def save(self) -> None:
        """Let the board keep what it learned, where it outlives a reset."""
        held = self.statistics().state_sum
        self._saved[held] = len(self._steps)
        self._surviving(lambda: self.line.ask(Command.SAVE))

    def keep(self) -> bool:
        """The same, unless the board has nowhere to keep it; whether it is kept."""
        try:
            self.save()
        except BoardFailed:
            self.keeps = False
        self._unsaved = 0
        return self.keeps

    def reset(self) -> None:
        """Let the board forget all that it learned: it is as its firmware begins."""
        self._remember(self._surviving(lambda: self._changed_by(Command.RESET, b"\1")))
        self._shown = None

    def load(self) -> None:
        """Let the board take back what it kept; LinkError where it has nothing, and all is as it was."""
        self._remember(self._surviving(self._read_state))
        try:
            self._remember(self._surviving(lambda: self._changed_by(Command.LOAD)))
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
        """From what the board saved, or from the copy, and then step by step."""
        for _ in range(RESTARTS):
            try:
                found = self._greet().state_sum
                if found not in self._saved and found != zlib.crc32(self._copy):
                    self._write_state(self._copy)
                for step in self._steps[self._saved.get(found, 0) :]:
                    self._do_again(step)
                if self._shown is not None and not self.graph.variables:
                    self._do(self._shown)
                return
            except Restarted:
                self.restarts += 1

    def _do_again(self, step: _Step) -> None:
        gave = self._do(step)
        if struct.pack("<d", gave) != struct.pack("<d", step.gave):
            raise LinkError(
                f"{self.line.stream.name} restarted, and a step that was taken before now gives {gave:g}, not "
                f"{step.gave:g}: its memory or its program has changed; flash it again"
            )

    def _note(self, step: _Step) -> None:
        """Keep what was done to do it again, up to so much of it."""
        self._steps.append(step)
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

    def _do(self, step: _Step) -> float:
        if step.label:
            self.line.put(Command.LABEL, step.label)
        (best,) = self.line.read(CODE, Command.ROWS, self.line.put(Command.ROWS, step.image))
        if step.rate is None:
            return float(best)
        (loss,) = self.line.read(LOSS, Command.TRAIN, self.line.ask(Command.TRAIN, LOSS.pack(step.rate)))
        return float(loss)

    def _changed_by(self, command: Command, data: bytes = b"") -> bytes:
        """The state that the board has after a request that gives it another."""
        self.line.ask(command, data)
        return self._read_state()

    def _read_state(self) -> bytes:
        return self.line.take(Command.READ, state_bytes(self.graph)) if self.graph.state else b""

    def _write_state(self, state: bytes) -> None:
        self.line.put(Command.WRITE, state)
        self.line.ask(Command.ADOPT, struct.pack("<I", zlib.crc32(state)))
