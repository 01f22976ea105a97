"""Caltech-UCSD Birds-200-2011: images/, images.txt, classes.txt, image_class_labels.txt and train_test_split.txt.

Images are whole: the bounding boxes that come along are not used. Class 1 of classes.txt is label 0.
"""

from __future__ import annotations

from smidgen.data.layouts.listing import Entry, Layout, Listing, Part, list_images, numbered, whole
from smidgen.data.samples import DataError
from smidgen.data.trees import Tree

IMAGES, CLASSES, LABELS, SPLIT = "images.txt", "classes.txt", "image_class_labels.txt", "train_test_split.txt"


def _read(tree: Tree) -> Listing:
    paths, labels, learned = (dict(_pairs(tree, file)) for file in (IMAGES, LABELS, SPLIT))
    for file, table in ((LABELS, labels), (SPLIT, learned)):
        if strange := paths.keys() ^ table.keys():
            raise DataError(
                f"{IMAGES} and {file} in {tree.where} disagree on {len(strange):,} images, such as number "
                f"{min(strange)}; {tree.way_out()}"
            )
    classes = [name for _, name in sorted(_pairs(tree, CLASSES))]
    entries = {key: Entry(f"images/{path}", whole(labels[key], LABELS, tree) - 1) for key, path in paths.items()}
    if odd := [key for key, flag in learned.items() if flag not in ("0", "1")]:
        raise DataError(f"{SPLIT} in {tree.where} puts image {odd[0]} into part {learned[odd[0]][:20]!a}, not 0 or 1")
    train, test = (Part(SPLIT, [entries[key] for key in paths if learned[key] == flag]) for flag in "10")
    return list_images(tree, classes, train, test)


def _pairs(tree: Tree, source: str) -> list[tuple[int, str]]:
    """Numbers and what each stands for."""
    return [(whole(row[0], source, tree), row[1]) for row in numbered(tree, source, 2)]


LAYOUT = Layout("CUB-200-2011", (LABELS, SPLIT), _read)
