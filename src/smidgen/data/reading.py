"""Folders, archives, arrays and tables of samples → Data."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from smidgen.data import sample
from smidgen.data.arrays import read_arrays, read_x
from smidgen.data.budget import MEMORY, Budget
from smidgen.data.decoding import SHORT_SIDE
from smidgen.data.files import CORRUPT_ZIP, first_line
from smidgen.data.folders import IMAGES, SPLITS, FileKind, check_listed, kind_of_files, list_by_label
from smidgen.data.layouts import Listing, recognize
from smidgen.data.samples import Data, DataError, Given, Labelled, Samples, evenly
from smidgen.data.tables import SUFFIX, read_table
from smidgen.data.trees import PACKED, SampleFile, Tree, folder_tree, whole_file, zip_tree
from smidgen.ir import Array

ARRAYS = (".npz", ".npy")
TABLES = tuple(f"{split}{SUFFIX}" for split in SPLITS)  # in a folder, to learn from and to test with
SOURCES = f"give a folder of images or recordings, a .zip of one, an .npz, .npy or .csv file, or '{sample.NAME}'"


def load_data(source: str | Path, memory: int = MEMORY, short_side: int = SHORT_SIDE, label: str | None = None) -> Data:
    """A folder of files by label or a published data set, a .zip of either, arrays, a table, or "cifar10".

    That name stands for the sample that comes with Smidgen, `./cifar10` for a folder. `docs/data.md` says how each is
    laid out. Published data sets are recognized by their files and read in their official splits; of anything else
    every fifth sample of each class is held out where there are none to test with. Classes are numbered in the order
    of their names, by value where all are numbers. `label` names the columns of a table that tell what is to be
    learned. Image files with a longer short side than `short_side` are reduced to it. All samples together may take
    so many bytes of `memory`.
    """
    if source == sample.NAME:
        return sample.read_sample()
    path, budget = _named_path(source), Budget(memory, DataError)
    with _opened(path, budget, label) as held:
        if isinstance(held, Given):
            return Data(str(path), held.classes, *held.divided())
        if found := recognize(held):
            return _data_of(str(path), IMAGES, found[0].read(found[1]), budget, short_side)
        return _data_from_files(held, short_side)


def load_images(source: str | Path, most: int, memory: int = MEMORY, label: str | None = None) -> tuple[Array, ...]:
    """Up to so many samples without their labels, evenly from all there are: what `load_data` reads, and any folder.

    Where there are some to learn from and others to test with, they are of the former. What is read may take so many
    bytes of `memory`.
    """
    if source == sample.NAME:
        return tuple(evenly(sample.read_sample().train.images, most))
    path, budget = _named_path(source), Budget(memory, DataError)
    with _opened(path, budget, label, known=False) as held:
        return tuple(evenly(held.train.images, most)) if isinstance(held, Given) else _some_of_files(held, most)


def load_labelled(source: str | Path, most: int, memory: int = MEMORY, label: str | None = None) -> Labelled | None:
    """Up to so many samples with their classes, evenly from those to test with; None where they have no classes.

    It reads what `load_data` reads. Where there is nothing to test with, they are of those to learn from.
    """
    if source == sample.NAME:
        return _labelled(sample.read_sample(), most)
    path, budget = _named_path(source), Budget(memory, DataError)
    with _opened(path, budget, label) as held:
        if isinstance(held, Given):
            return held.labelled(most)
        found, kind = recognize(held), kind_of_files(held)
        listed = found[0].read(found[1]) if found else list_by_label(held, kind)
        if isinstance(listed, Data):
            return _labelled(listed, most)
        if listed is None or len(listed.classes) < 2:
            return None
        files, labels = zip(*evenly(listed.test or listed.train, most), strict=True)
        return Labelled(listed.classes, Samples(kind.read(files, budget, SHORT_SIDE), labels))


def _labelled(data: Data, most: int) -> Labelled:
    return Labelled(data.classes, data.test.spread(most))


def _data_of(name: str, kind: FileKind, found: Listing | Data, budget: Budget, side: int) -> Data:
    """What a layout lists, read."""
    if isinstance(found, Data):
        return replace(found, name=name)
    samples = kind.read([file for file, _ in (*found.train, *found.test)], budget, side)
    cut = len(found.train)
    parts = (
        Samples(held, tuple(label for _, label in part))
        for held, part in ((samples[:cut], found.train), (samples[cut:], found.test))
    )
    return Data(name, found.classes, *parts)


def _some_of_files(tree: Tree, most: int) -> tuple[Array, ...]:
    """Some of the files of a tree, whether or not they lie in folders by label."""
    if found := recognize(tree):
        listed = found[0].read(found[1])
        if isinstance(listed, Data):
            return tuple(evenly(listed.train.images, most))
        return IMAGES.read([file for file, _ in evenly(listed.train, most)], tree.budget, SHORT_SIDE)
    kind = kind_of_files(tree)
    files = sorted(tree.ending(kind.suffixes), key=lambda file: file.name)
    learned = [file for file in files if SPLITS[0] in file.parts[:-1]]
    if not files:
        way_out = _packed(tree) or "put some there, with or without subfolders"
        raise DataError(f"{tree.where} holds no {kind.called}; {way_out}")
    return kind.read(evenly(learned or files, most), tree.budget, SHORT_SIDE)


def _data_from_files(tree: Tree, side: int) -> Data:
    kind = kind_of_files(tree)
    listed = list_by_label(tree, kind)
    if listed is None:
        count = len(tree.ending(kind.suffixes))
        found = f"{count} {kind.called}, none in a folder by its label" if count else f"no {kind.called}"
        raise DataError(f"{tree.where} holds {found}; {_packed(tree) or kind.layout}")
    check_listed(tree.where, kind, listed)
    return _data_of(tree.where, kind, listed, tree.budget, side)


def _packed(tree: Tree) -> str:
    """What to unpack where a folder holds archives instead of samples; nothing where there are none."""
    return f"{tree.way_out()}, and give the folder" if tree.packed() else ""


def _named_path(source: str | Path) -> Path:
    if source == "":  # as a path it would be the working folder
        raise DataError(f"no data are named; {SOURCES}")
    return Path(source)


@contextmanager
def _opened(path: Path, budget: Budget, label: str | None, known: bool = True) -> Iterator[Given | Tree]:
    """What a file of arrays or a table holds, or the files of a folder or an archive, which can be read meanwhile.

    Of arrays only the samples are read where nothing needs to be `known` of them. What goes wrong is said in one
    sentence.
    """
    _check_named(path)
    suffix = "" if path.is_dir() else path.suffix.lower()
    try:
        with zipfile.ZipFile(path) if suffix == ".zip" else nullcontext() as archive:
            if suffix in ARRAYS:
                held: Given | Tree = read_arrays(path, budget) if known else Given((), read_x(path, budget))
            elif suffix == SUFFIX:
                held = read_table([SampleFile(str(path), partial(whole_file, path, budget))], budget, label)
            else:
                held = folder_tree(path, budget) if archive is None else zip_tree(path, archive, budget)
                if all(name in held for name in TABLES):
                    held = read_table([held.file(name) for name in TABLES], budget, label)
            if label is not None and not (isinstance(held, Given) and suffix not in ARRAYS):
                raise DataError(f"{path} is no table, so column {label[:40]!r} cannot be chosen; leave --label out")
            yield held
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except CORRUPT_ZIP as error:
        if suffix not in (".zip", ".npz"):
            raise
        raise DataError(f"{path} is not a complete archive: {first_line(error)}") from None


def _check_named(path: Path) -> None:
    """Raise DataError unless there is something at a path that can be read by its name."""
    if not path.exists():
        raise DataError(f"there is no {path}; {SOURCES}")
    if path.is_dir():
        return
    if path.name.lower().endswith(PACKED) and path.suffix.lower() != ".zip":
        raise DataError(f"{path} is packed in a way that is not read; unpack it, and give the folder")
    if path.suffix.lower() not in (".zip", SUFFIX, *ARRAYS):
        raise DataError(f"{path} is neither a folder nor a .zip, .npz, .npy or .csv file; {IMAGES.layout}")
