"""A head that is kept is checked: by name, else by its scores of training samples, whatever file it came from."""

from __future__ import annotations

import itertools
import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

import smidgen as sm
from smidgen import cli
from smidgen.data import Data, Samples
from smidgen.errors import SmidgenError
from smidgen.frontends import export_model
from smidgen.inference import scores as meaning
from smidgen.inference.evaluation import ClassesTested
from smidgen.ir import Graph
from smidgen.learning import check_head
from smidgen.learning.heads import assign, only_counts_agree, tail, weigh
from smidgen.training import HeadStart
from tests.frontends.test_keras import import_keras
from tests.learning.test_extending import HUES, flowers
from tests.support.tiers import examples
from tests.training.test_heads import int8, pixel

NAMES = ("ash", "beech", "cedar", "elm", "fir")
ORDER = ("elm", "ash", "fir", "cedar", "beech")  # in which the models score them
WIDTH = 12
CENTRES = np.random.default_rng(1).normal(size=(len(NAMES), WIDTH)).astype(np.float32)
ROWS = np.stack([CENTRES[NAMES.index(name)] for name in ORDER])
BIASES = -(ROWS**2).sum(axis=1) / 2


def leaves(each: int = 20, names: tuple[str, ...] = NAMES, spread: float = 0.5) -> Data:
    """Points around a centre for each class."""
    rng = np.random.default_rng(2)

    def part(count: int) -> Samples:
        labels = tuple(label for label in range(len(names)) for _ in range(count))
        points = CENTRES[list(labels)] + rng.normal(size=(len(labels), WIDTH)).astype(np.float32) * spread
        return Samples(tuple(points.astype(np.float32)), labels)

    return Data("leaves", names, part(each), part(4))


def accuracy(model: Graph, data: Data) -> float:
    tested = sm.test(model, data)
    assert isinstance(tested, ClassesTested)
    return tested.accuracy


def onnx_file(folder: Path) -> Path:
    from onnx import TensorProto, helper, numpy_helper, save

    weights = [numpy_helper.from_array(ROWS, "w"), numpy_helper.from_array(BIASES, "b")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, WIDTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, len(NAMES)])
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)
    graph = helper.make_graph([node], "leaves", [x], [y], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(folder / "leaves.onnx"))
    return folder / "leaves.onnx"


def module() -> Any:
    import torch

    layer = torch.nn.Linear(WIDTH, len(NAMES))
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(ROWS))
        layer.bias.copy_(torch.from_numpy(BIASES))
    return torch.nn.Sequential(layer, torch.nn.Softmax(dim=1)).eval()


def pt2_file(folder: Path) -> Path:
    import torch

    torch.export.save(torch.export.export(module(), (torch.zeros(1, WIDTH),)), folder / "leaves.pt2")
    return folder / "leaves.pt2"


def keras_file(folder: Path, suffix: str = ".keras") -> Path:
    try:
        keras = import_keras()
    except ModuleNotFoundError:
        pytest.skip("a Keras file cannot be written without Keras: pip install keras h5py")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        head = keras.layers.Dense(len(NAMES), activation="softmax")
        model = keras.Sequential([keras.Input((WIDTH,)), head])
        head.set_weights([ROWS.T, BIASES])
        model.save(folder / f"leaves{suffix}")
    return folder / f"leaves{suffix}"


def int8_file(folder: Path, suffix: str) -> Path:
    quantized = sm.quantize(sm.load(str(onnx_file(folder))), leaves().train.images).graph
    export_model(quantized, folder / f"leaves{suffix}")
    return folder / f"leaves{suffix}"


FILES: dict[str, Callable[[Path], Path]] = {
    ".onnx": onnx_file, ".pt2": pt2_file, ".keras": keras_file, ".h5": lambda folder: keras_file(folder, ".h5"),
    ".smg": lambda folder: int8_file(folder, ".smg"), ".tflite": lambda folder: int8_file(folder, ".tflite"),
}  # fmt: skip


