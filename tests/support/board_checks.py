"""Checks in C that run on an emulated board, and their answers."""

from __future__ import annotations

import struct
from pathlib import Path

from smidgen.codegen import RUNTIME
from smidgen.compiler import Cache
from smidgen.targets import toolchain
from smidgen.targets.board import EmulatedBoard
from smidgen.targets.boards import BOARDS
from smidgen.targets.counter import Counter
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.image import read_image
from smidgen.targets.toolchain import start_files

HERE = Path(__file__).parent
STORE = RUNTIME / "store"
LIMIT = 20_000_000_000  # instructions


def board_answers(what: str, board: str, define: str, cache: Path) -> tuple[int, int, int]:
    """Run `WHAT_board_main.c` on a board; return the line of a failed check or 0, the cuts, and a second such line."""
    target = BoardTarget(BOARDS[board], cache=cache)
    headers = ("emulated_flash.h", "board_answers.h", f"{what}_checks.h")
    paths = (*STORE.glob("*.[ch]"), *(HERE / name for name in headers))
    files = {
        **start_files(target.board),
        **{path.name: path.read_text() for path in sorted(paths)},
        "main.c": (HERE / f"{what}_board_main.c").read_text(),
    }
    own = [file for file in files if file.endswith(".c")]
    built = Cache(cache, toolchain.find("zig", target.board.core))
    flags = (f"-D{define}", "-I.", "-T", "board.ld", *toolchain.link_flags("zig", target.board.core))
    image = read_image(built.build(".elf", files, *flags, *own))
    emulated = EmulatedBoard(target.board, image, Counter(image, {}, (), 0), cache)
    first, second, third = struct.unpack("<iii", emulated.exchange(b"", LIMIT))
    return int(first), int(second), int(third)
