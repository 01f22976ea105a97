"""An emulated board: a core with flash and SRAM of exactly a board's size, and a line to the host.

Flash cannot be written, SRAM not executed, and nothing else is there but the core's own registers. The
program talks to the host by semihosting: it reads requests from one file and writes answers to another.
"""

import ctypes
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from unicorn import Uc, UcError
from unicorn import unicorn_const as uc

from smidgen.errors import TargetError
from smidgen.targets.boards import PAGE, Board
from smidgen.targets.counter import CPUS, Counter
from smidgen.targets.image import Image

PAINT = b"\xa5"  # what SRAM holds after a reset: of the stack it shows how far that was used
OPEN, WRITE, READ = 0x01, 0x05, 0x06  # semihosting operations; any other one ends the program
STACK = ".stack"  # the section of SRAM that is reserved for it
WORD = 4  # bytes
NEVER = 0xFFFF_FFFF  # an address the program never reaches

READS, WRITES = ((uc.UC_MEM_READ_UNMAPPED, uc.UC_MEM_READ_PROT), (uc.UC_MEM_WRITE_UNMAPPED, uc.UC_MEM_WRITE_PROT))


class EmulatedBoard:
    """Runs a program from reset, request by request."""

    handles: ClassVar[Mapping[bytes, int]] = {b"requests": 1, b"answers": 2}  # of the files that it opens

    def __init__(self, board: Board, image: Image, counter: Counter, cache: Path) -> None:
        self.board, self.image, self.counter = board, image, counter
        self._cpu = CPUS[board.core.isa]
        self._uc = self._emulator()
        self._requests, self._answers = b"", bytearray()
        self._exception: int | None = None
        self._access: tuple[int, int, int] | None = None  # that cannot be: its kind, address and size
        self._trapped = self._last = self._ended = False
        counter.attach(self._uc, cache)
        self._pc = self._reset()
        stack = image.section(STACK)
        self._stack_top = stack.address + stack.bytes
        self._uc.mem_write(board.sram.origin, PAINT * board.sram.bytes)

    def _emulator(self) -> Uc:
        board = self.board
        emulator = self._cpu.emulator(board)
        emulator.mem_map(board.sram.origin, board.sram.bytes, uc.UC_PROT_READ | uc.UC_PROT_WRITE)
        if board.code == board.flash:
            emulator.mem_map(board.flash.origin, board.flash.bytes, uc.UC_PROT_READ | uc.UC_PROT_EXEC)
        else:  # one memory at two places
            self._flash = ctypes.create_string_buffer(board.flash.bytes)  # kept while the emulator has it
            emulator.mem_map_ptr(board.flash.origin, board.flash.bytes, uc.UC_PROT_READ, self._flash)
            emulator.mem_map_ptr(board.code.origin, board.flash.bytes, uc.UC_PROT_EXEC, self._flash)
        for address, data in self.image.loads:
            emulator.mem_write(address, data)
        emulator.hook_add(uc.UC_HOOK_INTR, self._interrupted)
        emulator.hook_add(uc.UC_HOOK_MEM_INVALID, self._refused)
        return emulator

    def _reset(self) -> int:
        """Return where the core begins: as its vector table has it, or behind the header of flash."""
        board = self.board
        if not self._cpu.vectors:
            self._uc.reg_write(self._cpu.sp, NEVER & ~0xF)  # anything, until the program sets it
            return board.code.origin + WORD * len(board.map.header)
        top, start = struct.unpack("<II", self._uc.mem_read(board.flash.origin, 8))
        self._uc.reg_write(self._cpu.sp, top)
        return int(start)

    def exchange(self, request: bytes, limit: int) -> bytes:
        """Hand over a request and run until the program waits for the next; what it answered.

        TargetError where the program faults, or is not done after `limit` instructions.
        """
        if self._ended:
            raise TargetError("the program on the board has stopped; start another")
        self._requests += request
        self._answers.clear()
        fields = self.counter.fields
        fields.limit = fields.total + limit
        try:
            while not self._trapped or self._served():
                self._run(limit)
                self._trapped = True
        except TargetError:
            self._ended = True
            raise
        return bytes(self._answers)

    def finish(self, limit: int) -> int:
        """Say that no request follows and let the program end; the instructions since reset."""
        self._last = True
        self.exchange(b"", limit)
        self._ended = True
        return int(self.counter.fields.total)

    def close(self) -> None:
        """Nothing outlives the object."""

    def peak_stack(self) -> int:
        """Bytes: down to the lowest stack pointer at any block, or the lowest byte that was written."""
        bottom = self.board.sram.origin
        stack = self._uc.mem_read(bottom, self._stack_top - bottom)
        painted = len(stack) - len(stack.lstrip(PAINT))
        return self._stack_top - min(bottom + painted, int(self.counter.fields.lowest_stack))

    def _run(self, limit: int) -> None:
        """Up to the next semihosting call."""
        self._exception = self._access = None
        failed: UcError | None = None
        try:
            self._uc.emu_start(self._pc | self._cpu.tag, NEVER)
        except UcError as error:  # as the emulator raises at some cores' breakpoints, too
            failed = error
        self._pc = self._uc.reg_read(self._cpu.pc)
        if (failed or self._exception is not None) and self._access is None and self._cpu.calls(self._uc, self._pc):
            return
        if failed:
            raise TargetError(self._fault(str(failed)))
        name, place = self.board.name, self.image.place(self._pc)
        if self._exception is not None:
            raise TargetError(f"the program on {name} met exception {self._exception} in {place}")
        if self.counter.fields.total <= self.counter.fields.limit:
            raise TargetError(f"the program on {name} left its code: it was about to execute {place}")
        raise TargetError(
            f"the program on {name} was stopped in {place} after {limit:,} instructions without an answer; "
            "it hangs, or needs a higher limit"
        )

    def _served(self) -> bool:
        """Do what a semihosting call asks; False where it waits for a request."""
        operation, at = (self._uc.reg_read(r) for r in (self._cpu.operation, self._cpu.arguments))
        result = 0
        if operation == OPEN:
            name, _mode, length = self._words(at)
            result = self.handles.get(bytes(self._uc.mem_read(name, length)), NEVER)
        elif operation == READ:
            _, to, size = self._words(at)
            if self._waits(size) and not self._last:
                return False
            taken, self._requests = self._requests[:size], self._requests[size:]
            self._uc.mem_write(to, taken)
            result = size - len(taken)
        elif operation == WRITE:
            _, data, size = self._words(at)
            self._answers += self._uc.mem_read(data, size)
        elif self._last:
            return False
        else:
            raise TargetError(f"the program on {self.board.name} ended in {self.image.place(self._pc)}")
        self._uc.reg_write(self._cpu.operation, result)
        self._pc += len(self._cpu.call)  # go on behind it
        return True

    def _waits(self, size: int) -> bool:
        """Return whether a read of this many bytes waits for more to come."""
        return len(self._requests) < size

    def _words(self, at: int) -> tuple[int, int, int]:
        first, second, third = struct.unpack("<III", self._uc.mem_read(at, 12))
        return int(first), int(second), int(third)

    def _interrupted(self, emulator: Uc, exception: int, _: object) -> None:
        self._exception = exception
        emulator.emu_stop()

    def _refused(self, emulator: Uc, kind: int, address: int, size: int, value: int, _: object) -> bool:
        self._access = kind, address, size
        return False

    def _fault(self, error: str) -> str:
        """Describe a fault: the access, its place, and the memory it met."""
        pc, link, sp = (self._uc.reg_read(r) for r in (self._cpu.pc, self._cpu.link, self._cpu.sp))
        name, place, access = self.board.name, self.image.place(pc), self._access
        if access is None:
            return f"the program on {name} faulted in {place}: {error}"
        kind, address, size = access
        there = self._lies(address)
        if kind not in (*READS, *WRITES):
            return f"the program on {name} jumped from about {self.image.place(link & ~1)} to {there}"
        what = f"{place} {'wrote' if kind in WRITES else 'read'} {size} bytes at {there}"
        if sp < self.board.sram.origin or 0 < self.board.sram.origin - address <= PAGE:
            room = f"{self._stack_top - self.board.sram.origin:,} bytes"
            return f"the stack of the program on {name} outgrew its {room}: {what}; give the board a larger stack"
        return f"the program on {name} faulted: {what}"

    def _lies(self, address: int) -> str:
        """Describe an address and the memory it is in."""
        board, symbol = self.board, self.image.at(address)
        places = (("flash", board.flash), ("flash", board.code), ("SRAM", board.sram))
        memory = next((name for name, region in places if address in region), "no memory")
        within = f", {self.image.place(address)}" if symbol else ""
        return f"0x{address:08x} ({memory}{within})"
