"""Both ends of a link, fuzzed: what the host makes of any answers, and the board's C of any requests."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from random import Random

from fuzz_bytes import raw
from smidgen.codegen import link_files
from smidgen.compiler import Cache, cache_folder, find_compiler
from smidgen.link import Line, Timing
from smidgen.link.frames import ANSWER, REQUEST, Command, Frames, Reply, Status, content_of, frame, read_answer
from smidgen.link.line import load_there

PIECE = 224  # bytes of data that a request has at most
GUARD = 64  # bytes around the board's memory that stay as they are
AT_ONCE = Timing(again=1e-4, slowest=1e-4, silent=0.0, first=0.0)
LARGEST_STATE = 4096  # bytes that are read of a board which says that it has more
SIZE = """#include "smidgen_link.h"
int32_t fuzz_size(void);
int32_t fuzz_size(void) { return sizeof(smg_link); }
"""


class LinkFaultError(Exception):
    """One end of a link takes what the other never meant."""


class Answered:
    """A board that answers each request with the next content of a case, as if that were for it; first its bytes."""

    name = "board"

    def __init__(self, case: bytes) -> None:
        self._came, self._asked = case, Frames()
        self._contents = [content for content in Frames().take(case) if content is not None]

    def read(self, seconds: float) -> bytes:
        came, self._came = self._came, b""
        return came

    def write(self, data: bytes) -> None:
        for request in self._asked.take(data):
            if request is None:
                raise LinkFaultError("the host sent a frame that it cannot read itself")
            session, number, _ = REQUEST.unpack_from(request)
            if self._contents:
                said = self._contents.pop(0).ljust(ANSWER.size, b"\0")
                _, boot, _, status = ANSWER.unpack_from(said)
                self._came += frame(ANSWER.pack(session, boot, number, status) + said[ANSWER.size :])

    def close(self) -> None:
        """There is nothing to close."""


def answers(path: Path) -> object:
    """Whatever a board answers: the host reads it, or says in one sentence what is wrong."""
    line = Line(Answered(path.read_bytes()), AT_ONCE)
    hello = line.hello()
    line.statistics()
    line.take(Command.READ, min(hello.state_bytes, LARGEST_STATE))
    line.put(Command.ROWS, bytes(300))
    for command in Command:
        line.ask(command)
    return load_there(line) if hello.state_bytes <= LARGEST_STATE else hello


@cache
def _loaded() -> ctypes.CDLL:
    files = {**link_files(), "size.c": SIZE}
    return ctypes.CDLL(
        str(Cache(cache_folder(), find_compiler()).build(".so", files, "-I.", "-shared", "link.c", "size.c"))
    )


class Board:
    """The board's C, between bytes that nobody may write."""

    def __init__(self) -> None:
        self.loaded = _loaded()
        self._bytes = int(self.loaded.fuzz_size())
        self.memory = ctypes.create_string_buffer(b"\xa5" * (self._bytes + 2 * GUARD))
        self.link = ctypes.byref(self.memory, GUARD)
        ctypes.memset(ctypes.addressof(self.memory) + GUARD, 0, self._bytes)

    def take(self, byte: int) -> int:
        """What a byte leads to; an answer where a request is at hand, which is done."""
        found = int(self.loaded.smg_link_take(self.link, ctypes.c_uint8(byte)))
        return int(self.loaded.smg_link_answer(self.link, 0, 1, 2, ctypes.c_uint8(8))) if found == 1 else found

    def sent(self, count: int) -> bytes:
        return self.memory.raw[GUARD : GUARD + count]

    def is_guarded(self) -> bool:
        around = self.memory.raw[:GUARD] + self.memory.raw[GUARD + self._bytes : 2 * GUARD + self._bytes]
        return around == b"\xa5" * (2 * GUARD)


def requests(path: Path) -> object:
    """Whatever bytes come: the board answers each frame once, to whom it came from, and writes nowhere else."""
    board, frames = Board(), Frames()
    for byte in path.read_bytes():
        count, found = board.take(byte), list(frames.take(bytes([byte])))
        if bool(count) != bool(found):
            raise LinkFaultError(f"the board ends {bool(count):d} frames where the host ends {len(found)}")
        if found:
            _check(read_answer(content_of(board.sent(count).strip(b"\0")) or b""), found[0])
    if not board.is_guarded():
        raise LinkFaultError("the board wrote outside of its memory")
    return board


def _check(answer: Reply | None, asked: bytes | None) -> None:
    """An answer is readable, and to what was asked."""
    if answer is None:
        raise LinkFaultError("the board's answer cannot be read")
    whole = asked is not None and REQUEST.size <= len(asked) <= REQUEST.size + PIECE
    if whole == (answer.status == Status.DAMAGED):
        raise LinkFaultError(f"a request that is {'whole' if whole else 'damaged'} was answered with {answer.status}")
    if whole and asked is not None and (answer.session, answer.number) != REQUEST.unpack_from(asked)[:2]:
        raise LinkFaultError("an answer is for another request")


def framed(data: bytes, rng: Random) -> bytes:
    """Change a frame's content, and frame it anew; or repeat, drop or exchange frames, or change bytes as they are."""
    contents = [content for content in Frames().take(data + b"\0") if content is not None]
    if not contents or not rng.randrange(3):
        return raw(data, rng)
    at, other = rng.randrange(len(contents)), rng.randrange(len(contents))
    match rng.randrange(6):
        case 0:
            contents.insert(other, contents[at])
        case 1:
            del contents[at]
        case 2:
            contents[at], contents[other] = contents[other], contents[at]
        case 3:
            contents[at] += rng.randbytes(rng.choice((1, 4, 36, 220, 300)))
        case _:
            contents[at] = raw(contents[at], rng)
    return b"".join(map(frame, contents))
