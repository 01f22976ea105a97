"""`predict` says what a model sees: likeliest classes, cells, numbers, of any file that a model can be shown."""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import smidgen as sm
from smidgen.data import as_input, centre, pixel_encoding
from smidgen.errors import InputError
from smidgen.frontends import export_model
from smidgen.inference.scores import kind_of
from smidgen.ir import evaluate
from smidgen.ops.endings import ending_of
from tests.cli.test_cli import fail, invoke
from tests.support.audio_signals import listener
from tests.support.output_networks import (
    in_a_folder_of_photographs,
    named_network,
    of_cells,
    of_rows,
    rows,
    scores,
    shapes,
    softmax,
)
from tests.support.shapes import SHAPES
from tests.support.wav_files import write_words


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return in_a_folder_of_photographs(tmp_path, monkeypatch)


def test_predict_names_the_likeliest_classes_with_the_probabilities_of_a_softmax(place: Path) -> None:
    model, data = named_network(), shapes()
    printed = json.loads(invoke("predict", "net.smg", "photos/test", "--json"))
    assert (printed["kind"], printed["target"]) == ("classes", "host")
    found = {one["sample"]: one["classes"] for one in printed["predictions"]}
    assert len(found) == len(data.test)
    for number, (image, label) in enumerate(zip(data.test.images, data.test.labels, strict=True)):
        shares = softmax(scores(model, image))
        top = found[f"{SHAPES[label]}/{number:02}.png"]
        assert [one["index"] for one in top] == list(np.argsort(-shares, kind="stable")[:3])
        assert [one["name"] for one in top] == [SHAPES[one["index"]] for one in top]
        assert [one["probability"] for one in top] == pytest.approx([shares[one["index"]] for one in top])
    in_numpy = json.loads(invoke("predict", "net.smg", "photos/test", "--target", "reference", "--json"))
    assert in_numpy["predictions"] == printed["predictions"]
    table = invoke("predict", "net.smg", "photos/test/ring/02.png", "--top", "2", "--target", "reference")
    best = found["ring/02.png"][:2]
    assert table.splitlines()[0] == "shapes_net on reference"
    assert all(f"{one['name']} {one['probability']:.1%}" in " ".join(table.split()) for one in best)


def test_a_folder_its_zip_and_its_arrays_are_predicted_alike(place: Path) -> None:
    def said(source: str, target: str = "host") -> list[object]:
        printed = json.loads(invoke("predict", "net.smg", source, "--target", target, "--json"))
        return [one["classes"] for one in printed["predictions"]]

    files = sorted(Path("photos/test").rglob("*.png"))
    with zipfile.ZipFile("photos.zip", "w") as archive:
        for file in files:
            archive.write(file, file.relative_to("photos/test"))
    images = np.stack([np.asarray(Image.open(file)) for file in files])
    np.save("photos.npy", images)
    np.savez("photos.npz", x=images, y=np.zeros(len(images), int))
    np.save("one.npy", images[3])
    whole = said("photos/test")
    assert len(whole) == len(files)
    assert said("photos/test", "reference") == whole
    for source in ("photos.zip", "photos.npy", "photos.npz"):
        assert said(source) == whole, source
    assert said("one.npy") == said(str(files[3])) == whole[3:4]
    assert sm.predict(named_network(), images[3]).predictions[0].classes[0].name == whole[3][0]["name"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("ending", "expected"), [("", None), ("softmax", "softmax"), ("sigmoid", "sigmoid"), ("tanh", None)]
)
def test_a_softmax_is_applied_only_where_the_graph_has_none(ending: str, expected: str | None) -> None:
    model, (sample,) = of_rows(5, ending=ending), rows(1)
    assert ending_of(model) == expected
    (one,) = sm.predict(model, sample, top=5).predictions
    quantized = np.clip(np.floor(np.abs(sample * 16) + 0.5) * np.sign(sample), -128, 127).astype(np.int8)[None]
    (raw,) = evaluate(model, quantized)
    q = model.scores.type.q
    assert q is not None
    real = q.one * (raw[0].astype(np.float64) - q.zero)
    shares = real if expected else softmax(real)
    assert {c.index: c.probability for c in one.classes} == pytest.approx(dict(enumerate(shares)))


