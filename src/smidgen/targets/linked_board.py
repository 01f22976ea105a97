"""An emulated board whose program serves a host over a link: bytes come and go, and what it saves outlives a reset."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from unicorn import arm_const as arm

from smidgen.errors import TargetError
from smidgen.targets.board import OPEN, READ, WRITE, EmulatedBoard
from smidgen.targets.boards import Board
from smidgen.targets.counter import Counter
from smidgen.targets.image import Image

CLOSE = 0x02  # a semihosting operation
WRITES = 4  # from this mode of OPEN on, a file is written
LINE_IN, LINE_OUT = "line-in", "line-out"


class Drawer:
    """Files that a board keeps, by name; they are there whole once they are closed."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}


class LinkedBoard(EmulatedBoard):
    """A board at the end of a line: bytes are handed over as they come, none is waited for."""

    def __init__(self, board: Board, image: Image, counter: Counter, cache: Path, drawer: Drawer) -> None:
        super().__init__(board, image, counter, cache)
        self.drawer = drawer
        self._open: dict[int, tuple[str, bool]] = {}  # by handle: the file, and whether it is written
        self._data: dict[int, bytes] = {}  # what is left to read of it, or what was written

    def _served(self) -> bool:
        """Do what a semihosting call asks; False where it waits for a byte."""
        operation, at = (self._uc.reg_read(r) for r in (arm.UC_ARM_REG_R0, arm.UC_ARM_REG_R1))
        serve: dict[int, Callable[[int], int | None]] = {
            OPEN: self._opens, CLOSE: self._closes, READ: self._reads, WRITE: self._writes
        }  # fmt: skip
        if operation not in serve:
            raise TargetError(f"the program on {self.board.name} ended in {self.image.place(self._pc)}")
        result = serve[operation](at)
        if result is None:
            return False
        self._uc.reg_write(arm.UC_ARM_REG_R0, result & 0xFFFF_FFFF)
        self._pc += 2  # behind the breakpoint
        return True

    def _opens(self, at: int) -> int:
        address, mode, length = self._words(at)
        name, written = bytes(self._uc.mem_read(address, length)).decode(errors="replace"), mode >= WRITES
        if name not in (LINE_IN, LINE_OUT) and not written and name not in self.drawer.files:
            return -1
        handle = len(self._open) + 1
        self._open[handle] = (name, written)
        self._data[handle] = b"" if written else self.drawer.files.get(name, b"")
        return handle

    def _closes(self, at: int) -> int:
        (handle,) = struct.unpack("<I", self._uc.mem_read(at, 4))
        name, written = self._open[handle]
        if written:
            self.drawer.files[name] = self._data[handle]
        return 0

    def _reads(self, at: int) -> int | None:
        handle, to, size = self._words(at)
        line = self._open[handle][0] == LINE_IN
        there = self._requests if line else self._data[handle]
        if line and not there and not self._last:
            return None
        taken, left = there[:size], there[size:]
        if line:
            self._requests = left
        else:
            self._data[handle] = left
        self._uc.mem_write(to, taken)
        return size - len(taken)

    def _writes(self, at: int) -> int:
        handle, data, size = self._words(at)
        sent = bytes(self._uc.mem_read(data, size))
        if self._open[handle][0] == LINE_OUT:
            self._answers += sent
        else:
            self._data[handle] += sent
        return 0


class EmulatedStream:
    """The line to an emulated board: it runs while bytes are handed over, so that no time passes."""

    def __init__(self, name: str, start: Callable[[], LinkedBoard], limit: int) -> None:
        """`start` switches the board on, as it is after a reset."""
        self.name, self._start, self._limit = name, start, limit
        self._came = b""
        self.reset()

    def reset(self) -> None:
        """Switch the board off and on: what it did not save is gone."""
        self.board = self._start()
        self._came = self.board.exchange(b"", self._limit)

    def read(self, seconds: float) -> bytes:
        came, self._came = self._came, b""
        return came

    def write(self, data: bytes) -> None:
        self._came += self.board.exchange(data, self._limit)

    def close(self) -> None:
        """Nothing outlives the object."""
