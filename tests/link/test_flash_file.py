"""The file that stands for an emulated board's flash: whatever ends a command, what it reported as saved is there."""

from __future__ import annotations

import random
import signal
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from smidgen import cli
from smidgen.errors import InputError
from smidgen.frontends.native import write_smg
from smidgen.link import Line, open_port
from smidgen.targets.lines import KeptFlash
from tests.cli.test_cli import invoke
from tests.support.killed_commands import kill_device
from tests.support.shapes import SHAPES, draw_shapes
from tests.support.small_network import small_network
from tests.support.tiers import examples

PROGRAM = ("--model", "small.smg", "--scheme", "last:2", "--classes", str(len(SHAPES)))
BOARD = ("device", "emulated:cortex-m7", "--project", "board", "--flash")
TRAIN = ("train", *PROGRAM, "--data", "shapes.npz", "--lr", "0.01", "--save-every", "1")
LONGEST = 1.5  # seconds from the first save until a command is killed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, samples to teach it, and its program as a project for a board, where one works."""
    monkeypatch.chdir(tmp_path)
    write_smg(small_network(), Path("small.smg"))
    data = draw_shapes(4, 2)
    samples = (*data.train.images, *data.test.images)
    np.savez("shapes.npz", x=np.stack(samples), y=np.array((*data.train.labels, *data.test.labels)))
    invoke("compile", *PROGRAM[1:], "--target", "cortex-m7", "-o", "board")
    return tmp_path


def held(flash: str) -> int:
    """The CRC-32 of the state that a board has after a reset, with the flash in this file."""
    line = Line(open_port("emulated:cortex-m7", project="board", flash=flash))
    try:
        return line.hello().state_sum
    finally:
        line.close()


def test_no_kill_loses_what_a_command_reported_as_saved(folder: Path) -> None:
    drawn, saved, ended = random.Random(1), held("flash"), 0
    for trial in range(examples(200, quick=4)):
        how = signal.SIGTERM if trial % 4 == 3 else signal.SIGKILL
        killed = kill_device((*BOARD, "flash", *TRAIN), LONGEST * drawn.random(), how)
        found = held("flash")
        saved = saved if killed.saved is None else killed.saved
        assert found in (saved, *killed.begun), f"trial {trial}: what was saved is lost"
        saved, ended = found, ended + killed.ended
    assert ended < trial, "most are killed while they save"


def test_a_state_that_was_loaded_from_a_file_is_there_after_a_reset(folder: Path) -> None:
    invoke(*BOARD, "flash", *TRAIN)
    invoke(*BOARD, "flash", "save", "-o", "learned")
    assert "loaded and saved on the board from learned" in invoke(*BOARD, "other", "load", "-i", "learned")
    invoke(*BOARD, "other", "save", "-o", "again")
    assert Path("again").read_bytes() == Path("learned").read_bytes()
    assert held("other") == held("flash")


def test_a_board_that_cannot_keep_what_it_loaded_says_so(folder: Path) -> None:
    main = Path("board/board/main.c")
    invoke(*BOARD, "flash", "save", "-o", "learned")
    main.write_text(main.read_text().replace("return keep_save();", "return 1;"))
    result = CliRunner().invoke(cli.app, (*BOARD, "flash", "load", "-i", "learned"))
    assert result.exit_code == 0
    assert "a reset loses what was loaded" in result.stderr
    assert "it has nowhere to keep what it learned" in result.stderr
    assert "loaded from learned" in result.stdout


def test_every_program_and_erase_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "flash"
    flash = KeptFlash(path, 2, 512)
    assert path.read_bytes() == b"\xff" * 1024
    for address, word in ((0, b"\x12\x34\x56\x78"), (508, b"\0\0\0\0"), (512, b"\1\2\3\4"), (0, b"\0\0\0\0")):
        assert flash.program(address, word) == 0
        assert path.read_bytes() == flash.bytes.tobytes()
    assert flash.erase(0) == 0
    assert path.read_bytes() == b"\xff" * 512 + b"\1\2\3\4" + b"\xff" * 508
    flash.close()
    with closing(KeptFlash(path, 2, 512)) as again:
        assert again.bytes.tobytes() == path.read_bytes()
    with pytest.raises(InputError, match=r"flash holds 1,024 bytes, the flash of this program 1,536; name another"):
        KeptFlash(path, 3, 512)


def test_what_is_written_is_synced_before_anything_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    flash = KeptFlash(tmp_path / "flash", 2, 1024)
    monkeypatch.setattr("os.fsync", lambda _: done.append("sync"))

    def program(address: int) -> None:
        flash.program(address, bytes(4))
        done.append(str(address))

    for address in (0, 4, 508, 512, 4):
        program(address)
    flash.erase(1024)
    done.append("erased")
    program(1024)
    flash.sync()
    flash.sync()
    flash.close()
    assert done == ["0", "4", "508", "sync", "512", "sync", "4", "sync", "sync", "erased", "1024", "sync"]
