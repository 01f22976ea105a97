"""CIFAR-10 as it lies beside the checkout: sheets of tiles in an archive, and their labels."""

from __future__ import annotations

import argparse
import json
import zipfile

import numpy as np
from PIL import Image

from shared import SHARED, images_of
from smidgen.data import Data, Samples
from smidgen.data.sample import CLASSES, NAME, tiles
from smidgen.ir import Array

KEPT = "cifar10.zip"
PATH = SHARED / "data" / KEPT


def pictures_of(given: argparse.Namespace) -> Data:
    """The images asked for, or the 10,000 and 2,000 beside the checkout, or the sample."""
    if given.data is not None or not PATH.exists():
        return images_of(given, KEPT)
    return kept_pictures()


def kept_pictures() -> Data:
    """The 10,000 and 2,000 beside the checkout."""
    with zipfile.ZipFile(PATH) as archive:
        return Data(NAME, CLASSES, _zipped(archive, "train"), _zipped(archive, "test"))


def _zipped(archive: zipfile.ZipFile, part: str) -> Samples:
    names = sorted(n for n in archive.namelist() if part in n and not n.endswith("/"))
    images: list[Array] = []
    for name in names:
        if not name.endswith(".json"):
            with archive.open(name) as file:
                images += tiles(np.asarray(Image.open(file).convert("RGB")))
    labels = json.loads(archive.read(next(n for n in names if n.endswith(".json"))))
    return Samples(tuple(images[: len(labels)]), tuple(labels))
