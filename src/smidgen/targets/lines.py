"""Lines to emulated boards and their flash: projects and firmware that serve a link, in this process or in QEMU.

Flash lies beside a program: sectors of words in which only an erase sets bits.
"""

import os
import re
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from unicorn import Uc
from unicorn import unicorn_const as uc

from smidgen.codegen import SECTOR_BYTES, is_source
from smidgen.codegen.project import LISTING
from smidgen.compiler import Cache
from smidgen.data.files import read_text, read_whole, write_whole
from smidgen.errors import InputError, TargetError
from smidgen.ir import Array
from smidgen.targets import toolchain
from smidgen.targets.board import EmulatedBoard
from smidgen.targets.boards import BOARDS, Board, Region, aligned_only
from smidgen.targets.counter import Counter
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.image import Image, read_image
from smidgen.targets.qemu import CHUNK, QemuMachine

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


LINE_IN, LINE_OUT = b"line-in", b"line-out"
KEPT = ".kept"  # the section of a program's flash that a store writes
STARTING = 200_000_000  # instructions until a program with a link waits for bytes, at most
WORD, ERASED = 4, 0xFFFF_FFFF


class LinkedBoard(EmulatedBoard):
    """A board at the end of a line: bytes are handed over as they come, none is waited for.

    The flash in which its program keeps what it learned lies in its memory: a word that is written clears bits, and one
    of ones at the start of a sector erases that sector.
    """

    handles: ClassVar[Mapping[bytes, int]] = {LINE_IN: 1, LINE_OUT: 2}

    def __init__(self, board: Board, image: Image, counter: Counter, cache: Path, flash: BoardFlash) -> None:
        super().__init__(board, image, counter, cache)
        self.flash = flash
        self._kept = image.section(KEPT)
        self._failed: str | None = None  # what went wrong with flash
        at, size = self._kept.address, self._kept.bytes
        if not size:
            return
        self._uc.mem_protect(at, size, uc.UC_PROT_READ | uc.UC_PROT_WRITE)
        self._uc.mem_write(at, flash.bytes[:size].tobytes())
        self._uc.hook_add(uc.UC_HOOK_MEM_WRITE, self._written, begin=at, end=at + size - 1)
        for sector in flash.worn:  # memory takes what is written, a worn sector does not
            begin, bytes_ = at + sector * flash.sector_bytes, flash.sector_bytes
            self._uc.hook_add(uc.UC_HOOK_MEM_READ, self._read_worn, begin=begin, end=begin + bytes_ - 1)

    def _read_worn(self, emulator: Uc, _: int, address: int, size: int, value: int, __: object) -> None:
        """Show what a sector holds that does not erase, before it is read."""
        at = address - self._kept.address
        emulator.mem_write(address, self.flash.bytes[at : at + size].tobytes())

    def _written(self, emulator: Uc, _: int, address: int, size: int, value: int, __: object) -> None:
        """Take a word that is about to be written to flash."""
        value, at, sector = value & ERASED, address - self._kept.address, self.flash.sector_bytes
        before = int.from_bytes(self.flash.bytes[at & ~3 : (at & ~3) + WORD].tobytes(), "little")
        erases, worn = value == ERASED and at % sector == 0, at // sector in self.flash.worn
        if size != WORD or address % WORD or (value & ~before and not erases and not worn):
            self._failed = (
                f"the program on {self.board.name} wrote {size} bytes to flash at {self._lies(address)}, which held "
                f"0x{before:08x}: flash takes whole words, and only an erase sets bits"
            )
        elif erases:
            self._lasts(self.flash.erase(at))
            emulator.mem_write(address, self.flash.bytes[at : at + sector].tobytes())
        elif value != ERASED:
            self._lasts(self.flash.program(at, value.to_bytes(WORD, "little")))
        if self._failed:
            emulator.emu_stop()

    def _lasts(self, failed: int) -> None:
        if failed:
            self._failed = f"{self.board.name} lost its power while it wrote to flash; reset it"

    def _run(self, limit: int) -> None:
        try:
            super()._run(limit)
        except TargetError:
            if self._failed is None:
                raise
        if self._failed is not None:
            raise TargetError(self._failed)

    def _waits(self, size: int) -> bool:
        return not self._requests


class EmulatedStream:
    """The line to an emulated board: it runs while bytes are handed over, so that no time passes."""

    def __init__(self, name: str, start: Callable[[BoardFlash], LinkedBoard], flash: BoardFlash, limit: int) -> None:
        """`start` switches the board on, as after a reset."""
        self.name, self.flash, self._start, self._limit = name, flash, start, limit
        self._came = b""
        self.reset()

    def reset(self) -> None:
        """Switch the board off and on: what it did not save is gone."""
        self.flash.restart()
        self.board = self._start(self.flash)
        self._came = self._exchange(b"", min(self._limit, STARTING))

    def read(self, seconds: float) -> bytes:
        came, self._came = self._came, b""
        return came

    def write(self, data: bytes) -> None:
        self._came += self._exchange(data, self._limit)

    def close(self) -> None:
        """Nothing outlives the object but its flash, where a file holds it."""
        self.flash.close()

    def _exchange(self, data: bytes, limit: int) -> bytes:
        """Hand over bytes; return the answer of the board once its flash is safe."""
        answer = self.board.exchange(data, limit)
        self.flash.sync()
        return answer


