"""Folders, archives, arrays, tables and single files of samples, read to learn from or to be shown to a model."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from smidgen.data import files as sources
from smidgen.data.arrays import as_samples, read_arrays, read_x
from smidgen.data.audio import SUFFIXES as AUDIO_SUFFIXES
from smidgen.data.audio import read_audio
from smidgen.data.files import MEMORY, Budget, SampleFile, Tree, reading
from smidgen.data.images import SHORT_SIDE, read_images, refuse_others
from smidgen.data.images import SUFFIXES as IMAGE_SUFFIXES
from smidgen.data.inputs import fits, kind_of
from smidgen.data.layouts import Listing, recognize
from smidgen.data.layouts.cifar import SAMPLE, read_sample
from smidgen.data.samples import MAX_CLASSES, Data, DataError, Given, Samples, evenly, hold_out, sorted_labels
from smidgen.data.tables import NONE, SUFFIX, read_recordings, read_table
from smidgen.ir import Array, Type

SPLITS = ("train", "test")
NPZ, ZIP = ".npz", ".zip"
ARRAYS = (NPZ, ".npy")
TABLES = tuple(f"{split}{SUFFIX}" for split in SPLITS)  # in a folder, to learn from and to test with
SOURCES = f"give a folder of images or recordings, a .zip of one, an .npz, .npy or .csv file, or '{SAMPLE}'"
SHOWN = "a photograph, a sound, a recording, a folder or .zip of them, or rows as .npy, .npz or .csv"


@dataclass(frozen=True)
class FileKind:
    """A kind of files: its name, its suffixes, and a reader, which takes the short side that images are reduced to."""

    called: str
    suffixes: tuple[str, ...]
    read: Callable[[Sequence[SampleFile], Budget, int], tuple[Array, ...]]

    @property
    def layout(self) -> str:
        """The folders that the files belong in, for errors."""
        return f"put {self.called} in train/<label>/ and test/<label>/, or in <label>/"


IMAGES = FileKind("images", IMAGE_SUFFIXES, read_images)
RECORDINGS = FileKind("recordings", (SUFFIX,), read_recordings)
AUDIO = FileKind("sounds", AUDIO_SUFFIXES, read_audio)
KINDS = (IMAGES, AUDIO, RECORDINGS)  # the first of which a folder holds any is what it is read as


def load_data(source: str | Path, memory: int = MEMORY, short_side: int = SHORT_SIDE, label: str | None = None) -> Data:
    """Read a folder of files by label or a published data set, a .zip of either, arrays, a table, or "cifar10".

    That name stands for the sample that comes with Smidgen, `./cifar10` for a folder. `docs/data.md` describes each
    layout. Published data sets are recognized by their files and read in their official splits; of anything else every
    fifth sample of each class is held out if there are none to test with. Classes are numbered in the order of their
    names, by value if all are numbers. `label` names the columns of a table that hold the labels. Image files with a
    longer short side than `short_side` are reduced to it. All samples together may take `memory` bytes. `notes`
    of what comes back tell what was left out, and which samples are in both parts.
    """
    name, budget = str(Path(source)), Budget(memory, DataError)
    with _opened(source, budget, label) as held:
        if isinstance(held, Given):
            data = Data(name, held.classes, *held.divided())
        else:
            kind, listed, notes = (IMAGES, held, ()) if isinstance(held, Listing) else _files_by_label(held)
            samples = kind.read([file for file, _ in (*listed.train, *listed.test)], budget, short_side)
            cut = len(listed.train)
            halves = ((samples[:cut], listed.train), (samples[cut:], listed.test))
            parts = (Samples(images, tuple(label for _, label in files)) for images, files in halves)
            data = Data(name, listed.classes, *parts, notes=notes)
    return replace(data, notes=(*data.notes, *notes_on(data)))


def load_images(source: str | Path, most: int, memory: int = MEMORY, label: str | None = None) -> tuple[Array, ...]:
    """Read at most `most` samples without their labels, evenly from those to learn from.

    It reads what `load_data` reads, and any folder. What is read may take `memory` bytes.
    """
    budget = Budget(memory, DataError)
    with _opened(source, budget, label, labelled=False) as held:
        if isinstance(held, Given):
            return tuple(evenly(held.train.images, most))
        if isinstance(held, Listing):
            return IMAGES.read([file for file, _ in evenly(held.train, most)], budget, SHORT_SIDE)
        kind = kind_of_files(held)
        files = _all_files(held, kind)
        if not files:
            way_out = held.unpacked() or "put some there, with or without subfolders"
            raise DataError(f"{held.where} holds no {kind.called}; {way_out}")
        learned = [file for file in files if SPLITS[0] in file.parts[:-1]]
        return kind.read(evenly(learned or files, most), budget, SHORT_SIDE)


def load_labelled(source: str | Path, most: int, memory: int = MEMORY, label: str | None = None) -> Data | None:
    """Read at most `most` samples of each part with their classes, evenly; None if they have no classes.

    It reads what `load_data` reads. If there are no samples of one part, it takes those of the other.
    """
    name, budget = str(Path(source)), Budget(memory, DataError)
    with _opened(source, budget, label) as held:
        if isinstance(held, Given):
            parts = tuple(part.spread(most) for part in held.divided() if len(part))
            classes = () if held.train.targets else held.classes
            return None if len(classes) < 2 else Data(name, classes, parts[0], parts[-1])
        kind = IMAGES if isinstance(held, Listing) else kind_of_files(held)
        listed = held if isinstance(held, Listing) else list_by_label(held, kind)
        if listed is None or len(listed.classes) < 2:
            return None
        notes = left_out(held, listed, kind.called) if isinstance(held, Tree) else ()
        chosen = [zip(*evenly(part, most), strict=True) for part in (listed.train, listed.test) if part]
        parts = tuple(Samples(kind.read(files, budget, SHORT_SIDE), labels) for files, labels in chosen)
        return Data(name, listed.classes, parts[0], parts[-1], notes=notes)


def kind_of_files(tree: Tree) -> FileKind:
    """Return the kind of a tree's files; images if it has none."""
    return next((kind for kind in KINDS if tree.ending(kind.suffixes)), IMAGES)


