"""Frames, the byte streams they travel on, and what goes wrong with either."""

from __future__ import annotations

import os
import select
import shlex
import struct
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from smidgen.errors import SmidgenError


class LinkError(SmidgenError):
    """A board cannot be reached, does not answer, or runs something else."""


class BoardFailed(LinkError):
    """A board tried what it was asked for, and its own function failed."""


class Restarted(LinkError):
    """A board has restarted since it was spoken to: it knows no session, or names another start."""


CHUNK = 1 << 16
BAUD = 115_200
GRACE = 1.0  # seconds that a program may take to end


class Stream(Protocol):
    """Bytes to a board and back."""

    name: str

    def read(self, seconds: float) -> bytes:
        """Return the bytes that came; none where nothing comes within some seconds."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def close(self) -> None:
        """Let others use it."""


class SerialStream:
    """A serial port: of a UART's adapter, or of USB."""

    def __init__(self, port: str, baud: int = BAUD) -> None:
        """LinkError where the port does not exist, or another program has it."""
        try:
            import serial
        except ImportError:
            raise LinkError("a serial port needs pyserial; run: pip install 'smidgen[serial]'") from None
        self.name, self._broken = port, serial.SerialException
        try:
            self._port = serial.Serial(port, baud, timeout=0, write_timeout=5, exclusive=True)
            self._port.reset_input_buffer()
        except (serial.SerialException, OSError, ValueError) as error:
            raise LinkError(f"{port} cannot be opened: {_reason(error)}") from None

    def read(self, seconds: float) -> bytes:
        with self._unless_lost():
            self._port.timeout = seconds
            first: bytes = self._port.read(1)
            return first + self._port.read(self._port.in_waiting) if first else b""

    def write(self, data: bytes) -> None:
        with self._unless_lost():
            self._port.write(data)
            self._port.flush()

    @contextmanager
    def _unless_lost(self) -> Iterator[None]:
        try:
            yield
        except (self._broken, OSError) as error:
            raise LinkError(f"{self.name} was lost: {_reason(error)}; plug the board in again") from None

    def close(self) -> None:
        self._port.close()


def _reason(error: Exception) -> str:
    """Return why a port is not to be had."""
    text = str(error)
    if "exclusively lock" in text or "Device or resource busy" in text:
        return "it is busy, another program has it open; end that one"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return text.splitlines()[0][:200] if text else type(error).__name__


class ProcessStream:
    """A program on this machine that serves on stdin and stdout, as a written project's example does."""

    def __init__(self, command: str) -> None:
        self.name = f"exec:{command}"
        try:
            words = shlex.split(command)
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                start_new_session=True,  # so that Ctrl-C is for the host alone
            )  # fmt: skip
        except (OSError, ValueError, IndexError) as error:
            raise LinkError(f"{self.name} cannot be started: {getattr(error, 'strerror', None) or error}") from None
        assert self._process.stdin
        assert self._process.stdout
        self._to, self._from = self._process.stdin, self._process.stdout

    def read(self, seconds: float) -> bytes:
        if not select.select([self._from], [], [], seconds)[0]:
            return b""
        came = os.read(self._from.fileno(), CHUNK)
        if not came:
            raise LinkError(f"{self.name} has ended with code {self._process.wait()}")
        return came

    def write(self, data: bytes) -> None:
        try:
            self._to.write(data)
        except OSError:
            raise LinkError(f"{self.name} has ended with code {self._process.wait()}") from None

    def close(self) -> None:
        """End the program: it stops where nothing more can come, or is stopped."""
        for end in (self._to, self._from):
            end.close()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


ANSWER = struct.Struct("<IIHB")  # session, boot, number, how it went
REQUEST = struct.Struct("<IHB")  # session, number, what is asked for
SUM = struct.Struct("<I")
LONGEST = 254  # bytes that one of COBS counts; no frame of a board has more


class Command(IntEnum):
    """Kinds of requests."""

    HELLO = 1
    ROWS = 2
    LABEL = 3
    TRAIN = 4
    PREDICT = 5
    OUTPUT = 6
    STATISTICS = 7
    SAVE = 8
    LOAD = 9
    READ = 10
    WRITE = 11
    ADOPT = 12
    REPLAY = 13
    RESET = 14
    OBSERVE = 15
    SOLVE = 16


class Status(IntEnum):
    """Outcome of a request."""

    DONE = 0
    DAMAGED = 1  # the request did not arrive as it was sent
    STRANGER = 2  # an unknown session, as after a reset
    DISORDER = 3  # its number does not follow the last one's
    UNKNOWN = 4  # not in this program
    REFUSED = 5  # not now, or not with this data
    FAILED = 6  # tried; a code gives the reason


@dataclass(frozen=True)
class Reply:
    """Results of a request."""

    session: int
    boot: int
    number: int
    status: int
    data: bytes


def request_frame(session: int, number: int, command: int, data: bytes) -> bytes:
    """Return a request as bytes to send."""
    return frame(REQUEST.pack(session, number, command) + data)


def read_answer(content: bytes) -> Reply | None:
    """Return the answer in a frame; None where there is none."""
    if len(content) < ANSWER.size:
        return None
    session, boot, number, status = ANSWER.unpack_from(content)
    return Reply(session, boot, number, status, content[ANSWER.size :])


def frame(content: bytes) -> bytes:
    """Return content between zeros, with its CRC-32, in which no zero is left."""
    coded = b"\0"
    for part in (content + SUM.pack(zlib.crc32(content))).split(b"\0"):  # up to a zero, behind its length and 1
        while len(part) >= LONGEST:  # a block of 254 has no zero behind it
            coded, part = coded + b"\xff" + part[:LONGEST], part[LONGEST:]
        coded += bytes([len(part) + 1]) + part
    return coded + b"\0"


def content_of(coded: bytes) -> bytes | None:
    """Return the content of what came between two zeros; None where it is damaged."""
    whole, at = bytearray(), 0
    while at < len(coded):
        end = at + coded[at]
        if end > len(coded):
            return None
        whole += coded[at + 1 : end]
        if end < len(coded) and coded[at] <= LONGEST:
            whole.append(0)
        at = end
    content, found = bytes(whole[: -SUM.size]), whole[-SUM.size :]
    return content if len(found) == SUM.size and SUM.pack(zlib.crc32(content)) == found else None


class Frames:
    """Bytes as they come, cut into frames."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def take(self, data: bytes) -> Iterator[bytes | None]:
        """Yield the content of each frame that ends in these bytes; None for one that is damaged."""
        for byte in data:
            if byte:
                self._begun.append(byte)
                del self._begun[2 * LONGEST :]  # noise without a zero: damaged already
            elif self._begun:
                coded = bytes(self._begun)
                self._begun.clear()
                yield content_of(coded)
