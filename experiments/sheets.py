"""CIFAR-10 as it lies beside the checkout: sheets of tiles in an archive, and their labels."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from smidgen.data import Data, Samples
from smidgen.data.layouts.cifar import CLASSES, SAMPLE, tiles
from smidgen.ir import Array


def read_sheets(path: Path) -> Data:
    """To learn from and to test with."""
    with zipfile.ZipFile(path) as archive:
        return Data(SAMPLE, CLASSES, _part(archive, "train"), _part(archive, "test"))


def _part(archive: zipfile.ZipFile, part: str) -> Samples:
    images: list[Array] = []
    for name in sorted(n for n in archive.namelist() if n.startswith(part) and not n.endswith(".json")):
        with archive.open(name) as file:
            images += tiles(np.asarray(Image.open(file).convert("RGB")))
    labels = tuple(json.loads(archive.read(f"{part}_labels.json")))
    return Samples(tuple(images[: len(labels)]), labels)
