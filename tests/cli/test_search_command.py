"""`smidgen search` and the verbs that choose a scheme for a budget: what they write, and what they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import smidgen as sm
from smidgen import cli
from smidgen.cli import train
from smidgen.frontends.native import write_smg
from smidgen.records import read_record
from smidgen.selection import estimates
from smidgen.selection.choice import Choice
from smidgen.selection.contributions import write_contributions
from smidgen.selection.judging import Run, Scores
from smidgen.selection.ladder import climb
from smidgen.training.scheme import Scheme, SchemeError
from tests.cli.test_cli import fail, invoke
from tests.support.contributions import measured
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a small model and contributions drawn for it."""
    monkeypatch.chdir(tmp_path)
    write_smg(small_network(), tmp_path / "small.smg")
    write_contributions(measured(small_network(), 1), tmp_path / "contributions.json")
    return tmp_path


@pytest.fixture
def shipped_small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same as if the contributions came with the package."""
    (folder / "shipped").mkdir()
    (folder / "contributions.json").rename(folder / "shipped" / "any-name.json")
    monkeypatch.setattr(estimates, "FOLDER", folder / "shipped")
    estimates._all.cache_clear()
    yield
    estimates._all.cache_clear()


SEARCH = ("search", "small.smg", "--contributions", "contributions.json", "--classes", "4")


def test_what_is_written_compiles_to_the_bytes_that_were_searched_for(folder: Path) -> None:
    found = json.loads(invoke(*SEARCH, "--budget", "16KB", "-o", "scheme.json", "--json"))
    assert found["cost"] <= 16 * 1024
    scheme = Scheme.from_json(Path("scheme.json").read_text())
    assert scheme.weight_bits == found["weight_bits"]
    assert [[layer, str(part)] for layer, part in scheme.weights] == found["scheme"]["weights"]
    made = invoke(
        "compile", "small.smg", "--scheme", "scheme.json", "--classes", "4", "--target", "cortex-m7",
        "--input", "streamed", "-o", "out", "--json",
    )  # fmt: skip
    compiled = json.loads(made)
    assert compiled["peak_bytes"] == found["planned"]["peak"]
    assert compiled["state_bytes"] == found["planned"]["state"]


def test_the_text_says_what_is_taken_gained_and_proven(folder: Path) -> None:
    text = invoke(*SEARCH, "--budget", "16KB")
    assert "small on cortex-m7, at most 16,384 bytes: the last" in text
    assert "of SRAM: arena" in text
    assert "points of top-1 over the head alone" in text
    assert "by exact search" in text
    assert not Path("scheme.json").exists()


def test_weight_bits_can_be_fixed_and_the_analytic_sum_be_the_budget(folder: Path) -> None:
    found = json.loads(invoke(*SEARCH, "--budget", "16KB", "--weight-bits", "8", "--json"))
    assert found["weight_bits"] == found["scheme"]["weight_bits"] == 8
    found = json.loads(invoke(*SEARCH, "--budget", "4000", "--analytic", "--method", "random", "--json"))
    assert found["target"] is None
    assert found["planned"] is None
    assert found["cost"] <= 4000
    assert found["evaluations"] == 20_000


def test_the_curve_is_one_call_and_one_file(folder: Path) -> None:
    curve = json.loads(invoke(*SEARCH, "--budget", "16KB", "--pareto", "--points", "3", "-o", "curve.json", "--json"))
    assert json.loads(Path("curve.json").read_text()) == curve
    gains = [point["gain"] for point in curve["points"]]
    assert gains == sorted(set(gains))
    assert all(point["planned"] for point in curve["points"])
    text = invoke(*SEARCH, "--budget", "16KB", "--pareto", "--points", "2", "--analytic")
    assert text.count("\n") == 4


def test_a_budget_and_no_scheme_is_enough_where_contributions_ship(folder: Path, shipped_small: None) -> None:
    given = ("--classes", "4", "--budget", "16KB", "--target", "cortex-m7", "-o", "out", "--json")
    made = CliRunner().invoke(cli.app, ("compile", "small.smg", *given), catch_exceptions=False)
    said, where = " ".join(made.stderr.split()), measured(small_network(), 1).conditions.data
    assert f"what learns is a guess: what each part adds was measured on {where}, not on your samples" in said
    assert "smidgen fit small --data DATA tries it" in said
    compiled = json.loads(made.stdout)
    assert compiled["state_bytes"] > 0
    assert compiled["peak_bytes"] + compiled["state_bytes"] <= 16 * 1024
    graph = small_network()
    found = sm.search(graph, None, "16KB", options=sm.Options(4), streamed_input=False)
    assert found.planned is not None
    assert (found.planned.peak, found.planned.state) == (compiled["peak_bytes"], compiled["state_bytes"])


def test_where_none_ship_a_rule_chooses_and_says_so(folder: Path) -> None:
    given = ("--classes", "4", "--budget", "16KB", "--target", "cortex-m7", "--output", "out")
    result = CliRunner().invoke(cli.app, ("compile", "small.smg", *given), catch_exceptions=False)
    said = " ".join(result.stderr.split())
    assert "the contributions of the layers of small were not measured; a rule about their shapes chose" in said
    graph = small_network()
    found = sm.search(graph, sm.estimate(graph), "16KB", options=sm.Options(4), streamed_input=False)
    assert " ".join(str(found).split()) in said
    assert (folder / "out").is_dir()


def test_a_budget_without_classes_still_limits_a_program_that_infers(folder: Path, shipped_small: None) -> None:
    compiled = json.loads(invoke("compile", "small.smg", "--budget", "64KB", "-o", "out", "--json"))
    assert compiled["state_bytes"] == 0


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--budget", "2KB"), r"too small for small on cortex-m7: the head alone takes [\d,]+ .*give at least that"),
        (("--budget", "0"), "too small"),
        (("--budget", "lots"), "'lots' is not a size"),
        (("--budget", "-5KB"), "is not a size"),
        (("--budget", "16KB", "--target", "cray"), "there is no target 'cray'"),
        (("--budget", "16KB", "--classes", "1"), "1 classes cannot be learned"),
        (("--budget", "16KB", "--weight-bits", "9"), "weights of 9 bits are not supported"),
        (("--budget", "16KB", "--method", "random", "--evaluations", "0"), "0 evaluations"),
        (("--budget", "16KB", "--pareto", "--points", "1"), "a curve of 1 points"),
        (("--budget", "16KB", "--pareto", "--method", "random"), "a curve is searched for exactly"),
        (("--budget", "16KB", "-o", "no/such/scheme.json"), "there is no folder"),
        (("--budget", "16KB", "--contributions", "none.json"), "none.json cannot be read"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_sentence(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
    sentence: str,
) -> None:
    said = fail(capsys, monkeypatch, *SEARCH, *more)
    assert len(said.splitlines()) == 1
    assert re.search(sentence, said), said


def test_a_budget_of_any_size_is_searched(folder: Path) -> None:
    small, large = (json.loads(invoke(*SEARCH, "--budget", size, "--json")) for size in ("8MB", "999999999999GB"))
    assert small["scheme"] == large["scheme"]


def test_contributions_of_another_model_cut_short_or_edited_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, text = Path("contributions.json"), Path("contributions.json").read_text()
    command = (*SEARCH, "--budget", "16KB", "-o", "scheme.json")
    path.write_text(text[: len(text) // 2])
    assert "it may be cut short" in fail(capsys, monkeypatch, *command)
    path.write_text(text.replace('"base": ', '"base":  ').replace("0.6", "0.7", 1))
    assert "was changed since smidgen analyze wrote it" in fail(capsys, monkeypatch, *command)
    path.write_bytes(b"\xff\xfe not json")
    assert "does not hold contributions" in fail(capsys, monkeypatch, *command)
    write_contributions(measured(sm.load("mbv2-w0.35"), 0), path)
    assert "the contributions are of mbv2-w0.35, not of small" in fail(capsys, monkeypatch, *command)
    assert not Path("scheme.json").exists()


def test_a_network_nobody_measured_is_told_to_be_analyzed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, shipped_small: None
) -> None:
    said = fail(capsys, monkeypatch, "search", "mbv2-w0.5", "--budget", "128KB")
    assert "run smidgen analyze mbv2-w0.5 --data DATA" in said
    said = fail(capsys, monkeypatch, "profile", "small.smg", "--classes", "4")
    assert "give --scheme, or --budget to have one chosen" in said


@pytest.mark.parametrize("bits", [None, 8, 10, 12])
def test_a_scheme_file_keeps_the_bits_and_options_overrule_it(bits: int | None) -> None:
    scheme = Scheme("s", 3, weight_bits=bits)
    assert Scheme.from_json(scheme.to_json()) == scheme
    assert ("weight_bits" in json.loads(scheme.to_json())) == (bits is not None)
    assert sm.Options(4).bits(scheme) == (bits or 12)
    assert sm.Options(4, weight_bits=10).bits(scheme) == 10


@pytest.mark.parametrize("bits", ["8", 9, True, 12.0, [12], 0])
def test_a_scheme_file_with_other_bits_is_refused(bits: object) -> None:
    text = json.dumps({"name": "s", "biases": 1, "weights": {}, "channels": "largest", "weight_bits": bits})
    with pytest.raises(SchemeError, match="give 8, 10 or 12"):
        Scheme.from_json(text)


LEARN = ("train", "small.smg", "--data", "shapes.npz", "--budget", "24KB", "--effort", "quick", "--epochs", "2")


@pytest.fixture
def shapes(shipped_small: None) -> None:
    data = draw_shapes(12, 3)
    train, test = data.train, data.test
    np.savez("shapes.npz", x=train.images, y=train.labels, x_test=test.images, y_test=test.labels)


def test_train_without_a_scheme_judges_candidates_and_learns_as_with_the_one_it_keeps(shapes: None) -> None:
    found = json.loads(invoke(*LEARN, "-o", "out", "--json"))
    choice = read_record(Choice, Path("out/small.choice.json"))
    assert not Path("out/small.choice.json.part").exists()
    assert len(choice.rows) > 3
    assert found["choice"]["rows"][choice.chosen]["name"] == choice.candidate.name
    assert found["learning_rate"] == choice.learning_rate
    assert choice.candidate.name in Path("out/small.html").read_text()
    Path("scheme.json").write_text(choice.candidate.scheme.to_json())
    once = ("--one-pass",) if choice.candidate.start == "one pass" else ()
    same = ("train", *LEARN[1:4], "--epochs", "2", "--scheme", "scheme.json", *once)
    invoke(*same, "--lr", repr(choice.learning_rate), "-o", "same")
    assert Path("out/small.smg").read_bytes() == Path("same/small.smg").read_bytes()


@pytest.mark.slow
def test_train_without_a_scheme_goes_on_with_what_it_had_chosen(shapes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke(*LEARN[:-1], "1", "-o", "out")
    monkeypatch.setattr("smidgen.cli.train.climb", None)  # nothing is judged again
    found = json.loads(invoke(*LEARN, "-o", "out", "--resume", "out/small.ckpt", "--json"))
    assert found["choice"]["candidate"] == json.loads(Path("out/small.choice.json").read_text())["candidate"]
    assert len(found["epochs"]) == 2


@pytest.mark.slow
def test_an_interrupted_choice_says_how_it_goes_on_and_takes_the_trials_that_are_done(
    shapes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, taken = Run(0, 0.1, 64, 0), list[Run]()

    def stop(*_: object, on_run: Callable[[Run, Scores], None], **__: object) -> None:
        on_run(done, (1.0,))
        raise KeyboardInterrupt

    def go_on(*given: Any, known: dict[Run, Scores], **more: Any) -> Choice:
        taken.extend(known)
        return climb(*given, **more)

    monkeypatch.setattr(train, "climb", stop)
    shown = CliRunner().invoke(cli.app, [*LEARN, "-o", "out"])
    assert "go on with smidgen train small.smg" in " ".join(shown.stderr.split())
    assert Path("out/small.choice.json.part").exists()
    monkeypatch.setattr(train, "climb", go_on)
    invoke(*LEARN, "-o", "out")
    assert taken == [done]


@pytest.mark.slow
def test_train_in_one_pass_within_a_budget_offers_candidates_behind_one_pass_alone(shapes: None) -> None:
    found = json.loads(invoke(*LEARN, "--one-pass", "-o", "out", "--json"))
    choice = read_record(Choice, Path("out/small.choice.json"))
    assert all("one pass" in row.name for row in choice.rows)
    assert ("sums" in str(found)) == (not choice.candidate.steps)
