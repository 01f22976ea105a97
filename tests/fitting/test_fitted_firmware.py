"""Firmware of a fit begins with what was learned here, wherever that was, or says what to load."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smidgen as sm
from smidgen.data import as_input, pixel_encoding
from smidgen.errors import TargetError
from smidgen.fitting import Fitted, fit
from smidgen.frontends.native import read_smg
from smidgen.ir import evaluate
from smidgen.learning.sums import features_of_head
from smidgen.selection.choice import Choice
from smidgen.selection.ladder import climb
from smidgen.targets import find_board
from smidgen.targets.saved import HEAD, read_saved
from tests.fitting.test_fit import DATA, copied, toy_fit
from tests.support.small_network import small_network


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Fitted]:
    folder = tmp_path_factory.mktemp("firmware") / "out"
    return folder, toy_fit(folder)


def test_the_firmware_begins_with_what_was_learned(fitted: tuple[Path, Fitted]) -> None:
    folder, found = fitted
    (project,) = (one for one in found.stages if one.stage == "project")
    assert project.said.endswith("it begins with what was learned")
    text = (folder / "project" / "model" / "model_weights.c").read_text()
    (numbers,) = re.findall(r"const uint8_t model_learned\[\d+\] = \{([^}]*)\}", text)
    block = bytes(map(int, numbers.split(",")))
    assert (folder / "learned.state").read_bytes()[HEAD.size :] == block
    assert "= model_learned[i]" in (folder / "project" / "model" / "model.c").read_text()
    once = found.choice.candidate.start == "one pass" and found.choice.candidate.on_board
    program = sm.compile(
        small_network(), found.choice.candidate.scheme, find_board("cortex-m7"), options=sm.Options(4), one_pass=once,
        streamed_input=found.choice.candidate.streamed,
    )  # fmt: skip
    with program.start() as board:
        board.restore(read_saved(program.graph, folder / "learned.state"))
        learned = read_smg(folder / "learned.smg")
        encoding = pixel_encoding(learned)
        for image in DATA.test.images[:6]:
            shown = as_input(image, encoding)
            assert board.predict(shown) == int(evaluate(learned, shown)[0].argmax())


def test_firmware_without_room_for_sums_begins_with_the_head_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(*given: Any, **more: Any) -> Choice:
        found = climb(*given, **more)
        (place,) = (i for i, row in enumerate(found.rows) if row.name == "one pass here")
        (candidate,) = (one for one in given[2] if one.name == "one pass here")
        return replace(found, candidate=candidate, chosen=place)

    monkeypatch.setattr("smidgen.selection.proposals._with_one_pass", lambda *_: None)
    monkeypatch.setattr("smidgen.fitting.stages.climb", chosen)
    folder = tmp_path / "out"
    found = fit(small_network(), DATA, folder, budget="48KB", epochs=1, effort="quick")
    assert not found.choice.candidate.on_board
    assert any("begins with the head that it made" in note for note in found.choice.notes)
    program = sm.compile(small_network(), "head", find_board("cortex-m7"), options=sm.Options(4), streamed_input=True)
    learned, state = read_smg(folder / "learned.smg"), read_saved(program.graph, folder / "learned.state")
    head, _ = features_of_head(learned)
    assert np.array_equal(state["head.w"], learned.constants[head.ins[1]])
    assert np.array_equal(state["head.b"], learned.constants[head.ins[2]])
    assert state["head.w"].any()
    assert "= model_learned[i]" in (folder / "project" / "model" / "model.c").read_text()


def test_firmware_whose_flash_is_too_small_for_that_says_what_to_load(
    fitted: tuple[Path, Fitted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(fitted, tmp_path)
    shutil.rmtree(folder / "project")

    def refused(*_: object) -> None:
        raise TargetError("it does not fit")

    monkeypatch.setattr("smidgen.targets.firmware.BoardTarget.build", refused)
    found = toy_fit(folder)
    (project,) = (one for one in found.stages if one.stage == "project")
    assert project.said.endswith("it begins with the model: load learned.state into it")
    assert "model_learned" not in (folder / "project" / "model" / "model_weights.c").read_text()
