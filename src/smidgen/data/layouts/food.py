"""Food-101: images/<class>/<number>.jpg, meta/classes.txt, and meta/train and meta/test as .txt or .json.

Labels follow the order of meta/classes.txt.
"""

from __future__ import annotations

from smidgen.data.layouts.json_text import parse_json
from smidgen.data.layouts.listing import Entry, Layout, Listing, Part, list_images
from smidgen.data.samples import DataError
from smidgen.data.trees import Tree

CLASSES = "meta/classes.txt"


def _read(tree: Tree) -> Listing:
    classes = tree.lines(CLASSES)
    number = {name: place for place, name in enumerate(classes)}
    return list_images(tree, classes, *(_part(tree, f"meta/{part}", number) for part in ("train", "test")))


def _part(tree: Tree, stem: str, number: dict[str, int]) -> Part:
    source = next((f"{stem}{suffix}" for suffix in (".txt", ".json") if f"{stem}{suffix}" in tree), f"{stem}.txt")
    names = tree.lines(source) if source.endswith(".txt") else _listed(tree, source)
    for name in names:
        if name.rpartition("/")[0] not in number:
            raise DataError(f"{source} in {tree.where} names {name[:80]!a}, of no class in {CLASSES}; {tree.way_out()}")
    return Part(source, [Entry(f"images/{name}.jpg", number[name.rpartition("/")[0]]) for name in names])


def _listed(tree: Tree, source: str) -> list[str]:
    found = parse_json(tree.read(source), f"{source} in {tree.where}", tree.budget)
    names = (
        [name for listed in found.values() if isinstance(listed, list) for name in listed]
        if isinstance(found, dict)
        else []
    )
    if not all(isinstance(name, str) for name in names):
        raise DataError(f"{source} in {tree.where} is not a list of images for each class; {tree.way_out()}")
    return names


LAYOUT = Layout("Food-101", (CLASSES, "meta/train.txt", "meta/train.json", "meta/test.txt", "meta/test.json"), _read)
