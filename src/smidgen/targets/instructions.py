"""Effects of machine instructions on the stack, and where they lead: what a bound of the stack needs of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

Kind = Literal["push", "unknown push", "branch", "pointer"]


@dataclass(frozen=True)
class Effect:
    """Bytes put on the stack, or the address that is called or jumped to, or neither where it is unknown."""

    kind: Kind
    value: int = 0


def halfword(text: bytes, at: int) -> int:
    """Return a halfword of machine code."""
    return int.from_bytes(text[at : at + 2], "little")


def signed(value: int, bits: int) -> int:
    """Return a field of some bits as a signed number."""
    return value - (1 << bits) if value >> bits - 1 else value


STACK_POINTER, LINK = 13, 14
SOON = 4  # halfwords before an addition to SP in which compilers load what is added


def thumb_effects(text: bytes, origin: int, start: int, end: int) -> Iterator[Effect]:
    """Yield the effects of code at [start, end) in a text from `origin` on; what takes from the stack is left out."""
    at = start
    while at < end:
        first = halfword(text, at - origin)
        if first & 0xFF87 == 0x4485:  # ADD SP, Rm
            found: Effect | None = _add_register(text, origin, at)
        elif first < 0xE800:
            found = _thumb_narrow(first, at)
        else:
            found = _thumb_wide(first, halfword(text, at + 2 - origin), at)
        at += 2 if first < 0xE800 else 4
        if found is not None:
            yield found


def _add_register(text: bytes, origin: int, at: int) -> Effect:
    """ADD SP, Rm: a large frame of a core without wide instructions, whose size the few instructions before load."""
    register, moved = halfword(text, at - origin) >> 3 & 0xF, None
    for before in range(max(at - 2 * SOON, origin), at, 2):
        word = halfword(text, before - origin)
        if word & 0xF800 == 0x4800 and word >> 8 & 7 == register:  # LDR of a constant
            place = (before + 4 & ~3) + 4 * (word & 0xFF) - origin
            moved = int.from_bytes(text[place : place + 4], "little", signed=True)
        elif word & 0xF800 == 0x2000 and word >> 8 & 7 == register:  # MOVS
            moved = word & 0xFF
        elif word & 0xF83F == register << 3 | register and moved is not None:  # LSLS
            moved <<= word >> 6 & 0x1F
    return Effect("unknown push") if moved is None else Effect("push", max(-moved, 0))


def _thumb_narrow(word: int, at: int) -> Effect | None:
    """Return the effect of an instruction of one halfword."""
    if word & 0xFE00 == 0xB400:  # PUSH
        return Effect("push", 4 * (word & 0x1FF).bit_count())
    if word & 0xFF80 == 0xB080:  # SUB SP, SP, #imm
        return Effect("push", 4 * (word & 0x7F))
    if word & 0xFF87 == 0x4685:  # MOV SP, Rm
        return Effect("unknown push")
    if word & 0xF800 == 0xE000:  # B
        return Effect("branch", at + 4 + signed(word & 0x7FF, 11) * 2)
    if word & 0xF000 == 0xD000 and (word >> 8 & 0xF) < 0xE:  # B with a condition
        return Effect("branch", at + 4 + signed(word & 0xFF, 8) * 2)
    if word & 0xFF07 == 0x4700 and (word & 0x80 or word >> 3 & 0xF != LINK):  # BLX Rm, BX Rm
        return Effect("pointer")
    return None


def _thumb_wide(first: int, second: int, at: int) -> Effect | None:
    """Return the effect of an instruction of two halfwords."""
    if first & 0xF800 == 0xF000 and second & 0x8000:
        return _thumb_branch(first, second, at)
    if first == 0xE92D:  # PUSH, many registers
        return Effect("push", 4 * second.bit_count())
    if first == 0xF84D and second & 0x0F00 == 0x0D00:  # PUSH, one register; any STR with this writeback
        return Effect("push", second & 0xFF)
    if first == 0xE96D or first & 0xFFBF == 0xED2D:  # STRD with writeback, VPUSH
        return Effect("push", 4 * (second & 0xFF))
    if second >> 8 & 0xF != STACK_POINTER:
        return None
    if first & 0xFBEF == 0xF1AD:  # SUB SP, SP, #modified immediate
        return Effect("push", _modified(_immediate(first, second)))
    if first & 0xFBFF == 0xF2AD:  # SUBW SP, SP, #imm
        return Effect("push", _immediate(first, second))
    return Effect("unknown push") if first & 0xFFEF == 0xEBAD else None  # SUB SP, SP, Rm


def _thumb_branch(first: int, second: int, at: int) -> Effect | None:
    """B or BL, with 24 bits of offset or, under a condition, 20."""
    sign, high, j1, j2, low = first >> 10 & 1, first & 0x3FF, second >> 13 & 1, second >> 11 & 1, second & 0x7FF
    if second & 0x1000:
        offset = signed(sign << 23 | (1 - (j1 ^ sign)) << 22 | (1 - (j2 ^ sign)) << 21 | high << 11 | low, 24)
    elif second & 0x4000 == 0 and first >> 6 & 0xF < 0xE:
        offset = signed(sign << 19 | j2 << 18 | j1 << 17 | (high & 0x3F) << 11 | low, 20)
    else:  # a barrier, a move to or from a special register
        return None
    return Effect("branch", at + 4 + 2 * offset)


def _immediate(first: int, second: int) -> int:
    return (first >> 10 & 1) << 11 | (second >> 12 & 7) << 8 | second & 0xFF


def _modified(immediate: int) -> int:
    """Twelve bits as the processor expands them."""
    byte, pattern = immediate & 0xFF, immediate >> 8 & 3
    if immediate >> 10 == 0:
        return byte * (0x1, 0x00010001, 0x01000100, 0x01010101)[pattern]
    value, turn = immediate & 0x7F | 0x80, immediate >> 7
    return (value >> turn | value << 32 - turn) & 0xFFFFFFFF


ZERO, RA, SP = 0, 1, 2
LOAD, IMMEDIATE, AUIPC, REGISTER, LUI, BRANCH, JALR, JAL, SYSTEM = 0x03, 0x13, 0x17, 0x33, 0x37, 0x63, 0x67, 0x6F, 0x73
Known = dict[int, int | None]  # what registers hold; None: something near an address that was known
Bits = tuple[tuple[int, int], ...]
WIDE_JUMP: Bits = (
    (31, 20), *((bit, bit) for bit in range(12, 20)), (20, 11), *((bit + 20, bit) for bit in range(1, 11)),
)  # fmt: skip
WIDE_TURN: Bits = (
    (31, 12), (7, 11), *((bit + 20, bit) for bit in range(5, 11)), *((bit + 7, bit) for bit in range(1, 5)),
)  # fmt: skip
WRITES = (LOAD, IMMEDIATE, AUIPC, REGISTER, LUI, JALR, JAL, SYSTEM)  # opcodes of instructions that write a register


def riscv_effects(text: bytes, origin: int, start: int, end: int) -> Iterator[Effect]:
    """Yield the effects of code at [start, end) in a text from `origin` on; what takes from the stack is left out.

    Of registers that were just loaded with a constant the value is known: large frames and far calls use them. One to
    which something else was added is near it: a jump there is by a table of the function's own parts.
    """
    known: Known = {}
    at = start
    while at < end:
        word = halfword(text, at - origin)
        wide = word & 3 == 3
        if wide:
            word |= halfword(text, at + 2 - origin) << 16
        rule = _riscv_wide if wide else _RISCV_NARROW.get((word & 3, word >> 13))  # by quadrant and highest three bits
        found = rule(word, at, known) if rule else None
        at += 4 if wide else 2
        if found is not None:
            if found.kind in ("branch", "pointer"):
                known.clear()
            yield found


def _moved(bytes_added: int | None) -> Effect | None:
    """Return the effect of an addition to SP, of a known number of bytes or None."""
    if bytes_added is None:
        return Effect("unknown push")
    return Effect("push", -bytes_added) if bytes_added < 0 else None


def _riscv_wide(word: int, at: int, known: Known) -> Effect | None:
    """Return the effect of an instruction of 32 bits."""
    opcode, target, first = word & 0x7F, word >> 7 & 0x1F, word >> 15 & 0x1F
    before = dict(known)
    if opcode in WRITES:
        known.pop(target, None)
    if opcode == BRANCH:
        return Effect("branch", at + _offset(word, WIDE_TURN))
    if opcode == JAL:
        return Effect("branch", at + _offset(word, WIDE_JUMP))
    if opcode == JALR:
        return _through(first, target, before, signed(word >> 20, 12))
    if opcode in (LUI, AUIPC):
        known[target] = signed(word >> 12, 20) * 4096 + (at if opcode == AUIPC else 0)
    value = _sum(word, before)
    if target == SP and opcode in WRITES:
        return _moved(value if first == SP else None)
    if value is not None and first != SP:
        known[target] = value
    elif opcode == REGISTER and word >> 25 == 0 and word >> 12 & 7 == 0:
        _add(target, (first, word >> 20 & 0x1F), before, known)
    return None


def _add(target: int, registers: tuple[int, int], before: Known, known: Known) -> None:
    """Note that a sum of which one part is known is near that."""
    if any(before.get(register) is not None for register in registers):
        known[target] = None


def _sum(word: int, known: Known) -> int | None:
    """Return what ADDI, ADD or SUB gives, SP taken for zero; None where that is unknown, or for another instruction."""
    opcode, first, second = word & 0x7F, word >> 15 & 0x1F, word >> 20 & 0x1F
    values = {**{register: value for register, value in known.items() if value is not None}, ZERO: 0, SP: 0}
    if opcode == IMMEDIATE and word >> 12 & 7 == 0 and first in values:
        return values[first] + signed(word >> 20, 12)
    if opcode == REGISTER and word >> 12 & 7 == 0 and first in values and second in values:
        sign = {0x00: 1, 0x20: -1}.get(word >> 25)
        return None if sign is None else values[first] + sign * values[second]
    return None


def _through(register: int, link: int, known: Known, offset: int) -> Effect | None:
    """Return the effect of a jump to what a register holds: a return, a far call, a switch, a pointer's function."""
    value = known.get(register)
    if value is not None:
        return Effect("branch", value + offset & 0xFFFF_FFFF)
    return None if link == ZERO and (register == RA or register in known) else Effect("pointer")