def in_order(found: Graph) -> None:
    checked = check_head(found, leaves())
    assert checked.model.classes == checked.data.classes == ORDER
    assert checked.start is None
    assert f"of 100 training samples are right with the classes of {found.name} in this order: elm, ash, fir, " in (
        checked.note
    )
    named = accuracy(checked.model, leaves())
    assert named > 0.9 > 0.5 > accuracy(found, leaves())
    assert float(checked.note.split("%")[0]) > 90
    assert accuracy(checked.model, checked.data) == named


@pytest.mark.parametrize("suffix", FILES)
def test_the_order_of_the_classes_is_found_in_a_model_of_every_front_end(suffix: str, tmp_path: Path) -> None:
    in_order(sm.load(str(FILES[suffix](tmp_path))))


def test_the_order_of_the_classes_is_found_in_a_module() -> None:
    import torch

    in_order(sm.from_torch(module(), torch.zeros(1, WIDTH)))


@cache
def linear() -> Graph:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return sm.load(str(onnx_file(Path(folder))))


def test_silent_where_the_order_is_right_and_where_classes_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    right = leaves().arranged(ORDER)
    checked = check_head(linear(), right)
    assert (checked.note, checked.start, checked.data.classes) == ("", None, ORDER)
    monkeypatch.setattr(meaning, "scores_of", None)  # nothing is scored from here on
    named = check_head(replace(linear(), classes=ORDER), leaves())
    assert (named.note, named.start, named.data.classes) == ("", None, ORDER)
    others = check_head(replace(linear(), classes=("a", "b", "c", "d", "e")), leaves())
    assert others.start == "new"
    assert others.note == "leaves scores a, b, c, d, e, and the data has other classes; a new head is begun"
    assert check_head(linear(), leaves(), "new").note == ""
    fewer = check_head(linear(), Data("two", NAMES[:2], *(leaves().train.at(range(40)),) * 2))
    assert (fewer.note, fewer.start) == ("", None)  # the number of classes alone asks for a new head


def shuffled(data: Data, seed: int) -> Data:
    labels = tuple(int(label) for label in np.random.default_rng(seed).permutation(data.train.labels))
    return replace(data, train=replace(data.train, labels=labels))


@pytest.mark.parametrize("start", [None, "keep"])
def test_a_head_that_guesses_is_replaced_unless_it_is_asked_for(start: HeadStart | None) -> None:
    checked = check_head(linear(), shuffled(leaves(), 0), start)
    assert (checked.start, checked.data.classes, checked.model.classes) == (start or "new", NAMES, ())
    assert "the head of leaves is no better than chance in any order of the classes" in checked.note
    assert "of 100 training samples are right and 20.0% by chance" in checked.note
    assert checked.note.endswith("it is kept, as asked for" if start else "a new head is begun")
    assert checked.calibration.classes == (NAMES if start else ())


@pytest.mark.parametrize(("classes", "each"), [(2, 20), (5, 8), (40, 2)])
def test_labels_at_random_claim_an_order_at_most_once_in_a_hundred(classes: int, each: int) -> None:
    """An order judged on the samples it was found on would explain 40 classes of two samples each time."""
    rng, claimed = np.random.default_rng(0), 0
    labels = np.repeat(np.arange(classes), each)
    for _ in range(100):
        claimed += weigh(np.eye(classes)[rng.integers(0, classes, labels.size)], labels).is_clear
    assert claimed <= 1


def test_a_head_that_gives_one_class_alone_is_no_better_than_the_most_frequent_one() -> None:
    graph, data = linear(), leaves(40)
    constants = {value: np.zeros_like(array) for value, array in graph.constants.items()}
    constants = {
        value: array + (np.arange(array.size) == 3) if array.ndim == 1 else array for value, array in constants.items()
    }
    always = replace(graph, constants={value: array.astype(np.float32) for value, array in constants.items()})
    assert {int(one.argmax()) for one in (sm.evaluate(always, x[None])[0] for x in data.train.images)} == {3}
    many = replace(data, train=data.train.at([*range(40), *range(40, 200, 8)]))  # two thirds are of the first class
    assert check_head(always, many).start == "new"


def test_too_few_samples_decide_nothing() -> None:
    checked = check_head(linear(), leaves(1))
    assert (checked.start, checked.note, checked.data.classes) == (None, "", NAMES)


