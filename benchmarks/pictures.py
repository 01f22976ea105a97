"""CIFAR-10 beside the checkout, or other images that a person asks for."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shared import SHARED, images_of
from smidgen.data import Data

sys.path.append(str(Path(__file__).parents[1]))
from experiments.sheets import read_sheets

KEPT = "cifar10.zip"
PATH = SHARED / "data" / KEPT


def pictures_of(given: argparse.Namespace) -> Data:
    """The images asked for, or the 10,000 and 2,000 beside the checkout, or the sample."""
    if given.data is not None or not PATH.exists():
        return images_of(given, KEPT)
    return read_sheets(PATH)
