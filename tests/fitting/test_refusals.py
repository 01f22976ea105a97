"""A fit that cannot succeed is refused before anything is made; one that fails keeps what it finished."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import smidgen as sm
from smidgen.data import Data
from smidgen.errors import SmidgenError
from smidgen.fitting import Fitted, fit
from smidgen.fitting.stages import Stages
from smidgen.frontends.native import read_smg
from smidgen.ir import Graph
from smidgen.ir.preprocessing import Preprocessing
from smidgen.training.head import ending_of
from tests.support.float_graphs import dequantized
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network

DATA = draw_shapes(12, 6)


def small_fit(folder: Path, data: Data = DATA) -> Fitted:
    return fit(small_network(), data, folder, budget="48KB", epochs=1, effort="quick")


def labelled(data: Data, label: int) -> Data:
    return replace(data, train=replace(data.train, labels=(label,) * len(data.train)))


FLOAT = dequantized(small_network(), Preprocessing())
CANNOT_BEGIN: dict[str, tuple[Graph, Data, dict[str, Any], str]] = {
    "one class": (FLOAT, replace(DATA, classes=("cross",)), {}, "holds 1 class, 'cross'; learning needs at least two"),
    "one class to learn from": (FLOAT, labelled(DATA, 2), {}, "all 48 training samples of shapes are of 'ring'"),
    "too few to quantize": (FLOAT, draw_shapes(1, 1), {}, "4 training samples, too few to quantize small with"),
    "too few to analyze": (FLOAT, draw_shapes(2, 1), {"analysis": "quick"}, "holds 8 training images, of which 4 can"),
    "no labels": (FLOAT, replace(DATA, classes=()), {}, "shapes has no labels, which is for autoencoders, and small"),
    "a loss of other labels": (FLOAT, DATA, {"loss": "mse"}, "learns by mse from vectors; choose the loss softmax"),
    "a head that does not fit": (FLOAT, DATA, {"options": sm.Options(head="keep")}, "its head cannot be kept"),
    "bits that do not exist": (FLOAT, DATA, {"options": sm.Options(weight_bits=9)}, "weights of 9 bits"),
    "narrow biases": (FLOAT, DATA, {"options": sm.Options(bias_bits=16)}, "no schemes are searched for biases of 16"),
    "more classes": (FLOAT, DATA, {"options": sm.Options(8)}, "8 classes were asked for, shapes holds 4; fit to these"),
    "a rate below zero": (FLOAT, DATA, {"learning_rate": -1.0}, "a learning rate of -1"),
}  # fmt: skip


@pytest.mark.parametrize("what", CANNOT_BEGIN)
def test_what_cannot_be_fitted_is_refused_before_anything_is_made(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data, given, said = CANNOT_BEGIN[what]
    monkeypatch.setattr(Stages, "make_model", None)
    with pytest.raises(SmidgenError, match=re.escape(said)):
        fit(model, data, tmp_path / "out", budget="48KB", epochs=1, **given)
    assert not (tmp_path / "out").exists()


def test_two_samples_of_each_class_are_enough_for_an_int8_model(tmp_path: Path) -> None:
    found = small_fit(tmp_path / "out", draw_shapes(2, 1))
    assert found.contributions.source == "by rule, 8 images are too few to measure it"


def test_a_failed_fit_keeps_finished_stages_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SmidgenError("the board is on fire. Put it out.")

    monkeypatch.setattr(Stages, "make_board", fail)
    with pytest.raises(SmidgenError) as raised:
        small_fit(tmp_path / "out")
    kept = f"model, contributions and choice are kept in {tmp_path / 'out'}, and the next fit goes on from there"
    assert str(raised.value) == f"the board is on fire. Put it out; {kept}"
    monkeypatch.undo()
    again = small_fit(tmp_path / "out")
    assert [one.stage for one in again.stages if one.reused] == ["model", "contributions", "choice"]
    monkeypatch.setattr(Stages, "make_model", fail)
    with pytest.raises(SmidgenError) as raised:
        small_fit(tmp_path / "nothing")
    assert str(raised.value) == "the board is on fire. Put it out."
    assert not (tmp_path / "nothing").exists()


def test_options_of_learning_reach_the_program(tmp_path: Path) -> None:
    options = sm.Options(weight_bits=8, head_dtype="int8", head="new")
    found = fit(
        small_network(), DATA, tmp_path / "out", budget="48KB", epochs=1, effort="quick", options=options,
        learning_rate=2**-8,
    )  # fmt: skip
    assert {row.learning_rate for row in found.choice.rows} <= {2**-8, None}
    assert not ending_of(read_smg(tmp_path / "out" / "learned.smg")).is_float
    assert "one pass" not in str(found)  # which makes a head of float32
    assert found.model.head == "new"
