"""Every way to show pictures to a float32 model finds the same convention, or refuses alike; none guesses."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import smidgen as sm
from smidgen import cli
from smidgen.errors import SmidgenError
from smidgen.frontends import export_model
from smidgen.frontends.native import write_smg
from smidgen.ir import Graph
from smidgen.quantization import CONVENTIONS, QuantizationError, fold, quantize_with, settle_pixels
from tests.quantization.test_pixels import EXAMPLE, SAMPLE, fitted, like_torchvision, normalizing, saved
from tests.support.float_graphs import dequantized
from tests.support.least_squares import accuracy, as_tensor
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network
from tests.support.tiers import first

FEW = sm.Data("few", SAMPLE.classes, SAMPLE.train.spread(160), SAMPLE.test.spread(60))


def file_of(front_end: str, convention: str, folder: Path) -> Path:
    """A network made for a convention, in a file that does not say so."""
    network, path = fitted(like_torchvision, convention), folder / f"net.{front_end}"
    if front_end == "pt2":
        saved(network, path)
    else:
        export_model(fold(sm.from_torch(network, EXAMPLE)), path)
    assert sm.load(path).preprocessing is None
    return path


@pytest.mark.parametrize(
    ("front_end", "convention"),
    first(
        ("onnx", "imagenet"), ("pt2", "0,255"), ("tflite", "0,1"), ("smg", "-1,1"), ("onnx", "caffe"),
        ("tflite", "0,255"), ("onnx", "0,255"), ("onnx", "0,1"), ("tflite", "imagenet"), ("smg", "imagenet"),
        ("pt2", "imagenet"),
    ),
)  # fmt: skip
def test_test_and_predict_give_the_figures_of_the_convention_that_quantize_finds(
    front_end: str, convention: str, tmp_path: Path
) -> None:
    model, network = sm.load(file_of(front_end, convention, tmp_path)), fitted(like_torchvision, convention)
    found = quantize_with(FEW, model, lambda _: None).pixels
    assert found is not None
    assert (found.found, found.convention) == ("labels", convention)
    tested = sm.test(model, FEW)
    assert tested == replace(sm.test(model, FEW, preprocessing=CONVENTIONS[convention]), pixels=found)
    assert tested.accuracy == pytest.approx(accuracy(network, FEW.test, CONVENTIONS[convention]), abs=1.5 / 60)  # type: ignore[union-attr]
    images, given = SAMPLE.train.images[:128], CONVENTIONS[convention]
    shown = sm.predict(model, images, preprocessing=given)
    if convention == "-1,1":  # without labels imagenet is as likely
        with pytest.raises(
            QuantizationError, match=r"leaves no clear winner: 0,255 .* give --pixels with one of 0,255"
        ):
            sm.predict(model, images)
    else:
        found = sm.predict(model, images).pixels
        assert found is not None
        assert (found.found, found.convention) == ("mirrors", convention)
        assert found.preprocessing == given
    with torch.no_grad():
        chosen = network(as_tensor(images, given)).argmax(dim=1)
    same = [one.classes[0].index == int(other) for one, other in zip(shown.predictions, chosen, strict=True)]
    assert np.mean(same) > 0.97  # sums in another order


def swapped(graph: Graph, order: list[int]) -> Graph:
    """The same network with its classes in another order."""
    head = graph.nodes[-1]
    constants = {v: data[order] if v in head.ins[1:] else data for v, data in graph.constants.items()}
    return replace(graph, constants=constants)


def test_classes_in_another_order_do_not_hide_the_convention() -> None:
    order = list(np.random.default_rng(0).permutation(10))
    model = swapped(fold(sm.from_torch(fitted(like_torchvision, "imagenet"), EXAMPLE)), order)
    named = replace(model, classes=tuple(SAMPLE.classes[place] for place in order))
    for one, found in ((model, "mirrors"), (named, "labels")):
        choice = sm.test(one, replace(SAMPLE, test=FEW.test)).pixels
        assert choice is not None
        assert (choice.found, choice.convention) == (found, "imagenet")


def refusal(command: str) -> str:
    with pytest.raises(SmidgenError) as raised:
        CliRunner().invoke(cli.app, shlex.split(command), catch_exceptions=False)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def run(command: str) -> str:
    result = CliRunner().invoke(cli.app, shlex.split(command), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A float model that nothing is known of, and photographs."""
    monkeypatch.chdir(tmp_path)
    write_smg(dequantized(small_network()), Path("float.smg"))
    for part, samples in (("train", SAMPLE.train.spread(160)), ("test", SAMPLE.test.spread(40))):
        for index, (image, label) in enumerate(zip(samples.images, samples.labels, strict=True)):
            file = Path("photos", part, str(label), f"{index}.png")
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)
    return tmp_path


