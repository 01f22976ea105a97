"""Instructions counted by function and by node, and what the emulator must know of a core."""

import ctypes
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from unicorn import UC_HOOK_BLOCK, Uc
from unicorn import arm_const as arm
from unicorn import riscv_const as riscv
from unicorn import unicorn_const as uc
from unicorn.unicorn_py3.unicorn import uclib

from smidgen.compiler import Cache, find_compiler
from smidgen.errors import TargetError
from smidgen.ir import Array
from smidgen.targets.boards import PAGE, Board, Isa
from smidgen.targets.image import Image

CORE_REGISTERS = 0xE000_E000  # the System Control Space, a page of it: the program switches the FPU on there


@dataclass(frozen=True)
class Cpu:
    """A family of cores that run the same instructions."""

    kind: tuple[int, int]  # architecture and mode
    models: Mapping[str, int]
    pc: int  # this and the next four are registers
    sp: int
    link: int
    operation: int  # of a semihosting call, and its result
    arguments: int
    before: bytes  # code before the instruction that makes a semihosting call, that instruction, and code behind it
    call: bytes
    behind: bytes
    wide: tuple[int, int]  # an instruction takes two halfwords where these bits of the first come to that much
    tag: int  # what an address of code is marked with
    registers: tuple[int, ...] = ()  # pages of the core's own
    vectors: bool = False  # flash begins with a table of where the stack and the program begin

    def emulator(self, board: Board) -> Uc:
        """Return a core of a board, without memory but its own."""
        emulator = Uc(*self.kind)
        emulator.ctl_set_cpu_model(self.models[board.core.model])
        for page in self.registers:
            emulator.mem_map(page, PAGE, uc.UC_PROT_READ | uc.UC_PROT_WRITE)
        return emulator

    def calls(self, emulator: Uc, pc: int) -> bool:
        """Return whether a core stopped there because it calls its host."""
        code = self.before + self.call + self.behind
        return bytes(emulator.mem_read(pc - len(self.before), len(code))) == code


def _models(constants: Mapping[str, object], prefix: str) -> dict[str, int]:
    return {n.removeprefix(prefix): v for n, v in constants.items() if n.startswith(prefix) and isinstance(v, int)}


CPUS: Mapping[Isa, Cpu] = {
    "thumb": Cpu(
        (uc.UC_ARCH_ARM, uc.UC_MODE_THUMB | uc.UC_MODE_MCLASS), _models(vars(arm), "UC_CPU_ARM_"),
        arm.UC_ARM_REG_PC, arm.UC_ARM_REG_SP, arm.UC_ARM_REG_LR, arm.UC_ARM_REG_R0, arm.UC_ARM_REG_R1,
        b"", b"\xab\xbe", b"", wide=(0xFFFF, 0xE800), tag=1, registers=(CORE_REGISTERS,), vectors=True,
    ),
    "riscv": Cpu(
        (uc.UC_ARCH_RISCV, uc.UC_MODE_RISCV32), _models(vars(riscv), "UC_CPU_RISCV32_"),
        riscv.UC_RISCV_REG_PC, riscv.UC_RISCV_REG_SP, riscv.UC_RISCV_REG_RA, riscv.UC_RISCV_REG_A0,
        riscv.UC_RISCV_REG_A1, b"\x13\x10\xf0\x01", b"\x73\x00\x10\x00", b"\x13\x50\x70\x40", wide=(3, 3), tag=0,
    ),
}  # fmt: skip


GENERATED, KERNEL, ENTRY = 1, 2, 4  # roles of the code at an address
BLOCK = np.dtype([(n, "u8" if n == "executed" else "u4") for n in ("executed", "size", "instructions", "role", "_")])


class _Fields(ctypes.Structure):
    """The struct of counter.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("blocks", "code", "calls", "nodes", "read_register", "stop")),
        *((name, ctypes.c_uint64) for name in ("origin", "size", "total", "limit")),
        *((name, ctypes.c_int32) for name in ("stack_register", "link_register", "call_count", "node_count")),
        *((name, ctypes.c_int32) for name in ("called", "node", "inside", "after_generated")),
        *((name, ctypes.c_uint32) for name in ("back", "lowest_stack", "fault", "last", "before")),
        *((name, ctypes.c_uint16) for name in ("wide_mask", "wide_from")),
    )


class Counter:
    """Counts while a call into the program is measured: from the block that enters it to where it returns."""

    def __init__(self, image: Image, roles: dict[int, int], calls: tuple[int, ...], nodes: int) -> None:
        """`roles` by address; `calls` the node behind each kernel call, in order."""
        text, cpu = image.section(".text"), CPUS[image.isa]
        self.code = np.frombuffer(image.code[: text.bytes // 2 * 2], np.uint16)
        self.blocks: Array = np.zeros(self.code.size, BLOCK)
        for address, role in roles.items():
            self.blocks["role"][(address - text.address) // 2] = role
        self.calls = np.array(calls, np.int32)
        self.nodes: Array = np.zeros(nodes + 1, np.uint64)
        self.fields = _Fields(
            self.blocks.ctypes.data, self.code.ctypes.data, self.calls.ctypes.data, self.nodes.ctypes.data,
            ctypes.cast(uclib.uc_reg_read, ctypes.c_void_p), ctypes.cast(uclib.uc_emu_stop, ctypes.c_void_p),
            text.address, self.code.nbytes, 0, 0, cpu.sp, cpu.link,
            self.calls.size, nodes, 0, nodes, 0, 0, 0, 0xFFFFFFFF, 0, 0, 0, *cpu.wide,
        )  # fmt: skip

    def share(self, path: Path) -> None:
        """Move all of it to a file, where QEMU's plugin counts from now on: qemu_counter.c has the same order."""
        arrays = (self.blocks, self.nodes, self.calls, self.code)
        path.write_bytes(bytes(self.fields) + b"".join(array.tobytes() for array in arrays))
        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        fields, nodes = ctypes.sizeof(_Fields), self.nodes.size
        self.blocks = np.frombuffer(mapped, BLOCK, self.blocks.size, fields)
        self.nodes = np.frombuffer(mapped, np.uint64, nodes, fields + self.blocks.nbytes)
        self.fields = _Fields.from_buffer(mapped)

    def attach(self, emulator: Uc, cache: Path) -> None:
        """Count what this emulator runs from now on; TargetError where it cannot be counted."""
        source = {"counter.c": (Path(__file__).parent / "counter.c").read_text("utf-8")}
        library = Cache(cache, find_compiler()).build(".so", source, "-shared", "counter.c")
        self._library = ctypes.CDLL(str(library))  # kept while the emulator may call it
        callback = ctypes.cast(self._library.count_block, ctypes.c_void_p)
        handle, everywhere = ctypes.c_size_t(), (1, 0)
        data = ctypes.addressof(self.fields)
        error = uclib.uc_hook_add(emulator._uch, ctypes.byref(handle), UC_HOOK_BLOCK, callback, data, *everywhere)
        if error:
            raise TargetError(f"the emulator takes no hook for blocks: error {error}")

    def by_function(self, image: Image) -> dict[str, int]:
        """Return the instructions of each function in the call that was measured, most first."""
        counts: dict[str, int] = {}
        for index in np.flatnonzero(self.blocks["executed"]):
            symbol = image.at(self.fields.origin + 2 * int(index))
            name = symbol.name if symbol else "unknown"
            counts[name] = counts.get(name, 0) + int(self.blocks["executed"][index])
        return dict(sorted(counts.items(), key=lambda item: -item[1]))
