"""Folders, archives and arrays of images → Data."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from smidgen.data import sample
from smidgen.data.archives import named, unfold
from smidgen.data.budget import MEMORY, Budget
from smidgen.data.files import CORRUPT_ZIP, first_line, parse_npy
from smidgen.data.samples import Data, DataError, Samples, evenly, hold_out
from smidgen.errors import ImportModelError
from smidgen.ir import Array

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
SPLITS = ("train", "test")
LONGEST_SHORT_SIDE = 512  # larger photographs are reduced to this: no microcontroller sees more
MAX_PIXELS = 2**26  # of one image
MAX_CLASSES = 4096
LAYOUT = "put images in train/<label>/ and test/<label>/, or in <label>/"


def load_data(source: str | Path, memory: int = MEMORY) -> Data:
    """A folder of images by label, a .zip of one, an .npz of arrays x, y, x_test and y_test, or "cifar10".

    That name stands for the sample that comes with Smidgen, `./cifar10` for a folder.
    Without test images every fifth of each class is held out. Classes are numbered in the order of the folders'
    names, by value where all are numbers. All images together may take so many bytes of `memory`.
    """
    if source == sample.NAME:
        return sample.read_sample()
    path, budget = _named_path(source), Budget(memory, DataError)
    with _open_archive(path) as archive:
        if archive is None:
            return _data_from_files(str(path), _folder_images(path, budget), budget)
        if path.suffix.lower() == ".npz":
            return _data_from_arrays(path, archive, budget)
        return _data_from_files(str(path), _zip_images(archive, budget), budget)


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
        found = _folder_images(path, budget) if archive is None else _zip_images(archive, budget)
        files = sorted(found, key=lambda file: file.name)
        learned = [file for file in files if SPLITS[0] in file.parts[:-1]]
        if not files:
            raise DataError(f"{path} holds no images; put some there, with or without subfolders")
        return _decode_all(evenly(learned or files, most), budget)


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
        if path.suffix.lower() not in (".zip", ".npz"):
            raise DataError(f"{path} is neither a folder nor a .zip or .npz file; {LAYOUT}")
        with zipfile.ZipFile(path) as archive:
            yield archive
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except CORRUPT_ZIP as error:
        raise DataError(f"{path} is not a complete archive: {first_line(error)}") from None


@dataclass(frozen=True)
class _File:
    """An image file of a folder or an archive: its path in there, and its bytes when asked for."""

    name: str
    read: Callable[[], bytes]

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.name.split("/"))

    @property
    def label(self) -> str:
        return self.parts[-2]


def _folder_images(path: Path, budget: Budget) -> list[_File]:
    found = (p for p in path.rglob("*") if p.is_file())
    return [_File(p.relative_to(path).as_posix(), partial(_whole, p, budget)) for p in found if _is_image(p.name)]


def _whole(path: Path, budget: Budget) -> bytes:
    budget.check(str(path), path.stat().st_size)
    return path.read_bytes()


def _zip_images(archive: zipfile.ZipFile, budget: Budget) -> list[_File]:
    members = [m for m in archive.infolist() if _is_image(m.filename)]
    return [_File(m.filename, partial(_unfolded, archive, m, budget)) for m in members]


def _unfolded(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: Budget) -> bytes:
    """A member's bytes, which count only until its image is decoded."""
    return unfold(archive, member, budget.copy())


def _is_image(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.lower().endswith(SUFFIXES) and not last.startswith(".")


def _data_from_files(name: str, files: list[_File], budget: Budget) -> Data:
    divided = [file for file in files if len(file.parts) > 2 and file.parts[-3] in SPLITS]
    used = divided or _in_label_folders(files)
    if not used:
        found = f"{len(files)} images, none in a folder by its label" if files else "no images"
        raise DataError(f"{name} holds {found}; {LAYOUT}")
    classes = _sorted_labels({file.label for file in used})
    if len(classes) > MAX_CLASSES:
        raise DataError(f"{name} holds {len(classes):,} labels; up to {MAX_CLASSES:,} can be learned")
    number = {label: index for index, label in enumerate(classes)}
    used.sort(key=lambda file: (number[file.label], file.name))
    if divided:
        groups = [[file for file in used if file.parts[-3] == split] for split in SPLITS]
        _check_groups(name, *groups)
    else:
        groups = [[used[i] for i in part] for part in hold_out(number[file.label] for file in used)]
    train, test = (Samples(_decode_all(group, budget), tuple(number[file.label] for file in group)) for group in groups)
    return Data(name, classes, train, test)


def _check_groups(name: str, train: list[_File], test: list[_File]) -> None:
    for split, group in zip(SPLITS, (train, test), strict=True):
        if not group:
            raise DataError(f"{name} holds no images in {split}/; {LAYOUT}")
    if unlearned := {file.label for file in test} - {file.label for file in train}:
        raise DataError(f"{name} has test images of label {min(unlearned)!r} but none in train/")


def _in_label_folders(files: list[_File]) -> list[_File]:
    """Files that lie in a folder of their label, below folders all of them share."""
    depth = max((len(file.parts) for file in files), default=0)
    uniform = all(len(file.parts) == depth and file.parts[:-2] == files[0].parts[:-2] for file in files)
    return [file for file in files if len(file.parts) == (depth if uniform else 2)] if depth > 1 else []


def _sorted_labels(labels: set[str]) -> tuple[str, ...]:
    if all(label.isdecimal() for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))


def _decode_all(files: Sequence[_File], budget: Budget) -> tuple[Array, ...]:
    images = []
    for file in files:
        images.append(_decode(file, budget))
        budget.take(file.name, images[-1].nbytes)
    return tuple(images)


def _decode(file: _File, budget: Budget) -> Array:
    """An image as uint8 [height, width, 1 or 3], upright, reduced where it is very large."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image: Image.Image = Image.open(io.BytesIO(file.read()))
            if image.width * image.height > MAX_PIXELS:
                raise DataError(f"{file.name} has {image.width}×{image.height} pixels, too many; reduce it")
            budget.check(f"{file.name}, {image.width}×{image.height} pixels,", 4 * image.width * image.height)
            image = ImageOps.exif_transpose(image)
            image = image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    except DataError:
        raise
    except Exception as error:  # Pillow's readers raise whatever a damaged file makes them
        why = first_line(error)
        raise DataError(f"{file.name} cannot be read as an image ({why}); replace or remove it") from None
    if (excess := min(image.size) / LONGEST_SHORT_SIDE) > 1:
        image = image.resize((round(image.width / excess), round(image.height / excess)))
    return np.asarray(image, np.uint8).reshape(image.height, image.width, -1)


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
