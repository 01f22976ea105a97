"""Files of one sample each, in folders by their label: what kinds there are, and which files are of which class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smidgen.data import audio, tables
from smidgen.data.files import Budget, SampleFile, Tree
from smidgen.data.images import SUFFIXES, read_images
from smidgen.data.layouts import Listing
from smidgen.data.samples import MAX_CLASSES, DataError, hold_out, sorted_labels
from smidgen.ir import Array

SPLITS = ("train", "test")


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


IMAGES = FileKind("images", SUFFIXES, read_images)
RECORDINGS = FileKind("recordings", (tables.SUFFIX,), tables.read_recordings)
AUDIO = FileKind("sounds", audio.SUFFIXES, audio.read_audio)
KINDS = (IMAGES, AUDIO, RECORDINGS)  # the first of which a folder holds any is what it is read as


def kind_of_files(tree: Tree) -> FileKind:
    """Return the kind of a tree's files; images if it has none."""
    return next((kind for kind in KINDS if tree.ending(kind.suffixes)), IMAGES)


def list_by_label(tree: Tree, kind: FileKind) -> Listing | None:
    """Return the files of a kind in folders by their label; None if there are no label folders."""
    files = tree.ending(kind.suffixes)
    divided = [file for file in files if len(file.parts) > 2 and file.parts[-3] in SPLITS]
    used = divided or _in_label_folders(files)
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


def check_listed(name: str, kind: FileKind, listed: Listing) -> None:
    """Raise DataError if files are divided into train/ and test/ and one of them lacks some."""
    divided = any(len(file.parts) > 2 and file.parts[-3] in SPLITS for file, _ in (*listed.train, *listed.test))
    for split, group in zip(SPLITS, (listed.train, listed.test), strict=True):
        if divided and not group:
            raise DataError(f"{name} holds no {kind.called} in {split}/; {kind.layout}")
    unlearned = {file.label for file, _ in listed.test} - {file.label for file, _ in listed.train}
    if divided and unlearned:
        raise DataError(f"{name} has test {kind.called} of label {min(unlearned)!r} but none in train/")


def _in_label_folders(files: list[SampleFile]) -> list[SampleFile]:
    """Return the files that lie in a folder of their label, below folders all of them share."""
    depth = max((len(file.parts) for file in files), default=0)
    uniform = all(len(file.parts) == depth and file.parts[:-2] == files[0].parts[:-2] for file in files)
    return [file for file in files if len(file.parts) == (depth if uniform else 2)] if depth > 1 else []
