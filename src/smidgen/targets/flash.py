"""Flash of an emulated board, beside its program: sectors of words in which only an erase sets bits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from smidgen.codegen import SECTOR_BYTES
from smidgen.data.files import read_whole, write_whole
from smidgen.errors import InputError
from smidgen.ir import Array

BLANK = 0xFF
FAILED = 1  # what a driver gives where an operation did not go well
BLOCK = 512  # bytes that a disk writes together


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

    def sync(self) -> None:
        """Wait until what was programmed and erased outlives this machine's power: here nothing does."""

    def close(self) -> None:
        """Nothing outlives the object."""


class KeptFlash(BoardFlash):
    """Flash in a file, to which every program and erase goes at once: a command that is killed loses none of them.

    What was written to a block is synced before another is written to, or a sector erased: if the machine itself loses
    its power, the file holds all operations up to some instant, as flash does.
    """

    def __init__(self, path: Path, sectors: int, sector_bytes: int = SECTOR_BYTES) -> None:
        """Go on from what the file holds, or make one that is blank."""
        super().__init__(sectors, sector_bytes)
        if not path.exists():
            write_whole(path, self.bytes.tobytes())
        size, data = self.bytes.size, read_whole(path, max(self.bytes.size, 1 << 16))
        if len(data) != size:
            raise InputError(f"{path} holds {len(data):,} bytes, the flash of this program {size:,}; name another file")
        self.bytes[:] = np.frombuffer(data, np.uint8)
        self._path = path
        self._unsynced: int | None = None  # the block that was written to since the last sync
        with self._refused():
            self._file = path.open("r+b", buffering=0)

    def erase(self, address: int) -> int:
        self.sync()
        failed = super().erase(address)
        self._write(address, self.sector_bytes)
        self.sync()
        return failed

    def program(self, address: int, data: bytes) -> int:
        if self._unsynced != address // BLOCK:
            self.sync()
        failed = super().program(address, data)
        self._write(address, len(data))
        return failed

    def sync(self) -> None:
        if self._unsynced is not None:
            self._unsynced = None
            with self._refused():
                os.fsync(self._file.fileno())

    def close(self) -> None:
        self.sync()
        self._file.close()

    def _write(self, address: int, size: int) -> None:
        self._unsynced = address // BLOCK
        with self._refused():
            self._file.seek(address)
            self._file.write(self.bytes[address : address + size].tobytes())

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(f"{self._path} cannot be written: {error.strerror or error}") from None
