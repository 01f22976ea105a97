"""The store of a device, run on this machine over emulated flash: its C, with one sentence for each of its codes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

from smidgen.codegen import store_files
from smidgen.compiler import Cache, cache_folder, find_compiler
from smidgen.errors import TargetError
from smidgen.ir import Array
from smidgen.targets.flash import FAILED, EmulatedFlash, FlashPart

OK, EMPTY, TORN, OTHER, LAYOUT, FULL, WORN, READ, SETUP = range(0, -9, -1)  # the codes of smidgen_store.h
STORE_BYTES = 4096  # more than a smg_store takes

_FAILURES = {
    EMPTY: "holds nothing yet; save first",
    TORN: "holds no whole state: the power failed during its first save, or its bytes are no save; save again",
    OTHER: "holds what another program learned, and keeps it; load that program, or clear the store to begin anew",
    LAYOUT: "was written by another version of the store, and keeps that; take that version, or clear the store",
    FULL: "has no room for two states; give the region more sectors, or let less learn",
    WORN: "has too few sectors left that can be erased and programmed; what was saved before is there; give it others",
    READ: "cannot be read; check the driver, and begin anew",
    SETUP: "has sizes that cannot be: sectors are whole units, units have at most 256 bytes, a state has some",
}


def store_words(code: int) -> str | None:
    """What a store says by a code; None where it is none of its failures."""
    return _FAILURES.get(code)


def check_store(code: int, where: str = "the store") -> None:
    """Raise TargetError in the words of a store's code, unless that says that all went well."""
    if code != OK:
        raise TargetError(f"{where} {_FAILURES.get(code, f'gave the code {code}, which is none of a store')}")


@dataclass(frozen=True)
class Kept:
    """What a store keeps: a region's name, its first sector and how many, and the program's fingerprint."""

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
        """The last state that was saved, to memory; TargetError says why there is none."""
        self._check(self._library.smg_store_load(self._store))

    def save(self) -> None:
        """Memory into flash; TargetError says why that could not be, and what was saved before is there."""
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
    """How many latents a ring keeps in so many sectors of a part, as its C says."""
    flash = _Flash(None, None, None, None, part.sector_bytes, part.unit_bytes)
    library = _library(cache or cache_folder())
    return int(library.smg_replay_room(ctypes.byref(flash), sectors, latent_bytes))


def _library(cache: Path) -> ctypes.CDLL:
    """The store's C as this machine runs it."""
    files = {Path(name).name: text for name, text in store_files().items() if name.startswith("smidgen/")}
    sources = [name for name in files if name.endswith(".c")]
    return ctypes.CDLL(str(Cache(cache, find_compiler()).build(".so", files, "-I.", "-shared", *sources)))
