"""What a layout is, and the images it lists: checked against the files that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smidgen.data.samples import MAX_CLASSES, Data, DataError
from smidgen.data.trees import Box, SampleFile, Tree


@dataclass(frozen=True)
class Listing:
    """Classes by name, and the image files of both parts, each with the number of its class."""

    classes: tuple[str, ...]
    train: tuple[tuple[SampleFile, int], ...]
    test: tuple[tuple[SampleFile, int], ...]


@dataclass(frozen=True)
class Layout:
    """A publisher's layout: any of its marks, a file or a folder with a slash behind, tells that a tree has it."""

    name: str
    marks: tuple[str, ...]
    read: Callable[[Tree], Listing | Data]


@dataclass(frozen=True)
class Entry:
    """An image as a list names it: its path in the tree, its class counted from 0, and what is kept of it."""

    name: str
    label: int
    box: Box | None = None


@dataclass(frozen=True)
class Part:
    """The images to learn from, or those to test with, and the file that says so."""

    source: str
    entries: Sequence[Entry]


def list_images(tree: Tree, classes: Sequence[str], train: Part, test: Part) -> Listing:
    """The images of both parts, by class and then by name, once everything about them fits together."""
    check_classes(tree, len(classes))
    if len(set(classes)) < len(classes):
        twice = min(name for name in classes if list(classes).count(name) > 1)
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
    return Listing(tuple(classes), *(_found(tree, part) for part in (train, test)))


def check_classes(tree: Tree, count: int) -> None:
    """Raise where there are more classes than can be learned."""
    if count > MAX_CLASSES:
        raise DataError(f"{tree.where} names {count:,} classes; up to {MAX_CLASSES:,} can be learned")


def numbered(tree: Tree, source: str, columns: int) -> list[list[str]]:
    """The words of each line of a list, of which there must be so many or more."""
    rows = [line.split() for line in tree.lines(source)]
    for place, row in enumerate(rows, 1):
        if len(row) < columns:
            raise DataError(
                f"line {place} of {source} in {tree.where} holds {len(row)} words, {columns} are expected; "
                f"{tree.way_out()}"
            )
    return rows


def whole(word: str, source: str, tree: Tree) -> int:
    """A number in a list."""
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        raise DataError(f"{source} in {tree.where} holds {word[:40]!a} where a number belongs; {tree.way_out()}")
    return int(word)


def _check_part(tree: Tree, classes: Sequence[str], part: Part) -> None:
    if not part.entries:
        raise DataError(f"{part.source} in {tree.where} names no images; {tree.way_out()}")
    for entry in part.entries:
        if not 0 <= entry.label < len(classes):
            raise DataError(
                f"{part.source} in {tree.where} gives {entry.name} class {entry.label + 1}, there are {len(classes)} "
                f"counted from 1; {tree.way_out()}"
            )
    names = {entry.name for entry in part.entries}
    if len(names) < len(part.entries):
        raise DataError(
            f"{part.source} in {tree.where} names {len(part.entries) - len(names):,} images twice; {tree.way_out()}"
        )
    if absent := names - tree.files.keys():
        raise DataError(
            f"{part.source} in {tree.where} names {len(names):,} images, {len(absent):,} of them are not there, such "
            f"as {min(absent)}; {tree.way_out()}"
        )


def _found(tree: Tree, part: Part) -> tuple[tuple[SampleFile, int], ...]:
    ordered = sorted(part.entries, key=lambda entry: (entry.label, entry.name))
    return tuple((tree.file(entry.name, entry.box), entry.label) for entry in ordered)
