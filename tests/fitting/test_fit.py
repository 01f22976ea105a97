"""One command leaves every stage's result, goes on where it stopped, and never makes twice what has not changed."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import smidgen as sm
from smidgen import cli
from smidgen.cli.terminal import as_text
from smidgen.data import Data, examples, pixel_encoding
from smidgen.errors import SmidgenError
from smidgen.fitting import FitError, FitProgress, Fitted, fit
from smidgen.fitting.ledger import Ledger
from smidgen.frontends.native import read_smg, write_smg
from smidgen.ir import Graph, evaluate
from smidgen.ir.preprocessing import Preprocessing
from smidgen.learning import Course, learn
from smidgen.quantization import QuantizationError
from smidgen.records import read_record
from smidgen.selection import analysis, search
from smidgen.selection.analysis import usual_epochs
from smidgen.selection.choice import Choice
from smidgen.selection.contributions import read_contributions
from smidgen.selection.estimates import estimate
from smidgen.selection.ladder import climb
from smidgen.selection.proposals import propose
from smidgen.targets import find_board
from smidgen.training.scheme import Scheme
from tests.support.contributions import measured
from tests.support.float_graphs import dequantized
from tests.support.shapes import SHAPES, draw_shapes
from tests.support.small_network import small_network
from tests.support.tiers import first

DATA = draw_shapes(12, 6)
STAGES = ("model", "contributions", "choice", "board", "learned", "project", "report")
FILES = (
    "checkpoint.ckpt", "choice.json", "contributions.json", "fit.json", "learned.smg", "learned.state",
    "learned.tflite", "model.smg", "profile.json", "project", "report.html", "scheme.json",
)  # fmt: skip


def toy_fit(
    folder: Path, model: Graph | None = None, data: Data = DATA, budget: str = "48KB", epochs: int = 3
) -> Fitted:
    return fit(model or small_network(), data, folder, budget=budget, epochs=epochs)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Fitted]:
    """A fit that tests look at and leave as it is."""
    folder = tmp_path_factory.mktemp("fit") / "out"
    return folder, toy_fit(folder)


def copied(fitted: tuple[Path, Fitted], to: Path) -> Path:
    """Another copy of the same fit, to be played with."""
    return Path(shutil.copytree(fitted[0], to / "copy"))


def reused(found: Fitted) -> list[str]:
    return [one.stage for one in found.stages if one.reused]


def test_a_fit_leaves_every_file_and_what_they_hold_agrees(fitted: tuple[Path, Fitted]) -> None:
    folder, found = fitted
    assert tuple(sorted(path.name for path in folder.iterdir())) == FILES
    assert tuple(one.stage for one in found.stages) == STAGES
    assert reused(found) == []
    profile = json.loads((folder / "profile.json").read_text())
    assert profile["sram_bytes"] == found.board.sram_bytes <= found.choice.candidate.sram_bytes <= 48 * 1024
    assert found.board.exact.equal
    assert read_record(Choice, folder / "choice.json") == found.choice
    assert Scheme.from_json((folder / "scheme.json").read_text()) == found.choice.candidate.scheme
    assert f"#define MODEL_CLASSES {len(DATA.classes)}" in (folder / "project" / "model" / "model.h").read_text()
    assert read_smg(folder / "learned.smg").classes == DATA.classes
    page = (folder / "report.html").read_text()
    assert all(one.said.split(" → ")[0][:40] in page for one in found.stages[:3])
    assert f"{found.learned.last.accuracy:.1%} after" in str(found)


def test_the_stages_by_hand_give_the_same(fitted: tuple[Path, Fitted]) -> None:
    folder, found = fitted
    graph = small_network()
    known, options = read_contributions(folder / "contributions.json"), sm.Options(4)
    offered = propose(graph, known, 48 * 1024, find_board("cortex-m7"), options).candidates
    course = Course(3, 0.0, test_every=3)
    choice = climb(graph, DATA, offered, options, course)
    assert (choice.candidate, choice.learning_rate) == (found.choice.candidate, found.choice.learning_rate)
    images = examples(DATA.train, pixel_encoding(graph))
    once = choice.candidate.start == "one pass"
    program = sm.compile(graph, choice.candidate.scheme, options=options, images=images, one_pass=once)
    learned = learn(program, DATA, replace(course, learning_rate=choice.learning_rate))
    assert (learned.first, learned.last) == (found.learned.first, found.learned.last)
    image = np.zeros(graph.inputs[0].type.shape, np.int8)
    for ours, theirs in zip(
        evaluate(learned.model, image), evaluate(read_smg(folder / "learned.smg"), image), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_a_second_fit_makes_nothing_and_says_so(fitted: tuple[Path, Fitted], tmp_path: Path) -> None:
    folder = copied(fitted, tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    again = toy_fit(folder)
    assert reused(again) == list(STAGES)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    first = fitted[1]
    assert replace(again, stages=(), folder="") == replace(first, stages=(), folder="")
    assert str(again).count("(reused)") == len(STAGES)


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({"budget": "16KB"}, ["model", "contributions"]),
        ({"epochs": 2}, ["model", "contributions"]),
        ({"data": draw_shapes(12, 6, seed=1)}, ["model", "contributions"]),
        ({"model": small_network("other")}, []),
    ],
    ids=["budget", "epochs", "data", "model"],
)
def test_what_depends_on_a_change_is_made_again_and_nothing_else(
    fitted: tuple[Path, Fitted], tmp_path: Path, changed: dict[str, object], kept: list[str]
) -> None:
    found = toy_fit(copied(fitted, tmp_path), **changed)  # type: ignore[arg-type]
    fresh = toy_fit(tmp_path / "fresh", **changed)  # type: ignore[arg-type]
    assert reused(found) == kept
    assert replace(found, stages=(), folder="") == replace(fresh, stages=(), folder="")


@pytest.mark.parametrize("stage", first("learned", "contributions", "choice", "board"))
def test_an_interrupted_fit_goes_on_and_ends_as_if_it_had_never_stopped(
    fitted: tuple[Path, Fitted], tmp_path: Path, stage: str
) -> None:
    class Stopped(Exception):
        pass

    def stop(at: FitProgress) -> None:
        if at.stage == stage and (at.done > at.total // 2 or stage in ("contributions", "choice", "board")):
            raise Stopped

    folder = tmp_path / "out"
    with pytest.raises(Stopped):
        fit(small_network(), DATA, folder, budget="48KB", epochs=3, on_progress=stop)
    found = toy_fit(folder)
    assert reused(found) == list(STAGES[: STAGES.index(stage)])
    assert replace(found, stages=(), folder="") == replace(fitted[1], stages=(), folder="")
    for name in ("learned.smg", "scheme.json", "checkpoint.ckpt", "report.html"):
        assert (folder / name).read_bytes() == (fitted[0] / name).read_bytes()


@pytest.mark.parametrize("stage", first("learned", "choice", "project"))
def test_power_that_fails_before_a_stage_is_on_record_costs_that_stage_alone(
    fitted: tuple[Path, Fitted], tmp_path: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failed(Exception):
        pass

    usual = Ledger.add

    def add(ledger: Ledger, name: str, *others: Any) -> None:
        if name == stage:
            raise Failed
        usual(ledger, name, *others)

    monkeypatch.setattr(Ledger, "add", add)
    with pytest.raises(Failed):
        toy_fit(tmp_path / "out")
    monkeypatch.undo()
    found = toy_fit(tmp_path / "out")
    assert reused(found) == list(STAGES[: STAGES.index(stage)])
    assert replace(found, stages=(), folder="") == replace(fitted[1], stages=(), folder="")


def test_learning_goes_on_within_the_course(tmp_path: Path, fitted: tuple[Path, Fitted]) -> None:
    folder = copied(fitted, tmp_path)
    plain = json.loads((folder / "fit.json").read_text())
    del plain["stages"]["learned"]
    (folder / "fit.json").write_text(json.dumps(plain))
    for name in ("learned.smg", "learned.tflite", "learned.state"):
        (folder / name).unlink()
    steps: list[int] = []
    found = fit(
        small_network(), DATA, folder, budget="48KB", epochs=3,
        on_progress=lambda at: steps.append(at.done) if at.stage == "learned" and at.doing else None,
    )  # fmt: skip
    assert steps == []  # the checkpoint was that of the last epoch
    assert found.learned == fitted[1].learned


@pytest.mark.parametrize(
    "name", ["model.smg", "contributions.json", "scheme.json", "choice.json", "project", "report.html"]
)
def test_a_file_that_someone_changed_is_left_alone(fitted: tuple[Path, Fitted], tmp_path: Path, name: str) -> None:
    folder = copied(fitted, tmp_path)
    file = folder / name / "model" / "model.h" if name == "project" else folder / name
    file.write_bytes(file.read_bytes() + b" ")
    edited = file.read_bytes()
    with pytest.raises(FitError, match="was changed since; move it away, give --force to overwrite it, or"):
        toy_fit(folder)
    assert file.read_bytes() == edited


@pytest.mark.parametrize("text", ["", "{", '{"format": 3, "stages": {"model": 3}}', '{"format": 3, "stages": []}'])
def test_a_damaged_ledger_is_refused_in_one_sentence(fitted: tuple[Path, Fitted], tmp_path: Path, text: str) -> None:
    folder = copied(fitted, tmp_path)
    (folder / "fit.json").write_text(text)
    with pytest.raises(FitError, match="is not a ledger as smidgen fit writes it"):
        toy_fit(folder)


def test_a_missing_file_is_made_again(fitted: tuple[Path, Fitted], tmp_path: Path) -> None:
    folder = copied(fitted, tmp_path)
    (folder / "scheme.json").unlink()
    found = toy_fit(folder)
    assert reused(found) == [stage for stage in STAGES if stage != "choice"]
    assert (folder / "scheme.json").read_bytes() == (fitted[0] / "scheme.json").read_bytes()


def test_a_float_model_is_quantized_on_the_way(tmp_path: Path) -> None:
    data = draw_shapes(12, 2)
    found = toy_fit(tmp_path / "out", dequantized(small_network(), Preprocessing()), data, epochs=1)
    assert found.model.quantized
    assert "quantized to int8" in str(found.model)
    assert str(found.model).endswith("pixels as -1,1, as the model states")
    pixels = json.loads(as_text(found))["model"]["pixels"]
    assert (pixels["convention"], pixels["found"]) == ("-1,1", "stated")
    assert pixels["preprocessing"]["mean"] == pixels["preprocessing"]["std"] == [0.5]
    assert pixels["preprocessing"]["range"] == [0.0, 1.0]
    assert read_smg(tmp_path / "out" / "model.smg").inputs[0].type.dtype == "int8"


def test_a_float_model_whose_pixels_nothing_tells_is_asked_about(tmp_path: Path) -> None:
    with pytest.raises(QuantizationError, match="give --pixels with one of"):
        toy_fit(tmp_path / "out", dequantized(small_network()), draw_shapes(12, 2), epochs=1)


def test_given_contributions_are_taken_and_must_fit(tmp_path: Path) -> None:
    graph = small_network()
    found = fit(graph, DATA, tmp_path / "a", budget="48KB", epochs=1, contributions=measured(graph, 3))
    assert found.contributions.source == "as given"
    assert read_contributions(tmp_path / "a" / "contributions.json") == measured(graph, 3)
    other = replace(measured(graph, 3), layers=("conv",))
    with pytest.raises(SmidgenError, match="analyze small"):
        fit(graph, DATA, tmp_path / "b", budget="48KB", epochs=1, contributions=other)


@pytest.mark.slow
def test_contributions_are_measured_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "QUICK_STEPS", 500)
    found = fit(small_network(), DATA, tmp_path / "out", budget="20KB", epochs=1, analysis="quick")
    assert found.contributions.source == "measured here, quick"
    assert found.contributions.judged_with == 12


def test_a_budget_below_the_head_says_the_least_that_works(tmp_path: Path) -> None:
    with pytest.raises(SmidgenError) as raised:
        toy_fit(tmp_path / "out", budget="2KB")
    assert "\n" not in str(raised.value)
    least = max(int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", str(raised.value)))
    found = toy_fit(tmp_path / "again", budget=str(least), epochs=1)
    assert found.board.sram_bytes <= least
    with pytest.raises(SmidgenError, match=f"{least:,}"):
        toy_fit(tmp_path / "once more", budget=str(least - 1), epochs=1)


def test_a_budget_of_all_that_a_board_has_is_kept_to(tmp_path: Path) -> None:
    small = find_board("cortex-m7", sram="24KB")
    found = search(small_network(), estimate(small_network()), small.largest_budget, small, options=sm.Options(4))
    sm.compile(small_network(), found.scheme, small, options=sm.Options(4), streamed_input=True)  # fits, stack and all
    assert found.cost > 16 * 1024
    asked = fit(small_network(), DATA, tmp_path / "out", budget="64MB", epochs=1)
    assert asked.budget == find_board("cortex-m7").largest_budget < 256 * 1024


def test_epochs_follow_the_number_of_images() -> None:
    counts = [usual_epochs(images) for images in (1, 80, 480, 1000, 2040, 3000, 25_000, 100_000, 1_000_000)]
    assert counts == [50, 50, 50, 24, 12, 8, 8, 2, 1]


def photographs(folder: Path) -> None:
    for place, (image, label) in enumerate(zip(DATA.train.images, DATA.train.labels, strict=True)):
        file = folder / SHAPES[label] / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)


def test_the_command_shows_what_the_library_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    photographs(tmp_path / "photos")
    write_smg(small_network(), Path("small.smg"))
    words = ["fit", "small.smg", "--data", "photos", "--budget", "48KB", "--epochs", "2", "-o", "out"]
    shown = json.loads(CliRunner().invoke(cli.app, [*words, "--json"], catch_exceptions=False).stdout)
    found = fit(small_network(), sm.load_data("photos"), "out", budget="48KB", epochs=2)
    assert reused(found) == list(STAGES)
    plain = json.loads(json.dumps(found.as_plain()))
    assert {**plain, "stages": []} == {**shown, "stages": []}
    text = CliRunner().invoke(cli.app, words, catch_exceptions=False).stdout
    assert text == f"{found}\n"


BAD_REQUESTS = (
    ({"--budget": "lots"}, "lots"),
    ({"--target": "host"}, "there is no board 'host'"),
    ({"--epochs": "0"}, "0 epochs"),
    ({"--data": "absent"}, "there is no absent"),
    ({"--contributions": "absent.json"}, "absent.json cannot be read"),
    ({"-o": "small.smg"}, "small.smg cannot be written"),
    ({"--seed": "-1"}, "a seed of -1"),
)


def test_bad_requests_are_answered_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    photographs(tmp_path / "photos")
    write_smg(small_network(), Path("small.smg"))
    usual = {"--data": "photos", "--budget": "48KB", "-o": "out"}
    for changed, message in BAD_REQUESTS:
        arguments = [word for pair in (usual | changed).items() for word in pair]
        monkeypatch.setattr(sys, "argv", ["smidgen", "fit", "small.smg", *arguments])
        with pytest.raises(SystemExit) as raised:
            cli.main()
        captured = capsys.readouterr()
        assert raised.value.code == 2
        assert (captured.out, captured.err.count("\n")) == ("", 1)
        assert message in captured.err
    assert not (tmp_path / "out").exists()