def test_test_samples_are_not_looked_at() -> None:
    class Unread(tuple[Any, ...]):
        def __getitem__(self, place: Any) -> Any:
            raise AssertionError("a test sample was read")

    data = leaves()
    hidden = replace(data, test=Samples(Unread(data.test.images), data.test.labels))
    assert check_head(linear(), hidden).model.classes == ORDER


def test_classes_that_are_numbers_keep_their_numbers_and_are_tested_by_name() -> None:
    numbered = replace(leaves(), classes=("0", "1", "2", "3", "4"))
    checked = check_head(linear(), numbered)
    assert checked.model.classes == checked.data.classes == ("3", "0", "4", "2", "1")
    assert accuracy(checked.model, numbered) > 0.9


def test_one_score_of_two_classes_may_stand_for_the_other_one() -> None:
    import torch

    layer = torch.nn.Linear(WIDTH, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy((CENTRES[0] - CENTRES[1])[None]))
        layer.bias.copy_(torch.from_numpy(((CENTRES[1] ** 2 - CENTRES[0] ** 2).sum() / 2)[None]))
    model = sm.from_torch(torch.nn.Sequential(layer, torch.nn.Sigmoid()).eval(), torch.zeros(1, WIDTH))
    data = Data("two", NAMES[:2], leaves().train.at(range(40)), leaves().test.at(range(8)))
    checked = check_head(model, data)  # the score is high for the first class, and stands for the second
    assert checked.model.classes == checked.data.classes == ("beech", "ash")
    assert accuracy(checked.model, data) == 1


def test_a_stream_is_not_scored_sample_by_sample() -> None:
    assert only_counts_agree(linear(), leaves())
    assert not only_counts_agree(linear(), leaves(), "new")
    assert not only_counts_agree(linear(), replace(leaves(), classes=()))


@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=examples(60))
def test_an_assignment_is_the_best_of_all(n: int, seed: int, whole: bool) -> None:
    rng = np.random.default_rng(seed)
    gains = rng.integers(0, 4, (n, n)).astype(float) if whole else rng.normal(size=(n, n))
    found = assign(gains)
    assert sorted(found) == list(range(n))
    best = max(gains[range(n), order].sum() for order in itertools.permutations(range(n)))
    assert gains[range(n), found].sum() == pytest.approx(best, abs=1e-9)


def test_a_thousand_classes_are_put_in_order() -> None:
    rng = np.random.default_rng(0)
    order = rng.permutation(1000)
    gains = rng.random((1000, 1000)) * 0.9
    gains[np.arange(1000), order] += 0.2 + rng.random(1000)
    assert gains[np.arange(1000), assign(gains)].sum() >= gains[np.arange(1000), order].sum()


def test_the_tail_is_that_of_coins_and_dice() -> None:
    assert tail(10, 10, 0.5) == pytest.approx(2**-10)
    assert tail(1, 4, 1 / 6) == pytest.approx(1 - (5 / 6) ** 4)
    assert tail(0, 7, 0.3) == 1 == pytest.approx(tail(5, 9, 0.5) + tail(5, 9, 0.5))


def taught(*names: str) -> Graph:
    """An int8 network that learned these colours in one pass, in their order; the scores are not named."""
    data = flowers(*names)
    program = sm.compile(int8(pixel()), "head", options=sm.Options(len(names)), one_pass=True)
    learned = sm.learn(program, data)
    assert learned.accuracy == 1
    return replace(learned.model, classes=(), name="colours")


def sorted_flowers() -> Data:
    data = flowers(*HUES)
    return replace(data, train=data.train.at([*range(20)] * 3)).arranged(tuple(sorted(HUES)))


