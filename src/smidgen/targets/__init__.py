"""Targets of compiled graphs: this machine, WebAssembly, emulated boards, and the compilers that build for them.

`find` knows targets by name; `device` defines targets and devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smidgen.errors import TargetError
from smidgen.targets.boards import BOARDS, aligned_only, resize
from smidgen.targets.device import Target
from smidgen.targets.toolchain import Toolchain

if TYPE_CHECKING:
    from smidgen.targets.firmware import BoardTarget


def find(name: str) -> Target:
    """Return the target of that name: this machine, a WebAssembly module, or a board."""
    if name == "host":
        from smidgen.targets.host import Host

        return Host()
    if name == "wasm":
        from smidgen.targets.wasm import Wasm

        return Wasm()
    if name not in BOARDS:
        raise TargetError(f"there is no target {name!r}; known are host, wasm, {', '.join(BOARDS)}")
    return find_board(name)


def find_board(
    name: str, sram: str | None = None, flash: str | None = None, stack: str | None = None,
    compiler: Toolchain = "zig", aligned: bool = False,
) -> BoardTarget:  # fmt: skip
    """Return the board of that name, with other memory where sizes are given.

    `aligned`: its programs read and write aligned words only.
    """
    from smidgen.targets.firmware import BoardTarget  # here, because an emulator takes a while to import

    if name not in BOARDS:
        raise TargetError(f"there is no board {name!r} to measure on; known are {', '.join(BOARDS)}")
    board = resize(BOARDS[name], sram, flash, stack)
    return BoardTarget(aligned_only(board) if aligned else board, compiler)
