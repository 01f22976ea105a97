"""Replay over a link: a board keeps what it is taught, and learns from it again when a host asks it to."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import smidgen as sm
from smidgen.frontends.native import write_smg
from smidgen.ir import Array
from smidgen.link import Line, LinkedDevice, connect, replay_there
from smidgen.pipeline import Program, compile
from smidgen.targets.boards import BOARDS
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from smidgen.targets.lines import emulated_line
from smidgen.training import Options
from tests.cli.test_cli import fail, invoke
from tests.support.networks import CLASSES, inverted_residual, samples

RATE = 0.01
OPTIONS = Options(CLASSES)


@pytest.fixture
def failing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The sentence of a command that fails."""
    return partial(fail, capsys, monkeypatch)


def built(program: Program, folder: Path) -> str:
    """The port of a program's example, as `make` builds it."""
    program.write(folder)
    subprocess.run(["make", "-s", "CFLAGS=-O1 -Wall -Wextra -Werror"], cwd=folder, check=True)
    return f"exec:{folder}/example link {folder}/kept"


def after(program: Program, taught: list[tuple[Array, int]], again: tuple[Array, int]) -> dict[str, bytes]:
    """What a device learned that was taught some samples and then one of them again."""
    with program.start() as device:
        for image, label in taught:
            device.train(image, label, RATE)
        device.train(*again, RATE)
        return {name: array.tobytes() for name, array in device.state().items()}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_board_learns_from_what_it_kept_as_from_the_image(streamed: bool, host: Host, tmp_path: Path) -> None:
    graph = inverted_residual(4)
    program = compile(graph, "last:2", host, options=OPTIONS, streamed_input=streamed, replay="64KB")
    taught = samples(program.graph, 3, seed=9)
    port = built(program, tmp_path / "out")
    with connect(port, program) as board:
        board.predict(taught[0][0][:, ::-1].copy())  # which nobody named, and so it is not kept
        for image, label in taught:
            board.train(image, label, RATE)
        board.keep()
    seen = json.loads(invoke("device", port, "replay", "1", "--lr", str(RATE), "--json"))
    assert len(seen["losses"]) == 1
    assert seen["saved"]
    with connect(port, program) as board:
        learned = {name: array.tobytes() for name, array in board.state().items()}
    assert learned in [after(program, taught, one) for one in taught]


def test_an_emulated_board_keeps_and_replays_in_its_own_flash(cache: Path) -> None:
    target = BoardTarget(BOARDS["cortex-m7"], cache=cache)
    program = compile(inverted_residual(4), "last:2", target, options=OPTIONS, streamed_input=True, replay="32KB")
    taught = samples(program.graph, 3, seed=9)
    line = emulated_line("board", target, target.linked(program.graph, program.sources))
    with LinkedDevice(program.graph, Line(line)) as board:
        for image, label in taught:
            board.train(image, label, RATE)
        board.keep()
    line.reset()
    losses: list[float] = []
    replay_there(Line(line), 1, RATE, losses.append)
    with LinkedDevice(program.graph, Line(line)) as board:
        learned = {name: array.tobytes() for name, array in board.state().items()}
    assert len(losses) == 1
    assert learned in [after(program, taught, one) for one in taught]


def test_what_was_kept_outlives_a_restart_and_other_programs_are_refused(
    host: Host, tmp_path: Path, failing: Callable[..., str]
) -> None:
    program = compile(inverted_residual(4), "last:2", host, options=OPTIONS, replay="64KB")
    port = built(program, tmp_path / "out")
    assert "it has kept no example yet" in failing("device", port, "replay", "3", "--lr", "0.01")
    with connect(port, program) as board:
        for image, label in samples(program.graph, 6):
            board.train(image, label, RATE)
    assert len(json.loads(invoke("device", port, "replay", "9", "--lr", "0.01", "--json"))["losses"]) == 9
    other = compile(inverted_residual(5), "last:2", host, options=OPTIONS, replay="64KB")
    elsewhere = built(other, tmp_path / "other")
    (tmp_path / "other" / "kept.ring").write_bytes((tmp_path / "out" / "kept.ring").read_bytes())
    assert "its flash is another program's" in failing("device", elsewhere, "replay", "1", "--lr", "0.01")
    assert "cannot be taken; give 1 step or more" in failing("device", port, "replay", "0", "--lr", "0.01")
    assert "a learning rate of 1e+38 cannot be used; give" in failing("device", port, "replay", "1", "--lr", "1e38")
    assert "give the rate that train used" in failing("device", port, "replay", "1", "--lr", "auto")


def test_a_program_without_replay_says_so(host: Host, tmp_path: Path, failing: Callable[..., str]) -> None:
    port = built(compile(inverted_residual(4), "last:2", host, options=OPTIONS), tmp_path / "out")
    assert "replay is not in this program" in failing("device", port, "replay", "1", "--lr", "0.01")


def test_compile_says_how_many_examples_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_smg(inverted_residual(4), Path("net.smg"))
    asked = ("compile", "net.smg", "--scheme", "last:2", "--classes", str(CLASSES), "-o")
    found = json.loads(invoke(*asked, "out", "--replay", "64KB", "--json"))["replay"]
    program = sm.compile(inverted_residual(4), "last:2", "host", options=OPTIONS, replay="64KB")
    assert program.replay is not None
    assert found["examples"] == program.replay.examples > 10
    assert found["latent_bytes"] == program.replay.latent_bytes < 8 * 8 * 3
    assert f"keep {program.replay.examples} examples" in invoke(*asked, "again", "--replay", "65536")
    assert "4,096 bytes of flash keep no example" in failing(*asked, "small", "--replay", "4KB")
    assert not Path("small").exists()
    assert np.all([Path("out/model", name).exists() for name in ("model_replay.h", "model_link.h")])