def test_a_fit_keeps_the_head_of_a_model_whose_classes_stand_in_another_order(tmp_path: Path) -> None:
    model, data = taught(*HUES), sorted_flowers()
    found = sm.fit(model, data, tmp_path / "out", budget="64KB", effort="quick", epochs=1)
    order = tuple(HUES)
    assert f"are right with the classes of colours in this order: {', '.join(order)}; " in str(found)
    assert found.learned.first.accuracy == 1  # before it learns
    assert sm.load(str(tmp_path / "out" / "model.smg")).classes == order
    learned = sm.load(str(tmp_path / "out" / "learned.smg"))
    assert learned.classes == order
    assert accuracy(learned, data) == found.learned.last.accuracy
    again = sm.fit(model, data, tmp_path / "out", budget="64KB", effort="quick", epochs=1)
    assert all(stage.reused for stage in again.stages)


def write_pictures(data: Data, folder: Path) -> None:
    for split, samples in (("train", data.train), ("test", data.test)):
        for place, (image, label) in enumerate(zip(samples.images, samples.labels, strict=True)):
            file = folder / split / data.classes[label] / f"{place}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)


def test_training_finds_the_order_and_names_given_decide_without_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    export_model(taught(*HUES), Path("colours.smg"))
    write_pictures(sorted_flowers(), Path("photos"))
    words = ["train", "colours.smg", "--data", "photos", "--scheme", "head", "--lr", "1e-9", "--epochs", "1", "--json"]
    found = CliRunner().invoke(cli.app, [*words, "-o", "found"], catch_exceptions=False)
    assert "of 60 training samples are right with the classes of colours in this order: daisy, rose, " in found.stderr
    named = CliRunner().invoke(
        cli.app, [*words, "-o", "named", "--class-names", ",".join(HUES)], catch_exceptions=False
    )
    assert "training samples" not in named.stderr
    assert json.loads(found.stdout)["before"] == json.loads(named.stdout)["before"] == 1
    assert Path("found/colours.smg").read_bytes() == Path("named/colours.smg").read_bytes()
    wrong = CliRunner().invoke(
        cli.app, [*words, "-o", "wrong", "--class-names", ",".join(sorted(HUES))], catch_exceptions=False
    )
    assert json.loads(wrong.stdout)["before"] == 0.5  # names that are given are believed


def test_a_fit_extends_a_head_where_every_class_has_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    export_model(taught("daisy", "rose", "moss"), Path("colours.smg"))
    write_pictures(sorted_flowers(), Path("photos"))
    words = ["fit", "colours.smg", "--data", "photos", "--head", "extend", "--budget", "64KB", "--effort", "quick"]
    words += ["--lr", "1e-9", "--epochs", "1", "--class-names", "daisy,rose,moss", "--json", "-o", "out"]
    found = CliRunner().invoke(cli.app, words, catch_exceptions=False)
    assert "colours knows 3 classes; added: orchid" in found.stderr
    shown = json.loads(found.stdout)
    assert (shown["model"]["head"], shown["model"]["classes"]) == ("keep", ["daisy", "rose", "moss", "orchid"])
    assert shown["learned"]["before"] > 0.75  # from prototypes
    shutil.rmtree("photos/train/rose")
    shutil.rmtree("photos/test/rose")
    with pytest.raises(SmidgenError, match="photos holds no samples of 'rose', which colours knows; add some of each"):
        CliRunner().invoke(cli.app, words, catch_exceptions=False)


def test_a_float_network_that_does_not_say_its_pixels_is_read_as_explains_them_best() -> None:
    import torch

    data = sorted_flowers()
    colours = np.stack([image.mean(axis=(0, 1)) for image in data.train.images])  # of 0 to 255
    wanted = np.eye(len(HUES))[[list(HUES).index(data.classes[label]) for label in data.train.labels]]
    fitted = np.linalg.lstsq(np.c_[colours, np.ones(len(colours))], wanted, rcond=None)[0].astype(np.float32)
    layer = torch.nn.Linear(3, len(HUES))
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(fitted[:3].T))
        layer.bias.copy_(torch.from_numpy(fitted[3]))
    network = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), layer)
    checked = check_head(sm.from_torch(network.eval(), torch.zeros(1, 3, 8, 8)), data)
    assert checked.model.classes == checked.data.classes == tuple(HUES)
    assert checked.model.preprocessing is None  # which pixels it takes is found when it is quantized
    assert checked.note.startswith("100.0% of 60 ")
