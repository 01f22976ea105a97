"""A Cortex-M55 under QEMU: kernels in vectors give numpy's bytes, train as the host does, and are counted."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cases import GRAPHS, RUNS, inputs, together
from guarded import GuardedBoard, watched
from smidgen.errors import TargetError
from smidgen.ir import evaluate
from smidgen.pipeline import compile
from smidgen.targets import qemu
from smidgen.targets.boards import BOARDS, resize
from smidgen.targets.cortex_m import CortexM

needs_qemu = pytest.mark.skipif(not shutil.which("qemu-system-arm"), reason="qemu-system-arm is not installed")


@pytest.fixture(scope="session")
def m55(cache: Path) -> CortexM:
    return GuardedBoard(resize(BOARDS["mps3-an547"], stack="64KB"), cache=cache)  # with room for all cases at once


@needs_qemu
@pytest.mark.parametrize("frugal", [True, False], ids=["rows", "maps"])
def test_every_case_in_vectors_agrees_with_numpy(m55: CortexM, frugal: bool) -> None:
    program = compile(together(), target=replace(m55, frugal=frugal))
    with watched(program).start() as board:
        for run in range(RUNS):
            given = {name: inputs(graph, run) for name, graph in GRAPHS.items()}
            found = board.run(*(array for arrays in given.values() for array in arrays))
            for (name, graph), got in zip(GRAPHS.items(), found, strict=True):
                np.testing.assert_array_equal(got, evaluate(graph, *given[name])[0], err_msg=name)
