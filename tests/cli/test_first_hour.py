"""What a newcomer reads in the first hour: every line once, whole words, and the reason for each number."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import smidgen as sm
from smidgen import cli
from smidgen.cli import start, terminal
from smidgen.data import Data
from smidgen.errors import InputError
from smidgen.frontends.native import write_smg
from smidgen.inference.evaluation import ClassesTested, count_confusion, judge_classes
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network

LONG = "the last 9 biases, weights 6:1 4:1/2 with 12 bits; 52,224 of 65,536 bytes of SRAM, the best that fits → a.json"


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def archive(folder: Path, data: Data) -> str:
    x, y = np.stack(data.train.images), np.array(data.train.labels)
    np.savez(folder / "photos.npz", x=x, y=y)
    return str(folder / "photos.npz")


def test_both_streams_together_have_each_epoch_once(tmp_path: Path) -> None:
    write_smg(small_network(), tmp_path / "small.smg")
    words = ["train", str(tmp_path / "small.smg"), "--data", archive(tmp_path, draw_shapes(10, 2)), "--scheme", "head"]
    ran = CliRunner().invoke(
        cli.app, [*words, "--epochs", "2", "--lr", "0.01", "-o", str(tmp_path / "out")], catch_exceptions=False
    )
    for number in (1, 2):
        assert ran.output.count(f"epoch {number} ") == 1
    assert ran.output.count("top-1") == 3  # before, and after each epoch


@pytest.mark.parametrize("columns", [60, 80, 132])
def test_long_lines_break_between_words_below_what_they_say(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", str(columns))
    text = f"model         tiny: 9 layers\nscheme        {LONG}\neverything is in out"
    broken = terminal.wrapped(text).splitlines()
    assert all(len(line) <= columns for line in broken)
    assert " ".join(" ".join(broken).split()) == " ".join(text.split())
    inside = broken[broken.index("model         tiny: 9 layers") + 2 : -1]
    assert inside or columns == 132
    assert all(line.startswith(" " * 14) for line in inside)


def test_lines_of_a_file_or_a_pipe_are_left_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert terminal.wrapped(f"scheme        {LONG}") == f"scheme        {LONG}"


def test_labels_above_a_confusion_matrix_are_never_broken() -> None:
    names = [f"a label of some length {place}" for place in range(6)]
    truth = np.repeat(np.arange(6), 3)
    confusion = count_confusion(truth, truth, 6)
    tested = ClassesTested("m", "d", "host", 18, 1.0, "", judge_classes(names, confusion), confusion)
    shown = Console(width=80, file=io.StringIO(), record=True)
    shown.print(tested)
    lines = shown.export_text().splitlines()
    table = lines[lines.index("confusion: true class down, predicted across") + 1 :]
    assert len(table) == 1 + len(names)
    assert [line[: len(names[0]) + 2].strip() for line in table[1:]] == [f"{i} {name}" for i, name in enumerate(names)]


def test_a_budget_that_the_board_does_not_have_is_said_to_be_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_smg(small_network(), tmp_path / "small.smg")

    def fit(*_: object, **__: object) -> None:
        raise InputError("as far as this test goes")

    monkeypatch.setattr(start, "fit", fit)
    words = ["fit", str(tmp_path / "small.smg"), "--data", archive(tmp_path, draw_shapes(10, 2)), "-o", str(tmp_path)]
    said = CliRunner().invoke(cli.app, [*words, "--budget", "4MB", "--target", "cortex-m7"])
    assert "bytes of SRAM, of which a program can use" in said.stderr
    assert "not 4,194,304" in said.stderr
    assert CliRunner().invoke(cli.app, [*words, "--budget", "64KB", "--target", "cortex-m7"]).stderr == ""


def test_what_bounds_the_examples_that_flash_keeps_is_said() -> None:
    program = sm.compile(small_network(), "head", options=sm.Options(classes=3), replay="64KB")
    assert program.replay is not None
    said = str(program.replay)
    assert f"keep {program.replay.examples} examples" in said
    assert "bounded by whole pages of 256 bytes" in said
