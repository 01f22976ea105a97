"""Data sets whose images are listed in files: CUB-200-2011, Flowers-102, Food-101, Pets, Stanford Cars, COCO."""

import numpy as np

from smidgen.data.files import Box, Tree
from smidgen.data.layouts.formats import Value, members, parse_json, read_mat
from smidgen.data.layouts.listing import Layout, Listed, Listing, Split, check_classes, list_images
from smidgen.data.samples import DataError
from smidgen.ir import Array

BIRD_IMAGES, BIRD_CLASSES = "images.txt", "classes.txt"
BIRD_LABELS, BIRD_SPLIT = "image_class_labels.txt", "train_test_split.txt"
FLOWER_LABELS, FLOWER_SPLIT = "imagelabels.mat", "setid.mat"
FOOD_CLASSES = "meta/classes.txt"
PET_TRAIN, PET_TEST = "annotations/trainval.txt", "annotations/test.txt"
CARS_TOGETHER, CARS_META, CARS_TRAIN = "cars_annos.mat", "devkit/cars_meta.mat", "devkit/cars_train_annos.mat"
CARS_TEST, CARS_UNLABELLED = "cars_test_annos_withlabels.mat", "devkit/cars_test_annos.mat"
CAR_BOX = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
PERSON = "person"
COCO_CLASSES, COCO_YEARS = (f"no {PERSON}", PERSON), ("2017", "2014")
COCO_SHARE = 0.005  # of the image's area
LARGEST = 2**62  # side or area, in pixels
COCO_SPLITS = (("maxitrain", "minival"), *((f"train{year}", f"val{year}") for year in COCO_YEARS))
COCO_FOLDERS = tuple(f"{part}{year}" for year in COCO_YEARS for part in ("train", "val"))


def _read_birds(tree: Tree) -> Listing:
    """List whole images: the published bounding boxes are not used. Class 1 of classes.txt is label 0."""
    paths, labels, learned = (dict(_pairs(tree, file)) for file in (BIRD_IMAGES, BIRD_LABELS, BIRD_SPLIT))
    for file, table in ((BIRD_LABELS, labels), (BIRD_SPLIT, learned)):
        if odd := paths.keys() ^ table.keys():
            found = f"disagree on {len(odd):,} images, such as number {min(odd)}"
            raise tree.wrong(f"{BIRD_IMAGES} and {file}", found)
    classes = [name for _, name in sorted(_pairs(tree, BIRD_CLASSES))]
    entries = {key: Listed(f"images/{path}", _whole(labels[key], BIRD_LABELS, tree) - 1) for key, path in paths.items()}
    if neither := [key for key, flag in learned.items() if flag not in ("0", "1")]:
        flag = learned[neither[0]][:20]
        raise DataError(f"{BIRD_SPLIT} in {tree.where} puts image {neither[0]} into part {flag!a}, not 0 or 1")
    train, test = (Split(BIRD_SPLIT, [entries[key] for key in paths if learned[key] == flag]) for flag in "10")
    return list_images(tree, classes, train, test)


def _pairs(tree: Tree, source: str) -> list[tuple[int, str]]:
    """Return the number and the word of each line."""
    return [(_whole(row[0], source, tree), row[1]) for row in _words(tree, source, 2)]


def _words(tree: Tree, source: str, least: int) -> list[list[str]]:
    """Return the words of each line of a list, which needs at least `least` of them."""
    rows = [line.split() for line in tree.lines(source)]
    for place, row in enumerate(rows, 1):
        if len(row) < least:
            raise tree.wrong(f"line {place} of {source}", f"holds {len(row)} words, {least} are expected")
    return rows


def _whole(word: str, source: str, tree: Tree) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        raise tree.wrong(source, f"holds {word[:40]!a} where a number belongs")
    return int(word)


