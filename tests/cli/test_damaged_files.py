"""Files that were written by hand or cut short end a command in one sentence, without a word of Python's."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smidgen import cli
from smidgen.errors import SmidgenError
from smidgen.fitting import FitError
from smidgen.fitting.fitted import ModelMade
from smidgen.fitting.ledger import Ledger
from smidgen.frontends.native import write_smg
from smidgen.selection import estimate
from smidgen.selection.contributions import Contributions, ContributionsError
from smidgen.training.scheme import Scheme, SchemeError
from tests.support.small_network import small_network

OURS = ("Error", "class '", "Traceback", "<")


def in_words(error: BaseException) -> str:
    text = str(error)
    assert not any(word in text for word in OURS), text
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ('"bits": 12', '"bits": Infinity', "it holds Infinity, which is not a number in JSON"),
        ('"share": "1/2"', '"share": 1e999', "share is inf, not a share"),
        ('"share": "1/2"', '"share": "1/0"', "share is '1/0', not a share"),
        ('"base":', '"bass":', "it has no 'base'"),
        ('"biases": 1,', '"biases": "1",', "biases is '1', not a whole number"),
        ('"format": 1,', "", "it has no 'format'"),
    ],
)
def test_contributions_that_nobody_measured_are_refused_by_what_is_wrong(was: str, now: str, message: str) -> None:
    text = json.dumps(json.loads(estimate(small_network()).to_json()))
    assert was in text
    with pytest.raises(ContributionsError, match="does not hold contributions") as raised:
        Contributions.from_json(text.replace(was, now), "known.json")
    assert message in in_words(raised.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weights": {"1": "1/0"}}, "'1/0' is not a share of channels"),
        ({"weights": [1]}, "not an object"),
        ({"weights": {"1": "1", "01": [2]}}, ""),
        ({"made_for": {}}, "with network, layers"),
        ({"name": None}, "is None, not text"),
    ],
)
def test_schemes_written_by_hand_are_refused_by_what_is_wrong(changed: dict[str, object], message: str) -> None:
    plain = {"name": "x", "biases": 3, "weights": {}, "channels": "largest", **changed}
    if not message:
        assert len(Scheme.from_json(json.dumps(plain)).weights) == 2
        return
    with pytest.raises(SchemeError, match="is not a scheme: ") as raised:
        Scheme.from_json(json.dumps(plain))
    assert message in in_words(raised.value)


def test_an_empty_object_is_neither_contributions_nor_a_scheme(tmp_path: Path) -> None:
    write_smg(small_network(), model := tmp_path / "m.smg")
    (bad := tmp_path / "bad.json").write_text("{}")
    for words in (
        ["search", model, "--budget", "64KB", "--classes", "3", "--contributions", bad],
        ["compile", model, "--classes", "3", "--scheme", bad, "-o", tmp_path / "out"],
    ):
        ended = CliRunner().invoke(cli.app, [*map(str, words)]).exception
        assert isinstance(ended, SmidgenError)
        assert "bad.json" in in_words(ended)
        assert "it has no '" in str(ended)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"macs": 10**400}, "macs is 1000"),
        ({"layers": 1.5}, "layers is 1.5, not a whole number"),
        ({"name": ["m"]}, "name is ['m'], not text"),
        ({"quantized": 1}, "quantized is 1, not true or false"),
        ({"pixels": {"found": "given"}}, "pixels has no 'preprocessing'"),
    ],
)
def test_a_ledger_with_other_types_is_refused_by_what_is_wrong(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    result = {**asdict(ModelMade("m", False, 3, 10, 10, None)), **changed}
    stages = {"model": {"run": "r", "inputs": "x", "files": {}, "result": result}}
    (tmp_path / "fit.json").write_text(json.dumps({"format": 3, "stages": stages, "under_way": ""}))
    with pytest.raises(FitError, match="is not a ledger as smidgen fit writes it: ") as raised:
        Ledger(tmp_path, "r").result("model", "x", (), ModelMade)
    assert message in in_words(raised.value)


@pytest.mark.parametrize("changed", [{"under_way": 3}, {"stages": {"model": {"inputs": "x"}}}, {"stages": [1]}])
def test_a_ledger_of_another_form_is_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    (tmp_path / "fit.json").write_text(json.dumps({"format": 3, "stages": {}, "under_way": "", **changed}))
    with pytest.raises(FitError, match="is not a ledger as smidgen fit writes it: ") as raised:
        Ledger(tmp_path, "r")
    in_words(raised.value)