def _add_immediate(word: int, at: int, known: Known) -> Effect | None:
    """C.ADDI: a register and a small number."""
    target, value = word >> 7 & 0x1F, signed(word >> 12 & 1, 1) * 32 | word >> 2 & 0x1F
    before = known.get(target)
    if before is not None and target != SP:
        known[target] = before + value
    return _moved(value) if target == SP else None


def _load_immediate(word: int, at: int, known: Known) -> Effect | None:
    """C.LI: a small number."""
    target = word >> 7 & 0x1F
    known[target] = signed(word >> 12 & 1, 1) * 32 | word >> 2 & 0x1F
    return Effect("unknown push") if target == SP else None


def _load_upper(word: int, at: int, known: Known) -> Effect | None:
    """C.ADDI16SP, or C.LUI of any other register."""
    target, high = word >> 7 & 0x1F, signed(word >> 12 & 1, 1)
    if target == SP:
        low = (word >> 6 & 1) << 4 | (word >> 2 & 1) << 5 | (word >> 5 & 1) << 6 | (word >> 3 & 3) << 7
        return _moved(high * 512 | low)
    known[target] = (high * 32 | word >> 2 & 0x1F) * 4096
    return None


JUMP = ((12, 11), (11, 4), (10, 9), (9, 8), (8, 10), (7, 6), (6, 7), (5, 3), (4, 2), (3, 1), (2, 5))  # C.J, C.JAL
TURN = ((12, 8), (11, 4), (10, 3), (6, 7), (5, 6), (4, 2), (3, 1), (2, 5))  # C.BEQZ, C.BNEZ