def _read_flowers(tree: Tree) -> Listing:
    """List the images of `trnid` and `valid` to learn from, as the paper does, and those of `tstid` to test with.

    The publisher numbers the classes from 1 and gives them no names: class 1 is label 0.
    """
    labels = _counted(_variables(tree, FLOWER_LABELS, "labels")[0], FLOWER_LABELS, tree)
    parts = _variables(tree, FLOWER_SPLIT, "trnid", "valid", "tstid")
    trained, validated, tested = (_counted(value, FLOWER_SPLIT, tree) for value in parts)
    check_classes(tree, int(labels.max()))

    def entry(place: int) -> Listed:
        if place > len(labels):
            raise DataError(
                f"{FLOWER_SPLIT} in {tree.where} names image {place:,}, {FLOWER_LABELS} has {len(labels):,} labels; "
                "the two are not of one data set"
            )
        return Listed(f"jpg/image_{place:05d}.jpg", int(labels[place - 1]) - 1)

    classes = [str(number) for number in range(1, 1 + int(labels.max()))]
    both = ([*trained, *validated], tested)
    return list_images(tree, classes, *(Split(FLOWER_SPLIT, [entry(int(place)) for place in part]) for part in both))


def _variables(tree: Tree, file: str, *names: str) -> list[Value]:
    found = read_mat(tree.read(file), f"{file} in {tree.where}", tree.budget.copy(), names)
    return [found[name] for name in names]


def _counted(value: Value, source: str, tree: Tree) -> Array:
    """Return whole numbers from 1."""
    if isinstance(value, str | tuple | dict) or not value.size or not np.isfinite(value).all():
        raise tree.wrong(source, "holds something else than numbers from 1")
    if value.min() < 1 or value.max() >= 2**31 or (value % 1).any():
        raise tree.wrong(source, "holds something else than numbers from 1")
    return value.astype(int)


def _read_food(tree: Tree) -> Listing:
    """List images/<class>/<number>.jpg by meta/train and meta/test; labels follow the order of meta/classes.txt."""
    classes = tree.lines(FOOD_CLASSES)
    number = {name: place for place, name in enumerate(classes)}
    return list_images(tree, classes, *(_food_part(tree, f"meta/{part}", number) for part in ("train", "test")))


def _food_part(tree: Tree, stem: str, number: dict[str, int]) -> Split:
    source = next((f"{stem}{suffix}" for suffix in (".txt", ".json") if f"{stem}{suffix}" in tree), f"{stem}.txt")
    if source.endswith(".txt"):
        names = tree.lines(source)
    else:
        found = parse_json(tree.read(source), f"{source} in {tree.where}", tree.budget)
        lists = found.values() if isinstance(found, dict) else ()
        names = [name for listed in lists if isinstance(listed, list) for name in listed]
        if not all(isinstance(name, str) for name in names):
            raise tree.wrong(source, "is not a list of images for each class")
    for name in names:
        if name.rpartition("/")[0] not in number:
            raise tree.wrong(source, f"names {name[:80]!a}, of no class in {FOOD_CLASSES}")
    return Split(source, [Listed(f"images/{name}.jpg", number[name.rpartition("/")[0]]) for name in names])


def _read_pets(tree: Tree) -> Listing:
    """List images/<Breed>_<number>.jpg: a class is a breed, and breed 1 of the lists is label 0."""
    names: dict[int, str] = {}
    train, test = (Split(source, _pet_entries(tree, source, names)) for source in (PET_TRAIN, PET_TEST))
    if (most := max(names, default=0)) > len(names):
        absent = min(set(range(1, most)) - names.keys())
        raise tree.wrong(f"{PET_TRAIN} and {PET_TEST}", f"name no image of breed {absent}")
    return list_images(tree, [names[number] for number in sorted(names)], train, test)


