"""The networks and images that tables are measured on: beside the checkout, or wherever a person says they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import smidgen as sm
from experiments.paper.tables import SETS
from experiments.sheets import read_sheets
from smidgen.data import Data, DataError, Samples, load_data
from smidgen.errors import InputError
from smidgen.ir import Graph

SHARED = Path(__file__).parents[3] / "shared"
SHEETS = "cifar10"  # which lies there as sheets of tiles


@cache
def network_of(name: str) -> Graph:
    """One of the paper's backbones with its ImageNet weights, or where these are absent with those of the zoo."""
    path = SHARED / "models" / f"{name}.npz"
    return sm.import_model(path) if path.exists() else sm.load(name)


class DataSets:
    """The data by name, each read when it is first needed; `cifar10:3,5` is two classes of cifar10."""

    def __init__(self, given: Sequence[str] = ()) -> None:
        pairs = [one.partition("=") for one in given]
        for name, _, path in pairs:
            if not name or not path:
                raise InputError(f"'{name}' does not say where a data set lies; give NAME=PATH")
        self._paths = {name: path for name, _, path in pairs}
        self.load: Callable[[str], Data] = cache(self._load)

    def _load(self, name: str) -> Data:
        whole, _, classes = name.partition(":")
        if classes:
            return some_classes(self.load(whole), tuple(int(c) for c in classes.split(",")))
        if whole in self._paths:
            return load_data(self._paths[whole])
        beside = SHARED / "data" / f"{whole}.zip"
        if whole not in SETS or not beside.exists():
            raise InputError(f"the data set {whole} is not beside the checkout; give --data {whole}=PATH")
        return read_sheets(beside) if whole == SHEETS else load_data(beside)


def some_classes(data: Data, chosen: tuple[int, ...]) -> Data:
    """The samples of these classes, numbered anew in the order given."""
    if max(chosen) >= len(data.classes):
        raise DataError(f"{data.name} has {len(data.classes)} classes, there is no class {max(chosen)} to learn")
    parts = []
    for samples in (data.train, data.test):
        kept = samples.at(i for i, label in enumerate(samples.labels) if label in chosen)
        parts.append(Samples(kept.images, tuple(chosen.index(label) for label in kept.labels)))
    return Data(data.name, tuple(data.classes[c] for c in chosen), *parts)