def _all_files(tree: Tree, kind: FileKind) -> list[SampleFile]:
    """Return the files of a kind in the order of their names; raise if some images cannot be read."""
    files = sorted(tree.ending(kind.suffixes), key=lambda file: file.name)
    if kind is IMAGES:
        refuse_others(tree, files)
    return files


def list_by_label(tree: Tree, kind: FileKind) -> Listing | None:
    """Return the files of a kind in folders by their label; None if there are no label folders."""
    files = tree.ending(kind.suffixes)
    divided = [file for file in files if len(file.parts) > 2 and file.parts[-3] in SPLITS]
    depth = max((len(file.parts) for file in files), default=0)
    uniform = all(len(file.parts) == depth and file.parts[:-2] == files[0].parts[:-2] for file in files)
    below = depth if uniform else 2  # folders of labels may lie in folders that all files share
    used = divided or [file for file in files if depth > 1 and len(file.parts) == below]
    if kind is IMAGES:
        refuse_others(tree, used or files)
    if not used:
        return None
    classes = sorted_labels(file.label for file in used)
    if len(classes) > MAX_CLASSES:
        raise DataError(f"{tree.where} holds {len(classes):,} labels; up to {MAX_CLASSES:,} can be learned")
    number = {label: index for index, label in enumerate(classes)}
    used.sort(key=lambda file: (number[file.label], file.name))
    if divided:
        groups = [[file for file in used if file.parts[-3] == split] for split in SPLITS]
    else:
        groups = [[used[i] for i in part] for part in hold_out(number[file.label] for file in used)]
    return Listing(classes, *(tuple((file, number[file.label]) for file in group) for group in groups))