def _pet_entries(tree: Tree, source: str, names: dict[int, str]) -> list[Listed]:
    """Return the images of a list, and note the name of each breed by its number."""
    entries = []
    for row in _words(tree, source, 1):
        if row[0].startswith("#"):
            continue
        if len(row) < 2 or (number := _whole(row[1], source, tree)) < 1:
            raise tree.wrong(source, f"gives {row[0][:80]!a} no breed")
        breed = row[0].rpartition("_")[0]
        if names.setdefault(number, breed) != breed:
            raise DataError(f"{source} in {tree.where} gives {names[number]} and {breed} the number {number}")
        entries.append(Listed(f"images/{row[0]}.jpg", number - 1))
    return entries


def _read_cars(tree: Tree) -> Listing:
    """List cars_train/ and cars_test/ with devkit/, or car_ims/ with cars_annos.mat.

    Each image is cut to the car's bounding box, which the annotations give in pixels counted from 1. Class 1 is label
    0. The test annotations are those with labels, beside devkit/ or in it.
    """
    if CARS_TOGETHER in tree:
        annotations, names = _variables(tree, CARS_TOGETHER, "annotations", "class_names")
        entries = _car_entries(tree, CARS_TOGETHER, annotations, "relative_im_path", "", "test")
        assert isinstance(annotations, dict)
        tested = [bool(_one_number(value, CARS_TOGETHER, tree)) for value in annotations["test"]]
        parts = [[e for e, flag in zip(entries, tested, strict=True) if flag == test] for test in (False, True)]
        classes = _car_classes(tree, CARS_TOGETHER, names)
        return list_images(tree, classes, *(Split(CARS_TOGETHER, part) for part in parts))
    test = next((name for name in (CARS_TEST, f"devkit/{CARS_TEST}") if name in tree), CARS_TEST)
    if test not in tree and CARS_UNLABELLED in tree:
        raise DataError(
            f"{tree.where} holds {CARS_UNLABELLED}, which has no labels, and no {CARS_TEST}; put that file beside "
            "devkit/"
        )
    (names,) = _variables(tree, CARS_META, "class_names")
    train, tests = (
        Split(source, _car_entries(tree, source, _variables(tree, source, "annotations")[0], "fname", f"{folder}/"))
        for source, folder in ((CARS_TRAIN, "cars_train"), (test, "cars_test"))
    )
    return list_images(tree, _car_classes(tree, CARS_META, names), train, tests)


def _car_entries(tree: Tree, source: str, annotations: Value, name: str, folder: str, *also: str) -> list[Listed]:
    """Return the annotated images, whose files the field `name` holds; the fields `also` must be there, too."""
    if not isinstance(annotations, dict):
        raise tree.wrong(f"annotations of {source}", "are no structs")
    if missing := [field for field in (name, "class", *also, *CAR_BOX) if field not in annotations]:
        raise tree.wrong(f"annotations of {source}", f"have no field {missing[0]}")
    entries = []
    for place, (file, label) in enumerate(zip(annotations[name], annotations["class"], strict=True)):
        if not isinstance(file, str):
            raise tree.wrong(f"annotation {place + 1:,} of {source}", "names no file")
        left, top, right, bottom = (_one_number(annotations[side][place], source, tree) for side in CAR_BOX)
        box: Box = (left - 1, top - 1, right, bottom)
        entries.append(Listed(folder + file, _one_number(label, source, tree) - 1, box))
    return entries


def _car_classes(tree: Tree, source: str, names: Value) -> list[str]:
    found = [name for name in names if isinstance(name, str)] if isinstance(names, tuple) else []
    if not found or len(found) != len(names):
        raise tree.wrong(f"class_names of {source}", "are no text")
    return found


def _one_number(value: Value, source: str, tree: Tree) -> int:
    if isinstance(value, str | tuple | dict) or value.size != 1 or not 0 <= float(value[0]) < 2**31:
        raise tree.wrong(source, "holds something else where one number belongs")
    return int(value[0])


