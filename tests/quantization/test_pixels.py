"""`smidgen quantize` finds out how pixels become numbers, or asks; it never guesses in silence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from PIL import Image
from torch import Tensor, nn

import smidgen as sm
from experiments.architectures import Basic, Classifier, conv, resnet8
from smidgen.data import Samples
from smidgen.data.layouts.cifar import read_sample
from smidgen.frontends.native import write_smg
from smidgen.ir import Graph
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ops import BatchNorm
from smidgen.quantization import CONVENTIONS, QuantizationError, quantize, settle_pixels
from smidgen.quantization.pixels import named_by_layers
from tests.cli.test_cli import fail, invoke
from tests.frontends.test_onnx import model as onnx_model
from tests.support.float_graphs import FloatNet, dequantized
from tests.support.least_squares import CLASSES, accuracy, fit
from tests.support.small_network import small_network
from tests.support.tiers import examples, first

SAMPLE = read_sample()
TESTED = SAMPLE.test.spread(256)
EXAMPLE = torch.zeros(1, 3, 32, 32)


def small_resnet() -> Classifier:
    network = resnet8(0.5, CLASSES)
    assert isinstance(network, Classifier)
    return network


def like_torchvision() -> Classifier:
    """A strided stem, a pool and a block, as torchvision's ResNets begin."""
    stem = conv(3, 24, 3, 2, activation=nn.ReLU)
    return Classifier(nn.Sequential(stem, nn.MaxPool2d(3, 2, 1), Basic(24, 48, 1)), 48, CLASSES)


@cache
def fitted(make: Callable[[], Classifier], convention: str) -> Classifier:
    torch.manual_seed(0)
    return fit(make(), SAMPLE.train, CONVENTIONS[convention])


class Rescaled(nn.Module):
    """A network whose first layer is a Rescaling of its own."""

    def __init__(self, network: nn.Module, scale: float, shift: float) -> None:
        super().__init__()
        self.network, self.scale, self.shift = network, scale, shift

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.network(x * self.scale + self.shift)
        return y


def saved(network: nn.Module, path: Path) -> str:
    torch.export.save(torch.export.export(network.eval(), (EXAMPLE,)), path)
    return str(path)


def quantized(path: str, folder: Path) -> dict[str, object]:
    words = ("--data", "cifar10", "-o", str(folder / "a.smg"), "--images", "40", "--json")
    printed = json.loads(invoke("quantize", path, *words))
    found: dict[str, object] = {**printed["pixels"], **printed["report"]["accuracy"]}
    return found


@pytest.mark.parametrize(("make", "convention"), first((like_torchvision, "imagenet"), (small_resnet, "0,255")))
def test_a_network_whose_file_says_nothing_gets_the_convention_it_was_made_for(
    make: Callable[[], Classifier], convention: str, tmp_path: Path
) -> None:
    network = fitted(make, convention)
    found = quantized(saved(network, tmp_path / "net.pt2"), tmp_path)
    assert (found["found"], found["convention"]) == ("labels", convention)
    right = accuracy(network, TESTED, CONVENTIONS[convention])
    assert found["float32"] == pytest.approx(right, abs=1.5 / len(TESTED))
    assert found["int8"] == pytest.approx(right, abs=0.05)
    assert sm.load(tmp_path / "a.smg").preprocessing == CONVENTIONS[convention]


@pytest.mark.parametrize(("scale", "shift", "inside"), first((1 / 255, 0.0, "0,1"), (1 / 127.5, -1.0, "-1,1")))
def test_a_network_with_a_rescaling_layer_takes_raw_pixels(
    scale: float, shift: float, inside: str, tmp_path: Path
) -> None:
    network = Rescaled(fitted(like_torchvision, inside), scale, shift)
    found = quantized(saved(network, tmp_path / "net.pt2"), tmp_path)
    assert (found["found"], found["convention"], found["tried"]) == ("layers", "0,255", [])
    right = accuracy(network, TESTED, CONVENTIONS["0,255"])
    assert found["float32"] == pytest.approx(right, abs=1.5 / len(TESTED))


