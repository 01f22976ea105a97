"""Flash, emulated as where the power fails: erasing sets bits, programming clears them, a cut leaves either or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from smidgen.codegen import SECTOR_BYTES
from smidgen.errors import InputError
from smidgen.ir import Array

# What a cut leaves of the program or erase that it meets: nothing or everything of it, some of its bits, or bits that
# read otherwise each time.
Torn = Literal["nothing", "everything", "some", "uncertain"]
TORN: tuple[Torn, ...] = get_args(Torn)
BLANK = 0xFF
FAILED = 1  # what a driver gives where an operation did not go well


@dataclass(frozen=True)
class FlashPart:
    """Flash of a chip: what an erase and a program take, how long each lasts, and how many erases a sector stands."""

    name: str
    sector_bytes: int
    unit_bytes: int
    erases: int  # a sector stands at least
    erase_ms: float
    program_us: float  # per unit


# As the makers' data sheets say: typical times, guaranteed erases. Beside RP2040 and ESP32 lies a chip of its own.
PARTS = {
    part.name: part
    for part in (
        FlashPart("nrf52840", 4096, 4, 10_000, 85, 41),
        FlashPart("rp2040", 4096, 256, 100_000, 45, 400),
        FlashPart("esp32", 4096, 4, 100_000, 45, 10),
        FlashPart("stm32f7", 256 * 1024, 4, 10_000, 1000, 16),
        FlashPart("stm32f7-small", 32 * 1024, 4, 10_000, 250, 16),
    )
}


# An emulated board's own, beside its program: as an nRF52840's.
BOARD_FLASH = FlashPart("board", SECTOR_BYTES, 4, 10_000, 85, 41)


class EmulatedFlash:
    """Sectors of a part, which count what is done to them; `cut` says at which operation the power fails."""

    def __init__(self, part: FlashPart, sectors: int, seed: int = 0) -> None:
        if sectors < 1:
            raise InputError(f"flash of {sectors} sectors cannot be; give 1 or more")
        self.part, self.sectors = part, sectors
        self.bytes: Array = np.full(sectors * part.sector_bytes, BLANK, np.uint8)
        self.uncertain: Array = np.zeros_like(self.bytes)  # bits that read otherwise each time
        self.erases: Array = np.zeros(sectors, np.int64)
        self.programs = 0  # units
        self.worn: set[int] = set()  # sectors in which an erase leaves bits as they are
        self.powered = True
        self._random = np.random.default_rng(seed)
        self._until: int | None = None
        self._torn: Torn = "some"

    @property
    def operations(self) -> int:
        """Units programmed and sectors erased so far."""
        return self.programs + int(self.erases.sum())

    @property
    def busy_ms(self) -> float:
        """How long all of that takes."""
        return float(self.erases.sum()) * self.part.erase_ms + self.programs * self.part.program_us / 1000

    def cut(self, after: int, torn: Torn = "some") -> None:
        """Let the power fail in the operation that follows so many others, and leave that torn."""
        self._until, self._torn = after, torn

    def restart(self) -> None:
        """The power is back."""
        self.powered, self._until = True, None

    def erase(self, address: int) -> int:
        """The sector there to 0xFF; 0 where that went well."""
        sector, beside = divmod(address, self.part.sector_bytes)
        if not self.powered or beside or not 0 <= sector < self.sectors:
            return FAILED
        lasts = self._lasts()
        self.erases[sector] += 1
        whole = slice(address, address + self.part.sector_bytes)
        if not lasts:
            self._tear(whole, np.full(self.part.sector_bytes, BLANK, np.uint8), np.uint8(BLANK))
        elif sector not in self.worn:
            self.bytes[whole], self.uncertain[whole] = BLANK, 0
        return 0 if lasts else FAILED

    def program(self, address: int, data: bytes) -> int:
        """Whole units, of which bits that are 0 are cleared; 0 where that went well."""
        unit = self.part.unit_bytes
        if not self.powered or address % unit or len(data) % unit or address + len(data) > self.bytes.size:
            return FAILED
        for at in range(0, len(data), unit):
            lasts = self._lasts()
            self.programs += 1
            given = np.frombuffer(data, np.uint8, unit, at)
            place = slice(address + at, address + at + unit)
            if not lasts:
                self._tear(place, self.bytes[place] & given, self.bytes[place] & ~given)
                return FAILED
            self.bytes[place] &= given
            self.uncertain[place] &= given
        return 0

    def read(self, address: int, size: int) -> bytes | None:
        """What is there, or nothing where it cannot be read."""
        if not self.powered or address + size > self.bytes.size:
            return None
        place = slice(address, address + size)
        unsure = self.uncertain[place]
        found: Array = self.bytes[place] ^ (unsure & self._drawn(size) if unsure.any() else unsure)
        return found.tobytes()

    def _lasts(self) -> bool:
        """Whether the power lasts through one more operation."""
        if self._until is None:
            return True
        self._until -= 1
        self.powered = self._until >= 0
        return self.powered

    def _tear(self, place: slice, after: Array, changing: Array | np.uint8) -> None:
        """Leave bytes as a cut does: of the bits that were to change."""
        if self._torn == "everything":
            self.bytes[place] = after
            self.uncertain[place] &= ~changing
        elif self._torn != "nothing":
            size = after.size
            self.bytes[place] = (self.bytes[place] & ~changing) | (self._drawn(size) & changing)
            self.uncertain[place] &= ~changing
            self.uncertain[place] |= self._drawn(size) & changing if self._torn == "uncertain" else 0

    def _drawn(self, size: int) -> Array:
        drawn: Array = self._random.integers(0, 256, size, np.uint8)
        return drawn
