"""Frames and answers as a host reads them: what no board sends is damaged, a restart, or told in one sentence."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from smidgen.link import Line, LinkError, Restarted, Timing
from smidgen.link.frames import ANSWER, REQUEST, Command, Frames, Status, content_of, frame
from smidgen.link.line import HELLO, STATISTICS

QUICK = Timing(again=0.01, silent=30)


def test_noise_without_an_end_takes_no_memory_and_the_next_frame_is_read() -> None:
    frames = Frames()
    assert [found for _ in range(100) for found in frames.take(b"\x55" * 1000)] == []
    assert sum(len(held) for held in vars(frames).values()) < 1000
    assert list(frames.take(frame(b"whole"))) == [None, b"whole"]


def test_frames_come_back_from_cobs_and_no_damage_of_one_byte_is_taken_for_content() -> None:
    rng = np.random.default_rng(0)
    for size in (*range(12), 100, 249, 250, 251, 400):
        content = bytes(size) if size % 2 else rng.bytes(size)
        coded = frame(content)
        assert coded[0] == coded[-1] == 0
        assert 0 not in coded[1:-1]
        assert list(Frames().take(coded)) == [content]
        for at in range(1, len(coded) - 1, 1 + size // 100):
            for spoiled in (coded[:at] + coded[at + 1 :], coded[:at] + coded[at : at + 1] + coded[at:]):
                assert content not in (found for found in Frames().take(spoiled)) or spoiled == coded
    assert content_of(b"") is None


class Scripted:
    """A board that answers each request with the next of these: how it went, and data."""

    name, boot = "board", 0

    def __init__(self, *said: tuple[Status, bytes]) -> None:
        self._said, self._came, self._asked = list(said), b"", Frames()

    def read(self, seconds: float) -> bytes:
        came, self._came = self._came, b""
        return came

    def write(self, data: bytes) -> None:
        for content in self._asked.take(data):
            assert content is not None
            session, number, _ = REQUEST.unpack_from(content)
            status, said = self._said.pop(0)
            self._came += frame(ANSWER.pack(session, self.boot, number, status) + said)

    def close(self) -> None:
        """There is nothing to close."""


def hail(piece: int = 224, version: int = 1) -> tuple[Status, bytes]:
    return Status.DONE, HELLO.pack(version, piece, 1, 2, 100, 300, 4, 5, 6)


ANSWERS: dict[str, tuple[tuple[tuple[Status, bytes], ...], str]] = {
    "short hello": (((Status.DONE, b"hail"),), "board answers hello with 4 bytes, not 32; it was compiled by another"),
    "another version": ((hail(version=2),), "board speaks version 2 of the link, this Smidgen 1; compile and flash"),
    "no pieces": ((hail(piece=0),), "board takes pieces of 0 bytes, a link has at least 16; compile and flash"),
    "short figures": ((hail(), (Status.DONE, b"few")), "board answers statistics with 3 bytes, not 32"),
    "no code": ((hail(), (Status.FAILED, b"")), "board answers statistics with 0 bytes, not 4"),
    "a code": ((hail(), (Status.FAILED, b"\xfa\xff\xff\xff")), r"statistics failed on the board, its function gave -6"),
}  # fmt: skip


@pytest.mark.parametrize("what", ANSWERS)
def test_answers_that_no_link_gives_are_told_in_one_sentence(what: str) -> None:
    said, message = ANSWERS[what]
    line = Line(Scripted(*said), QUICK)

    def ask() -> None:
        line.hello()
        line.statistics()

    with pytest.raises(LinkError, match=message) as raised:
        ask()
    assert "\n" not in str(raised.value)


def test_an_answer_of_another_start_is_a_restart() -> None:
    board = Scripted(hail(), (Status.DONE, bytes(STATISTICS.size)), (Status.DONE, bytes(STATISTICS.size)))
    line = Line(board, QUICK)
    line.hello()
    line.statistics()
    board.boot = 1
    with pytest.raises(Restarted, match="board has restarted"):
        line.statistics()


STORE_CODES = {-3: "what another program learned", -4: "another version of the store", -5: "no room", -6: "too few"}


@pytest.mark.parametrize("code", STORE_CODES)
def test_what_a_boards_store_refuses_is_told_in_its_words(code: int) -> None:
    line = Line(Scripted(hail(), (Status.FAILED, struct.pack("<i", code))), QUICK)
    line.hello()
    with pytest.raises(LinkError, match=rf"save failed on the board, its function gave {code} .*{STORE_CODES[code]}"):
        line.ask(Command.SAVE)