def _files_by_label(tree: Tree) -> tuple[FileKind, Listing, tuple[str, ...]]:
    """Return the kind of files, those by label, and notes on what else is there."""
    kind = kind_of_files(tree)
    listed = list_by_label(tree, kind)
    if listed is None:
        count = len(tree.ending(kind.suffixes))
        found = f"{count} {kind.called}, none in a folder by its label" if count else f"no {kind.called}"
        raise DataError(f"{tree.where} holds {found}; {tree.unpacked() or kind.layout}")
    if any(len(file.parts) > 2 and file.parts[-3] in SPLITS for file, _ in (*listed.train, *listed.test)):
        for split, group in zip(SPLITS, (listed.train, listed.test), strict=True):
            if not group:
                raise DataError(f"{tree.where} holds no {kind.called} in {split}/; {kind.layout}")
        if unlearned := {file.label for file, _ in listed.test} - {file.label for file, _ in listed.train}:
            raise DataError(f"{tree.where} has test {kind.called} of label {min(unlearned)!r} but none in train/")
    return kind, listed, left_out(tree, listed, kind.called)


@contextmanager
def _opened(
    source: str | Path, budget: Budget, label: str | None, labelled: bool = True
) -> Iterator[Given | Listing | Tree]:
    """Open arrays or a table as samples, or a folder or an archive: what a published data set lists, or all files.

    Files can be read while it is open. Of arrays only the samples are read unless they need to be `labelled`. Failures
    become one sentence.
    """
    if source == SAMPLE:
        sample = read_sample()
        yield Given(sample.classes, sample.train, sample.test)
        return
    path, suffix = Path(source), _check_source(source)
    with reading(path), ExitStack() as stack:
        if suffix in ARRAYS:
            held: Given | Tree = read_arrays(path, budget) if labelled else Given((), read_x(path, budget))
        elif suffix == SUFFIX:
            held = read_table([sources.sample_file(path, budget, str(path))], budget, label)
        else:
            held = sources.open_tree(path, budget, stack)
            if all(name in held for name in TABLES):
                held = read_table([held.file(name) for name in TABLES], budget, label)
        if label is not None and not (isinstance(held, Given) and suffix not in ARRAYS):
            raise DataError(f"{path} is no table, so column {label[:40]!r} cannot be chosen; leave --label out")
        if isinstance(held, Tree) and (found := recognize(held)):
            yield found[0].read(found[1])
        else:
            yield held


def _check_source(source: str | Path) -> str:
    """Return the suffix of a file that can be read, empty for a folder; raise DataError for anything else."""
    if source == "":  # as a path it would be the working folder
        raise DataError(f"no data are named; {SOURCES}")
    path = Path(source)
    if not path.exists():
        raise DataError(f"there is no {path}; {SOURCES}")
    if path.is_dir():
        return ""
    suffix = path.suffix.lower()
    if path.name.lower().endswith(sources.PACKED) and suffix != ZIP:
        raise DataError(f"{path} is packed in a way that is not read; unpack it, and give the folder")
    if suffix not in (ZIP, SUFFIX, *ARRAYS):
        raise DataError(f"{path} is neither a folder nor a .zip, .npz, .npy or .csv file; {IMAGES.layout}")
    return suffix


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
        with reading(path):
            found = _shown(path, input, Budget(memory, DataError), label, stack)
        yield found


def _shown(path: Path, input: Type, budget: Budget, label: str | None, stack: ExitStack) -> tuple[Shown, ...]:
    suffix = "" if path.is_dir() else path.suffix.lower()
    if suffix in (SUFFIX, *ARRAYS):
        samples = _table(path, input, budget, label) if suffix == SUFFIX else _array(path, input, budget)
        names = [path.name] if len(samples) == 1 else [f"{path.name}[{place}]" for place in range(len(samples))]
        return tuple(Shown(name, partial(samples.__getitem__, place)) for place, name in enumerate(names))
    tree = sources.open_tree(path, budget, stack)
    kind = kind_of_files(tree)
    files = _all_files(tree, kind)
    if not files:
        held = "holds" if suffix in ("", ZIP) else "is"
        raise DataError(f"{path} {held} nothing that can be shown to a model; give {SHOWN}")

    def read(file: SampleFile) -> Array:
        with reading(path):
            return kind.read((file,), budget.copy(), SHORT_SIDE)[0]

    return tuple(Shown(file.name, partial(read, file)) for file in files)