@pytest.mark.parametrize("convention", first("imagenet", "0,255", "0,1"))
def test_without_labels_mirror_images_tell(convention: str) -> None:
    graph = sm.from_torch(fitted(like_torchvision, convention), EXAMPLE)
    found = settle_pixels(graph, SAMPLE.train.images)
    assert found is not None
    assert (found.found, found.convention) == ("mirrors", convention)
    said = rf"pixels as {convention}, the clear winner by how well \d+ images predict their mirror images: 0,255 "
    assert re.match(said, str(found))
    assert all(one.accuracy is None for one in found.tried)


def loose_images(folder: Path) -> str:
    folder.mkdir()
    for index, image in enumerate(SAMPLE.train.images[:16]):
        Image.fromarray(image).save(folder / f"{index}.png")
    return str(folder)


def test_where_no_convention_is_clear_the_command_asks_with_all_figures_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_smg(dequantized(small_network()), tmp_path / "float.smg")
    words = ("quantize", str(tmp_path / "float.smg"), "-o", str(tmp_path / "a.smg"))
    for data in ("cifar10", loose_images(tmp_path / "loose")):
        said = fail(capsys, monkeypatch, *words, "--data", data)
        assert "does not say how pixels become numbers" in said
        assert all(f" {name} " in said for name in CONVENTIONS)
        assert "--pixels" in said
        assert not (tmp_path / "a.smg").exists()
    printed = invoke(*words, "--data", "cifar10", "--pixels", "0,255")
    assert "pixels as 0,255, as given" in printed
    assert "top-1 on 256 labelled samples: " in printed
    assert sm.load(tmp_path / "a.smg").preprocessing == CONVENTIONS["0,255"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--pixels", "0,255"), CONVENTIONS["0,255"]),
        (("--pixels", "-1,1"), CONVENTIONS["-1,1"]),
        (("--pixels", "caffe"), CONVENTIONS["caffe"]),
        (("--pixels", "imagenet", "--fit", "stretch"), replace(CONVENTIONS["imagenet"], fit="stretch")),
        (("--pixels", "0,2", "--mean", "1", "--order", "bgr"), Preprocessing((1.0,), (1.0,), "bgr", (0.0, 2.0))),
        (("--mean", "0.4", "--std", "0.2"), Preprocessing((0.4,), (0.2,))),
    ],
)
def test_what_the_options_say_is_what_the_model_carries(
    options: tuple[str, ...], expected: Preprocessing, tmp_path: Path
) -> None:
    write_smg(dequantized(small_network()), tmp_path / "float.smg")
    data = loose_images(tmp_path / "loose")
    invoke("quantize", str(tmp_path / "float.smg"), "--data", data, "-o", str(tmp_path / "a.smg"), *options)
    assert sm.load(tmp_path / "a.smg").preprocessing == expected


def test_order_and_fit_hold_for_whatever_is_found(tmp_path: Path) -> None:
    path = saved(Rescaled(fitted(like_torchvision, "0,1"), 1 / 255, 0.0), tmp_path / "net.pt2")
    words = ("--data", loose_images(tmp_path / "loose"), "--order", "bgr", "--fit", "stretch")
    printed = invoke("quantize", path, *words, "-o", str(tmp_path / "a.smg"))
    assert "pixels as 0,255, which the model's first layers normalize" in printed
    assert sm.load(tmp_path / "a.smg").preprocessing == replace(CONVENTIONS["0,255"], order="bgr", fit="stretch")


def test_labels_of_other_classes_give_no_accuracy(tmp_path: Path) -> None:
    graph = replace(sm.from_torch(fitted(like_torchvision, "0,1"), EXAMPLE), preprocessing=CONVENTIONS["0,1"])
    write_smg(graph, tmp_path / "float.smg")
    few = SAMPLE.train.at([i for i, label in enumerate(SAMPLE.train.labels) if label < 3][:60])
    np.savez(tmp_path / "three.npz", x=np.stack(few.images), y=np.array(few.labels))
    words = ("--data", str(tmp_path / "three.npz"), "-o", str(tmp_path / "a.smg"), "--json")
    printed = json.loads(invoke("quantize", str(tmp_path / "float.smg"), *words))
    assert printed["report"]["accuracy"] is None
    assert printed["pixels"]["found"] == "stated"


