"""Folders, archives, arrays, tables and single files of samples, read to learn from or to be shown to a model."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from smidgen.data.arrays import as_samples, read_arrays, read_x
from smidgen.data.files import (
    CORRUPT_ZIP,
    MEMORY,
    PACKED,
    Budget,
    SampleFile,
    Tree,
    ends,
    first_line,
    folder_tree,
    parse_npy,
    read_whole,
    whole_file,
    zip_tree,
)
from smidgen.data.folders import IMAGES, KINDS, SPLITS, FileKind, check_listed, kind_of_files, list_by_label
from smidgen.data.images import SHORT_SIDE
from smidgen.data.inputs import fits, kind_of
from smidgen.data.layouts import Listing, recognize
from smidgen.data.layouts.cifar import SAMPLE, read_sample
from smidgen.data.samples import Data, DataError, Given, Labelled, Samples, evenly
from smidgen.data.tables import NONE, SUFFIX, read_recordings, read_table
from smidgen.errors import ImportModelError
from smidgen.ir import Array, Type

NPZ, ZIP = ".npz", ".zip"
ARRAYS = (NPZ, ".npy")
TABLES = tuple(f"{split}{SUFFIX}" for split in SPLITS)  # in a folder, to learn from and to test with
SOURCES = f"give a folder of images or recordings, a .zip of one, an .npz, .npy or .csv file, or '{SAMPLE}'"
SHOWN = "a photograph, a sound, a recording, a folder or .zip of them, or rows as .npy, .npz or .csv"


def load_data(source: str | Path, memory: int = MEMORY, short_side: int = SHORT_SIDE, label: str | None = None) -> Data:
    """Read a folder of files by label or a published data set, a .zip of either, arrays, a table, or "cifar10".

    That name stands for the sample that comes with Smidgen, `./cifar10` for a folder. `docs/data.md` describes each
    layout. Published data sets are recognized by their files and read in their official splits; of anything else every
    fifth sample of each class is held out if there are none to test with. Classes are numbered in the order of their
    names, by value if all are numbers. `label` names the columns of a table that hold the labels. Image files with a
    longer short side than `short_side` are reduced to it. All samples together may take `memory` bytes.
    """
    with _opened(source, memory, label) as held:
        if isinstance(held, Given):
            return Data(str(Path(source)), held.classes, *held.divided())
        if found := recognize(held):
            kind, listed = IMAGES, found[0].read(found[1])
        else:
            kind, listed = _files_by_label(held)
        if isinstance(listed, Data):
            return replace(listed, name=str(Path(source)))
        samples = kind.read([file for file, _ in (*listed.train, *listed.test)], held.budget, short_side)
        cut = len(listed.train)
        halves = ((samples[:cut], listed.train), (samples[cut:], listed.test))
        parts = (Samples(images, tuple(label for _, label in files)) for images, files in halves)
        return Data(held.where, listed.classes, *parts)


def load_images(source: str | Path, most: int, memory: int = MEMORY, label: str | None = None) -> tuple[Array, ...]:
    """Read at most `most` samples without their labels, evenly from those to learn from.

    It reads what `load_data` reads, and any folder. What is read may take `memory` bytes.
    """
    with _opened(source, memory, label, labelled=False) as held:
        if isinstance(held, Given):
            return tuple(evenly(held.train.images, most))
        if found := recognize(held):
            listed = found[0].read(found[1])
            if isinstance(listed, Data):
                return tuple(evenly(listed.train.images, most))
            return IMAGES.read([file for file, _ in evenly(listed.train, most)], held.budget, SHORT_SIDE)
        kind = kind_of_files(held)
        files = sorted(held.ending(kind.suffixes), key=lambda file: file.name)
        if not files:
            way_out = _packed(held) or "put some there, with or without subfolders"
            raise DataError(f"{held.where} holds no {kind.called}; {way_out}")
        learned = [file for file in files if SPLITS[0] in file.parts[:-1]]
        return kind.read(evenly(learned or files, most), held.budget, SHORT_SIDE)


def load_labelled(source: str | Path, most: int, memory: int = MEMORY, label: str | None = None) -> Labelled | None:
    """Read at most `most` samples with their classes, evenly from those to test with; None if they have no classes.

    It reads what `load_data` reads. If there are no samples to test with, it takes those to learn from.
    """
    with _opened(source, memory, label) as held:
        if isinstance(held, Given):
            return held.labelled(most)
        found, kind = recognize(held), kind_of_files(held)
        listed = found[0].read(found[1]) if found else list_by_label(held, kind)
        if isinstance(listed, Data):
            return Labelled(listed.classes, listed.test.spread(most))
        if listed is None or len(listed.classes) < 2:
            return None
        files, labels = zip(*evenly(listed.test or listed.train, most), strict=True)
        return Labelled(listed.classes, Samples(kind.read(files, held.budget, SHORT_SIDE), labels))


def _files_by_label(tree: Tree) -> tuple[FileKind, Listing]:
    kind = kind_of_files(tree)
    listed = list_by_label(tree, kind)
    if listed is None:
        count = len(tree.ending(kind.suffixes))
        found = f"{count} {kind.called}, none in a folder by its label" if count else f"no {kind.called}"
        raise DataError(f"{tree.where} holds {found}; {_packed(tree) or kind.layout}")
    check_listed(tree.where, kind, listed)
    return kind, listed


def _packed(tree: Tree) -> str:
    """Return what to unpack if a folder holds archives instead of samples."""
    return f"{tree.way_out()}, and give the folder" if tree.packed() else ""


@contextmanager
def _opened(source: str | Path, memory: int, label: str | None, labelled: bool = True) -> Iterator[Given | Tree]:
    """Open arrays or a table as samples, or a folder or an archive as a tree of files to read meanwhile.

    Of arrays only the samples are read unless they need to be `labelled`. Failures become one sentence.
    """
    if source == SAMPLE:
        shipped = read_sample()
        yield Given(shipped.classes, shipped.train, shipped.test)
        return
    path, budget = Path(source), Budget(memory, DataError)
    _check_source(source)
    suffix = _suffix(path)
    with _in_one_sentence(path), ExitStack() as stack:
        if suffix in ARRAYS:
            held: Given | Tree = read_arrays(path, budget) if labelled else Given((), read_x(path, budget))
        elif suffix == SUFFIX:
            held = read_table([SampleFile(str(path), partial(whole_file, path, budget))], budget, label)
        else:
            held = _tree(path, budget, stack)
            if all(name in held for name in TABLES):
                held = read_table([held.file(name) for name in TABLES], budget, label)
        if label is not None and not (isinstance(held, Given) and suffix not in ARRAYS):
            raise DataError(f"{path} is no table, so column {label[:40]!r} cannot be chosen; leave --label out")
        yield held


def _check_source(source: str | Path) -> None:
    """Raise DataError unless a path leads to a kind of file that can be read."""
    if source == "":  # as a path it would be the working folder
        raise DataError(f"no data are named; {SOURCES}")
    path = Path(source)
    if not path.exists():
        raise DataError(f"there is no {path}; {SOURCES}")
    if path.is_dir():
        return
    if path.name.lower().endswith(PACKED) and path.suffix.lower() != ZIP:
        raise DataError(f"{path} is packed in a way that is not read; unpack it, and give the folder")
    if path.suffix.lower() not in (ZIP, SUFFIX, *ARRAYS):
        raise DataError(f"{path} is neither a folder nor a .zip, .npz, .npy or .csv file; {IMAGES.layout}")


def _suffix(path: Path) -> str:
    return "" if path.is_dir() else path.suffix.lower()


def _tree(path: Path, budget: Budget, stack: ExitStack) -> Tree:
    """Return the files of a folder, or of an archive, which stays open while the stack does."""
    if path.is_dir():
        return folder_tree(path, budget)
    return zip_tree(path, stack.enter_context(zipfile.ZipFile(path)), budget)


@contextmanager
def _in_one_sentence(path: Path) -> Iterator[None]:
    """Turn what goes wrong with a file that is read into a DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except CORRUPT_ZIP as error:
        if _suffix(path) not in (ZIP, NPZ):
            raise
        raise DataError(f"{path} is not a complete archive: {first_line(error)}") from None


