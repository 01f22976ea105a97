"""Samples that a model is shown one by one: a photograph, every photograph of a folder, the rows of an array."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from smidgen.data.budget import MEMORY, Budget
from smidgen.data.decoding import SHORT_SIDE, decode_all
from smidgen.data.files import CORRUPT_ZIP, first_line, parse_npy, read_npz, read_whole
from smidgen.data.inputs import fits
from smidgen.data.samples import DataError
from smidgen.data.trees import SUFFIXES, ImageFile, Tree, folder_tree, is_image, zip_tree
from smidgen.errors import ImportModelError
from smidgen.ir import Array, Type

ARRAYS = (".npy", ".npz")


@dataclass(frozen=True)
class Shown:
    """A sample by name, read when it is asked for."""

    name: str
    read: Callable[[], Array]


@contextmanager
def open_samples(source: str | Path, input: Type, memory: int = MEMORY) -> Iterator[tuple[Shown, ...]]:
    """The samples of an image file, a folder or .zip of them, or an .npy or .npz of rows, for a model with this input.

    Pictures are read as `load_data` reads them, in the order of their names.
    """
    path, budget = Path(source), Budget(memory, DataError)
    if not str(source) or not path.exists():
        kinds = "a photograph, a folder or .zip of them, or an .npy or .npz of rows"
        raise DataError(f"there is no {str(source) or 'file without a name'}; give {kinds}")
    if path.suffix.lower() in ARRAYS and not path.is_dir():
        yield _rows(path, input, budget)
    elif path.is_file() and is_image(path.name):
        yield (_picture(ImageFile(path.name, partial(_bytes, path, memory)), budget),)
    elif path.is_file() and path.suffix.lower() != ".zip":
        raise DataError(f"{path} is none of {', '.join((*SUFFIXES, *ARRAYS))}; give a photograph, or an array of rows")
    elif path.is_dir():
        yield _pictures(folder_tree(path, budget), budget)
    else:
        with _archive(path) as archive:
            yield _pictures(zip_tree(path, archive, budget), budget)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive to read from; what is wrong with it is said in one sentence."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except CORRUPT_ZIP as error:
        raise DataError(f"{path} is not a complete archive: {first_line(error)}") from None


def _pictures(tree: Tree, budget: Budget) -> tuple[Shown, ...]:
    files = sorted(tree.images(), key=lambda file: file.name)
    if not files:
        raise DataError(f"{tree.where} holds no images ({', '.join(SUFFIXES)}); give a folder that does")
    return tuple(_picture(file, budget) for file in files)


def _picture(file: ImageFile, budget: Budget) -> Shown:
    return Shown(file.name, lambda: decode_all((file,), budget.copy(), SHORT_SIDE)[0])


def _bytes(path: Path, memory: int) -> bytes:
    try:
        return read_whole(path, memory)
    except ImportModelError as error:
        raise DataError(str(error)) from None


def _rows(path: Path, input: Type, budget: Budget) -> tuple[Shown, ...]:
    """Samples along the first dimension of an array; an array that is one sample is one."""
    array = _array(path, budget)
    picture = array.dtype == np.uint8 and array.ndim == len(input.shape) - 1 and array.shape[-1] in (1, 3)
    if picture or (array.dtype != np.uint8 and fits(array.shape, input.shape)):
        return (Shown(path.name, lambda: array),)
    if array.ndim < 2:
        raise DataError(
            f"{path} holds {array.dtype}{list(array.shape)}, the model's input is {list(input.shape)}; give rows, "
            f"as [count, {', '.join(map(str, input.shape[1:]))}]"
        )
    return tuple(Shown(f"{path.name}[{i}]", partial(array.__getitem__, i)) for i in range(len(array)))


def _array(path: Path, budget: Budget) -> Array:
    try:
        if path.suffix.lower() == ".npy":
            return parse_npy(read_whole(path, budget.limit), str(path))
        arrays = read_npz(path, budget)
    except ImportModelError as error:
        raise DataError(str(error)) from None
    for name in ("x", "x_test", *(arrays if len(arrays) == 1 else ())):
        if name in arrays:
            return arrays[name]
    raise DataError(f"{path} holds {', '.join(sorted(arrays)[:8]) or 'nothing'}; it needs an array x of samples")
