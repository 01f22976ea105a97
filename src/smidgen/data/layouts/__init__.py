"""Data sets in the layouts of their publishers, recognized by their files and read in their official splits."""

from __future__ import annotations

from smidgen.data.layouts import cars, cifar, coco, cub, flowers, food, pets
from smidgen.data.layouts.listing import Layout, Listing
from smidgen.data.samples import DataError
from smidgen.data.trees import Tree

__all__ = ["LAYOUTS", "Layout", "Listing", "recognize"]

LAYOUTS: tuple[Layout, ...] = (
    cifar.TEN, cifar.TEN_PYTHON, cifar.TEN_SHEETS, cifar.HUNDRED, cifar.HUNDRED_PYTHON,
    cars.LAYOUT, cub.LAYOUT, flowers.LAYOUT, food.LAYOUT, pets.LAYOUT, coco.LAYOUT,
)  # fmt: skip


def recognize(tree: Tree) -> tuple[Layout, Tree] | None:
    """The layout of a tree, or of the one folder in it that has any, and where it lies; None for images by label."""
    here = _marked(list(tree.files))
    if here:
        return _only([(layout, tree) for layout in here], tree)
    folders: dict[str, list[str]] = {}
    for name in tree.files:
        folder, _, rest = name.partition("/")
        if rest and _marks(rest) & _ALL:
            folders.setdefault(folder, []).append(rest)
    found = [(layout, tree.below(folder)) for folder, names in folders.items() for layout in _marked(names)]
    return _only(found, tree) if found else None


def _marks(name: str) -> set[str]:
    """What a file can be recognized by: its path, and the folder at the top that it lies in."""
    top, slash, _ = name.partition("/")
    return {name, top + slash}


def _marked(names: list[str]) -> list[Layout]:
    seen = {mark for name in names for mark in _marks(name) if mark in _ALL}
    return [layout for layout in LAYOUTS if seen.intersection(layout.marks)]


def _only(found: list[tuple[Layout, Tree]], tree: Tree) -> tuple[Layout, Tree]:
    if len(found) > 1:
        sets = " and ".join(f"{layout.name} in {place.where}" for layout, place in found)
        raise DataError(f"{tree.where} holds files of several data sets, {sets}; give a folder that holds one")
    return found[0]


_ALL = frozenset(mark for layout in LAYOUTS for mark in layout.marks)
