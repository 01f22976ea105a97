"""`tools/fuzz.py` finds what it should: planted faults are kept as files, and the same seed gives the same cases."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.house import TOP
from tests.support.tiers import first

# Runs a job in this process, with a reader in the place of a parser's own.
START = """
import sys
sys.path.insert(0, "tools")
from dataclasses import replace
import fuzz_targets, fuzzing
import numpy as np
from smidgen.errors import SmidgenError
fuzzing.SECONDS, fuzzing.GROWTH = 0.2, 2**25
def read(path):
    if b"Softmax" in path.read_bytes():
        {}
fuzz_targets.TARGETS["text"] = replace(fuzz_targets.TARGETS["text"], read=read)
fuzzing.main(sys.argv[1])
"""
# What a reader does wrong, and how the finding is called.
WRONG = {
    "return {}['no']": "keyerror",
    "while True: pass": "tooslowerror",
    "return np.ones(2**23)": "memory",
    "raise SmidgenError('')": "sentenceerror",
    "raise RecursionError": "recursionerror",
}


def run(tmp_path: Path, wrong: str) -> tuple[dict[str, object], list[Path]]:
    job = {
        "target": "text", "seed": 1, "cases": 120, "seconds": 0.0, "folder": str(tmp_path / "own"),
        "findings": str(tmp_path / "findings"), "plain": True,
    }  # fmt: skip
    command = [sys.executable, "-c", START.format(wrong), json.dumps(job)]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    notes = json.loads((tmp_path / "own" / "notes.json").read_text())
    return notes, sorted((tmp_path / "findings").glob("*.txt"))


def test_memory_is_the_workers_own_not_that_of_a_large_process_which_started_it(tmp_path: Path) -> None:
    ballast = b"x" * 2**29
    _, kept = run(tmp_path, "return np.ones(2**23)")
    assert [path.name for path in kept] == ["found-text-memory.txt"]
    assert ballast


@pytest.mark.parametrize("wrong", first(*WRONG))
def test_a_planted_fault_becomes_a_small_file_with_its_command(wrong: str, tmp_path: Path) -> None:
    notes, kept = run(tmp_path, wrong)
    assert [path.name.split("-")[2].removesuffix(".txt") for path in kept] == [WRONG[wrong]]
    assert kept[0].read_bytes() == b"Softmax" or WRONG[wrong] == "tooslowerror"  # which takes too long to make smaller
    why = kept[0].with_suffix(".why").read_text()
    assert f"python tools/fuzz.py --replay {kept[0]} text" in why
    assert notes["cases"] == 120
    assert notes["done"]


def test_a_case_that_kills_the_process_is_kept(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(START.format("__import__('os').abort()"))
    planted = f"import fuzz; fuzz.WORKER, fuzz.CRASHES = {str(worker)!r}, 1; sys.exit(fuzz.main(sys.argv[1:]))"
    options = ("--cases", "120", "--plain", "--work", str(tmp_path / "work"), "--findings", str(tmp_path), "text")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'tools'); {planted}", *options]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr[-2000:]
    (kept,) = (tmp_path / "text").glob("found-text-crash*.txt")
    assert b"Softmax" in kept.read_bytes()
    assert str(kept) in done.stderr


def test_a_sound_reader_has_no_findings(tmp_path: Path) -> None:
    notes, kept = run(tmp_path, "raise SmidgenError('refused')")
    assert kept == []
    assert notes["findings"] == {}
    assert notes["refused"]


def fuzzed(tmp_path: Path, seed: int, *options: str) -> str:
    """The digest of all cases of a run."""
    where = ("--work", str(tmp_path / "work"), "--findings", str(tmp_path / "findings"))
    asked = ("--deterministic", "--share", "0.0025", "--seed", str(seed), "--json", *where, *options, "text")
    done = subprocess.run(
        [sys.executable, "tools/fuzz.py", *asked], cwd=TOP, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    notes = json.loads(done.stdout)
    assert notes["cases"] == 300
    assert notes["engine"] == ("plain" if "--plain" in options else "atheris")
    return str(notes["digest"])


def test_the_same_seed_gives_the_same_cases_and_another_seed_others(tmp_path: Path) -> None:
    first, again, other = (fuzzed(tmp_path, seed, "--plain") for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_the_same_seed_gives_the_same_cases_by_coverage(tmp_path: Path) -> None:
    assert fuzzed(tmp_path, 1) == fuzzed(tmp_path, 1)


@pytest.mark.parametrize("end", ["answers", "requests"])
def test_both_ends_of_a_link_read_their_seeds(end: str) -> None:
    seeds = sorted((TOP / "tests" / "corpus" / end).glob("*.link"))
    for seed in (path for path in seeds if not path.name.startswith("found")):
        command = [sys.executable, "tools/fuzz.py", "--replay", str(seed), end]
        done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "read\nno finding\n"), seed


def test_a_kept_file_is_replayed_by_name(tmp_path: Path) -> None:
    seed = next((TOP / "tests" / "corpus" / "text").iterdir())
    command = [sys.executable, "tools/fuzz.py", "--replay", str(seed), "text"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "read\nno finding\n")