class QemuStream(QemuMachine):
    """A board from reset on. What it saves lies in QEMU's memory, and is gone where the line is closed."""

    def __init__(self, name: str, board: Board, image: Image) -> None:
        """TargetError where QEMU is not installed."""
        kept = image.section(KEPT)
        blank = ((kept.address, bytes([BLANK]) * kept.bytes),) if kept.bytes else ()
        super().__init__(board, image, {LINE_IN.decode(): True, LINE_OUT.decode(): True}, blank)
        self.name = name
        self._start()

    def read(self, seconds: float) -> bytes:
        """Return the bytes that came; TargetError where QEMU has ended."""
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

    def _check(self) -> None:
        if self._process.poll() is not None:
            reason = self._complaint() or "it gives no reason"
            raise TargetError(f"the emulator of {self.board.name} has ended: {reason}")


def line_to(name: str, target: BoardTarget, firmware: Path, kept: Path | None = None) -> EmulatedStream | QemuStream:
    """Return the line to a board switched on with this firmware; its flash is empty, or what the file `kept` holds.

    TargetError where the core has Helium, which QEMU emulates, and QEMU is not installed.
    """
    if not target.board.core.helium:
        return emulated_line(name, target, firmware, kept)
    if kept:
        raise InputError(f"{name} runs in QEMU, whose flash goes to no file; leave --flash out, or take another core")
    return QemuStream(name, target.board, read_image(firmware))


def emulated_line(name: str, target: BoardTarget, firmware: Path, kept: Path | None = None) -> EmulatedStream:
    """Return the line to a board that is emulated in this process: its flash outlives resets."""
    image = read_image(firmware)

    def start(flash: BoardFlash) -> LinkedBoard:
        return LinkedBoard(target.board, image, Counter(image, {}, (), 0), target.cache, flash)

    sectors = image.section(KEPT).bytes // SECTOR_BYTES
    flash = KeptFlash(kept, sectors) if kept and sectors else BoardFlash(sectors)
    try:
        return EmulatedStream(name, start, flash, target.limit)
    except BaseException:
        flash.close()
        raise


SCRIPT = "board/board.ld"
FOLDERS = ("model", "smidgen", "board")
# Warnings of code that its user changed are not ours to refuse.
SWITCHES = ("-DLINK=1", "-DKEEPS=1", "-Wno-error", *(f"-I{folder}" for folder in FOLDERS))
_BOARD = re.compile(r"/\* ([\w-]+):")
_MEMORY = re.compile(r"(FLASH|SRAM) \(\w+\) : ORIGIN = (0x[0-9a-f]{1,8}), LENGTH = (\d{1,10})\b")


@dataclass(frozen=True)
class BoardProject:
    """A project, and the board that it is for."""

    folder: Path
    target: BoardTarget

    def build(self) -> Path:
        """Its firmware, as `make LINK=1 KEEPS=1` builds it."""
        target = self.target
        paths = sorted(path for folder in FOLDERS for path in (self.folder / folder).glob("*") if path.is_file())
        files = {str(path.relative_to(self.folder)): read_text(path) for path in paths}
        own = (name for name in files if is_source(name))
        cache = Cache(target.cache, toolchain.find(target.toolchain, target.board.core))
        link = toolchain.link_flags(target.toolchain, target.board.core)
        try:
            return cache.build(".elf", files, *SWITCHES, "-T", SCRIPT, *link, *own)
        except TargetError as error:
            raise TargetError(f"{self.folder} cannot be built with a link: {error}") from None


def read_project(folder: Path, name: str) -> BoardProject:
    """Read the project in a folder, for the board of that name with the memory that its linker script gives it."""
    way = f"write one with: smidgen compile … --target {name} -o {folder}"
    if not (folder / LISTING).is_file():
        raise InputError(f"{folder} is not a project that Smidgen wrote; {way}")
    if not (folder / SCRIPT).is_file():
        raise InputError(f"{folder} is a project for this machine: `make` it and take exec:{folder}/example; or {way}")
    script = read_text(folder / SCRIPT)
    named, memory = _BOARD.match(script), {found[1]: found for found in _MEMORY.finditer(script)}
    if named is None or memory.keys() != {"FLASH", "SRAM"}:
        raise InputError(f"{folder / SCRIPT} does not name its board and memory; {way}")
    if named[1] != name or name not in BOARDS:
        raise InputError(f"{folder} was compiled for {named[1]}, not for {name}; take emulated:{named[1]}, or {way}")
    flash, sram = (Region(int(memory[what][2], 16), int(memory[what][3])) for what in ("FLASH", "SRAM"))
    board: Board = replace(BOARDS[name], flash=flash, sram=sram)
    aligned = "strict_align" in read_text(folder / "Makefile")
    return BoardProject(folder, BoardTarget(aligned_only(board) if aligned else board))
