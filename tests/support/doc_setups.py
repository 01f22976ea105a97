"""Files that pages expect: pictures, models, tables and audio under the names they use."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from smidgen.frontends import export_model
from smidgen.frontends.network import build
from smidgen.ir import Graph
from smidgen.ir.preprocessing import Preprocessing
from smidgen.zoo.draw import draw
from smidgen.zoo.tables import BlockTable, Stage
from tests.support.float_graphs import dequantized
from tests.support.house import TOP
from tests.support.networks import branches, inverted_residual
from tests.support.shapes import SIDE, draw_shape
from tests.support.wav_files import write_words

EACH = 20  # pictures of a class
PHOTOS = {"apple": "disc", "banana": "cross", "lime": "ring"}  # classes, and what they look like


def photos(folder: Path) -> None:
    """`photos/`: apple, banana and lime, twenty pictures each; and one by itself, `photo.jpg`."""
    rng = np.random.default_rng(0)
    for name, shape in PHOTOS.items():
        (folder / "photos" / name).mkdir(parents=True)
        for index in range(EACH):
            Image.fromarray(draw_shape(shape, rng)).save(folder / "photos" / name / f"{index:02}.png")
    Image.fromarray(draw_shape("disc", rng)).save(folder / "photo.jpg")


def _classifier() -> Graph:
    """A small network of random weights for 32×32 pictures, with a score for each class of `photos/`."""
    stages = (Stage(1, 3, 2, 16), Stage(3, 3, 2, 24), Stage(2, 3, 1, 24))
    return build(draw(BlockTable(8, stages), SIDE, len(PHOTOS), seed=3), "model")


def onnx(folder: Path) -> None:
    """`model.onnx`: a small classifier in float32."""
    export_model(dequantized(_classifier(), Preprocessing(range=(-1, 1))), folder / "model.onnx")


def tflite(folder: Path) -> None:
    """`model.tflite`: the same in int8."""
    export_model(_classifier(), folder / "model.tflite")


def model(folder: Path) -> None:
    """`model.onnx` in float32, `model.tflite` and `model.smg` in int8."""
    onnx(folder)
    tflite(folder)
    export_model(_classifier(), folder / "model.smg")


def keras(folder: Path) -> None:
    """`model.keras`, as Keras wrote it."""
    shutil.copy(TOP / "tests" / "corpus" / "keras" / "nested.keras", folder / "model.keras")


def two_models(folder: Path) -> None:
    """`words.smg` and `people.smg`, of tensors of 8×8 pixels."""
    export_model(inverted_residual(3), folder / "words.smg")
    export_model(branches(3), folder / "people.smg")


def motions(folder: Path) -> None:
    """An accelerometer's recordings: rows of `motions.csv`, `recordings/`, and a network for them, `motions.onnx`."""
    from tests.support.motions import draw_motions, write_onnx, write_recordings, write_rows  # which import PyTorch

    table = write_rows(folder / "motions.csv", *draw_motions(20))
    table.write_text(table.read_text().replace(",motion\n", ",activity\n", 1))
    write_recordings(folder / "recordings", *draw_motions(20))
    write_onnx(folder / "motions.onnx", dense=True)


def words(folder: Path) -> None:
    """`words/`: three classes of six recordings of a second."""
    write_words(folder / "words", 6)


SETUPS: dict[str, Callable[[Path], None]] = {
    "photos": photos,
    "model": model,
    "onnx": onnx,
    "tflite": tflite,
    "keras": keras,
    "two models": two_models,
    "motions": motions,
    "words": words,
}
