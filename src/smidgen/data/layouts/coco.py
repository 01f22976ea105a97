"""Visual Wake Words from COCO's annotations: is there a person in the image?

The label is 1, `person`, if the bounding box of any person covers at least 0.5 % of the image, otherwise 0. Images
to learn from and to test with are those of annotations/instances_maxitrain.json and instances_minival.json, the split
of Visual Wake Words, if these exist; otherwise COCO's train and val of 2017 or 2014.
"""

from __future__ import annotations

from dataclasses import dataclass

from smidgen.data.files import Tree
from smidgen.data.layouts.formats import members
from smidgen.data.layouts.listing import Entry, Layout, Listing, Part, list_images
from smidgen.data.samples import DataError

CLASSES = ("no person", "person")
SHARE = 0.005  # of the image's area
PERSON = "person"
YEARS = ("2017", "2014")
SPLITS = (("maxitrain", "minival"), *((f"train{year}", f"val{year}") for year in YEARS))
FOLDERS = tuple(f"{part}{year}" for year in YEARS for part in ("train", "val"))


def _read(tree: Tree) -> Listing:
    files = [tuple(f"annotations/instances_{part}.json" for part in split) for split in SPLITS]
    train, test = next((pair for pair in files if any(file in tree for file in pair)), files[1])
    return list_images(tree, CLASSES, _part(tree, train), _part(tree, test))


def _part(tree: Tree, source: str) -> Part:
    data = tree.read(source)
    tree.budget.check(f"{source}, as text,", 2 * len(data))
    noted = _Noted(f"{source} in {tree.where}")
    for kind, record in members(data, noted.where, ("categories", "images", "annotations")):
        noted.note(kind, record if isinstance(record, dict) else {})
    named = source.removeprefix("annotations/instances_").removesuffix(".json")
    folders = (named, *FOLDERS) if named in FOLDERS else FOLDERS
    return Part(source, [_entry(tree, folders, name, label) for name, label in noted.labels()])


def _entry(tree: Tree, folders: tuple[str, ...], name: str, label: int) -> Entry:
    """Return an image in the folder of its part, or in the folder that has it if the split mixes the parts."""
    return Entry(next((f"{f}/{name}" for f in folders if f"{f}/{name}" in tree.files), f"{folders[0]}/{name}"), label)


@dataclass(frozen=True)
class _Box:
    image: int
    category: int
    area: float


class _Noted:
    """The annotations that are kept: files and sizes of images, boxes, and the number of people's category."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.images: dict[int, tuple[str, float]] = {}  # file, area
        self.boxes: list[_Box] = []
        self.people: set[int] = set()

    def note(self, kind: str, record: dict[str, object]) -> None:
        match kind, record:
            case "categories", {"id": int(number), "name": str(name)}:
                if name == PERSON:
                    self.people.add(number)
            case "images", {"id": int(n), "file_name": str(file), "width": int(w), "height": int(h)} if w * h > 0:
                self.images[n] = file, w * h
            case "annotations", {
                "image_id": int(n),
                "category_id": int(c),
                "bbox": [_, _, float() | int() as w, h],
            } if isinstance(h, float | int):
                self.boxes.append(_Box(n, c, w * h))
            case _:
                raise DataError(
                    f"{self.where} holds one of {kind} that is not as in COCO; use its instances_*.json files"
                )

    def labels(self) -> list[tuple[str, int]]:
        """Return each image's file and label."""
        if not self.people:
            raise DataError(f"{self.where} has no category '{PERSON}'; use COCO's instances_*.json files")
        if strange := {box.image for box in self.boxes} - self.images.keys():
            raise DataError(f"{self.where} has boxes of image {min(strange)}, which it does not list")
        seen = {
            box.image
            for box in self.boxes
            if box.category in self.people and box.area >= SHARE * self.images[box.image][1]
        }
        return [(file, int(number in seen)) for number, (file, _) in self.images.items()]


COCO = Layout(
    "Visual Wake Words",
    (*(f"annotations/instances_{part}.json" for split in SPLITS for part in split), *(f"{f}/" for f in FOLDERS)),
    _read,
)
