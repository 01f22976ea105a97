"""An oracle of counter.c: the same counts in Python, block by block."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from unicorn import Uc
from unicorn.unicorn_const import UC_HOOK_BLOCK

from smidgen.targets.counter import ENTRY, GENERATED, KERNEL, Counter


class PythonCounter(Counter):
    """A counter without its C."""

    def attach(self, emulator: Uc, cache: Path) -> None:
        emulator.hook_add(UC_HOOK_BLOCK, self._count_block)

    def _count_block(self, emulator: Uc, address: int, size: int, _: object) -> None:
        """count_block of counter.c."""
        f = self.fields
        if not f.origin <= address < f.origin + f.size:
            emulator.emu_stop()
            return
        index = (address - f.origin) // 2
        block = self.blocks[index]
        if block["size"] != size:
            halfwords = self.code[index : index + size // 2].tolist()
            block["size"], block["instructions"] = size, _instructions_in(halfwords, f.wide_mask, f.wide_from)
        self._follow(emulator.reg_read, address, int(block["role"]))
        count = int(block["instructions"])
        f.total += count
        if f.inside:
            block["executed"] += count
            self.nodes[f.node] += np.uint64(count)
        f.lowest_stack = min(f.lowest_stack, emulator.reg_read(f.stack_register))
        if f.total > f.limit:
            emulator.emu_stop()

    def _follow(self, read: Callable[[int], int], address: int, role: int) -> None:
        f = self.fields
        if f.inside and address == f.back:
            f.inside = 0
        if not f.inside and role & ENTRY:
            f.inside, f.called, f.back = 1, 0, read(f.link_register) & ~1
            self.blocks["executed"], self.nodes[:] = 0, 0
        if role & GENERATED:
            f.node = f.node_count
        if role & KERNEL and f.after_generated and f.inside:
            f.node = self.calls[f.called] if f.called < f.call_count else f.node_count
            f.called += 1
        f.after_generated = role & GENERATED


def _instructions_in(halfwords: list[int], mask: int, least: int) -> int:
    """Instructions take one halfword, or two where these bits of the first reach a value."""
    count = at = 0
    while at < len(halfwords):
        at += 2 if halfwords[at] & mask >= least else 1
        count += 1
    return count
