"""Frames of a link, as `smidgen_link.h` has them: COBS between zeros, with a CRC-32 at the end."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

ANSWER = struct.Struct("<IIHB")  # session, boot, number, how it went
REQUEST = struct.Struct("<IHB")  # session, number, what is asked for
SUM = struct.Struct("<I")
LONGEST = 254  # bytes that one of COBS counts; no frame of a board has more


class Command(IntEnum):
    """What a request asks for."""

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


class Status(IntEnum):
    """How it went."""

    DONE = 0
    DAMAGED = 1  # the request did not arrive as it was sent
    STRANGER = 2  # no such session, as after a reset
    DISORDER = 3  # its number does not follow the last one's
    UNKNOWN = 4  # not in this program
    REFUSED = 5  # not now, or not with this data
    FAILED = 6  # tried; a code says why not


@dataclass(frozen=True)
class Answer:
    """What a board says of a request."""

    session: int
    boot: int
    number: int
    status: int
    data: bytes


def request_frame(session: int, number: int, command: int, data: bytes) -> bytes:
    """A request as it is sent."""
    return frame(REQUEST.pack(session, number, command) + data)


def read_answer(content: bytes) -> Answer | None:
    """The answer in a frame; None where there is none."""
    if len(content) < ANSWER.size:
        return None
    session, boot, number, status = ANSWER.unpack_from(content)
    return Answer(session, boot, number, status, content[ANSWER.size :])


def frame(content: bytes) -> bytes:
    """Content between zeros, with its CRC-32, in which no zero is left."""
    parts = (content + SUM.pack(zlib.crc32(content))).split(b"\0")
    return b"\0" + b"".join(map(_counted, parts)) + b"\0"


def _counted(part: bytes) -> bytes:
    """Bytes up to a zero, each block of them behind its length and 1; a block of 254 has no zero behind it."""
    full, rest = divmod(len(part), LONGEST)
    blocks = (b"\xff" + part[at * LONGEST : (at + 1) * LONGEST] for at in range(full))
    return b"".join(blocks) + bytes([rest + 1]) + part[full * LONGEST :]


def content_of(coded: bytes) -> bytes | None:
    """The content of what came between two zeros; None where it is damaged."""
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
        """The content of each frame that ends in these bytes; None for one that is damaged."""
        for byte in data:
            if byte:
                self._begun.append(byte)
                del self._begun[2 * LONGEST :]  # noise without a zero: damaged already
            elif self._begun:
                coded = bytes(self._begun)
                self._begun.clear()
                yield content_of(coded)