def _read_coco(tree: Tree) -> Listing:
    """List images with and without people, as Visual Wake Words does from COCO's annotations.

    The label is 1, `person`, if the bounding box of any person covers at least 0.5 % of the image, otherwise 0. Images
    to learn from and to test with are those of instances_maxitrain.json and instances_minival.json, the split of Visual
    Wake Words, if these exist; otherwise COCO's train and val of 2017 or 2014.
    """
    files = [tuple(f"annotations/instances_{part}.json" for part in split) for split in COCO_SPLITS]
    train, test = next((pair for pair in files if any(file in tree for file in pair)), files[1])
    return list_images(tree, COCO_CLASSES, _coco_part(tree, train), _coco_part(tree, test))


def _coco_part(tree: Tree, source: str) -> Split:
    data = tree.read(source)
    tree.budget.check(f"{source}, as text,", 2 * len(data))
    named = source.removeprefix("annotations/instances_").removesuffix(".json")
    folders = (named, *COCO_FOLDERS) if named in COCO_FOLDERS else COCO_FOLDERS

    def entry(name: str, label: int) -> Listed:  # in the folder of its part, or in the one that has it in mixed parts
        return Listed(next((f"{f}/{name}" for f in folders if f"{f}/{name}" in tree), f"{folders[0]}/{name}"), label)

    return Split(source, [entry(*image) for image in _coco_labels(data, f"{source} in {tree.where}")])


def _coco_labels(data: bytes, where: str) -> list[tuple[str, int]]:
    """Return the file and the label of each image in some annotations."""
    images: dict[int, tuple[str, int]] = {}  # file, area
    boxes: list[tuple[int, int, float]] = []  # image, category, area
    people: set[int] = set()  # categories
    for kind, record in members(data, where, ("categories", "images", "annotations")):
        match kind, record:
            case "categories", {"id": int(number), "name": str(name)}:
                if name == PERSON:
                    people.add(number)
            case "images", {"id": int(n), "file_name": str(file), "width": int(w), "height": int(h)} if (
                0 < w * h < LARGEST
            ):
                images[n] = file, w * h
            case "annotations", {
                "image_id": int(n), "category_id": int(c), "bbox": [_, _, float() | int() as w, float() | int() as h],
            } if max(abs(w), abs(h)) < LARGEST:  # fmt: skip
                boxes.append((n, c, w * h))
            case _:
                raise DataError(f"{where} holds one of {kind} that is not as in COCO; use its instances_*.json files")
    if not people:
        raise DataError(f"{where} has no category '{PERSON}'; use COCO's instances_*.json files")
    if strange := {image for image, _, _ in boxes} - images.keys():
        raise DataError(f"{where} has boxes of image {min(strange)}, which it does not list")
    seen = {image for image, category, area in boxes if category in people and area >= COCO_SHARE * images[image][1]}
    return [(file, int(number in seen)) for number, (file, _) in images.items()]


BIRDS = Layout("CUB-200-2011", (BIRD_LABELS, BIRD_SPLIT), _read_birds)
FLOWERS = Layout("Flowers-102", (FLOWER_LABELS, FLOWER_SPLIT), _read_flowers)
FOOD = Layout(
    "Food-101", (FOOD_CLASSES, "meta/train.txt", "meta/train.json", "meta/test.txt", "meta/test.json"), _read_food
)
PETS = Layout("Oxford-IIIT Pets", (PET_TRAIN, "annotations/list.txt"), _read_pets)
CARS = Layout(
    "Stanford Cars",
    (CARS_TOGETHER, CARS_META, CARS_TRAIN, CARS_TEST, CARS_UNLABELLED, "cars_train/", "cars_test/", "car_ims/"),
    _read_cars,
)
COCO = Layout(
    "Visual Wake Words",
    (
        *(f"annotations/instances_{part}.json" for split in COCO_SPLITS for part in split),
        *(f"{folder}/" for folder in COCO_FOLDERS),
    ),
    _read_coco,
)
