"""A project for a board as it lies on the disk: the board its linker script names, and its firmware with a link."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from smidgen.codegen import is_source
from smidgen.codegen.project import LISTING
from smidgen.compiler import Cache
from smidgen.errors import InputError, TargetError
from smidgen.targets import toolchain
from smidgen.targets.boards import BOARDS, Board, Region, aligned_only
from smidgen.targets.firmware import BoardTarget

SCRIPT = "board/board.ld"
FOLDERS = ("model", "smidgen", "board")
# Warnings of code that its user changed are not ours to refuse.
SWITCHES = ("-DLINK=1", "-DKEEPS=1", "-Wno-error", *(f"-I{folder}" for folder in FOLDERS))
_BOARD = re.compile(r"/\* ([\w-]+):")
_MEMORY = re.compile(r"(FLASH|SRAM) \(\w+\) : ORIGIN = (0x[0-9a-f]{1,8}), LENGTH = (\d{1,10})\b")


@dataclass(frozen=True)
class BoardProject:
    """A project, and the board that it is for."""

    folder: Path
    target: BoardTarget

    def build(self) -> Path:
        """Its firmware, as `make LINK=1 KEEPS=1` builds it."""
        target = self.target
        paths = sorted(path for folder in FOLDERS for path in (self.folder / folder).glob("*") if path.is_file())
        files = {str(path.relative_to(self.folder)): _text(path) for path in paths}
        own = (name for name in files if is_source(name))
        cache = Cache(target.cache, toolchain.find(target.toolchain, target.board.core))
        link = toolchain.link_flags(target.toolchain, target.board.core)
        try:
            return cache.build(".elf", files, *SWITCHES, "-T", SCRIPT, *link, *own)
        except TargetError as error:
            raise TargetError(f"{self.folder} cannot be built with a link: {error}") from None


def read_project(folder: Path, name: str) -> BoardProject:
    """The project in a folder, for the board of that name with the memory that its linker script gives it."""
    way = f"write one with: smidgen compile … --target {name} -o {folder}"
    if not (folder / LISTING).is_file():
        raise InputError(f"{folder} is not a project that Smidgen wrote; {way}")
    if not (folder / SCRIPT).is_file():
        raise InputError(f"{folder} is a project for this machine: `make` it and take exec:{folder}/example; or {way}")
    script = _text(folder / SCRIPT)
    named, memory = _BOARD.match(script), {found[1]: found for found in _MEMORY.finditer(script)}
    if named is None or memory.keys() != {"FLASH", "SRAM"}:
        raise InputError(f"{folder / SCRIPT} does not say its board and that one's memory; {way}")
    if named[1] != name or name not in BOARDS:
        raise InputError(f"{folder} was compiled for {named[1]}, not for {name}; take emulated:{named[1]}, or {way}")
    flash, sram = (Region(int(memory[what][2], 16), int(memory[what][3])) for what in ("FLASH", "SRAM"))
    board: Board = replace(BOARDS[name], flash=flash, sram=sram)
    aligned = "strict_align" in _text(folder / "Makefile")
    return BoardProject(folder, BoardTarget(aligned_only(board) if aligned else board))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"{path} cannot be read: {reason}") from None
