"""A board's learned state as a file, and the examples it kept: read and used without its model."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from smidgen.data.files import read_whole, write_whole
from smidgen.errors import InputError
from smidgen.link.frames import BoardFailed, Command, LinkError, Restarted
from smidgen.link.line import Hello, Line

HEAD = struct.Struct("<IIII")  # the fingerprint's first 64 bits, bytes of state, Adler-32
LARGEST = 1 << 28


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


def load_file(line: Line, path: Path) -> Hello:
    """Give a board what a file holds; where that is damaged or another program's, InputError, and all is as it was."""
    data, hello = read_whole(path, LARGEST), _learner(line)
    if len(data) < HEAD.size:
        raise InputError(f"{path} has {len(data)} bytes and is not what a program saved")
    high, low, size, expected = HEAD.unpack_from(data)
    state = data[HEAD.size :]
    if (high, low) != _words(hello):
        raise InputError(
            f"{path} was saved by another program, {high:08x}{low:08x}; {line.stream.name} runs {hello.fingerprint}"
        )
    if len(state) != size or size != hello.state_bytes or zlib.adler32(state) != expected:
        raise InputError(f"{path} is cut short or damaged: it is not what a program saved")
    line.put(Command.WRITE, state)
    line.ask(Command.ADOPT, struct.pack("<I", zlib.crc32(state)))
    return hello


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
        line.put(Command.WRITE, before)
        line.ask(Command.ADOPT, struct.pack("<I", zlib.crc32(before)))
        raise
    return hello


def replay_there(line: Line, steps: int, rate: float, on_step: Callable[[float], None] | None = None) -> Hello:
    """Let a board learn from a number of examples that it kept; yields each loss.

    Which examples it takes is the board's to choose: where it restarts meanwhile, what it had not saved is gone.
    """
    if steps < 1 or not 0 <= rate < math.inf:
        raise InputError(f"{steps} steps at a rate of {rate:g} cannot be taken; give 1 step or more, and a rate from 0")
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
