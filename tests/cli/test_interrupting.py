"""Ctrl-C ends a command with 130 and one sentence, which holds the command that goes on; nothing is half written."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from smidgen import cli
from smidgen.cli import models
from smidgen.frontends.native import write_smg
from smidgen.selection.searching import Searcher
from tests.support.shapes import SHAPES, draw_shapes
from tests.support.small_network import small_network

SECONDS = 120  # before a command that does nothing is given up


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model and photographs, where one works."""
    monkeypatch.chdir(tmp_path)
    write_smg(small_network(), Path("small.smg"))
    data = draw_shapes(12, 6)
    for split, samples in (("train", data.train), ("test", data.test)):
        for place, (image, label) in enumerate(zip(samples.images, samples.labels, strict=True)):
            file = Path("my photos", split, SHAPES[label], f"{place}.png")
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)
    return tmp_path


def interrupted(words: list[str], ready: Callable[[], bool]) -> str:
    """What a command says on stderr that gets SIGINT once it is ready."""
    command = (sys.executable, "-m", "smidgen", *words)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which tests in the background ignore
    ) as process:  # fmt: skip
        end = time.monotonic() + SECONDS
        while not ready() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, complained
    assert said == ""
    assert "Traceback" not in complained
    return complained


def command_in(complained: str) -> list[str]:
    """The command that the last sentence says, without the name of the program."""
    last = complained.splitlines()[-1]
    assert last.startswith("smidgen: interrupted; ")
    name, *words = shlex.split(last[last.index("with smidgen ") + len("with ") :])
    assert name == "smidgen"
    return words


def run(words: list[str]) -> str:
    result = CliRunner().invoke(cli.app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def whole_files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


TRAIN = ("train", "small.smg", "--data", "my photos", "--scheme", "last:3", "--lr", "0.001")


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_training_goes_on_by_the_command_it_says_and_ends_as_if_never_stopped(folder: Path, again: bool) -> None:
    def wait_for(stem: str) -> Callable[[], bool]:
        return Path(stem, "small.ckpt").exists

    words = [*TRAIN, "--epochs", "50", "--test-every", "50", "-o", "out"]
    complained = interrupted(words, wait_for("out"))
    assert command_in(complained) == [*words, "--resume", "out/small.ckpt"]
    assert whole_files(folder / "out") == {"small.ckpt"}
    if again:
        begun = time.time()
        newer = folder / "out" / "small.ckpt"
        complained = interrupted(command_in(complained), lambda: newer.stat().st_mtime > begun)
        assert command_in(complained) == [*words, "--resume", "out/small.ckpt"]
    run(command_in(complained))
    run([*TRAIN, "--epochs", "50", "--test-every", "50", "-o", "whole"])
    for name in ("small.smg", "small.tflite", "small.ckpt"):
        assert (folder / "out" / name).read_bytes() == (folder / "whole" / name).read_bytes()


def test_training_that_is_stopped_before_it_learned_leaves_nothing(folder: Path) -> None:
    complained = interrupted([*TRAIN, "-o", "deep/out"], (folder / "deep" / "out").exists)
    if "nothing was learned yet" in complained:
        assert command_in(complained) == [*TRAIN, "-o", "deep/out"]
        assert not (folder / "deep").exists()
    else:  # it was quicker than the signal
        assert whole_files(folder / "deep" / "out") == {"small.ckpt"}


@pytest.mark.slow
def test_an_analysis_goes_on_by_the_command_it_says(folder: Path) -> None:
    words = ["analyze", "small.smg", "--data", "my photos", "--epochs", "4", "--workers", "1", "-o", "a.json"]
    journal = folder / "a.json.part"
    complained = interrupted(words, lambda: journal.exists() and journal.read_bytes().count(b"\n") > 2)
    assert "the runs that are done are kept in a.json.part" in complained
    assert command_in(complained) == words
    assert not (folder / "a.json").exists()
    result = CliRunner().invoke(cli.app, [*words, "--reach", "2"])
    assert result.exit_code == 0, result.output
    assert "runs were found in a.json.part" in result.stderr


def test_a_fit_goes_on_by_the_command_it_says(folder: Path) -> None:
    words = ["fit", "small.smg", "--data", "my photos", "--budget", "48KB", "--epochs", "2", "-o", "out"]
    complained = interrupted(words, (folder / "out" / "scheme.json").exists)
    assert "the stages that are done are kept in out" in complained
    assert command_in(complained) == words
    assert run(words).count("(reused)") >= 2


def test_a_search_says_that_it_starts_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Searcher, "search", stop)
    words = ["search", "small.smg", "--budget", "64KB", "--estimate", "--classes", "4", "-o", "s.json"]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 130
    assert (
        result.stderr == f"smidgen: interrupted; a search keeps nothing; start again with smidgen {' '.join(words)}\n"
    )
    assert not Path("s.json").exists()


def test_any_other_command_ends_with_130_and_how_to_start_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "load_model", stop)
    result = CliRunner().invoke(cli.app, ["info", "small.smg"])
    said = "smidgen: interrupted; start again with smidgen info small.smg\n"
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", said)