def _array(path: Path, input: Type, budget: Budget) -> tuple[Array, ...]:
    """Return the samples along the first dimension, or the array if it is one sample."""
    if path.suffix.lower() == NPZ:
        return read_x(path, budget).images
    array = sources.parse_npy(sources.read_whole(path, budget.limit), str(path))
    if kind_of(array, input) == "picture" or fits(array.shape, input.shape):
        return (array,)
    return as_samples(array, str(path), budget)


def _table(path: Path, input: Type, budget: Budget, label: str | None) -> tuple[Array, ...]:
    """Return a table as one recording, or its rows: all columns if they fit the input, else those without labels."""
    file = sources.sample_file(path, budget)
    if label is None:
        with suppress(DataError):
            if fits((recording := read_recordings([file], budget.copy()))[0].shape, input.shape):
                return recording
        with suppress(DataError):
            if fits((rows := read_table([file], budget.copy(), NONE).train.images)[0].shape, input.shape):
                return rows
    return read_table([file], budget, label).train.images


NAMED = 3  # of many, by name


def notes_on(data: Data) -> tuple[str, ...]:
    """Return what its user should know of some data: classes that one part lacks, samples that are in both."""
    notes = []
    for part, samples in (("to learn from", data.train), ("to test with", data.test)):
        if data.label_kind == "classes" and (lacking := set(range(len(data.classes))) - set(samples.labels)):
            names = [data.classes[label] for label in sorted(lacking)]
            count = "1 class has" if len(names) == 1 else f"{len(names):,} classes have"
            notes.append(f"{data.name}: {count} no samples {part} {_named(names)}")
    learned = {_digest(sample) for sample in data.train.images}
    if again := [place for place, sample in enumerate(data.test.images) if _digest(sample) in learned]:
        notes.append(
            f"{data.name}: {len(again):,} of {len(data.test):,} test samples are training samples, too; accuracy on "
            "them says nothing of new ones"
        )
    return tuple(notes)


def _digest(sample: Array) -> bytes:
    """Return a fingerprint of a sample, 16 bytes."""
    head = f"{sample.dtype.str}{sample.shape}".encode()
    return hashlib.blake2b(sample.tobytes(), digest_size=16, key=head[:64]).digest()


def left_out(tree: Tree, listed: Listing, what: str) -> tuple[str, ...]:
    """Return which files and class folders of a tree are not among those listed, the samples of a kind by label."""
    used = {file.name for file, _ in (*listed.train, *listed.test)}
    by_suffix, notes = defaultdict[str, list[str]](list), []
    for name in sorted(_visible(tree.files) - used):
        by_suffix[PurePosixPath(name).suffix.lower() or "without an ending"].append(name)
    if by_suffix:
        kinds = ", ".join(f"{len(names):,} {suffix} {_named(names)}" for suffix, names in by_suffix.items())
        notes.append(f"{tree.where}: only {what} in the folders of classes are read; left out: {kinds}")
    holding = {str(PurePosixPath(name).parent) for name in used}
    beside = {str(PurePosixPath(folder).parent) for folder in holding}
    if empty := [one for one in sorted(_visible(tree.folders) - holding) if str(PurePosixPath(one).parent) in beside]:
        notes.append(f"{tree.where}: a folder without {what} is no class; left out: {len(empty):,} {_named(empty)}")
    return tuple(notes)


def _visible(names: Iterable[str]) -> set[str]:
    return {name for name in names if not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))}


def _named(names: Sequence[str]) -> str:
    """Return the first few names in brackets."""
    return f"({', '.join(repr(name[:60]) for name in names[:NAMED])}{', …' if len(names) > NAMED else ''})"