def _branch(bits: Bits, word: int, at: int, known: Known) -> Effect:
    return Effect("branch", at + _offset(word, bits))


def _offset(word: int, bits: Bits) -> int:
    """Return a signed offset whose bits lie scattered in a word: from where to where, the sign first."""
    return signed(sum((word >> source & 1) << place for source, place in bits), bits[0][1] + 1)


def _low_register(word: int, at: int, known: Known) -> Effect | None:
    """Forget one of x8 to x15, which an operation or a load changes."""
    known.pop(8 + (word >> 7 & 7), None)
    known.pop(8 + (word >> 2 & 7), None)
    return None


def _any_register(word: int, at: int, known: Known) -> Effect | None:
    """C.SLLI and C.LWSP."""
    target = word >> 7 & 0x1F
    known.pop(target, None)
    return Effect("unknown push") if target == SP else None


def _move(word: int, at: int, known: Known) -> Effect | None:
    """C.JR, C.JALR, C.MV, C.ADD and C.EBREAK."""
    target, second, adds = word >> 7 & 0x1F, word >> 2 & 0x1F, word >> 12 & 1
    if second == ZERO:
        return _through(target, RA if adds else ZERO, known, 0) if target else None
    if target == SP:
        return _moved(known.get(second) if adds else None)
    before = dict(known)
    known.pop(target, None)
    if adds:
        _add(target, (target, second), before, known)
    return None


_RISCV_NARROW: Mapping[tuple[int, int], Callable[[int, int, Known], Effect | None]] = {
    (0, 0): _low_register, (0, 2): _low_register,
    (1, 0): _add_immediate, (1, 2): _load_immediate, (1, 3): _load_upper, (1, 4): _low_register,
    **dict.fromkeys(((1, 1), (1, 5)), partial(_branch, JUMP)),
    **dict.fromkeys(((1, 6), (1, 7)), partial(_branch, TURN)),
    (2, 0): _any_register, (2, 2): _any_register, (2, 4): _move,
}  # fmt: skip
