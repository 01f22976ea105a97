"""Flash controllers of chips, after their reference manuals, around an emulated board: the registers of drivers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from unicorn import Uc
from unicorn import unicorn_const as uc

from smidgen.targets.board import EmulatedBoard
from smidgen.targets.boards import Board
from smidgen.targets.counter import Counter
from smidgen.targets.image import Image

PAGE, WORD, ERASED = 4096, 4, 0xFFFF_FFFF


class Controller(ABC):
    """A flash controller that refuses what the chip would; `wrong` lists each refusal."""

    page: int  # of its registers
    flash: int  # the address from which a store may write
    bytes: int

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.erases = 0

    def attach(self, emulator: Uc) -> None:
        emulator.mem_map(self.page, PAGE, uc.UC_PROT_READ | uc.UC_PROT_WRITE)
        emulator.mem_protect(self.flash, self.bytes, uc.UC_PROT_READ | uc.UC_PROT_WRITE)
        emulator.hook_add(uc.UC_HOOK_MEM_WRITE, self._written, begin=self.page, end=self.page + PAGE - 1)
        emulator.hook_add(uc.UC_HOOK_MEM_READ, self._read, begin=self.page, end=self.page + PAGE - 1)
        emulator.hook_add(uc.UC_HOOK_MEM_WRITE, self._programmed, begin=self.flash, end=self.flash + self.bytes - 1)

    def erase(self, emulator: Uc, address: int, size: int) -> None:
        if not self.flash <= address <= self.flash + self.bytes - size or address % size:
            self.wrong.append(f"erased 0x{address:08x}")
            return
        emulator.mem_write(address, b"\xff" * size)
        self.erases += 1

    @abstractmethod
    def may_program(self, emulator: Uc) -> bool:
        """Return whether the registers allow a word to be programmed now."""

    def _programmed(self, emulator: Uc, _: int, address: int, size: int, value: int, __: object) -> None:
        before = int.from_bytes(emulator.mem_read(address, WORD), "little")
        if not self.may_program(emulator) or size != WORD or address % WORD or before != ERASED:
            self.wrong.append(f"programmed {size} bytes at 0x{address:08x}, which held 0x{before:08x}")

    @abstractmethod
    def _written(self, emulator: Uc, _: int, address: int, size: int, value: int, __: object) -> None:
        """A register is written."""

    @abstractmethod
    def _read(self, emulator: Uc, _: int, address: int, size: int, value: int, __: object) -> None:
        """A register is about to be read."""


class Nvmc(Controller):
    """An nRF52's controller: CONFIG selects writing words or erasing pages."""

    page, flash, bytes = 0x4001_E000, 0x000F_0000, 64 << 10
    READY, CONFIG, ERASEPAGE = 0x4001_E400, 0x4001_E504, 0x4001_E508

    def may_program(self, emulator: Uc) -> bool:
        return bytes(emulator.mem_read(self.CONFIG, 1)) == b"\x01"

    def _written(self, emulator: Uc, _: int, address: int, size: int, value: int, __: object) -> None:
        if address == self.ERASEPAGE:
            if bytes(emulator.mem_read(self.CONFIG, 1)) != b"\x02":
                self.wrong.append("erased while CONFIG did not allow it")
            self.erase(emulator, value, PAGE)
        elif address != self.CONFIG:
            self.wrong.append(f"wrote 0x{address:08x}")

    def _read(self, emulator: Uc, _: int, address: int, size: int, value: int, __: object) -> None:
        emulator.mem_write(self.READY, b"\x01\x00\x00\x00")


class Stm32f7(Controller):
    """An STM32F746's: two keys unlock CR, whose SNB and STRT erase a sector and whose PG lets words be written."""

    page, flash, bytes = 0x4002_3000, 0x0808_0000, 512 << 10
    KEYR, SR, CR = 0x4002_3C04, 0x4002_3C0C, 0x4002_3C10
    LOCK, STRT, SER, PG, WORDS = 1 << 31, 1 << 16, 2, 1, 2 << 8
    KEYS = (0x4567_0123, 0xCDEF_89AB)
    FIRST = 6  # of the sectors that a store may write

    def attach(self, emulator: Uc) -> None:
        super().attach(emulator)
        self.keys: list[int] = []
        emulator.mem_write(self.CR, self.LOCK.to_bytes(4, "little"))

    def control(self, emulator: Uc) -> int:
        return int.from_bytes(emulator.mem_read(self.CR, 4), "little")

    def may_program(self, emulator: Uc) -> bool:
        return self.control(emulator) & (self.LOCK | 0x303) == self.WORDS | self.PG

    def _written(self, emulator: Uc, _: int, address: int, size: int, value: int, __: object) -> None:
        value &= 0xFFFF_FFFF
        if address == self.KEYR:
            self.keys.append(value)
            if tuple(self.keys[-2:]) == self.KEYS:
                emulator.mem_write(self.CR, bytes(4))
        elif address == self.CR:
            if self.control(emulator) & self.LOCK:
                self.wrong.append("wrote CR while it was locked")
            if value & self.STRT:
                number = value >> 3 & 15
                if not value & self.SER or value & self.PG:
                    self.wrong.append(f"began an erase with CR at 0x{value:08x}")
                self.erase(emulator, self.flash + (number - self.FIRST) * (256 << 10), 256 << 10)

    def _read(self, emulator: Uc, _: int, address: int, size: int, value: int, __: object) -> None:
        emulator.mem_write(self.SR, bytes(4))  # never busy, and what was written to SR clears errors


class ChipBoard(EmulatedBoard):
    """A board with a flash controller, whose flash holds what another left there."""

    def __init__(self, board: Board, image: Image, cache: Path, controller: Controller, held: bytes | None) -> None:
        super().__init__(board, image, Counter(image, {}, (), 0), cache)
        self.controller = controller
        self._uc.mem_write(controller.flash, held or b"\xff" * controller.bytes)
        controller.attach(self._uc)

    def held(self) -> bytes:
        return bytes(self._uc.mem_read(self.controller.flash, self.controller.bytes))