def test_one_output_is_a_number_or_the_probability_of_yes() -> None:
    (sample,) = rows(1)
    plain, sigmoid = of_rows(1), of_rows(1, ending="sigmoid")
    (number,) = sm.predict(plain, sample).predictions[0].numbers
    assert (kind_of(plain), kind_of(sigmoid)) == ("numbers", "classes")
    yes = 1 / (1 + math.exp(-number))
    found = sm.predict(replace(plain, classes=("no", "yes")), sample).predictions[0].classes
    assert {one.name: one.probability for one in found} == pytest.approx({"yes": yes, "no": 1 - yes})
    (raw,) = evaluate(sigmoid, np.clip(np.rint(sample * 16), -128, 127).astype(np.int8)[None])
    found = sm.predict(sigmoid, sample).predictions[0].classes
    assert {one.name: one.probability for one in found}["1"] == (int(raw[0, 0]) + 128) / 256
    assert sm.predict(of_rows(3), sample, numbers=True).kind == "numbers"


def test_a_map_shows_cells_above_one_half_where_they_are_in_the_photograph() -> None:
    model = replace(of_cells(), classes=("ground", "face", "hand"))
    wide = np.random.default_rng(5).integers(0, 256, (16, 32, 3), np.uint8)
    found = sm.predict(model, wide)
    assert found.kind == "cells"
    (raw,) = evaluate(model, centre(wide, pixel_encoding(model)))
    shares = np.apply_along_axis(softmax, -1, raw[0] / 16)
    expected = {(r, c): k for r, c, k in np.argwhere(shares > 0.5).tolist() if k}
    cells = found.predictions[0].cells
    assert {(cell.row, cell.column): cell.index for cell in cells} == expected
    assert cells
    for cell in cells:
        assert cell.name == model.classes[cell.index] != "ground"
        assert cell.probability == pytest.approx(shares[cell.row, cell.column, cell.index])
        assert cell.x == pytest.approx(0.25 + 0.5 * (cell.column + 0.5) / 4)  # the middle half of the width is seen
        assert cell.y == pytest.approx((cell.row + 0.5) / 4)
    assert sm.predict(of_cells(2), np.zeros((16, 16, 3), np.uint8)).predictions[0].text


def test_a_training_step_is_not_asked_what_it_sees() -> None:
    step = sm.compile(named_network(), "last:1", options=sm.Options(4)).graph
    with pytest.raises(InputError, match="is a training step; give a model"):
        sm.predict(step, shapes(1).test.images[0])


def test_rows_of_a_table_are_predicted_with_and_without_the_column_that_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    export_model(replace(of_rows(2), classes=("still", "walking")), "net.smg")
    samples = np.round(np.stack(rows(4)), 3)
    head, body = "a,b,c,d,e,f", [",".join(map(str, row)) for row in samples.tolist()]
    Path("plain.csv").write_text("\n".join([head, *body]))
    Path("told.csv").write_text("\n".join([head + ",label", *(f"{row},walking" for row in body)]))
    np.save("rows.npy", samples)
    plain, known, array = (
        json.loads(invoke("predict", "net.smg", source, "--json"))["predictions"]
        for source in ("plain.csv", "told.csv", "rows.npy")
    )
    assert [one["classes"] for one in plain] == [one["classes"] for one in known] == [one["classes"] for one in array]
    assert [one["sample"] for one in known] == [f"told.csv[{i}]" for i in range(4)]
    Path("one.csv").write_text("\n".join(["x,y", "1,2", "3,4", "5,6"]))
    assert len(json.loads(invoke("predict", "net.smg", "one.csv", "--json"))["predictions"]) == 1


def test_sounds_are_predicted_and_tested_as_they_are_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words, hears = write_words(tmp_path / "words", 5), listener()
    export_model(replace(hears, preprocessing=None, classes=("high", "low", "rising", "silence")), "net.smg")
    files = sorted(words.rglob("*.wav"))
    printed = json.loads(invoke("predict", "net.smg", "words", "--json"))["predictions"]
    assert [one["sample"] for one in printed] == [file.relative_to(words).as_posix() for file in files]
    data = sm.load_data(words)
    tops = [int(evaluate(hears, as_input(one, pixel_encoding(hears)))[0].argmax()) for one in data.test.images]
    tested = json.loads(invoke("test", "net.smg", "--data", "words", "--json"))
    assert tested["accuracy"] == np.mean([a == b for a, b in zip(tops, data.test.labels, strict=True)])
    (alone,) = json.loads(invoke("predict", "net.smg", str(files[7]), "--target", "reference", "--json"))["predictions"]
    assert alone["classes"] == printed[7]["classes"]
    said = fail(capsys, monkeypatch, "predict", "net.smg", "words", "--audio", "yamnet")
    assert "does not fill an input [1, 49, 10, 1]" in said
