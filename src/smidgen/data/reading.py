"""Folders, archives and arrays of images → Data."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from smidgen.data import sample
from smidgen.data.archives import named, unfold
from smidgen.data.budget import MEMORY, Budget
from smidgen.data.decoding import SHORT_SIDE, check_all, decode_all
from smidgen.data.files import CORRUPT_ZIP, first_line, parse_npy
from smidgen.data.layouts import Listing, recognize
from smidgen.data.samples import MAX_CLASSES, Data, DataError, Labelled, Samples, evenly, hold_out
from smidgen.data.trees import PACKED, ImageFile, Tree, folder_tree, zip_tree
from smidgen.errors import ImportModelError
from smidgen.ir import Array

SPLITS = ("train", "test")
LAYOUT = "put images in train/<label>/ and test/<label>/, or in <label>/"


def load_data(source: str | Path, memory: int = MEMORY, short_side: int = SHORT_SIDE) -> Data:
    """A folder of images by label or a published data set, a .zip of either, an .npz of arrays, or "cifar10".

    That name stands for the sample that comes with Smidgen, `./cifar10` for a folder. Published data sets, which
    `docs/data.md` lists, are recognized by their files and read in their official splits. Of other folders, and of
    arrays x and y, every fifth image of each class is held out where there are no images to test with, and classes are
    numbered in the order of the folders' names, by value where all are numbers. Image files with a longer
    short side than `short_side` are reduced to it. All images together may take so many bytes of `memory`.
    """
    if source == sample.NAME:
        return sample.read_sample()
    path, budget = _named_path(source), Budget(memory, DataError)
    with _open_archive(path) as archive:
        if archive is not None and path.suffix.lower() == ".npz":
            return _data_from_arrays(path, archive, budget)
        tree = folder_tree(path, budget) if archive is None else zip_tree(path, archive, budget)
        if found := recognize(tree):
            return _data_of(str(path), found[0].read(found[1]), budget, short_side)
        return _data_from_files(tree, short_side)


def load_images(source: str | Path, most: int, memory: int = MEMORY) -> tuple[Array, ...]:
    """Up to so many images without their labels, evenly from all there are: what `load_data` reads, and any folder.

    Where there are images to learn from and others to test with, they are of the former. Array x of an .npz may also
    hold float32 tensors as a model takes them. What is read may take so many bytes of `memory`.
    """
    if source == sample.NAME:
        return tuple(evenly(sample.read_sample().train.images, most))
    path, budget = _named_path(source), Budget(memory, DataError)
    with _open_archive(path) as archive:
        if archive is not None and path.suffix.lower() == ".npz":
            return tuple(evenly(_images_of_arrays(path, archive, budget), most))
        tree = folder_tree(path, budget) if archive is None else zip_tree(path, archive, budget)
        if found := recognize(tree):
            listed = found[0].read(found[1])
            if isinstance(listed, Data):
                return tuple(evenly(listed.train.images, most))
            return _decoded([file for file, _ in evenly(listed.train, most)], budget)
        files = sorted(tree.images(), key=lambda file: file.name)
        learned = [file for file in files if SPLITS[0] in file.parts[:-1]]
        if not files:
            raise DataError(f"{path} holds no images; {_packed(tree) or 'put some there, with or without subfolders'}")
        return _decoded(evenly(learned or files, most), budget)


def load_labelled(source: str | Path, most: int, memory: int = MEMORY) -> Labelled | None:
    """Up to so many images with their classes, evenly from those to test with; None where images have no labels.

    It reads what `load_data` reads. Where there is nothing to test with, they are of those to learn from.
    """
    if source == sample.NAME:
        return _labelled(sample.read_sample(), most)
    path, budget = _named_path(source), Budget(memory, DataError)
    with _open_archive(path) as archive:
        if archive is not None and path.suffix.lower() == ".npz":
            named = set(_npy_members(path, archive, Budget(memory, DataError)))
            return _labelled(_data_from_arrays(path, archive, budget), most) if named & {"y", "y_train"} else None
        tree = folder_tree(path, budget) if archive is None else zip_tree(path, archive, budget)
        found = recognize(tree)
        listed = found[0].read(found[1]) if found else _listed(tree)
        if isinstance(listed, Data):
            return _labelled(listed, most)
        if listed is None or len(listed.classes) < 2:
            return None
        files, labels = zip(*evenly(listed.test or listed.train, most), strict=True)
        return Labelled(listed.classes, Samples(_decoded(list(files), budget), labels))


def _labelled(data: Data, most: int) -> Labelled:
    return Labelled(data.classes, data.test.spread(most))


def _decoded(files: list[ImageFile], budget: Budget) -> tuple[Array, ...]:
    check_all(files, budget)
    return decode_all(files, budget)


def _data_of(name: str, found: Listing | Data, budget: Budget, side: int) -> Data:
    """What a layout lists, read."""
    if isinstance(found, Data):
        return replace(found, name=name)
    check_all([file for file, _ in (*found.train, *found.test)], budget, side)
    parts = (
        Samples(decode_all([file for file, _ in part], budget, side), tuple(label for _, label in part))
        for part in (found.train, found.test)
    )
    return Data(name, found.classes, *parts)


def _packed(tree: Tree) -> str:
    """What to unpack where a folder holds archives instead of images; nothing where there are none."""
    return f"{tree.way_out()}, and give the folder" if tree.packed() else ""


def _images_of_arrays(path: Path, archive: zipfile.ZipFile, budget: Budget) -> list[Array]:
    members = _npy_members(path, archive, budget)
    name = next((name for name in ("x", "x_train") if name in members), None)
    if name is None:
        raise DataError(f"{path} holds no array x of images; store uint8[count, height, width, 3]")
    x = _parse_array(unfold(archive, members[name], budget), f"{name} in {path}")
    if x.dtype == np.float32 and x.ndim > 1:
        return list(x)
    return list(_samples_from_arrays(x, np.zeros(x.shape[:1], np.int64), f"{name} in {path}").images)


def _npy_members(path: Path, archive: zipfile.ZipFile, budget: Budget) -> dict[str, zipfile.ZipInfo]:
    return {name.removesuffix(".npy"): m for name, m in named(archive.infolist(), str(path), budget).items()}


def _named_path(source: str | Path) -> Path:
    if source == "":  # as a path it would be the working folder
        raise DataError(f"no images are named; give a folder of images, a .zip of one, an .npz, or '{sample.NAME}'")
    return Path(source)


@contextmanager
def _open_archive(path: Path) -> Iterator[zipfile.ZipFile | None]:
    """An archive to read from, or None for a folder; what goes wrong meanwhile is said in one sentence."""
    try:
        if path.is_dir():
            yield None
            return
        if not path.exists():
            raise DataError(f"there is no {path}; give a folder of images, a .zip of one, an .npz, or '{sample.NAME}'")
        if path.name.lower().endswith(PACKED) and path.suffix.lower() != ".zip":
            raise DataError(f"{path} is packed in a way that is not read; unpack it, and give the folder")
        if path.suffix.lower() not in (".zip", ".npz"):
            raise DataError(f"{path} is neither a folder nor a .zip or .npz file; {LAYOUT}")
        with zipfile.ZipFile(path) as archive:
            yield archive
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except CORRUPT_ZIP as error:
        raise DataError(f"{path} is not a complete archive: {first_line(error)}") from None


def _data_from_files(tree: Tree, side: int) -> Data:
    listed = _listed(tree)
    if listed is None:
        files = tree.images()
        found = f"{len(files)} images, none in a folder by its label" if files else "no images"
        raise DataError(f"{tree.where} holds {found}; {_packed(tree) or LAYOUT}")
    _check_groups(tree.where, listed)
    return _data_of(tree.where, listed, tree.budget, side)


def _listed(tree: Tree) -> Listing | None:
    """The images in folders by their label; None where there are no such folders."""
    files = tree.images()
    divided = [file for file in files if len(file.parts) > 2 and file.parts[-3] in SPLITS]
    used = divided or _in_label_folders(files)
    if not used:
        return None
    classes = _sorted_labels({file.label for file in used})
    if len(classes) > MAX_CLASSES:
        raise DataError(f"{tree.where} holds {len(classes):,} labels; up to {MAX_CLASSES:,} can be learned")
    number = {label: index for index, label in enumerate(classes)}
    used.sort(key=lambda file: (number[file.label], file.name))
    if divided:
        groups = [[file for file in used if file.parts[-3] == split] for split in SPLITS]
    else:
        groups = [[used[i] for i in part] for part in hold_out(number[file.label] for file in used)]
    return Listing(classes, *(tuple((file, number[file.label]) for file in group) for group in groups))


def _check_groups(name: str, listed: Listing) -> None:
    """Raise DataError where images are divided into folders to learn from and to test with, and one lacks some."""
    divided = any(len(file.parts) > 2 and file.parts[-3] in SPLITS for file, _ in (*listed.train, *listed.test))
    for split, group in zip(SPLITS, (listed.train, listed.test), strict=True):
        if divided and not group:
            raise DataError(f"{name} holds no images in {split}/; {LAYOUT}")
    unlearned = {file.label for file, _ in listed.test} - {file.label for file, _ in listed.train}
    if divided and unlearned:
        raise DataError(f"{name} has test images of label {min(unlearned)!r} but none in train/")


def _in_label_folders(files: list[ImageFile]) -> list[ImageFile]:
    """Files that lie in a folder of their label, below folders all of them share."""
    depth = max((len(file.parts) for file in files), default=0)
    uniform = all(len(file.parts) == depth and file.parts[:-2] == files[0].parts[:-2] for file in files)
    return [file for file in files if len(file.parts) == (depth if uniform else 2)] if depth > 1 else []


def _sorted_labels(labels: set[str]) -> tuple[str, ...]:
    if all(label.isdecimal() for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))


def _data_from_arrays(path: Path, archive: zipfile.ZipFile, budget: Budget) -> Data:
    members = _npy_members(path, archive, budget)
    renamed = {"x_train": "x", "y_train": "y"}
    members = {renamed.get(name, name): m for name, m in members.items()}
    wanted = [name for name in ("x", "y", "x_test", "y_test") if name in members]
    if wanted not in (["x", "y"], ["x", "y", "x_test", "y_test"]):
        found = ", ".join(sorted(members)[:8]) or "nothing"
        raise DataError(f"{path} holds {found}; it needs arrays x and y, and may have x_test and y_test")
    budget.check(f"{path}, unpacked,", sum(members[name].file_size for name in wanted))
    read = {name: _parse_array(unfold(archive, members[name], budget), f"{name} in {path}") for name in wanted}
    given = [
        _samples_from_arrays(read[x], read[y], f"{x} in {path}") for x, y in zip(wanted[::2], wanted[1::2], strict=True)
    ]
    classes = 1 + max(max(samples.labels) for samples in given)
    if classes > MAX_CLASSES:
        raise DataError(f"{path} holds label {classes - 1:,}; labels 0 to {MAX_CLASSES - 1:,} can be learned")
    if len(given) == 1:
        whole = given[0]
        given = [
            Samples(tuple(whole.images[i] for i in part), tuple(whole.labels[i] for i in part))
            for part in hold_out(whole.labels)
        ]
    return Data(str(path), tuple(map(str, range(classes))), *given)


def _parse_array(data: bytes, where: str) -> Array:
    if b"'|O'" in data[:128]:
        raise DataError(
            f"{where} holds Python objects, as happens when images differ in size; store one uint8 array of one size"
        )
    try:
        return parse_npy(data, where)
    except ImportModelError as error:
        raise DataError(str(error)) from None


def _samples_from_arrays(x: Array, y: Array, where: str) -> Samples:
    if x.dtype != np.uint8 or x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] not in (1, 3)):
        raise DataError(f"{where} is {x.dtype}{list(x.shape)}; images are uint8[count, height, width, 1 or 3]")
    if y.dtype.kind not in "iu" or y.size != len(x):
        raise DataError(
            f"{where} holds {len(x)} images but labels {y.dtype}{list(y.shape)}; give one integer per image"
        )
    if int(y.min()) < 0:
        raise DataError(f"{where} has a label of {int(y.min())}; labels count from 0")
    return Samples(tuple(x.reshape(*x.shape[:3], -1)), tuple(int(label) for label in y.ravel()))
