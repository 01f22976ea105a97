"""What Thumb instructions do to the stack and where they lead, as far as a bound of the stack needs it."""

from __future__ import annotations

from collections.abc import Iterator

from smidgen.targets.effects import Effect, halfword, signed

SP, LR = 13, 14
SOON = 4  # halfwords before an addition to SP in which compilers load what is added


def effects(text: bytes, origin: int, start: int, end: int) -> Iterator[Effect]:
    """Of the code at [start, end) in a text that begins at `origin`; what takes from the stack is left out."""
    at = start
    while at < end:
        first = halfword(text, at - origin)
        if first & 0xFF87 == 0x4485:  # ADD SP, Rm
            found: Effect | None = _add_register(text, origin, at)
        elif first < 0xE800:
            found = _narrow(first, at)
        else:
            found = _wide(first, halfword(text, at + 2 - origin), at)
        at += 2 if first < 0xE800 else 4
        if found is not None:
            yield found


def _add_register(text: bytes, origin: int, at: int) -> Effect:
    """ADD SP, Rm: a large frame of a core without wide instructions, whose size the few instructions before load."""
    register, moved = halfword(text, at - origin) >> 3 & 0xF, None
    for before in range(max(at - 2 * SOON, origin), at, 2):
        word = halfword(text, before - origin)
        if word & 0xF800 == 0x4800 and word >> 8 & 7 == register:  # LDR of a constant
            moved = _word(text, (before + 4 & ~3) + 4 * (word & 0xFF) - origin)
        elif word & 0xF800 == 0x2000 and word >> 8 & 7 == register:  # MOVS
            moved = word & 0xFF
        elif word & 0xF83F == register << 3 | register and moved is not None:  # LSLS
            moved <<= word >> 6 & 0x1F
    return Effect("unknown push") if moved is None else Effect("push", max(-moved, 0))


def _word(text: bytes, at: int) -> int:
    return int.from_bytes(text[at : at + 4], "little", signed=True)


def _narrow(word: int, at: int) -> Effect | None:
    """An instruction of one halfword."""
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
    if word & 0xFF07 == 0x4700 and (word & 0x80 or word >> 3 & 0xF != LR):  # BLX Rm, BX Rm
        return Effect("pointer")
    return None


def _wide(first: int, second: int, at: int) -> Effect | None:
    """An instruction of two halfwords."""
    if first & 0xF800 == 0xF000 and second & 0x8000:
        return _branch(first, second, at)
    if first == 0xE92D:  # PUSH, many registers
        return Effect("push", 4 * second.bit_count())
    if first == 0xF84D and second & 0x0F00 == 0x0D00:  # PUSH, one register; any STR with this writeback
        return Effect("push", second & 0xFF)
    if first == 0xE96D or first & 0xFFBF == 0xED2D:  # STRD with writeback, VPUSH
        return Effect("push", 4 * (second & 0xFF))
    if second >> 8 & 0xF != SP:
        return None
    if first & 0xFBEF == 0xF1AD:  # SUB SP, SP, #modified immediate
        return Effect("push", _modified(_immediate(first, second)))
    if first & 0xFBFF == 0xF2AD:  # SUBW SP, SP, #imm
        return Effect("push", _immediate(first, second))
    return Effect("unknown push") if first & 0xFFEF == 0xEBAD else None  # SUB SP, SP, Rm


def _branch(first: int, second: int, at: int) -> Effect | None:
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
