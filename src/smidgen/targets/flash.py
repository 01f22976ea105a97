"""Flash of an emulated board, beside its program: sectors of words in which only an erase sets bits."""

from __future__ import annotations

import numpy as np

from smidgen.codegen import SECTOR_BYTES
from smidgen.ir import Array

BLANK = 0xFF
FAILED = 1  # what a driver gives where an operation did not go well


class BoardFlash:
    """Sectors that a store writes to through a driver."""

    def __init__(self, sectors: int, sector_bytes: int = SECTOR_BYTES) -> None:
        self.sectors, self.sector_bytes = sectors, sector_bytes
        self.bytes: Array = np.full(sectors * sector_bytes, BLANK, np.uint8)
        self.worn: set[int] = set()  # sectors in which an erase leaves bits as they are

    def restart(self) -> None:
        """Switch the power on again."""

    def erase(self, address: int) -> int:
        """Set the sector there to 0xFF; 0 where that went well."""
        self.bytes[address : address + self.sector_bytes] = BLANK
        return 0

    def program(self, address: int, data: bytes) -> int:
        """Clear the bits of whole units that are 0 in the data; 0 where that went well."""
        self.bytes[address : address + len(data)] &= np.frombuffer(data, np.uint8)
        return 0
