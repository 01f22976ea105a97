"""Data sets in their publishers' layouts, recognized by their files and read in their official splits."""

from collections.abc import Iterable

from smidgen.data.files import Tree
from smidgen.data.layouts import cifar, lists
from smidgen.data.layouts.listing import Layout, Listing
from smidgen.data.samples import DataError

__all__ = ["LAYOUTS", "Layout", "Listing", "recognize"]

LAYOUTS = (*cifar.LAYOUTS, lists.CARS, lists.BIRDS, lists.FLOWERS, lists.FOOD, lists.PETS, lists.COCO)
_MARKS = frozenset(mark for layout in LAYOUTS for mark in layout.marks)


def recognize(tree: Tree) -> tuple[Layout, Tree] | None:
    """Return the layout of a tree, or of the one folder in it that has any, with its files; None if there is none."""
    found = [(layout, tree) for layout in _marked(tree.files)]
    if not found:
        folders: dict[str, list[str]] = {}
        for name in tree.files:
            folder, _, rest = name.partition("/")
            if rest and _marks(rest):
                folders.setdefault(folder, []).append(rest)
        found = [(layout, tree.below(folder)) for folder, names in folders.items() for layout in _marked(names)]
    if len(found) > 1:
        sets = " and ".join(f"{layout.name} in {place.where}" for layout, place in found)
        raise DataError(f"{tree.where} holds files of several data sets, {sets}; give a folder that holds one")
    return found[0] if found else None


def _marks(name: str) -> frozenset[str]:
    """Return the marks of a layout that a file bears: its path, or the top folder that it lies in."""
    top, slash, _ = name.partition("/")
    return _MARKS & {name, top + slash}


def _marked(names: Iterable[str]) -> list[Layout]:
    seen = {mark for name in names for mark in _marks(name)}
    return [layout for layout in LAYOUTS if seen.intersection(layout.marks)]