def test_labels_that_the_model_has_no_scores_for_are_refused() -> None:
    graph = dequantized(small_network(), Preprocessing())
    beyond = Samples(SAMPLE.test.images[:3], (0, 1, 10))
    with pytest.raises(QuantizationError, match=r"3 images with labels up to 10 .* output is \[1, 10\]"):
        quantize(graph, SAMPLE.train.images[:16], labelled=beyond)


def test_an_output_that_is_no_list_of_scores_is_asked_about() -> None:
    n = FloatNet(0, (1, 8, 8, 3))
    with pytest.raises(QuantizationError, match=r"its output \[1, 8, 8, 2\] is no list of scores"):
        quantize(n.g.graph(n.conv(n.x, 2)), SAMPLE.train.images[:16])


def normalizing(scale: list[float], shift: list[float]) -> Graph:
    n = FloatNet(0, (1, 8, 8, 3))
    constants = (n.g.constant(name, np.array(held, np.float32)) for name, held in (("s", scale), ("t", shift)))
    return n.g.graph(n.conv(n.g.emit(BatchNorm(), n.x, *constants), 2))


colours = st.lists(st.floats(0.3, 0.6), min_size=3, max_size=3)
deviations = st.lists(st.floats(0.18, 0.3), min_size=3, max_size=3)


@given(colours, deviations, st.sampled_from((1.0, 255.0)))
@settings(max_examples=examples(60))
def test_first_layers_that_normalize_say_what_they_normalize(
    mean: list[float], std: list[float], largest: float
) -> None:
    """Means and deviations of photographs, of pixels 0 … 1 or 0 … 255."""
    scale = [1 / (largest * s) for s in std]
    shift = [-m / s for m, s in zip(mean, std, strict=True)]
    assert named_by_layers(normalizing(scale, shift), CONVENTIONS) == ("0,1" if largest == 1 else "0,255")


ONNX_CONSTANTS = {
    "255": np.array(255, np.float32), "1/255": np.array(1 / 255, np.float32),
    "mean": np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1),
    "std": np.array([0.229, 0.224, 0.225], np.float32).reshape(1, 3, 1, 1),
    "bytes": np.array([123.7, 116.8, 103.9], np.float32).reshape(3, 1, 1), "w": np.ones((4, 3, 3, 3), np.float32),
}  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "convention"),
    [
        ([("Mul", "1/255")], "0,255"),
        ([("Div", "255"), ("Sub", "mean"), ("Div", "std")], "0,255"),
        ([("Sub", "bytes")], "0,255"),
        ([("Sub", "mean"), ("Div", "std")], "0,1"),
        ([], None),
    ],
)
def test_the_spellings_of_a_normalization_in_onnx_files_are_understood(
    steps: list[tuple[str, str]], convention: str | None, tmp_path: Path
) -> None:
    places = ["x", *(f"v{i}" for i in range(len(steps)))]
    nodes = [helper.make_node(op, [places[i], held], [places[i + 1]]) for i, (op, held) in enumerate(steps)]
    nodes.append(helper.make_node("Conv", [places[-1], "w"], ["y"], pads=[1, 1, 1, 1]))
    (tmp_path / "net.onnx").write_bytes(onnx_model(nodes, (1, 3, 8, 8), ONNX_CONSTANTS))
    assert named_by_layers(sm.import_model(tmp_path / "net.onnx"), CONVENTIONS) == convention


def test_first_layers_that_normalize_nothing_known_say_nothing() -> None:
    for scale, shift in (([1.0] * 3, [0.0] * 3), ([40.0] * 3, [1.0] * 3), ([0.0] * 3, [1.0] * 3)):
        assert named_by_layers(normalizing(scale, shift), CONVENTIONS) is None
    assert named_by_layers(dequantized(small_network()), CONVENTIONS) is None
