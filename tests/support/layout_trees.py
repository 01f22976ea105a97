"""Tiny data sets in the layouts of their publishers: every image has one shade, which identifies it."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import numpy as np
from PIL import Image

from smidgen.ir import Array
from tests.support.mat_files import Value, mat_file, numbers

Files = dict[str, bytes]
STEP = 10  # between shades, so that JPEG keeps them apart
CARS_BOX = (3, 2, 6, 4)  # x1, y1, x2, y2, counted from 1: 4 by 3 pixels


def jpg(number: int, size: tuple[int, int] = (8, 6)) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", size, (STEP * number,) * 3).save(data, "jpeg", quality=95)
    return data.getvalue()


def boxed(number: int) -> bytes:
    """A photograph of 8 by 6 pixels that has its shade in the box alone."""
    image = Image.new("RGB", (8, 6))
    image.paste((STEP * number,) * 3, (CARS_BOX[0] - 1, CARS_BOX[1] - 1, CARS_BOX[2], CARS_BOX[3]))
    data = io.BytesIO()
    image.save(data, "png")
    return data.getvalue()


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def write(folder: Path, files: Files) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def planes(*shades: int) -> Array:
    """Images of 32 by 32 pixels as CIFAR stores them: all red, all green, all blue, a shade lighter each."""
    colours = np.array([[STEP * n, STEP * n + 1, STEP * n + 2] for n in shades], np.uint8)
    return colours.repeat(1024, axis=1)


def cifar10() -> Files:
    records = {f"data_batch_{n}.bin": ((n % 3, n),) for n in range(1, 6)} | {"test_batch.bin": ((1, 6), (0, 7))}
    files = {
        name: b"".join(bytes([label]) + planes(shade).tobytes() for label, shade in rows)
        for name, rows in records.items()
    }
    return files | {"batches.meta.txt": text("airplane", "automobile", "bird", "")}


def cifar100() -> Files:
    rows = {"train.bin": ((9, 1, 1), (8, 0, 2), (7, 1, 3)), "test.bin": ((6, 0, 4),)}
    files = {
        name: b"".join(bytes([coarse, fine]) + planes(shade).tobytes() for coarse, fine, shade in listed)
        for name, listed in rows.items()
    }
    return files | {"fine_label_names.txt": text("apple", "aquarium_fish"), "coarse_label_names.txt": text("fish")}


def old_pickle(value: dict[str, object]) -> bytes:
    """A pickle as Python 2 wrote it: text and arrays' bytes as its strings."""
    return b"\x80\x02" + _old(value) + b"."


def _old(value: object) -> bytes:
    if isinstance(value, dict):
        return b"}(" + b"".join(_old(key) + _old(item) for key, item in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_old, value)) + b"e"
    if isinstance(value, int):
        return b"K" + bytes([value])
    if isinstance(value, str):
        return b"U" + bytes([len(value)]) + value.encode()
    assert isinstance(value, np.ndarray)
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    rows, columns = value.shape
    raw: bytes = b"T" + value.nbytes.to_bytes(4, "little") + value.tobytes()
    shape: bytes = b"K" + bytes([rows]) + b"M" + columns.to_bytes(2, "little") + b"\x86"
    return made + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb"


def cifar10_python() -> Files:
    batches: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        f"data_batch_{n}": ((n % 3,), (n,)) for n in range(1, 6)
    }
    batches["test_batch"] = ((1, 0), (6, 7))
    files = {
        name: old_pickle({"batch_label": "x", "labels": list(labels), "data": planes(*shades), "filenames": ["a.png"]})
        for name, (labels, shades) in batches.items()
    }
    return files | {"batches.meta": old_pickle({"label_names": ["airplane", "automobile", "bird"]})}


def cifar100_python() -> Files:
    """As saved again by today's Python."""
    train = {"data": planes(1, 2, 3), "fine_labels": [1, 0, 1], "coarse_labels": [9, 8, 7]}
    test = {"data": planes(4), "fine_labels": [0], "coarse_labels": [6]}
    meta = {"fine_label_names": ["apple", "aquarium_fish"], "coarse_label_names": ["fish"]}
    return {name: pickle.dumps(value, 2) for name, value in (("train", train), ("test", test), ("meta", meta))}


def sheet(*shades: int) -> bytes:
    rows = np.stack([planes(n).reshape(3, 1024).T for n in shades])
    data = io.BytesIO()
    Image.fromarray(rows).save(data, "png")
    return data.getvalue()


def cifar10_sheets() -> Files:
    files = {f"data_batch_{n}.png": sheet(n) for n in range(1, 6)}
    files["test_batch.png"] = sheet(6, 7)
    files["train_lables.json"] = json.dumps([n % 3 for n in range(1, 6)]).encode()
    return files | {"test_lables.json": b"[1, 0]", "README.md": b"cifar10"}


def flowers(order: str = "<", deflated: bool = True) -> Files:
    """Six photographs of two classes: 5 and 2 to train, 1 to validate, the others to test."""
    labels = mat_file({"labels": numbers(1, 2, 1, 2, 1, 2)}, order, deflated)
    split: dict[str, Value] = {
        "trnid": numbers(5, 2, dtype="uint16"), "valid": numbers(1, dtype="float64"), "tstid": numbers(3, 4, 6),
    }  # fmt: skip
    files = {f"jpg/image_{n:05d}.jpg": jpg(n) for n in range(1, 7)}
    return files | {"imagelabels.mat": labels, "setid.mat": mat_file(split, order, deflated)}


