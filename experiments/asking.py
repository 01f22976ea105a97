"""A program of a board's that does as it is asked (`asked.h`), and the instructions that each request takes."""

from __future__ import annotations

import struct
from pathlib import Path

from smidgen.targets.board import EmulatedBoard
from smidgen.targets.counter import Counter
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.image import Image

LIMIT = 4_000_000_000  # instructions
HEADER = Path(__file__).parent / "asked.h"


class Asked:
    """An emulated board from reset on."""

    def __init__(self, target: BoardTarget, image: Image) -> None:
        self.board = EmulatedBoard(target.board, image, Counter(image, {}, (), 0), target.cache)
        self.board.exchange(b"", LIMIT)

    def instructions(self, request: bytes) -> int:
        """What a request takes that must succeed, or find nothing."""
        before = int(self.board.counter.fields.total)
        (given,) = struct.unpack("<i", self.board.exchange(request, LIMIT))
        assert given in (0, -1), given
        return int(self.board.counter.fields.total) - before