@dataclass(frozen=True)
class Shown:
    """A sample to show to a model: its name, and a function that reads it."""

    name: str
    read: Callable[[], Array]


@contextmanager
def open_samples(
    source: str | Path, input: Type, memory: int = MEMORY, label: str | None = None
) -> Iterator[tuple[Shown, ...]]:
    """Open the samples of a file, a folder or an archive, for a model with this input.

    Files are read as `load_data` reads them, in the order of their names. An array or a table holds a sample in each
    row, or is one sample if it has the input's shape; `label` names columns of a table that are not for the model.
    """
    path = Path(source)
    if not str(source) or not path.exists():
        raise DataError(f"there is no {str(source) or 'file without a name'}; give {SHOWN}")
    with ExitStack() as stack:
        with _in_one_sentence(path):
            found = _shown(path, input, Budget(memory, DataError), label, stack)
        yield found


def _shown(path: Path, input: Type, budget: Budget, label: str | None, stack: ExitStack) -> tuple[Shown, ...]:
    suffix = _suffix(path)
    if suffix in ARRAYS:
        return _rows(path.name, _array(path, input, budget))
    if suffix == SUFFIX:
        return _rows(path.name, _table(path, input, budget, label))
    if path.is_dir() or suffix == ZIP:
        tree = _tree(path, budget, stack)
        kind = kind_of_files(tree)
        return _files(path, tree.ending(kind.suffixes), kind, budget)
    kinds = [kind for kind in KINDS if ends(path.name, kind.suffixes)]
    if not kinds:
        raise DataError(f"{path} is nothing that can be shown to a model; give {SHOWN}")
    return _files(path, [SampleFile(path.name, partial(whole_file, path, budget))], kinds[0], budget)


def _files(path: Path, files: Sequence[SampleFile], kind: FileKind, budget: Budget) -> tuple[Shown, ...]:
    if not files:
        raise DataError(f"{path} holds nothing that can be shown to a model; give {SHOWN}")

    def read(file: SampleFile) -> Array:
        with _in_one_sentence(path):
            return kind.read((file,), budget.copy(), SHORT_SIDE)[0]

    return tuple(Shown(file.name, partial(read, file)) for file in sorted(files, key=lambda file: file.name))


def _rows(name: str, samples: Sequence[Array]) -> tuple[Shown, ...]:
    names = [name] if len(samples) == 1 else [f"{name}[{place}]" for place in range(len(samples))]
    return tuple(Shown(name, partial(samples.__getitem__, place)) for place, name in enumerate(names))


def _array(path: Path, input: Type, budget: Budget) -> tuple[Array, ...]:
    """Return the samples along the first dimension, or the array if it is one sample."""
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
    """Return a table as one recording, or its rows: all columns if they fit the input, else those without labels."""
    file = SampleFile(path.name, partial(whole_file, path, budget))
    if label is None:
        with suppress(DataError):
            if fits((recording := read_recordings([file], budget.copy()))[0].shape, input.shape):
                return recording
        with suppress(DataError):
            if fits((rows := read_table([file], budget.copy(), NONE).train.images)[0].shape, input.shape):
                return rows
    return read_table([file], budget, label).train.images
