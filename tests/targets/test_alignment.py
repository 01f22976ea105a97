"""Words that are not aligned: programs that need none run where the core refuses them; the others say that they do."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smidgen.memory import state_offsets
from smidgen.pipeline import Program, compile
from smidgen.targets.boards import BOARDS, M0PLUS, aligned_only
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from smidgen.targets.toolchain import TOOLCHAINS, Toolchain, core_flags, start_files
from smidgen.training import Options
from tests.support.networks import CLASSES, inverted_residual
from tests.support.qemu import run_firmware
from tests.support.tools import need_compiler, needs

RATE, STEPS = 0.02, 2
needs_qemu = needs("qemu-system-arm")


def learner(target: BoardTarget | Host) -> Program:
    return compile(inverted_residual(3), "full", target, options=Options(CLASSES))


def requests(program: Program, folder: Path) -> list[tuple[np.ndarray, int]]:
    """Steps to take, then the state to give; written for the firmware, and as the host takes them."""
    rng = np.random.default_rng(0)
    steps = [(rng.integers(-128, 128, program.graph.image.type.shape).astype(np.int8), n) for n in range(STEPS)]
    asked = (b"t" + np.float32(RATE).tobytes() + np.int32(n).tobytes() + image.tobytes() for image, n in steps)
    (folder / "requests").write_bytes(b"".join(asked) + b"s")
    return steps


@pytest.mark.slow
@needs_qemu
@pytest.mark.parametrize("compiler", TOOLCHAINS)
def test_an_aligned_program_learns_alike_where_the_core_traps(
    compiler: Toolchain, cache: Path, host: Host, tmp_path: Path
) -> None:
    need_compiler(compiler)
    target = BoardTarget(aligned_only(BOARDS["mps2-an500"]), compiler, cache)
    program = learner(target)
    steps = requests(program, tmp_path)
    run_firmware(target.build(program.graph, program.sources), tmp_path)
    answers = (tmp_path / "answers").read_bytes()
    with learner(host).start() as machine:
        losses = [np.float32(machine.train(image, label, RATE)).tobytes() for image, label in steps]
        state = machine.state()
    assert answers[: 4 * STEPS] == b"".join(losses)
    for value, at in state_offsets(program.graph).items():
        kept = answers[4 * STEPS + at :][: value.type.bytes]
        assert kept == state[value.name].tobytes(), f"%{value.name} differs"


@pytest.mark.slow
@needs_qemu
def test_packed_kernels_fault_where_the_core_traps(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "smidgen.targets.firmware.start_files", lambda board, kept: start_files(aligned_only(board), kept)
    )
    target = BoardTarget(BOARDS["mps2-an500"], cache=cache)
    program = learner(target)
    requests(program, tmp_path)
    with pytest.raises(subprocess.SubprocessError):
        run_firmware(target.build(program.graph, program.sources), tmp_path, patience=3)


def test_start_up_allows_unaligned_words_unless_the_program_needs_none() -> None:
    board = BOARDS["cortex-m7"]
    packed, plain = (learner(BoardTarget(b)).files()["board/startup.c"] for b in (board, aligned_only(board)))
    assert "0xE000ED14 &= ~(1u << 3)" in packed
    assert "0xE000ED14 |= 1u << 3" in plain


def test_an_aligned_program_has_no_packed_kernels_and_tells_its_compilers() -> None:
    board = aligned_only(BOARDS["cortex-m7"])
    assert BoardTarget(board).folders == ("kernels", "scalar")
    assert any("strict_align" in flag for flag in core_flags("zig", board.core))
    assert "-mno-unaligned-access" in core_flags("gcc", board.core)
    assert not M0PLUS.unaligned
    assert replace(board.core, unaligned=True) == BOARDS["cortex-m7"].core