VERBS = (
    "test float.smg --data photos --json", "predict float.smg photos --json",
    "quantize float.smg --data photos -o a.smg --json",
    "train float.smg --quantize --data photos --scheme last:1 --lr 0.01 --epochs 1 -o out --json",
    "fit float.smg --data photos -o out --budget 64KB --epochs 1 --effort quick",
)  # fmt: skip


@pytest.mark.parametrize("command", VERBS, ids=lambda text: text.split()[0])
def test_every_verb_refuses_alike_before_anything_slow_and_names_its_own_option(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> None:
        raise AssertionError("nothing runs before pixels are settled")

    monkeypatch.setattr("smidgen.quantization.recipe.calibrate", slow)
    monkeypatch.setattr("smidgen.quantization.recipe.equalise", slow)
    said = refusal(command)
    assert "does not say how pixels become numbers" in said
    assert "give --pixels with one of 0,255 0,1 -1,1 imagenet caffe, or --mean and --std" in said
    assert all(f" {name} " in said for name in CONVENTIONS)
    assert not Path("a.smg").exists()
    assert not list(Path().glob("out/*.smg"))


@pytest.mark.parametrize("command", first(*VERBS[:-2]), ids=lambda text: text.split()[0])
def test_every_verb_takes_the_convention_and_shows_it(command: str, place: Path) -> None:
    printed = json.loads(run(f"{command} --pixels caffe --fit stretch"))
    assert (printed["pixels"]["found"], printed["pixels"]["convention"]) == ("given", "caffe")
    assert printed["pixels"]["preprocessing"]["fit"] == "stretch"


def test_a_fit_and_a_training_run_take_the_convention(place: Path) -> None:
    run(f"{VERBS[3]} --pixels 0,1")
    (learned,) = Path("out").glob("*.smg")
    assert sm.load(learned).preprocessing == CONVENTIONS["0,1"]
    run("train " + str(learned) + " --data photos --scheme last:1 --lr 0.01 --epochs 1 -o again --order bgr")
    (learned,) = Path("again").glob("*.smg")
    assert sm.load(learned).preprocessing == replace(CONVENTIONS["0,1"], order="bgr")


@pytest.mark.slow
def test_a_fit_with_another_convention_is_made_again(place: Path) -> None:
    for name in ("0,1", "caffe"):
        assert f"pixels as {name}, as given" in run(f"{VERBS[-1]} --force --pixels {name}")
        assert sm.load("out/model.smg").preprocessing == CONVENTIONS[name]


def test_info_shows_the_convention_or_that_it_is_not_known(place: Path) -> None:
    assert "images: the file does not say how pixels become numbers" in run("info float.smg")
    assert "minus mean 0.485, 0.456, 0.406" in run("info float.smg --pixels imagenet")
    write_smg(normalizing([1 / 255] * 3, [0.0] * 3), Path("n.smg"))
    assert "pixels as 0,255, which the model's first layers normalize" in " ".join(run("info n.smg").split())
    write_smg(replace(dequantized(small_network()), preprocessing=CONVENTIONS["0,1"]), Path("stated.smg"))
    found = json.loads(run("info stated.smg --json"))
    assert (found["pixels"]["found"], found["pixels"]["convention"]) == ("stated", "0,1")
    assert json.loads(run("info mcunet-5fps --json"))["pixels"] is None


def test_few_pictures_show_nothing_and_tensors_need_no_convention() -> None:
    model = sm.from_torch(fitted(like_torchvision, "imagenet"), EXAMPLE)
    with pytest.raises(QuantizationError, match=r"7 images cannot show it, 8 may; give --pixels"):
        sm.predict(model, SAMPLE.train.images[:7])
    numbers = np.zeros((32, 32, 3), np.float32)
    assert sm.predict(model, numbers).pixels is None
    with pytest.raises(QuantizationError, match="numbers or audio as Classifier takes them, not pixels"):
        sm.predict(model, numbers, preprocessing=CONVENTIONS["0,1"])


def test_of_int8_the_scale_tells_unless_it_is_stated_otherwise() -> None:
    model, data = small_network(), draw_shapes(4, 2)
    assert settle_pixels(model, data.train.images) is None
    found = settle_pixels(model, data.train.images, given=CONVENTIONS["0,1"])
    assert found is not None
    assert found.preprocessing == CONVENTIONS["0,1"]
    with pytest.raises(QuantizationError, match="whose scale tells what pixels are; give --pixels, too"):
        settle_pixels(model, data.train.images, given=CONVENTIONS)
