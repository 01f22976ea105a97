"""A layout of a published data set, and the images it lists, checked against the files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smidgen.data.files import Box, SampleFile, Tree
from smidgen.data.samples import MAX_CLASSES, DataError, Given, repeated


@dataclass(frozen=True)
class Listing:
    """Classes by name, and the image files of both parts, each with the number of its class."""

    classes: tuple[str, ...]
    train: tuple[tuple[SampleFile, int], ...]
    test: tuple[tuple[SampleFile, int], ...]


@dataclass(frozen=True)
class Layout:
    """A publisher's layout: any of its marks, a file or a folder with a slash behind, identifies it."""

    name: str
    marks: tuple[str, ...]
    read: Callable[[Tree], Listing | Given]


@dataclass(frozen=True)
class Listed:
    """An image as a list names it: its path in the tree, its class counted from 0, and the box that is kept."""

    name: str
    label: int
    box: Box | None = None


@dataclass(frozen=True)
class Split:
    """The images to learn from, or those to test with, and the file that lists them."""

    source: str
    entries: Sequence[Listed]


def list_images(tree: Tree, classes: Sequence[str], train: Split, test: Split) -> Listing:
    """Return the images of both parts, by class and then by name; raise DataError unless the lists fit together."""
    check_classes(tree, len(classes))
    if len(set(classes)) < len(classes):
        twice = repeated(classes)
        raise DataError(f"{tree.where} names class {twice!r} twice; {tree.way_out()}")
    for part in (train, test):
        _check_part(tree, classes, part)
    if both := {entry.name for entry in train.entries} & {entry.name for entry in test.entries}:
        raise DataError(
            f"{tree.where} has {len(both):,} images both to learn from and to test with, such as {min(both)}; "
            f"{train.source} and {test.source} are not of one split"
        )
    if unlearned := {entry.label for entry in test.entries} - {entry.label for entry in train.entries}:
        raise DataError(
            f"{tree.where} has test images of class {classes[min(unlearned)]!r} but none to learn it from; "
            f"{train.source} is not of the split of {test.source}"
        )
    parts = (sorted(part.entries, key=lambda entry: (entry.label, entry.name)) for part in (train, test))
    files = (tuple((tree.file(entry.name, entry.box), entry.label) for entry in part) for part in parts)
    return Listing(tuple(classes), *files)


def check_classes(tree: Tree, count: int) -> None:
    """Raise where there are more classes than can be learned."""
    if count > MAX_CLASSES:
        raise DataError(f"{tree.where} names {count:,} classes; up to {MAX_CLASSES:,} can be learned")


def _check_part(tree: Tree, classes: Sequence[str], part: Split) -> None:
    if not part.entries:
        raise tree.wrong(part.source, "names no images")
    for entry in part.entries:
        if not 0 <= entry.label < len(classes):
            given = f"gives {entry.name} class {entry.label + 1}, there are {len(classes)} counted from 1"
            raise tree.wrong(part.source, given)
    names = {entry.name for entry in part.entries}
    if len(names) < len(part.entries):
        raise tree.wrong(part.source, f"names {len(part.entries) - len(names):,} images twice")
    if absent := names - tree.files.keys():
        missing = f"names {len(names):,} images, {len(absent):,} of them are not there, such as {min(absent)}"
        raise tree.wrong(part.source, missing)
