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
from smidgen.targets.boards import BOARDS, resize
from smidgen.targets.cortex_m import CortexM
from smidgen.targets.host import Host
from smidgen.targets.qemu import find_qemu
from smidgen.training import Options
from smidgen.zoo import build_zoo
from test_board_training import differing
from training_cases import TRAINING_CASES, TRAINING_GRAPHS

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


@needs_qemu
def test_every_case_trains_in_vectors_as_numpy_does(m55: CortexM) -> None:
    assert differing(m55, TRAINING_CASES, TRAINING_GRAPHS) == []


@needs_qemu
def test_twenty_steps_on_a_cortex_m55_leave_the_hosts_bytes(cache: Path, host: Host) -> None:
    graph, targets = build_zoo("mbv2-w0.35"), (CortexM(BOARDS["cortex-m55"], cache=cache), host)
    options, rng = Options(10, weight_bits=8), np.random.default_rng(0)
    programs = [compile(graph, "99kb", target, options=options, streamed_input=True) for target in targets]
    assert {path.parent.name for path in programs[0].sources.runtime} >= {"helium", "cortex_m", "kernels"}
    with programs[0].start() as board, programs[1].start() as machine:
        for step in range(20):
            image = rng.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
            losses = [device.train(image, step % 10, 0.01) for device in (board, machine)]
            assert losses[0] == losses[1], f"the losses of step {step} differ"
        kept, expected = board.state(), machine.state()
        assert [name for name in expected if kept[name].tobytes() != expected[name].tobytes()] == []


def test_a_missing_qemu_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(TargetError, match=r"emulated by qemu-system-arm, which was not found; install it"):
        find_qemu(BOARDS["cortex-m55"])
