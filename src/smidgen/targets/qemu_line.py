"""The line to a board that QEMU emulates: bytes come and go by two pipes, as the program runs."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import weakref
from pathlib import Path

from smidgen.errors import TargetError
from smidgen.targets.boards import Board
from smidgen.targets.flash import BLANK
from smidgen.targets.image import Image
from smidgen.targets.linked_board import KEPT, LINE_IN, LINE_OUT
from smidgen.targets.qemu import CHUNK, end_qemu, find_qemu, loaded, open_pipe, vectors


class QemuStream:
    """A board from reset on. What it saves lies in QEMU's memory, and is gone where the line is closed."""

    def __init__(self, name: str, board: Board, image: Image) -> None:
        """TargetError where QEMU is not installed."""
        self.name, self.board = name, board
        command, self._folder = find_qemu(board), tempfile.TemporaryDirectory(prefix="smidgen-qemu-")
        place, kept = Path(self._folder.name), image.section(KEPT)
        blank = ((kept.address, bytes([BLANK]) * kept.bytes),) if kept.bytes else ()
        self._files = [open_pipe(place / line.decode()) for line in (LINE_IN, LINE_OUT)]
        self._said = place / "said"
        arguments = loaded(((0, vectors(board, image)), *image.loads, *blank), place)
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [command, *arguments], cwd=place, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,  # so that Ctrl-C is for the host alone
            )  # fmt: skip
        self._end = weakref.finalize(self, end_qemu, self._process, self._files, self._folder)

    def read(self, seconds: float) -> bytes:
        """What came; TargetError where QEMU has ended."""
        if select.select([self._files[1]], [], [], seconds)[0]:
            return os.read(self._files[1], CHUNK)
        self._check()
        return b""

    def write(self, data: bytes) -> None:
        """Send what there is room for: a board that is busy loses bytes, as one with a UART does."""
        self._check()
        try:
            os.write(self._files[0], data)
        except BlockingIOError:
            return

    def close(self) -> None:
        """End QEMU."""
        self._end()

    def _check(self) -> None:
        if self._process.poll() is not None:
            said = self._said.read_text(errors="replace").strip().splitlines()
            raise TargetError(
                f"the emulator of {self.board.name} has ended: {said[0] if said else 'it gives no reason'}"
            )
