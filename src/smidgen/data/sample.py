"""The images that come with Smidgen: 1,000 of CIFAR-10 to learn from and 500 to test with (Krizhevsky 2009)."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
from PIL import Image

from smidgen.data.samples import Data, Samples
from smidgen.ir import Array

NAME = "cifar10"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32


def read_sample() -> Data:
    """The sample, from the sheets in this package."""
    folder = files("smidgen.data") / NAME
    labels = json.loads((folder / "labels.json").read_text())
    parts = []
    for part in ("train", "test"):
        with (folder / f"{part}.webp").open("rb") as file:
            parts.append(Samples(tiles(np.asarray(Image.open(file).convert("RGB"))), tuple(labels[part])))
    return Data(NAME, CLASSES, *parts)


def tiles(sheet: Array) -> tuple[Array, ...]:
    """A sheet's images, row by row."""
    rows, columns = sheet.shape[0] // SIDE, sheet.shape[1] // SIDE
    grid = sheet.reshape(rows, SIDE, columns, SIDE, 3).swapaxes(1, 2)
    return tuple(np.ascontiguousarray(tile) for tile in grid.reshape(rows * columns, SIDE, SIDE, 3))
