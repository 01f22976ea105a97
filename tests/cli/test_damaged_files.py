"""Files that were written by hand or cut short end a command in one sentence, without a word of Python's."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smidgen import cli
from smidgen.errors import SmidgenError
from smidgen.fitting.fitted import SchemeFound
from smidgen.fitting.ledger import FitError, Ledger
from smidgen.frontends.native import write_smg
from smidgen.selection import estimate
from smidgen.selection.contributions import Contributions, ContributionsError
from smidgen.training.scheme import Scheme, SchemeError
from tests.support.small_network import small_network

OURS = ("Error", "class '", "Traceback", "<")


def told(error: BaseException) -> str:
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
    assert message in told(raised.value)


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
    assert message in told(raised.value)


def test_an_empty_object_is_neither_contributions_nor_a_scheme(tmp_path: Path) -> None:
    write_smg(small_network(), model := tmp_path / "m.smg")
    (bad := tmp_path / "bad.json").write_text("{}")
    for words in (
        ["search", model, "--budget", "64KB", "--classes", "3", "--contributions", bad],
        ["compile", model, "--classes", "3", "--scheme", bad, "-o", tmp_path / "out"],
    ):
        ended = CliRunner().invoke(cli.app, [*map(str, words)]).exception
        assert isinstance(ended, SmidgenError)
        assert "bad.json" in told(ended)
        assert "it has no '" in str(ended)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gain": 10**400}, "gain is 1000"),
        ({"planned_bytes": 10**400}, "planned_bytes is 1000"),
        ({"weights": "1:1"}, "weights is '1:1', not a list"),
        ({"proven": 1}, "proven is 1, not true or false"),
    ],
)
def test_a_ledger_with_other_types_is_refused_by_what_is_wrong(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    result = {**asdict(SchemeFound(1, ("1:1",), 12, 9, 10, 0.5, True)), **changed}
    stages = {"scheme": {"inputs": "x", "files": {}, "result": result}}
    (tmp_path / "fit.json").write_text(json.dumps({"format": 2, "stages": stages, "under_way": ""}))
    with pytest.raises(FitError, match="is not a ledger as smidgen fit writes it: ") as raised:
        Ledger(tmp_path).result("scheme", "x", (), SchemeFound)
    assert message in told(raised.value)


@pytest.mark.parametrize("changed", [{"under_way": 3}, {"stages": {"model": {"inputs": "x"}}}, {"stages": [1]}])
def test_a_ledger_of_another_form_is_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    (tmp_path / "fit.json").write_text(json.dumps({"format": 2, "stages": {}, "under_way": "", **changed}))
    with pytest.raises(FitError, match="is not a ledger as smidgen fit writes it: ") as raised:
        Ledger(tmp_path)
    told(raised.value)
