"""What the emulator calls the parts of a core, and what it must know of its instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unicorn import Uc
from unicorn import arm_const as arm
from unicorn import riscv_const as riscv
from unicorn import unicorn_const as uc

from smidgen.targets.boards import PAGE, Board, Isa

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
    vectors: bool = False  # flash begins with a table that says where the stack and the program begin

    def emulator(self, board: Board) -> Uc:
        """A core of a board, without memory but its own."""
        emulator = Uc(*self.kind)
        emulator.ctl_set_cpu_model(self.models[board.core.model])
        for page in self.registers:
            emulator.mem_map(page, PAGE, uc.UC_PROT_READ | uc.UC_PROT_WRITE)
        return emulator

    def calls(self, emulator: Uc, pc: int) -> bool:
        """Whether a core stopped there because it calls its host."""
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
