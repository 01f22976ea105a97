"""A head that is extended: the known classes score as before, new ones enter from a few examples, by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import smidgen as sm
from smidgen import cli
from smidgen.data import Data, DataError, Samples, as_input, pixel_encoding
from smidgen.frontends.native import write_smg
from smidgen.ir import Array, Graph
from smidgen.learning import extend, in_order_of, learn, same_classes
from smidgen.learning.models import MARGIN
from smidgen.targets.host import Host
from smidgen.training.head import ending_of
from tests.training.test_heads import int8, pixel, squeezed

KNOWN = ("daisy", "rose", "tulip", "iris", "lily")
HUES = {"daisy": (250, 250, 60), "rose": (220, 30, 60), "orchid": (60, 40, 230), "moss": (20, 160, 40)}


def picture(name: str, seed: int) -> Array:
    """A square of a flower's colour with noise on it."""
    noise = np.random.default_rng(seed).integers(-30, 31, (8, 8, 3))
    found: Array = np.clip(np.array(HUES[name]) + noise, 0, 255).astype(np.uint8)
    return found


def pictures(names: tuple[str, ...], count: int, first: int = 0) -> Samples:
    places = [(label, first + place) for label in range(len(names)) for place in range(count)]
    return Samples(tuple(picture(names[label], seed) for label, seed in places), tuple(label for label, _ in places))


def flowers(*names: str) -> Data:
    return Data("flowers", names, pictures(names, 5), pictures(names, 8, first=100))


def network() -> Graph:
    return replace(int8(pixel()), classes=KNOWN)


def scores(model: Graph, image: Array) -> Array:
    return sm.evaluate(model, as_input(image, pixel_encoding(model)))[0].ravel().astype(np.float64)


def test_known_classes_keep_their_scores_and_the_new_ones_examples_are_its_own() -> None:
    model, data = network(), flowers("orchid", "rose")
    extended = extend(model, data)
    assert extended.added == ("orchid",)
    assert extended.model.classes == extended.data.classes == (*KNOWN, "orchid")
    assert set(extended.data.train.labels) == {1, 5}
    step = model.scores.type.scale
    for image in (*data.train.images, *data.test.images):
        before = scores(model, image)
        inside = (before > -128) & (before < 127)  # what int8 could hold
        off = scores(extended.model, image)[:5] - (before - model.scores.type.zero) * step
        assert np.abs(off[inside]).max() <= 0.51 * step
    above = [
        scores(extended.model, x) for x, label in zip(data.train.images, data.train.labels, strict=True) if not label
    ]
    assert np.mean([one[5] - one[:5].max() for one in above]) == pytest.approx(MARGIN, abs=1e-3)


def test_a_row_reads_nothing_of_what_known_rows_read_and_is_as_long() -> None:
    extended = extend(network(), flowers("orchid", "moss")).model
    w = extended.constants[ending_of(extended).layer.ins[1]].astype(np.float64)
    known, new = w[:5], w[5:]
    norms = np.linalg.norm(known, axis=1)
    # The features are 8, so five rows leave three dimensions for what is new.
    assert np.abs(new @ known.T).max() < 1e-5 * norms.max() ** 2
    assert np.linalg.norm(new, axis=1) == pytest.approx(norms.mean(), rel=1e-5)


def test_a_single_new_class_can_be_added_and_learned_on_exactly(host: Host) -> None:
    extended = extend(network(), flowers("orchid"))
    program = sm.compile(extended.model, "head", host, options=sm.Options())
    assert program.training
    assert program.training.head.start == "keep"
    learned = learn(program, extended.data, sm.Course(2, 0.002, augment=None))
    assert learned.model.classes == (*KNOWN, "orchid")
    assert learned.accuracy == 1.0  # of pictures that are all of the new class


def test_classes_are_matched_by_name_in_whatever_order() -> None:
    model, data = network(), flowers("rose", "daisy")
    ordered = in_order_of(model, data)
    assert ordered.classes == KNOWN
    assert ordered.train.labels == tuple(1 - label for label in data.train.labels)
    assert in_order_of(model, flowers("rose", "moss")).classes == ("rose", "moss")
    assert not same_classes(model, data)
    assert same_classes(replace(model, classes=()), data)


@pytest.mark.parametrize(
    ("model", "names", "said"),
    [
        (replace(network(), classes=()), ("moss",), "does not name its 5 classes"),
        (network(), ("rose", "daisy"), "holds no class that .* lacks; it knows daisy, rose, tulip, iris, lily"),
        (replace(int8(squeezed()), classes=KNOWN), ("moss",), "more than a matrix and a softmax"),
    ],
)
def test_what_cannot_be_extended_is_said(model: Graph, names: tuple[str, ...], said: str) -> None:
    with pytest.raises(sm.InputError, match=said):
        extend(model, flowers(*names))


def save(folder: Path, names: tuple[str, ...]) -> Path:
    for split, count, first in (("train", 5, 0), ("test", 4, 50)):
        for name in names:
            (folder / split / name).mkdir(parents=True)
            for place in range(count):
                Image.fromarray(picture(name, first + place)).save(folder / split / name / f"{place}.png")
    return folder


def train(tmp_path: Path, *words: str) -> None:
    cli.app(
        ["train", str(tmp_path / "flowers.smg"), "--scheme", "head", "--lr", "0.001", *words], standalone_mode=False
    )


def test_a_class_is_added_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_smg(network(), tmp_path / "flowers.smg")
    photos = save(tmp_path / "photos", ("moss",))
    train(tmp_path, "--data", str(photos), "--head", "extend", "--epochs", "1", "-o", str(tmp_path / "out"))
    assert "knows 5 classes; added: moss" in capsys.readouterr().err
    (learned,) = (tmp_path / "out").glob("*.smg")
    assert sm.load(learned).classes == (*KNOWN, "moss")


def test_a_head_of_other_classes_is_begun_anew_and_one_of_the_same_kept(tmp_path: Path) -> None:
    names = ("daisy", "rose")
    model = replace(network(), classes=())
    write_smg(model, tmp_path / "flowers.smg")
    with pytest.raises(DataError, match="learning needs at least two"):
        train(tmp_path, "--data", str(save(tmp_path / "one", ("moss",))), "-o", str(tmp_path / "out"))
    train(tmp_path, "--data", str(save(tmp_path / "photos", names)), "--epochs", "1", "-o", str(tmp_path / "out"))
    (learned,) = (tmp_path / "out").glob("*.smg")
    assert sm.load(learned).classes == names
    again = ["train", str(learned), "--scheme", "head", "--lr", "0", "--epochs", "1", "-o", str(tmp_path / "again")]
    cli.app([*again, "--data", str(tmp_path / "photos")], standalone_mode=False)
    (kept,) = (tmp_path / "again").glob("*.smg")
    image = picture("rose", 7)
    assert np.array_equal(scores(sm.load(kept), image), scores(sm.load(learned), image))
    others = save(tmp_path / "others", ("orchid", "moss"))
    cli.app([*again[:-1], str(tmp_path / "new"), "--data", str(others)], standalone_mode=False)
    (new,) = (tmp_path / "new").glob("*.smg")
    assert not np.array_equal(scores(sm.load(new), image), scores(sm.load(learned), image))
