"""Flash, emulated as where the power fails, and the store of a device run over it on this machine."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from smidgen.codegen import SECTOR_BYTES, store_files
from smidgen.compiler import Cache, cache_folder, find_compiler
from smidgen.errors import InputError, TargetError
from smidgen.ir import Array
from smidgen.link.line import STORE_FAILURES
from smidgen.targets.lines import BLANK, FAILED, BoardFlash

# What a cut leaves of the program or erase that it meets: nothing or everything of it, some of its bits, or bits that
# read otherwise each time.
Torn = Literal["nothing", "everything", "some", "uncertain"]
TORN_KINDS: tuple[Torn, ...] = get_args(Torn)


@dataclass(frozen=True)
class FlashPart:
    """Flash of a chip: what an erase and a program take, how long each lasts, and how many erases a sector stands."""

    name: str
    sector_bytes: int
    unit_bytes: int
    erases: int  # a sector stands at least
    erase_ms: float
    program_us: float  # per unit


# From data sheets: typical times, guaranteed erases. The flash of an RP2040 and of an ESP32 is a separate chip.
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


class EmulatedFlash(BoardFlash):
    """Sectors of a part, which count their erases and programs; `cut` sets the operation at which the power fails."""

    def __init__(self, part: FlashPart, sectors: int, seed: int = 0) -> None:
        if sectors < 1:
            raise InputError(f"flash of {sectors} sectors cannot be; give 1 or more")
        super().__init__(sectors, part.sector_bytes)
        self.part = part
        self.uncertain: Array = np.zeros_like(self.bytes)  # bits that read otherwise each time
        self.erases: Array = np.zeros(sectors, np.int64)
        self.programs = 0  # units
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
        """Return the time that all of it takes."""
        return float(self.erases.sum()) * self.part.erase_ms + self.programs * self.part.program_us / 1000

    def cut(self, after: int, torn: Torn = "some") -> None:
        """Let the power fail after a number of operations, and leave the next one torn."""
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
        """Return the bytes at an address, or None where they cannot be read."""
        if not self.powered or address + size > self.bytes.size:
            return None
        place = slice(address, address + size)
        unsure = self.uncertain[place]
        found: Array = self.bytes[place] ^ (unsure & self._drawn(size) if unsure.any() else unsure)
        return found.tobytes()

    def _lasts(self) -> bool:
        """Return whether the power lasts through one more operation."""
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


OK, EMPTY, TORN, OTHER, LAYOUT, FULL, WORN, READ, SETUP = range(0, -9, -1)  # the codes of smidgen_store.h
STORE_BYTES = 4096  # more than a smg_store takes


def check_store(code: int, where: str = "the store") -> None:
    """Raise TargetError with the meaning of a store's code, unless the code is OK."""
    if code != OK:
        raise TargetError(f"{where} {STORE_FAILURES.get(code, f'gave the code {code}, which is none of a store')}")


@dataclass(frozen=True)
class Kept:
    """A store's contents: a region's name, its first sector and how many, and the program's fingerprint."""

    sectors: int
    first: int = 0
    name: str = "state"
    program: tuple[int, int] = (0, 0)


class _Flash(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("erase", "program", "read", "context")),
        ("sector_bytes", ctypes.c_uint32), ("unit_bytes", ctypes.c_uint32),
    )  # fmt: skip


class _Region(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("first", ctypes.c_uint32), ("sectors", ctypes.c_uint32))


class _Kept(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_uint32), ("program", ctypes.c_uint32 * 2))


_ERASE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32)
_MOVE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)


class Store:
    """A store as a device has it, from its restart on; `memory` is what it keeps."""

    def __init__(self, flash: EmulatedFlash, memory: Array, kept: Kept, cache: Path | None = None) -> None:
        self.memory, self.flash, self.kept = memory, flash, kept
        self._library = _library(cache or cache_folder())
        self._callbacks = (_ERASE(self._erase), _MOVE(self._program), _MOVE(self._read))
        pointers = (ctypes.cast(callback, ctypes.c_void_p) for callback in self._callbacks)
        self._driver = _Flash(*pointers, None, flash.part.sector_bytes, flash.part.unit_bytes)
        self._store = ctypes.create_string_buffer(STORE_BYTES)
        self._region = _Region(kept.name.encode(), kept.first, kept.sectors)  # the store points to the name
        held = _Kept(memory.ctypes.data, memory.nbytes, kept.program)
        self.found = int(self._library.smg_store_open(self._store, ctypes.byref(self._driver), self._region, held))

    @property
    def needed(self) -> int:
        """The sectors that a region takes at least."""
        return int(self._library.smg_store_sectors(ctypes.byref(self._driver), self.memory.nbytes))

    def load(self) -> None:
        """Load the last saved state into memory; TargetError where there is none."""
        self._check(self._library.smg_store_load(self._store))

    def save(self) -> None:
        """Save memory to flash; where that fails with TargetError, the last save is intact."""
        self._check(self._library.smg_store_save(self._store))

    def clear(self) -> None:
        """Erase the region, whatever it holds."""
        self._check(self._library.smg_store_clear(self._store))

    def _check(self, code: int) -> None:
        kept = self.kept
        where = f"the store {kept.name!r} of {kept.sectors} sectors of {self.flash.part.sector_bytes:,} bytes"
        needs = f", which takes {self.needed} for {self.memory.nbytes:,} bytes of state," if code == FULL else ""
        check_store(code, where + needs)

    def _erase(self, _: object, address: int) -> int:
        return self.flash.erase(address)

    def _program(self, _: object, address: int, data: int, size: int) -> int:
        return self.flash.program(address, ctypes.string_at(data, size))

    def _read(self, _: object, address: int, to: int, size: int) -> int:
        found = self.flash.read(address, size)
        if found is None:
            return FAILED
        ctypes.memmove(to, found, size)
        return OK


def room_for_examples(part: FlashPart, sectors: int, latent_bytes: int, cache: Path | None = None) -> int:
    """Return how many latents a ring keeps in some sectors of a part, as its C counts them."""
    flash = _Flash(None, None, None, None, part.sector_bytes, part.unit_bytes)
    library = _library(cache or cache_folder())
    return int(library.smg_replay_room(ctypes.byref(flash), sectors, latent_bytes))


def _library(cache: Path) -> ctypes.CDLL:
    """The store's C as this machine runs it."""
    files = {Path(name).name: text for name, text in store_files().items() if name.startswith("smidgen/")}
    sources = [name for name in files if name.endswith(".c")]
    return ctypes.CDLL(str(Cache(cache, find_compiler()).build(".so", files, "-I.", "-shared", *sources)))
