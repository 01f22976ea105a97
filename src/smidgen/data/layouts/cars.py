"""Stanford Cars: cars_train/ and cars_test/ with devkit/, or car_ims/ with cars_annos.mat.

Of each image only the car's bounding box is kept, which the annotations give in pixels counted from 1. Class 1 is
label 0. The test annotations are those with labels, beside devkit/ or in it.
"""

from __future__ import annotations

from smidgen.data.layouts.listing import Entry, Layout, Listing, Part, list_images
from smidgen.data.layouts.matlab import Value, read_mat
from smidgen.data.samples import DataError
from smidgen.data.trees import Box, Tree

TOGETHER, META, TRAIN = "cars_annos.mat", "devkit/cars_meta.mat", "devkit/cars_train_annos.mat"
TEST, UNLABELLED = "cars_test_annos_withlabels.mat", "devkit/cars_test_annos.mat"
BOX = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")

Fields = dict[str, tuple[Value, ...]]


def _read(tree: Tree) -> Listing:
    if TOGETHER in tree:
        annotations, names = _variables(tree, TOGETHER, "annotations", "class_names")
        fields = _fields(tree, TOGETHER, annotations, "relative_im_path", "class", "test", *BOX)
        tested = [bool(_number(value, TOGETHER, tree)) for value in fields["test"]]
        entries = _entries(tree, TOGETHER, fields, "relative_im_path", "")
        parts = [[e for e, flag in zip(entries, tested, strict=True) if flag == test] for test in (False, True)]
        return list_images(tree, _names(tree, TOGETHER, names), *(Part(TOGETHER, part) for part in parts))
    test = next((name for name in (TEST, f"devkit/{TEST}") if name in tree), TEST)
    if test not in tree and UNLABELLED in tree:
        raise DataError(
            f"{tree.where} holds {UNLABELLED}, which has no labels, and no {TEST}; put that file beside devkit/"
        )
    (names,) = _variables(tree, META, "class_names")
    train, tests = (
        Part(source, _entries(tree, source, _annotations(tree, source), "fname", f"{folder}/"))
        for source, folder in ((TRAIN, "cars_train"), (test, "cars_test"))
    )
    return list_images(tree, _names(tree, META, names), train, tests)


def _variables(tree: Tree, file: str, *names: str) -> list[Value]:
    found = read_mat(tree.read(file), f"{file} in {tree.where}", tree.budget.copy(), names)
    return [found[name] for name in names]


def _annotations(tree: Tree, source: str) -> Fields:
    (annotations,) = _variables(tree, source, "annotations")
    return _fields(tree, source, annotations, "fname", "class", *BOX)


def _fields(tree: Tree, source: str, annotations: Value, *names: str) -> Fields:
    if not isinstance(annotations, dict):
        raise DataError(f"annotations of {source} in {tree.where} are no structs; {tree.way_out()}")
    if missing := [name for name in names if name not in annotations]:
        raise DataError(f"annotations of {source} in {tree.where} have no field {missing[0]}; {tree.way_out()}")
    return annotations


def _entries(tree: Tree, source: str, fields: Fields, name: str, folder: str) -> list[Entry]:
    entries = []
    for place, (file, label) in enumerate(zip(fields[name], fields["class"], strict=True)):
        if not isinstance(file, str):
            raise DataError(f"annotation {place + 1:,} of {source} in {tree.where} names no file; {tree.way_out()}")
        left, top, right, bottom = (_number(fields[side][place], source, tree) for side in BOX)
        box: Box = (left - 1, top - 1, right, bottom)
        entries.append(Entry(folder + file, _number(label, source, tree) - 1, box))
    return entries


def _names(tree: Tree, source: str, names: Value) -> list[str]:
    found = [name for name in names if isinstance(name, str)] if isinstance(names, tuple) else []
    if not found or len(found) != len(names):
        raise DataError(f"class_names of {source} in {tree.where} are no text; {tree.way_out()}")
    return found


def _number(value: Value, source: str, tree: Tree) -> int:
    if isinstance(value, str | tuple | dict) or value.size != 1 or not 0 <= float(value[0]) < 2**31:
        raise DataError(f"{source} in {tree.where} holds something else where one number belongs; {tree.way_out()}")
    return int(value[0])


LAYOUT = Layout(
    "Stanford Cars", (TOGETHER, META, TRAIN, TEST, UNLABELLED, "cars_train/", "cars_test/", "car_ims/"), _read
)
