"""What goes wrong around a command: each ends in one sentence and exit code 2, and leaves nothing half-written."""

from __future__ import annotations

import fcntl
import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Group

from smidgen import cli
from smidgen.cli.terminal import print_rich, printable, progress_console, spinner
from smidgen.frontends.native import write_smg
from smidgen.frontends.network import build
from tests.support.float_graphs import dequantized
from tests.support.release_files import tiny_network

Fail = Callable[..., str]
START = (sys.executable, "-c", "from smidgen.cli import main; main()")
HOSTILE = "[/x]\x1b]0;owned\x9b\u202e"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a small model, the same in float32, and the same under a hostile name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # with it, Python does not notice a write cut short
    graph = build(tiny_network(), "tiny")
    write_smg(graph, tmp_path / "tiny.smg")
    write_smg(dequantized(graph), tmp_path / "float.smg")
    write_smg(replace(graph, name=HOSTILE), tmp_path / "hostile.smg")
    return tmp_path


@pytest.fixture
def fail(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Run a command that fails as a program does; the sentence it says, and nothing is left behind."""

    def run(*arguments: str) -> str:
        before = sorted(folder.rglob("*"))
        monkeypatch.setattr(sys, "argv", ["smidgen", *arguments])
        with pytest.raises(SystemExit) as raised:
            cli.main()
        captured = capsys.readouterr()
        assert (raised.value.code, captured.out) == (2, "")
        assert captured.err.startswith("smidgen: ")
        assert captured.err.count("\n") == 1
        assert sorted(folder.rglob("*")) == before
        return captured.err.removeprefix("smidgen: ").rstrip()

    return run


def test_a_gpu_that_is_not_there_is_told(fail: Fail) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    said = fail("train", "tiny.smg", "--scheme", "head", "--data", "cifar10", "--target", "cuda", "-o", "out")
    assert "finds no CUDA device here; use the host's C" in said


def program(*arguments: str, **how: object) -> subprocess.CompletedProcess[bytes]:
    """A command in a process of its own."""
    return subprocess.run([*START, *arguments], check=False, **how)  # type: ignore[call-overload, no-any-return]


def test_a_float_model_is_told_to_be_quantized_before_it_learns(fail: Fail) -> None:
    for scheme in ("head", "full"):
        said = fail("train", "float.smg", "--scheme", scheme, "--data", "cifar10", "-o", "out")
        assert "float.smg is float32, and what learns computes in int8; quantize it: smidgen quantize float.smg" in said


def test_train_knows_the_images_that_come_with_smidgen(fail: Fail) -> None:
    said = fail("train", "tiny.smg", "--scheme", "nothing", "--data", "cifar10", "-o", "out")
    assert said.startswith("'nothing' is neither a scheme")  # the images were read before it


def test_a_seed_below_zero_is_refused(fail: Fail) -> None:
    learning = ("tiny.smg", "-o", "out", "--scheme", "head", "--seed", "-1")
    commands = ("compile", *learning, "--classes", "3"), ("train", *learning, "--data", "cifar10")
    for command in (*commands, ("profile", "tiny.smg", "--seed", "-1")):
        assert fail(*command) == "a seed of -1 cannot be used; give a number from 0 up"


@pytest.mark.parametrize("option", ["--sram", "--flash"])
def test_memory_beyond_the_memory_map_is_refused(fail: Fail, option: str) -> None:
    said = fail("profile", "tiny.smg", option, "99999999999MB")
    assert "104,857,599,998,951,424 bytes" in said
    assert "give a multiple of 4,096, up to" in said


@pytest.mark.parametrize(
    "command",
    [
        ("compile", "tiny.smg", "-o", ""),
        ("compile", "tiny.smg", "-o", "out", "--picture", ""),
        ("import", "tiny.smg", "-o", ""),
        ("run", "tiny.smg", "-i", ""),
        ("train", "tiny.smg", "--scheme", "head", "--data", "cifar10", "-o", ""),
        ("quantize", "float.smg", "--data", "cifar10", "-o", ""),
        ("demo", "-o", ""),
    ],
    ids=" ".join,
)
def test_an_empty_path_is_refused(fail: Fail, command: tuple[str, ...]) -> None:
    assert fail(*command).startswith("a path in the command is empty; name a file or folder")


def test_no_images_are_not_the_working_folder_s(fail: Fail) -> None:
    assert fail("train", "tiny.smg", "--scheme", "head", "--data", "", "-o", "out").startswith("no data are named")


def test_a_picture_that_cannot_be_written_leaves_no_project(fail: Fail, folder: Path) -> None:
    assert "there is no folder nowhere" in fail("compile", "tiny.smg", "-o", "out", "--picture", "nowhere/memory.html")
    assert "is a folder; name a file" in fail("compile", "tiny.smg", "-o", "out", "--picture", str(folder))


def test_a_picture_may_lie_in_the_new_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["smidgen", "compile", "tiny.smg", "-o", "out", "--picture", "out/memory.html"])
    with pytest.raises(SystemExit) as raised:
        cli.main()
    assert not raised.value.code
    assert (folder / "out" / "memory.html").exists()


@pytest.mark.parametrize("command", ["info tiny.smg", "info tiny.smg --json", "--version", "--help"])
def test_a_reader_who_leaves_early_is_not_told(folder: Path, command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = program(*command.split(), stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (1, b"")


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="the size of a pipe cannot be set here")
@pytest.mark.parametrize("how", [(), ("--json",)], ids=["text", "json"])
def test_a_reader_may_leave_after_the_first_line(folder: Path, how: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)  # less than what is written, as a long answer is for any pipe
    with subprocess.Popen([*START, "info", "mcunet-5fps", *how], stdout=writing, stderr=subprocess.PIPE) as running:
        os.close(writing)
        assert b"mcunet-5fps" in os.read(reading, 100)
        os.close(reading)
        _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_output_that_cannot_be_written_is_one_sentence(folder: Path) -> None:
    with open("/dev/full", "wb") as full:
        result = program("info", "tiny.smg", stdout=full, stderr=subprocess.PIPE)
    assert (result.returncode, result.stderr) == (2, b"smidgen: No space left on device\n")


def test_without_stdout_a_command_does_its_work(folder: Path) -> None:
    shell = 'exec "$0" -c "from smidgen.cli import main; main()" "$@" >&-'
    for command in (("info", "tiny.smg"), ("import", "tiny.smg", "-o", "copy.smg")):
        result = subprocess.run(["sh", "-c", shell, sys.executable, *command], check=False, stderr=subprocess.PIPE)
        assert (result.returncode, result.stderr) == (0, b"")
    assert (folder / "copy.smg").exists()


def test_brackets_in_names_are_text_and_never_markup(fail: Fail, folder: Path) -> None:
    (folder / "[" / "x]").mkdir(parents=True)
    (folder / "[" / "x]" / "broken.smg").write_bytes(b"nothing")
    for command in (("compile", "[/x]/broken.smg", "-o", "out"), ("import", "[/x]/broken.smg", "-o", "out.smg")):
        assert "broken.smg is not a valid .smg file" in fail(*command)
    said = fail("train", "tiny.smg", "--scheme", "head", "--data", "[/y]", "-o", "[/x]")
    assert said.startswith("there is no [/y]")


@pytest.mark.parametrize("command", [("info",), ("compile", "-o", "[/out]")], ids=["info", "compile"])
def test_names_from_files_cannot_command_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "argv", ["smidgen", command[0], "hostile.smg", *command[1:]])
    with pytest.raises(SystemExit) as raised:
        cli.main()
    captured = capsys.readouterr()
    assert not raised.value.code
    assert printable(HOSTILE) == r"[/x]\x1b]0;owned\x9b\u202e"
    assert printable(HOSTILE) in captured.out
    assert not any(c in captured.out for c in "\x1b\x9b\u202e")


def test_progress_on_a_terminal_spells_names_out(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with spinner(f"reading {HOSTILE}"):
        progress_console().print("[b]epoch[/x]")
    shown = terminal.getvalue()
    assert f"reading {printable(HOSTILE)}" in shown
    assert "[b]epoch[/x]" in shown
    assert not any(c in shown for c in ("\x1b]", "\x9b", "\u202e"))


def test_text_in_tables_is_never_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_rich(Group("[b]name[/x]", ":warning:"))
    assert capsys.readouterr().out.split() == ["[b]name[/x]", ":warning:"]


def test_errors_spell_out_what_would_command_the_terminal(fail: Fail, folder: Path) -> None:
    np.save("x.npy", np.zeros(3, np.int8))
    for command in (("info", HOSTILE), ("import", "tiny.smg", "-o", HOSTILE), ("run", "hostile.smg", "-i", "x.npy")):
        said = fail(*command)
        assert r"\x1b" in said
        assert said.isprintable()
