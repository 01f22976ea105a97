"""Oxford-IIIT Pets: images/<Breed>_<number>.jpg, annotations/trainval.txt and annotations/test.txt.

A class is a breed, named as its images are; breed 1 of the lists is label 0.
"""

from __future__ import annotations

from smidgen.data.layouts.listing import Entry, Layout, Listing, Part, list_images, numbered, whole
from smidgen.data.samples import DataError
from smidgen.data.trees import Tree

TRAIN, TEST = "annotations/trainval.txt", "annotations/test.txt"


def _read(tree: Tree) -> Listing:
    names: dict[int, str] = {}
    train, test = (Part(source, _entries(tree, source, names)) for source in (TRAIN, TEST))
    if (most := max(names, default=0)) > len(names):
        absent = min(set(range(1, most)) - names.keys())
        raise DataError(f"{TRAIN} and {TEST} in {tree.where} name no image of breed {absent}; {tree.way_out()}")
    return list_images(tree, [names[number] for number in sorted(names)], train, test)


def _entries(tree: Tree, source: str, names: dict[int, str]) -> list[Entry]:
    """The images of a list, whose breeds' names are noted by their numbers."""
    rows = [row for row in numbered(tree, source, 1) if not row[0].startswith("#")]
    entries = []
    for row in rows:
        if len(row) < 2 or (number := whole(row[1], source, tree)) < 1:
            raise DataError(f"{source} in {tree.where} gives {row[0][:80]!a} no breed; {tree.way_out()}")
        breed = row[0].rpartition("_")[0]
        if names.setdefault(number, breed) != breed:
            raise DataError(f"{source} in {tree.where} gives {names[number]} and {breed} the number {number}")
        entries.append(Entry(f"images/{row[0]}.jpg", number - 1))
    return entries


LAYOUT = Layout("Oxford-IIIT Pets", (TRAIN, "annotations/list.txt"), _read)
