"""Requests over a stream that loses, repeats and changes bytes: each is asked until it is answered, and done once.

With them a board's learned state becomes a file and comes back from it, and a board learns again from the examples that
it kept, all without its model.
"""

from __future__ import annotations

import math
import secrets
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smidgen.data.files import write_whole
from smidgen.errors import InputError
from smidgen.link import frames
from smidgen.link.frames import BoardFailed, Command, LinkError, Reply, Restarted, Status, Stream
from smidgen.ops.rules import check_rate
from smidgen.targets.saved import HEAD, saved_block

VERSION = 1
HELLO = struct.Struct("<HH7I")
STATISTICS = struct.Struct("<6I2f")
CODE, LOSS = struct.Struct("<i"), struct.Struct("<f")  # what a function of the board's gave, or a class; a loss
WAYS_OUT = {
    Command.SAVE: "it has nowhere to keep what it learned, or that is full or worn; write it to a file, with save -o",
    Command.LOAD: "it has saved nothing, or what it saved is damaged or another program's; what it had learned stays",
    Command.REPLAY: "it has kept no example yet, or its flash is another program's or worn; train it first",
}
STORE_FAILURES = {  # by the codes of smidgen_store.h
    -1: "holds nothing yet; save first",
    -2: "holds no whole state: the power failed during its first save, or its bytes are no save; save again",
    -3: "holds what another program learned, and keeps it; load that program, or clear the store to start over",
    -4: "was written by another version of the store, and keeps that; take that version, or clear the store",
    -5: "has no room for two states; give the region more sectors, or let less learn",
    -6: "has too few sectors left that can be erased and programmed; what was saved before is there; give it others",
    -7: "cannot be read; check the driver, and start over",
    -8: "has sizes that cannot be: sectors are whole units, units have at most 256 bytes, a state has some",
}
LEAST_PIECE = 16  # bytes of data in a request, on a line so bad that longer ones hardly arrive whole
GROWS = 8  # requests that arrive at the first try before longer ones are tried again


@dataclass(frozen=True)
class Timing:
    """Seconds: without an answer until a request is repeated, at first and at most, and until a board is silent."""

    again: float = 0.25
    slowest: float = 2.0
    silent: float = 15.0
    first: float = 4.0  # as `silent`, before it ever answered


@dataclass(frozen=True)
class Hello:
    """Who a board is: the program it runs, its sizes in bytes, and a CRC-32 of what it learned."""

    version: int
    piece: int
    fingerprint: str  # the first 64 bits, in hexadecimal
    state_bytes: int
    image_bytes: int
    label_bytes: int
    state_sum: int
    steps: int  # since it started
    boot: int


@dataclass(frozen=True)
class Statistics:
    """Counts of a board since it started."""

    steps: int
    runs: int
    saves: int
    damaged: int  # frames that did not arrive as they were sent
    repeated: int  # requests that came again
    state_sum: int  # CRC-32 of what it learned
    loss: float | None  # of the last step; None where it is not finite
    mean_loss: float | None  # of the last ones, the last counting most

    def __str__(self) -> str:
        loss, mean = ("not finite" if one is None else f"{one:.4f}" for one in (self.loss, self.mean_loss))
        return (
            f"{self.steps:,} steps, {self.runs:,} images run, {self.saves:,} saves; loss {loss}, mean {mean}; of the "
            f"frames {self.damaged:,} damaged, {self.repeated:,} repeated"
        )


