"""Every core computes and trains every case as numpy does, with guards around all that its kernels are given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from smidgen.pipeline import compile
from smidgen.targets.boards import Core
from smidgen.targets.firmware import BoardTarget
from tests.runtime.test_packed import CASE_RUNS, agrees
from tests.support.cases import GRAPHS, together
from tests.support.drawn_layers import CORES, roomy
from tests.support.tools import need_emulator
from tests.support.training_cases import TRAINING_CASES, TRAINING_GRAPHS
from tests.targets.test_board_training import differing

EVERY = pytest.mark.parametrize("core", CORES.values(), ids=CORES)


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("frugal", [True, False], ids=["rows", "maps"])
def test_every_core_agrees_with_numpy_on_every_case(core: Core, frugal: bool, cache: Path) -> None:
    need_emulator(core)
    agrees(GRAPHS, CASE_RUNS, compile(together(), target=replace(BoardTarget(roomy(core), cache=cache), frugal=frugal)))


@pytest.mark.slow
@EVERY
def test_every_core_trains_every_case_as_numpy_does(core: Core, cache: Path) -> None:
    need_emulator(core)
    assert differing(BoardTarget(roomy(core), cache=cache), TRAINING_CASES, TRAINING_GRAPHS) == []
