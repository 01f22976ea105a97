"""Boards whose programs watch working memory: nothing behind it is written, and its last word is."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from smidgen.codegen import PORTABLE
from smidgen.ir import Node
from smidgen.pipeline import Program
from smidgen.targets.board import EmulatedBoard
from smidgen.targets.firmware import BoardDevice, BoardTarget

GUARD = 64  # bytes behind working memory that must stay as they are
WORD, PAINT = 4, 90
CALL = re.compile(r"smg_\w+\(&p_(\w+), [^;]*, arena \+ (\d+)\);")


@dataclass(frozen=True)
class GuardedBoard(BoardTarget):
    """A board whose plans leave a margin behind all working memory."""

    def working(self, node: Node, by_row: bool) -> int:
        size = super().working(node, by_row)
        return size + GUARD if size else 0


@dataclass(frozen=True)
class PortableBoard(GuardedBoard):
    """A board that runs the portable kernels, whatever its core could do."""

    @property
    def folders(self) -> tuple[str, ...]:
        return PORTABLE


@dataclass(frozen=True)
class Use:
    """A node that has working memory, whether it computes one row per call, and the bytes without the margin."""

    node: Node
    by_row: bool
    bytes: int

    @property
    def kernel(self) -> tuple[str, bool]:
        return self.node.op.symbol(self.node), self.by_row


def uses(program: Program) -> list[Use]:
    """Every use of working memory, in the order of the nodes."""
    modes = [(node, program.schedule.streams(index)) for index, node in enumerate(program.graph.nodes)]
    sizes = [(node, by_row, program.target.working(node, by_row)) for node, by_row in modes]
    return [Use(node, by_row, size - GUARD) for node, by_row, size in sizes if size]


def watched(program: Program) -> Program:
    """The program with a trap behind every call that wrote behind its working memory.

    `touched` returns, node by node in the order of `uses`, whether the last word of working memory was written.
    """
    found = uses(program)
    places = {use.node.outs[0].name.replace(".", "_"): place for place, use in enumerate(found)}

    def surrounded(call: re.Match[str]) -> str:
        place = places.pop(call[1])
        last = int(call[2]) + found[place].bytes - WORD
        loop, byte = f"for (int m = 0; m < {WORD + GUARD}; m++)", f"arena[{last} + m]"
        check = f"if ({byte} != {PAINT}) {{ if (m < {WORD}) touched[{place}] = 1; else __builtin_trap(); }}"
        return f"{loop} {byte} = {PAINT};\n{call[0]}\n{loop} {check}\n"

    files = program.sources.files
    text = CALL.sub(surrounded, files["model.c"])
    assert not places, f"calls not found: {', '.join(places)}"
    text = f"volatile unsigned char touched[{len(found) + 1}];\n{text}"
    return replace(program, sources=replace(program.sources, files={**files, "model.c": text}))


def touched(device: BoardDevice, count: int) -> list[bool]:
    """Return what the watched program on a board has noted so far."""
    board = device._running()
    assert isinstance(board, EmulatedBoard)  # QEMU's memory is not read
    return [bool(byte) for byte in board._uc.mem_read(board.image.symbol("touched").address, count)]
