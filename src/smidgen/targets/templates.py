"""What a board's files are made of: its memory, its start-up, and how its core calls a host or a debugger."""

from __future__ import annotations

from collections.abc import Mapping

from smidgen.codegen import render
from smidgen.targets.boards import KIB, Board, Isa
from smidgen.targets.toolchain import GCC

# What start-up does with CCR.UNALIGN_TRP, and says of it.
CLEAR_TRAP = """/* CCR.UNALIGN_TRP off, should a boot loader have set it: kernels read words wherever they lie. */
    *(volatile uint32_t *)0xE000ED14 &= ~(1u << 3);"""
SET_TRAP = """/* CCR.UNALIGN_TRP on: this program reads and writes aligned words only, and anything else is to fault. */
    *(volatile uint32_t *)0xE000ED14 |= 1u << 3;"""
STARTUP: Mapping[Isa, str] = {"thumb": "startup", "riscv": "startup_riscv"}
# Registers of a semihosting call, and the call; on RISC-V instructions that do nothing mark it, in one page with it.
_MARKED = '".balign 16\\n.option push\\n.option norvc\\n"\n                     '
_MARKED += '"slli zero, zero, 0x1f\\n\\tebreak\\n\\tsrai zero, zero, 7\\n.option pop"'
CALLS: Mapping[Isa, tuple[str, str, str]] = {"thumb": ("r0", "r1", '"bkpt 0xab"'), "riscv": ("a0", "a1", _MARKED)}

# Flash at another address, where its code is executed.
CODE = "    CODE (rx) : ORIGIN = 0x{:08x}, LENGTH = {}\n"


def render_board(board: Board, name: str, fields: Mapping[str, object]) -> str:
    """A template of the board's with its own fields and these."""
    core, windows = board.core, board.map.code is not None
    operation, arguments, call = CALLS[core.isa]
    own = {
        "unaligned_trap": CLEAR_TRAP if core.unaligned else SET_TRAP,
        "board": board.name, "core": core.title, "stack_bytes": board.stack,
        "flash_origin": f"0x{board.flash.origin:08x}", "flash_bytes": board.flash.bytes,
        "sram_origin": f"0x{board.sram.origin:08x}", "sram_bytes": board.sram.bytes,
        "flash_text": f"{board.flash.bytes // KIB} KB", "sram_text": f"{board.sram.bytes // KIB} KB", "kept": "",
        "flash_rights": "r" if windows else "rx", "code": "CODE AT > FLASH" if windows else "FLASH",
        "code_region": CODE.format(board.code.origin, board.code.bytes) if windows else "",
        "header": "".join(f'    ".word 0x{word:08x}\\n"\n' for word in board.map.header),
        "operation": operation, "arguments": arguments, "call": call, "gcc": GCC[core.isa],
    }  # fmt: skip
    return render(f"board/{name}", **{**own, **fields})


def start_files(board: Board, kept: Mapping[str, object]) -> dict[str, str]:
    """Start-up and linker script."""
    return {
        "startup.c": render_board(board, f"{STARTUP[board.core.isa]}.c", kept),
        "board.ld": render_board(board, "board.ld", kept),
    }


def start_usage(board: Board) -> str:
    """How a program starts on a board, as its README says it."""
    name = f"{STARTUP[board.core.isa]}_usage.md"
    objcopy = GCC[board.core.isa].replace("gcc", "objcopy")
    boot = render_board(board, "boot_usage.md", {"objcopy": objcopy}) if board.map.header else ""
    return render_board(board, name, {}) + boot
