"""A store in flash: the power may fail at any program and erase, and what was learned is there, whole."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from smidgen.compiler import find_compiler
from tests.support.board_checks import HERE, STORE, board_answers
from tests.support.native import SANITIZE
from tests.support.tiers import examples, first

SAVES = 50


def test_power_that_fails_at_any_program_and_erase_of_50_saves_leaves_the_old_or_the_new_state(tmp_path: Path) -> None:
    folders = (f"-I{STORE}", f"-I{HERE}")
    find_compiler()(
        *SANITIZE, *folders, "-o", "checks", *sorted(STORE.glob("*.c")), HERE / "store_main.c", folder=tmp_path
    )
    saves = examples(SAVES, quick=16)
    done = subprocess.run([tmp_path / "checks", str(saves)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    cuts = [int(found) for found in re.findall(r"part \d+: (\d+) cuts", done.stdout)]
    assert len(cuts) == 11
    assert min(cuts) > 4 * 3 * saves, "each of the four things a cut leaves, at three operations a save and more"


@pytest.mark.parametrize(("name", "saves"), first(("cortex-m7", SAVES), ("cortex-m0plus", 12), quick=0))
def test_the_same_holds_on_an_emulated_board(name: str, saves: int, cache: Path) -> None:
    failed, cuts, lost = board_answers("store", name, f"SAVES={saves}", cache)
    assert (failed, lost) == (0, 0), f"line {failed or lost} of store_checks.h"
    assert cuts > 3 * saves
