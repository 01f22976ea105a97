"""Oxford Flowers-102: jpg/image_00001.jpg …, imagelabels.mat and setid.mat.

Images to learn from are those of `trnid` and `valid` together, as in the paper; `tstid` are to test with. The publisher
numbers the classes from 1 and gives them no names: class 1 is label 0.
"""

from __future__ import annotations

import numpy as np

from smidgen.data.layouts.listing import Entry, Layout, Listing, Part, check_classes, list_images
from smidgen.data.layouts.matlab import Value, read_mat
from smidgen.data.samples import DataError
from smidgen.data.trees import Tree
from smidgen.ir import Array

LABELS, SPLIT = "imagelabels.mat", "setid.mat"


def _read(tree: Tree) -> Listing:
    labels = _whole_numbers(_variables(tree, LABELS, "labels")[0], LABELS, tree)
    trained, validated, tested = (
        _whole_numbers(value, SPLIT, tree) for value in _variables(tree, SPLIT, "trnid", "valid", "tstid")
    )
    check_classes(tree, int(labels.max()))
    classes = [str(number) for number in range(1, 1 + int(labels.max()))]
    parts = [
        Part(SPLIT, [_entry(tree, int(place), labels) for place in places])
        for places in ([*trained, *validated], tested)
    ]
    return list_images(tree, classes, *parts)


def _variables(tree: Tree, file: str, *names: str) -> list[Value]:
    found = read_mat(tree.read(file), f"{file} in {tree.where}", tree.budget.copy(), names)
    return [found[name] for name in names]


def _whole_numbers(value: Value, source: str, tree: Tree) -> Array:
    if isinstance(value, str | tuple | dict) or not value.size or not _counts(value):
        raise DataError(f"{source} in {tree.where} holds something else than numbers from 1; {tree.way_out()}")
    return value.astype(int)


def _counts(value: Array) -> bool:
    """Whether all are whole numbers from 1."""
    finite = bool(np.isfinite(value).all())
    return finite and value.min() >= 1 and value.max() < 2**31 and not (value % 1).any()


def _entry(tree: Tree, place: int, labels: Array) -> Entry:
    if place > len(labels):
        raise DataError(
            f"{SPLIT} in {tree.where} names image {place:,}, {LABELS} has {len(labels):,} labels; the two are not of "
            "one data set"
        )
    return Entry(f"jpg/image_{place:05d}.jpg", int(labels[place - 1]) - 1)


LAYOUT = Layout("Flowers-102", (LABELS, SPLIT), _read)
