"""`benchmarks/paper.py` from a clone alone: it measures, goes on, and says in one sentence what it cannot do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.house import TOP

TINY = ("--device", "cpu", "--limit", "2", "--epochs", "1", "--rates", "0.4", "--seeds", "1", "--workers", "1")
OWN = ("--sets", "mine", "--data", "mine=cifar10", "--results", "r.jsonl")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command with nothing beside the checkout."""
    folder = tmp_path_factory.mktemp("alone") / "clone"
    for part in ("benchmarks", "experiments", "docs"):
        shutil.copytree(TOP / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/paper.py", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(TOP / "src")}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=clone, env=environment)


@pytest.mark.slow
def test_a_table_is_measured_once_and_then_shown(clone: Path) -> None:
    first = run(clone, "head", *TINY, *OWN, "--json")
    assert first.returncode == 0, first.stderr[-400:]
    assert "1 of 1: mcunet-5fps on mine, device arithmetic, batch 1, 1 epochs: 2 runs" in first.stderr
    (found,) = json.loads(first.stdout)
    assert [(cell["data"], cell["train"], cell["epochs"]) for cell in found["cells"]] == [("mine", 2, 1)] * 2
    assert all(0 <= cell["top1"] <= 100 for cell in found["cells"])
    kept = (clone / "r.jsonl").read_bytes()
    again = run(clone, "head", *TINY, *OWN, "--json")
    assert again.stdout == first.stdout
    assert "runs" not in again.stderr
    assert (clone / "r.jsonl").read_bytes() == kept


@pytest.mark.slow
def test_results_of_another_file_are_taken_over_and_the_page_is_written(clone: Path) -> None:
    taken = run(clone, "--take", str(TOP / "benchmarks" / "results" / "paper.jsonl"), "--page", "--results", "t.jsonl")
    assert taken.returncode == 0, taken.stderr[-400:]
    assert (clone / "docs" / "results" / "accuracy.md").read_text() == (
        TOP / "docs" / "results" / "accuracy.md"
    ).read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("head", "--device", "cuda:99"), "PyTorch cannot compute on cuda:99 here; run this where it can"),
        (("head", "--sets", "mine", *TINY), "the data set mine is not beside the checkout; give --data mine=PATH"),
        (("head", *TINY, "--sets", "mine", "--data", "mine=nowhere"), "nowhere"),
        (("head", "--plan", "--data", "mine"), "'mine' does not say where a data set lies; give NAME=PATH"),
        (("head", "--epochs", "0"), "--epochs is 0; give 1 or more"),
        (("head", *TINY, *OWN, "--results", "docs/results/accuracy.md/r.jsonl"), "r.jsonl cannot be written"),
        (("head", "--show", "--results", "docs/results/accuracy.md"), "does not hold results of the paper's tables"),
    ],
)
def test_what_cannot_be_done_ends_in_one_sentence(clone: Path, arguments: tuple[str, ...], message: str) -> None:
    told = run(clone, *(("--results", "none.jsonl") if "--results" not in arguments else ()), *arguments)
    assert told.returncode == 2
    assert message in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1
    assert not (clone / "none.jsonl").exists()
