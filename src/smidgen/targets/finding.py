"""Targets by name: this machine, or a board."""

from __future__ import annotations

from smidgen.errors import TargetError
from smidgen.targets.boards import BOARDS, resize
from smidgen.targets.device import Target
from smidgen.targets.toolchain import Toolchain


def find(name: str) -> Target:
    """The target of that name: this machine, or a board."""
    if name == "host":
        from smidgen.targets.host import Host

        return Host()
    if name not in BOARDS:
        raise TargetError(f"there is no target {name!r}; known are host, {', '.join(BOARDS)}")
    return find_board(name)


def find_board(
    name: str,
    sram: str | None = None,
    flash: str | None = None,
    stack: str | None = None,
    compiler: Toolchain = "zig",
) -> Target:
    """The board of that name, with other memory than its own where sizes are given, for one of the two compilers."""
    from smidgen.targets.cortex_m import CortexM  # here, because an emulator takes a while to import

    if name not in BOARDS:
        raise TargetError(f"there is no board {name!r} to measure on; known are {', '.join(BOARDS)}")
    return CortexM(resize(BOARDS[name], sram, flash, stack), compiler)
