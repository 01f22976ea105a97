"""Each example learns something, on a board as here, and its README shows the figures that it prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import smidgen as sm
from examples.common import Outcome, on_board
from examples.gesture.motions import draw_data

EXAMPLES = Path(__file__).parents[2] / "examples"
# What each has to gain at least, of 1, by what it measures.
GAINS = {
    "person_detection": (0.25,),
    "spoken_words": (0.5,),
    "gesture": (0.2,),
    "machine_sound": (0.2,),
    "sixth_flower": (0.6, -0.12),  # the new flower, and the known ones, which it may cost a little
}
LARGEST = 100_000  # bytes of a network that ships with an example


def run_example(name: str, *options: str) -> Outcome:
    """What the example's command finds, run in a process of its own."""
    command = [sys.executable, str(EXAMPLES / name / "run.py"), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Outcome.from_json(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", GAINS)
def test_an_example_learns_with_the_bytes_of_the_board_and_prints_what_its_page_shows(
    name: str, tmp_path: Path
) -> None:
    found = run_example(name, "-o", str(tmp_path / "out"))
    gains = [figure.after - figure.before for figure in found.figures]
    assert all(gain >= least for gain, least in zip(gains, GAINS[name], strict=True)), str(found)
    assert found.board.same
    assert str(found) in (EXAMPLES / name / "README.md").read_text(), f"run python tools/example_figures.py {name}"
    assert (tmp_path / "out" / "learned.smg").stat().st_size > 1000
    assert (tmp_path / "out" / "firmware" / "Makefile").exists()


def test_every_example_is_tested_and_listed() -> None:
    names = {path.parent.name for path in EXAMPLES.glob("*/run.py")}
    assert names == {*GAINS, "federated"}  # which test_federated.py tests
    page = (EXAMPLES / "README.md").read_text()
    assert all(f"({name}/README.md)" in page and f"python examples/{name}/run.py" in page for name in names)


def test_a_board_that_learned_something_else_is_told_from_this_machine() -> None:
    model, data = sm.load(EXAMPLES / "gesture" / "model.smg"), draw_data(6, 6, 90.0, 0)
    here, same, other = (
        sm.compile(model, "head", target, options=sm.Options(6, head="new", seed=seed))
        for target, seed in (("host", 0), ("stm32g0b1", 0), ("stm32g0b1", 1))
    )
    assert on_board(here, same, data, 0.01, 2).same
    assert not on_board(here, other, data, 0.01, 2).same


def test_networks_that_ship_are_small_and_name_the_script_that_made_them() -> None:
    models = sorted(EXAMPLES.glob("*/*.smg"))
    assert len(models) == 3
    for model in models:
        assert model.stat().st_size < LARGEST, model
        assert (model.parent / "make_model.py").exists(), model
        assert "make_model.py" in (model.parent / "README.md").read_text(), model


def test_an_example_refuses_data_that_is_not_there_in_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "person_detection" / "run.py"), "--data", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "none" in done.stderr