class Line:
    """One request at a time, by number."""

    def __init__(self, stream: Stream, timing: Timing | None = None) -> None:
        self.stream, self.timing = stream, timing or Timing()
        self.piece = self._most = LEAST_PIECE
        self.sent = self.sent_in_all = 0  # requests, and those that were sent again counted each time
        self._frames = frames.Frames()
        self._session = self._number = 0
        self._boot: int | None = None
        self._smooth = 0
        self._garbage = 0  # bytes, of which no frame could be read

    def hello(self) -> Hello:
        """Begin a session: who is there, and what does it hold."""
        self._boot, first = None, self.sent == 0
        self._session, self._number = secrets.randbits(32), secrets.randbits(16)
        answer = self._exchange(Command.HELLO, struct.pack("<I", secrets.randbits(32)), first)
        version, piece, high, low, state, image, label, held, steps = self.read(HELLO, Command.HELLO, answer.data)
        if version != VERSION:
            raise LinkError(
                f"{self.stream.name} speaks version {version} of the link, this Smidgen {VERSION}; compile and flash "
                "it again"
            )
        if piece < LEAST_PIECE:
            raise LinkError(
                f"{self.stream.name} takes pieces of {piece} bytes, a link has at least {LEAST_PIECE}; compile and "
                "flash it again"
            )
        self._boot = answer.boot
        self._most = self.piece = piece
        return Hello(version, piece, f"{high:08x}{low:08x}", state, image, label, held, steps, answer.boot)

    def ask(self, command: Command, data: bytes = b"") -> bytes:
        """Return a board's answer to a request, which it does once however often it has to be sent."""
        answer = self._exchange(command, data)
        if answer.status == Status.DONE:
            return answer.data
        what = f"{self.stream.name}: {command.name.lower()}"
        if answer.status == Status.UNKNOWN:
            raise LinkError(f"{what} is not in this program")
        if answer.status == Status.FAILED:
            (code,) = self.read(CODE, command, answer.data)
            reason = f" (of a store that means: it {STORE_FAILURES[code]})" if code in STORE_FAILURES else ""
            way = f": {WAYS_OUT[command]}" if command in WAYS_OUT else ""
            raise BoardFailed(f"{what} failed on the board, its function gave {code}{reason}{way}")
        if answer.status == Status.DISORDER:
            raise LinkError(f"{what} was answered out of order: another program writes to this port; end it")
        raise LinkError(f"{what} was refused: the board is not ready for it, or the data does not fit its program")

    def read(self, layout: struct.Struct, command: Command, data: bytes) -> tuple[Any, ...]:
        """Return the numbers in what a request was answered with."""
        if len(data) != layout.size:
            raise LinkError(
                f"{self.stream.name} answers {command.name.lower()} with {len(data)} bytes, not {layout.size}; it was "
                "compiled by another version of Smidgen: compile and flash it again"
            )
        return layout.unpack(data)

    def statistics(self) -> Statistics:
        """Return the board's counts since it started."""
        *counts, loss, mean = self.read(STATISTICS, Command.STATISTICS, self.ask(Command.STATISTICS))
        return Statistics(*counts, *(one if math.isfinite(one) else None for one in (loss, mean)))

    def put(self, command: Command, data: bytes) -> bytes:
        """Send data in pieces from its beginning on; what the last of them is answered with."""
        at, answer = 0, b""
        while at < len(data):
            part = data[at : at + self.piece - 4]
            answer = self.ask(command, struct.pack("<I", at) + part)
            at += len(part)
        return answer

    def take(self, command: Command, size: int, which: bytes = b"") -> bytes:
        """Return so many bytes of a block on the board, in pieces."""
        data = b""
        while len(data) < size:
            count = min(self.piece, size - len(data))
            part = self.ask(command, struct.pack("<IH", len(data), count) + which)
            if len(part) != count:
                raise LinkError(f"{self.stream.name} gave {len(part)} bytes where {count} were asked for")
            data += part
        return data

    def write_state(self, state: bytes) -> None:
        """Give the board another state, which it adopts when all of it has come."""
        self.put(Command.WRITE, state)
        self.ask(Command.ADOPT, struct.pack("<I", zlib.crc32(state)))

    def close(self) -> None:
        self.stream.close()

    def _exchange(self, command: Command, data: bytes, first: bool = False) -> Reply:
        self._number = (self._number + 1) & 0xFFFF
        sent = frames.request_frame(self._session, self._number, command, data)
        self.sent, before = self.sent + 1, self.sent_in_all
        answer = self._until_answered(sent, command, first)
        tries = self.sent_in_all - before  # shorter pieces where long ones do not arrive, longer ones where they do
        self._smooth = 0 if tries > 1 else self._smooth + 1
        if tries > 4:
            self.piece = max(self.piece // 2, LEAST_PIECE)
        elif self._smooth >= GROWS:
            self._smooth, self.piece = 0, min(2 * self.piece, self._most)
        if answer.status == Status.STRANGER or (self._boot is not None and answer.boot != self._boot):
            raise Restarted(f"{self.stream.name} has restarted")
        return answer

    def _until_answered(self, sent: bytes, command: Command, first: bool) -> Reply:
        """Send until the answer comes: again at once where something damaged came, else after a while."""
        timing = self.timing
        patience, wait, tries = timing.first if first else timing.silent, timing.again, 0
        end, self._garbage = time.monotonic() + patience, 0
        while time.monotonic() < end or tries < 2:
            tries, self.sent_in_all = tries + 1, self.sent_in_all + 1
            self.stream.write(sent)
            due = time.monotonic() + wait
            while (left := due - time.monotonic()) > 0:
                came = self.stream.read(left)
                answer, damaged = self._look(came)
                if damaged and answer is None:  # with what else is there, so that one fault leads to one repetition
                    answer, _ = self._look(self.stream.read(0))
                if answer is not None:
                    return answer
                if damaged:
                    break
                if not came:
                    wait = min(1.5 * wait, timing.slowest)
                    break
        raise LinkError(self._silence(command, patience, tries))

    def _look(self, came: bytes) -> tuple[Reply | None, bool]:
        """Return the answer to the request under way, if it came; and whether something that is damaged did."""
        found, damaged = None, False
        self._garbage += len(came)
        for content in self._frames.take(came):
            answer = None if content is None else frames.read_answer(content)
            if answer is None or answer.status == Status.DAMAGED:
                damaged = True
            elif (answer.session, answer.number) == (self._session, self._number):
                found = answer
        return found, damaged

    def _silence(self, command: Command, seconds: float, tries: int) -> str:
        name, what = self.stream.name, command.name.lower()
        if self._garbage:
            return (
                f"{name} is garbled: {self._garbage:,} bytes came in {seconds:g} s and no answer to {what} among them; "
                "check the baud rate, and that firmware with a link runs there"
            )
        return (
            f"{name} is silent: no byte came in {seconds:g} s after {tries} tries of {what}; check the cable and "
            "the power, and that firmware with a link runs there"
        )


def save_file(line: Line, path: Path) -> Hello:
    """Write what a board learned to a file; the board goes on."""
    for _ in range(3):
        try:
            hello = _learner(line)
            state = line.take(Command.READ, hello.state_bytes)
            break
        except Restarted:
            continue
    else:
        raise LinkError(f"{line.stream.name} restarts again and again; check its power")
    if zlib.crc32(state) != hello.state_sum:
        raise LinkError(f"{line.stream.name} learned while its state was read; let it rest, and save again")
    write_whole(path, HEAD.pack(*_words(hello), hello.state_bytes, zlib.adler32(state)) + state)
    return hello


def load_file(line: Line, path: Path) -> tuple[Hello, BoardFailed | None]:
    """Give a board what a file holds, and let it save that; return also why it could not, if it could not.

    InputError where the file is damaged or another program's, and all is as it was.
    """
    hello = _learner(line)
    state = saved_block(path, _words(hello), hello.state_bytes, f"that of {line.stream.name}")
    line.write_state(state)
    try:
        line.ask(Command.SAVE)
    except BoardFailed as error:
        return hello, error
    return hello, None


def save_there(line: Line) -> Hello:
    """Let a board keep what it learned in its own memory."""
    hello = _learner(line)
    line.ask(Command.SAVE)
    return hello


def load_there(line: Line) -> Hello:
    """Let a board take back what it kept; where it cannot, it holds what it held before."""
    hello = _learner(line)
    before = line.take(Command.READ, hello.state_bytes)
    try:
        line.ask(Command.LOAD)
    except BoardFailed:
        line.write_state(before)
        raise
    return hello


def replay_there(line: Line, steps: int, rate: float, on_step: Callable[[float], None] | None = None) -> Hello:
    """Let a board learn from a number of examples that it kept; yields each loss.

    Which examples it takes is the board's to choose: where it restarts meanwhile, what it had not saved is gone.
    """
    check_rate(rate)
    if steps < 1:
        raise InputError(f"{steps} steps cannot be taken; give 1 step or more")
    hello = _learner(line)
    for step in range(steps):
        try:
            (loss,) = struct.unpack("<f", line.ask(Command.REPLAY, struct.pack("<f", rate)))
        except Restarted:
            raise LinkError(
                f"{line.stream.name} restarted after {step} of {steps} steps; it goes on from what it last saved"
            ) from None
        if on_step is not None:
            on_step(loss)
    return hello


def _learner(line: Line) -> Hello:
    hello = line.hello()
    if not hello.state_bytes:
        raise LinkError(f"{line.stream.name} runs a program that does not learn: there is nothing to save or to load")
    return hello


def _words(hello: Hello) -> tuple[int, int]:
    return int(hello.fingerprint[:8], 16), int(hello.fingerprint[8:], 16)