def car_annotations(names: list[str], classes: list[int] | None, **more: list[Value]) -> Value:
    fields: dict[str, list[Value]] = {
        f"bbox_{side}": [numbers(place)] * len(names)
        for side, place in zip(("x1", "y1", "x2", "y2"), CARS_BOX, strict=True)
    }
    if classes is not None:
        fields["class"] = [numbers(label) for label in classes]
    return fields | more


def cars() -> Files:
    train, test = ["00001.jpg", "00002.jpg"], ["00001.jpg", "00002.jpg"]
    files = {f"cars_train/{name}": boxed(n) for n, name in enumerate(train, 1)}
    files |= {f"cars_test/{name}": boxed(n) for n, name in enumerate(test, 3)}
    return files | {
        "devkit/cars_meta.mat": mat_file({"class_names": ["AM General Hummer", "Acura RL"]}),
        "devkit/cars_train_annos.mat": mat_file({"annotations": car_annotations(train, [2, 1], fname=list(train))}),
        "devkit/cars_test_annos.mat": mat_file({"annotations": car_annotations(test, None, fname=list(test))}),
        "cars_test_annos_withlabels.mat": mat_file({"annotations": car_annotations(test, [1, 2], fname=list(test))}),
    }


def cars_together() -> Files:
    names = [f"car_ims/{n:06d}.jpg" for n in range(1, 5)]
    tested: list[Value] = [numbers(flag) for flag in (0, 0, 1, 1)]
    listed = car_annotations(names, [2, 1, 1, 2], relative_im_path=list(names), test=tested)
    files = {name: boxed(n) for n, name in enumerate(names, 1)}
    classes: Value = ["AM General Hummer", "Acura RL"]
    return files | {"cars_annos.mat": mat_file({"annotations": listed, "class_names": classes}, deflated=True)}


def cub() -> Files:
    paths = ["001.Albatross/a.jpg", "002.Auklet/b.jpg", "001.Albatross/c.jpg", "002.Auklet/d.jpg"]
    files = {f"images/{path}": jpg(n) for n, path in enumerate(paths, 1)}
    return files | {
        "images.txt": text(*(f"{n} {path}" for n, path in enumerate(paths, 1))),
        "classes.txt": text("1 001.Albatross", "2 002.Auklet"),
        "image_class_labels.txt": text("1 1", "2 2", "3 1", "4 2"),
        "train_test_split.txt": text("1 0", "2 1", "3 1", "4 0"),
        "bounding_boxes.txt": text("1 1.0 1.0 2.0 2.0"),
    }


def food(json_lists: bool = False) -> Files:
    listed = {
        "train": {"baby_pie": ["baby_pie/1"], "waffles": ["waffles/2"]},
        "test": {"baby_pie": ["baby_pie/3"], "waffles": ["waffles/4"]},
    }
    names = [name for part in listed.values() for listed_names in part.values() for name in listed_names]
    files = {f"images/{name}.jpg": jpg(int(name.rpartition("/")[2])) for name in names}
    for part, classes in listed.items():
        if json_lists:
            files[f"meta/{part}.json"] = json.dumps(classes).encode()
        else:
            files[f"meta/{part}.txt"] = text(*(name for found in classes.values() for name in found))
    return files | {"meta/classes.txt": text("baby_pie", "waffles"), "meta/labels.txt": text("Baby pie", "Waffles")}


def pets() -> Files:
    names = ["Abyssinian_1", "great_pyrenees_2", "Abyssinian_3", "great_pyrenees_4"]
    files = {f"images/{name}.jpg": jpg(n) for n, name in enumerate(names, 1)}
    return files | {
        "annotations/list.txt": text("#Image CLASS-ID SPECIES BREED ID", "Abyssinian_1 1 1 1"),
        "annotations/trainval.txt": text("great_pyrenees_2 2 2 1", "Abyssinian_1 1 1 1"),
        "annotations/test.txt": text("Abyssinian_3 1 1 1", "great_pyrenees_4 2 2 1"),
    }


def instances(images: dict[int, str], boxes: list[tuple[int, int, float, float]]) -> bytes:
    """COCO's annotations of images of 100 by 80 pixels; boxes are of an image, a category, a width and a height."""
    return json.dumps({
        "info": {"year": 2017, "note": "[{"},
        "licenses": [],
        "images": [{"id": n, "file_name": name, "width": 100, "height": 80} for n, name in images.items()],
        "annotations": [
            {"id": place, "image_id": n, "category_id": category, "bbox": [1, 2.5, w, h], "area": 1, "iscrowd": 0}
            for place, (n, category, w, h) in enumerate(boxes)
        ],
        "categories": [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}],
    }).encode()  # fmt: skip


def coco(first: str = "train2017", second: str = "val2017") -> Files:
    """0.5 % of an image are 40 pixels: 4 × 10 is a person, 3.9 × 10 too small, a dog is none."""
    train, test = {n: f"{n:012d}.jpg" for n in (1, 2, 3)}, {n: f"{n:012d}.jpg" for n in (4, 5)}
    files = {f"train2017/{name}": jpg(n) for n, name in train.items()}
    files |= {f"val2017/{name}": jpg(n) for n, name in test.items()}
    return files | {
        f"annotations/instances_{first}.json": instances(train, [(1, 1, 4, 10), (2, 1, 3.9, 10), (3, 18, 50, 50)]),
        f"annotations/instances_{second}.json": instances(test, [(4, 18, 9, 9), (4, 1, 50, 50)]),
    }


def coco_mixed() -> Files:
    """The split of Visual Wake Words, whose images to learn from come out of both of COCO's folders."""
    files = coco("maxitrain", "minival")
    files["val2017/000000000003.jpg"] = files.pop("train2017/000000000003.jpg")
    return files
