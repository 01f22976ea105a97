"""Samples that a model is shown one by one: a file, every file of a folder, the rows of an array or a table."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from smidgen.data.arrays import as_samples, read_x
from smidgen.data.budget import MEMORY, Budget
from smidgen.data.decoding import SHORT_SIDE
from smidgen.data.files import CORRUPT_ZIP, first_line, parse_npy, read_whole
from smidgen.data.folders import KINDS, FileKind, kind_of_files
from smidgen.data.inputs import fits, kind_of
from smidgen.data.samples import DataError
from smidgen.data.tables import NONE, SUFFIX, read_recordings, read_table
from smidgen.data.trees import SampleFile, ends, folder_tree, whole_file, zip_tree
from smidgen.errors import ImportModelError
from smidgen.ir import Array, Type

NPY, NPZ, ZIP = ".npy", ".npz", ".zip"
TAKEN = "a photograph, a sound, a recording, a folder or .zip of them, or rows as .npy, .npz or .csv"


@dataclass(frozen=True)
class Shown:
    """A sample by name, read when it is asked for."""

    name: str
    read: Callable[[], Array]


@contextmanager
def open_samples(
    source: str | Path, input: Type, memory: int = MEMORY, label: str | None = None
) -> Iterator[tuple[Shown, ...]]:
    """The samples of a file, a folder or an archive, for a model with this input.

    Files are read as `load_data` reads them, in the order of their names. An array or a table holds a sample in each
    row, or is one sample where it has the input's shape; `label` names columns of a table that are not for the model.
    """
    path, budget = Path(source), Budget(memory, DataError)
    if not str(source) or not path.exists():
        raise DataError(f"there is no {str(source) or 'file without a name'}; give {TAKEN}")
    with ExitStack() as stack:
        with _in_one_sentence(path):
            found = _listed(path, input, budget, label, stack)
        yield found


def _listed(path: Path, input: Type, budget: Budget, label: str | None, stack: ExitStack) -> tuple[Shown, ...]:
    """What there is to show; an archive stays open while the stack does."""
    suffix = "" if path.is_dir() else path.suffix.lower()
    if suffix in (NPY, NPZ):
        return _rows(path.name, _array(path, input, budget))
    if suffix == SUFFIX:
        return _rows(path.name, _table(path, input, budget, label))
    if suffix in ("", ZIP) and not (suffix == "" and path.is_file()):
        archive = stack.enter_context(zipfile.ZipFile(path)) if suffix == ZIP else None
        tree = folder_tree(path, budget) if archive is None else zip_tree(path, archive, budget)
        kind = kind_of_files(tree)
        return _files(path, tree.ending(kind.suffixes), kind, budget)
    kinds = [kind for kind in KINDS if ends(path.name, kind.suffixes)]
    if not kinds:
        raise DataError(f"{path} is nothing that can be shown to a model; give {TAKEN}")
    return _files(path, [SampleFile(path.name, partial(whole_file, path, budget))], kinds[0], budget)


def _files(path: Path, files: Sequence[SampleFile], kind: FileKind, budget: Budget) -> tuple[Shown, ...]:
    if not files:
        raise DataError(f"{path} holds nothing that can be shown to a model; give {TAKEN}")

    def read(file: SampleFile) -> Array:
        with _in_one_sentence(path):
            return kind.read((file,), budget.copy(), SHORT_SIDE)[0]

    return tuple(Shown(file.name, partial(read, file)) for file in sorted(files, key=lambda file: file.name))


@contextmanager
def _in_one_sentence(path: Path) -> Iterator[None]:
    """What goes wrong with a file that is read, as a DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except CORRUPT_ZIP as error:
        raise DataError(f"{path} is not complete: {first_line(error)}") from None


def _rows(name: str, samples: Sequence[Array]) -> tuple[Shown, ...]:
    if len(samples) == 1:
        return (Shown(name, partial(samples.__getitem__, 0)),)
    return tuple(Shown(f"{name}[{place}]", partial(samples.__getitem__, place)) for place in range(len(samples)))


def _array(path: Path, input: Type, budget: Budget) -> tuple[Array, ...]:
    """Samples along the first dimension; one of an array that is a sample itself."""
    if path.suffix.lower() == NPZ:
        return read_x(path, budget).images
    try:
        array = parse_npy(read_whole(path, budget.limit), str(path))
    except ImportModelError as error:
        raise DataError(str(error)) from None
    if kind_of(array, input) == "picture" or fits(array.shape, input.shape):
        return (array,)
    return as_samples(array, str(path), budget)


def _table(path: Path, input: Type, budget: Budget, label: str | None) -> tuple[Array, ...]:
    """The rows of a table, all of its columns or those that tell nothing; or the table as one recording."""
    file = SampleFile(path.name, partial(whole_file, path, budget))
    if label is None:
        with suppress(DataError):
            recording = read_recordings([file], budget.copy())
            if fits(recording[0].shape, input.shape):
                return recording
        with suppress(DataError):
            rows = read_table([file], budget.copy(), NONE).train.images
            if fits(rows[0].shape, input.shape):
                return rows
    return read_table([file], budget, label).train.images
