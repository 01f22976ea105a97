"""A store in flash: the power may fail at any program and erase, and what was learned is there, whole."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest

from native import SANITIZE
from smidgen.codegen import RUNTIME
from smidgen.targets import toolchain
from smidgen.targets.board import EmulatedBoard
from smidgen.targets.boards import BOARDS
from smidgen.targets.compiler import Cache, find_compiler
from smidgen.targets.cortex_m import CortexM
from smidgen.targets.counter import Counter
from smidgen.targets.image import read_image

HERE = Path(__file__).parent
STORE = RUNTIME / "store"
SAVES = 50
LIMIT = 4_000_000_000  # instructions


def sources() -> dict[str, str]:
    """The store and its checks, by name."""
    paths = (*STORE.glob("*.[ch]"), HERE / "emulated_flash.h", HERE / "store_checks.h")
    return {path.name: path.read_text() for path in sorted(paths)}


def test_power_that_fails_at_any_program_and_erase_of_50_saves_leaves_the_old_or_the_new_state(tmp_path: Path) -> None:
    folders = (f"-I{STORE}", f"-I{HERE}")
    find_compiler()(
        *SANITIZE, *folders, "-o", "checks", *sorted(STORE.glob("*.c")), HERE / "store_main.c", folder=tmp_path
    )
    done = subprocess.run([tmp_path / "checks"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    cuts = [int(found) for found in re.findall(r"part \d: (\d+) cuts", done.stdout)]
    assert len(cuts) == 6
    assert min(cuts) > 4 * 3 * SAVES, "each of the four things a cut leaves, at three operations a save and more"


@pytest.mark.parametrize(("name", "saves"), [("cortex-m7", SAVES), ("cortex-m0plus", 12)])
def test_the_same_holds_on_an_emulated_board(name: str, saves: int, cache: Path) -> None:
    target = CortexM(BOARDS[name], cache=cache)
    files = {**target._board_files(), **sources(), "main.c": (HERE / "store_board_main.c").read_text()}
    own = [file for file in files if file.endswith(".c")]
    built = Cache(cache, toolchain.find("zig", target.board.core))
    firmware = built.build(
        ".elf", files, f"-DSAVES={saves}", "-I.", "-T", "board.ld", *toolchain.link_flags("zig"), *own
    )
    image = read_image(firmware)
    board = EmulatedBoard(target.board, image, Counter(image, {}, (), 0), cache)
    failed, cuts, lost = struct.unpack("<iii", board.exchange(b"", LIMIT))
    assert (failed, lost) == (0, 0), f"line {failed or lost} of store_checks.h"
    assert cuts > 3 * saves
