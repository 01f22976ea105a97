"""Published data sets are read as their publishers divide and label them, and what is wrong is said in a sentence."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from smidgen import cli
from smidgen.data import Data, DataError, load_data, load_images
from smidgen.data.files import Budget
from smidgen.data.layouts import LAYOUTS
from smidgen.data.layouts.formats import read_mat
from smidgen.frontends.native import write_smg
from smidgen.ir import Array
from tests.support import layout_trees as trees
from tests.support.float_graphs import dequantized
from tests.support.house import TOP
from tests.support.layout_trees import STEP, Files, jpg, text, write
from tests.support.mat_files import Value, mat_file, numbers
from tests.support.release_files import zipped
from tests.support.small_network import small_network
from tests.support.tiers import examples

Pairs = list[tuple[int, int]]  # which image, which label
TEN = ("airplane", "automobile", "bird")
HUNDRED = ("apple", "aquarium_fish")
CARS = ("AM General Hummer", "Acura RL")
OF_TEN: tuple[Pairs, Pairs] = [(1, 1), (2, 2), (3, 0), (4, 1), (5, 2)], [(6, 1), (7, 0)]
OF_HUNDRED: tuple[Pairs, Pairs] = [(1, 1), (2, 0), (3, 1)], [(4, 0)]
OF_CARS: tuple[Pairs, Pairs] = [(2, 0), (1, 1)], [(3, 0), (4, 1)]
OF_COCO: tuple[Pairs, Pairs] = [(2, 0), (3, 0), (1, 1)], [(5, 0), (4, 1)]
SHEETS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

CASES: list[tuple[Callable[[], Files], tuple[str, ...], tuple[Pairs, Pairs]]] = [
    (trees.cifar10, TEN, OF_TEN),
    (trees.cifar10_python, TEN, OF_TEN),
    (trees.cifar10_sheets, SHEETS, OF_TEN),
    (trees.cifar100, HUNDRED, OF_HUNDRED),
    (trees.cifar100_python, HUNDRED, OF_HUNDRED),
    (trees.cars, CARS, OF_CARS),
    (trees.cars_together, CARS, OF_CARS),
    (trees.cub, ("001.Albatross", "002.Auklet"), ([(3, 0), (2, 1)], [(1, 0), (4, 1)])),
    (trees.flowers, ("1", "2"), ([(1, 0), (5, 0), (2, 1)], [(3, 0), (4, 1), (6, 1)])),
    (trees.food, ("baby_pie", "waffles"), ([(1, 0), (2, 1)], [(3, 0), (4, 1)])),
    (lambda: trees.food(json_lists=True), ("baby_pie", "waffles"), ([(1, 0), (2, 1)], [(3, 0), (4, 1)])),
    (trees.pets, ("Abyssinian", "great_pyrenees"), ([(1, 0), (2, 1)], [(3, 0), (4, 1)])),
    (trees.coco, ("no person", "person"), OF_COCO),
    (lambda: trees.coco("train2014", "val2014"), ("no person", "person"), OF_COCO),
    (trees.coco_mixed, ("no person", "person"), OF_COCO),
]
BUILDERS = [make for make, *_ in CASES]


def shade(image: Array) -> int:
    """Which image this is, all of whose pixels have its shade."""
    spread = int(image.max()) - int(image.min())
    assert spread <= 3, "not an image of one shade"
    return round(float(image[..., 0].mean()) / STEP)


def pairs(data: Data) -> tuple[Pairs, Pairs]:
    train, test = ([(shade(i), n) for i, n in zip(p.images, p.labels, strict=True)] for p in (data.train, data.test))
    return train, test


@pytest.mark.parametrize(("make", "classes", "expected"), CASES)
def test_every_layout_is_recognized_and_read_in_its_official_split(
    tmp_path: Path, make: Callable[[], Files], classes: tuple[str, ...], expected: tuple[Pairs, Pairs]
) -> None:
    for folder in (tmp_path / "here", tmp_path / "above"):
        write(folder / "set" if folder.name == "above" else folder, make())
        data = load_data(folder)
        assert data.classes == classes
        assert pairs(data) == expected
        assert data.name == str(folder)


@pytest.mark.parametrize("make", BUILDERS)
def test_an_archive_of_a_layout_holds_what_its_folder_does(tmp_path: Path, make: Callable[[], Files]) -> None:
    folder = write(tmp_path / "d", make())
    (tmp_path / "d.zip").write_bytes(zipped({f"set/{name}": data for name, data in make().items()}))
    assert load_data(tmp_path / "d.zip").digest() == load_data(folder).digest()


@pytest.mark.parametrize(("make", "classes", "expected"), CASES)
def test_images_to_calibrate_with_are_of_the_part_to_learn_from(
    tmp_path: Path, make: Callable[[], Files], classes: tuple[str, ...], expected: tuple[Pairs, Pairs]
) -> None:
    folder, learned = write(tmp_path, make()), [number for number, _ in expected[0]]
    assert [shade(image) for image in load_images(folder, 99)] == learned
    assert [shade(image) for image in load_images(folder, 2)] == [learned[0], learned[-1]]


def test_every_layout_has_a_tree_here() -> None:
    marked = {layout.name for layout in LAYOUTS for make in BUILDERS if set(layout.marks) & set(make())}
    assert marked == {layout.name for layout in LAYOUTS}


def test_the_page_lists_every_layout() -> None:
    page = (TOP / "docs" / "data.md").read_text()
    assert [layout.name for layout in LAYOUTS if f"| {layout.name} |" not in page] == []


def test_of_cars_the_bounding_box_alone_is_kept(tmp_path: Path) -> None:
    data = load_data(write(tmp_path, trees.cars()))
    assert {image.shape for image in data.train.images} == {(3, 4, 3)}


def test_pixels_of_cifar_stand_where_they_stood(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    record = bytes([1]) + image.transpose(2, 0, 1).tobytes()
    data = load_data(write(tmp_path / "b", trees.cifar10() | {"data_batch_1.bin": record}))
    assert np.array_equal(data.train.images[0], image)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("deflated", [False, True])
def test_flowers_are_read_whatever_machine_wrote_them(tmp_path: Path, order: str, deflated: bool) -> None:
    found = load_data(write(tmp_path / "a", trees.flowers(order, deflated)))
    assert found.digest() == load_data(write(tmp_path / "b", trees.flowers())).digest()


def without(make: Callable[[], Files], *names: str) -> Files:
    files = make()
    for name in names:
        del files[name]
    return files


def instead(make: Callable[[], Files], **files: bytes) -> Files:
    """A tree with other contents of the file whose name ends so."""
    made = make()
    for ending, data in files.items():
        (name,) = (name for name in made if name.replace("/", "_").replace(".", "_").endswith(ending))
        made[name] = data
    return made


def set_ids(trained: int, tested: int) -> bytes:
    return mat_file({"trnid": numbers(trained, 2), "valid": numbers(1), "tstid": numbers(3, 4, tested)})


BAD: list[tuple[Callable[[], Files], str]] = [
    (lambda: without(trees.cifar10, "data_batch_3.bin"), r"holds no data_batch_3\.bin; unpack the whole data set"),
    (lambda: without(trees.cifar10, "batches.meta.txt"), r"holds no batches\.meta\.txt"),
    (lambda: without(trees.cifar10, "test_batch.bin"), r"holds no test_batch\.bin"),
    (
        lambda: instead(trees.cifar10, test_batch_bin=bytes(3072)),
        r"test_batch\.bin .*holds 3,072 bytes, not a number of records of 3,073",
    ),
    (lambda: instead(trees.cifar10, test_batch_bin=b""), "holds 0 bytes, not a number of records"),
    (lambda: instead(trees.cifar10, test_batch_bin=b"\3" + bytes(3072)), "has a label of 3, there are classes 0 to 2"),
    (lambda: instead(trees.cifar100, test_bin=b"\0\2" + bytes(3072)), "has a label of 2, there are classes 0 to 1"),
    (
        lambda: instead(trees.cifar10_python, test_batch=b"\x80\x02cos\nsystem\nU\x02ls\x85R."),
        r"its pickle tries to use os\.system; .*take the binary version",
    ),
    (lambda: instead(trees.cifar10_python, test_batch=trees.old_pickle({"labels": [1]})), "holds no array 'data'"),
    (
        lambda: instead(trees.cifar10_python, test_batch=trees.old_pickle({"data": trees.planes(1), "labels": [0, 1]})),
        "holds 1 images and 2 labels",
    ),
    (lambda: instead(trees.cifar10_python, batches_meta=trees.old_pickle({})), "has no list 'label_names'"),
    (lambda: without(trees.cifar10_sheets, "data_batch_2.png"), r"holds no data_batch_2\.png"),
    (lambda: instead(trees.cifar10_sheets, train_lables_json=b"[1, 2]"), "holds 5 images and 2 labels"),
    (lambda: instead(trees.cifar10_sheets, test_lables_json=b"[1, 10]"), "a label of 10, there are classes 0 to 9"),
    (lambda: instead(trees.cifar10_sheets, test_lables_json=b"[1, 0"), r"test_lables\.json .*is not whole JSON"),
    (lambda: instead(trees.cifar10_sheets, test_batch_png=jpg(1)), "is 8 pixels wide, a row of 1024 is one image"),
    (lambda: without(trees.flowers, "imagelabels.mat"), r"holds no imagelabels\.mat"),
    (lambda: without(trees.flowers, "setid.mat") | {"102flowers.tgz": b""}, r"no setid\.mat; unpack 102flowers\.tgz"),
    (
        lambda: without(trees.flowers, "jpg/image_00004.jpg"),
        r"setid\.mat .*names 3 images, 1 of them are not there, such as jpg/image_00004\.jpg",
    ),
    (lambda: instead(trees.flowers, setid_mat=set_ids(5, 7)), r"names image 7, imagelabels\.mat has 6 labels"),
    (lambda: instead(trees.flowers, setid_mat=set_ids(4, 6)), "has 1 images both to learn from and to test with"),
    (lambda: instead(trees.flowers, setid_mat=set_ids(1, 6)), "names 1 images twice"),
    (lambda: instead(trees.flowers, setid_mat=mat_file({"trnid": numbers(1)})), "holds no variable valid"),
    (lambda: instead(trees.flowers, setid_mat=b"no numbers"), r"is not a \.mat file of version 5 to 7"),
    (lambda: instead(trees.flowers, setid_mat=mat_file({}, version=2)), r"of version 7\.3; save it again in MATLAB"),
    (lambda: instead(trees.flowers, imagelabels_mat=mat_file({"labels": "text"})), "else than numbers from 1"),
    (
        lambda: without(trees.cars, "cars_test_annos_withlabels.mat"),
        r"cars_test_annos\.mat, which has no labels, and no cars_test_annos_withlabels\.mat; put that file beside",
    ),
    (lambda: without(trees.cars, "devkit/cars_meta.mat"), r"holds no devkit/cars_meta\.mat"),
    (lambda: without(trees.cars, "cars_test/00002.jpg"), r"1 of them are not there, such as cars_test/00002\.jpg"),
    (
        lambda: instead(trees.cars, withlabels_mat=trees.cars()["devkit/cars_test_annos.mat"]),
        "have no field class",
    ),
    (lambda: instead(trees.cars, cars_test_00002_jpg=jpg(1, (2, 2))), r"none of them in its box \[2, 1, 6, 4\]"),
    (lambda: instead(trees.cars, cars_meta_mat=mat_file({"class_names": ["one"]})), "class 2, there are 1"),
    (lambda: {name: data for name, data in trees.cars().items() if ".mat" not in name}, "holds no "),
    (lambda: without(trees.cub, "images.txt"), r"holds no images\.txt"),
    (lambda: without(trees.cub, "images/001.Albatross/c.jpg"), r"not there, such as images/001\.Albatross/c\.jpg"),
    (
        lambda: instead(trees.cub, split_txt=text("1 0", "2 1", "3 1")),
        r"images\.txt and train_test_split\.txt .*disagree on 1 images, such as number 4",
    ),
    (lambda: instead(trees.cub, split_txt=text("1 0", "2 2", "3 1", "4 0")), "puts image 2 into part '2', not 0 or 1"),
    (lambda: instead(trees.cub, split_txt=text("1 0", "2", "3 1", "4 0")), r"line 2 of train_test_split\.txt"),
    (lambda: instead(trees.cub, split_txt=text("1 0", "2 0", "3 1", "4 0")), "class '002.Auklet' but none to learn"),
    (lambda: instead(trees.cub, split_txt=text("1 1", "2 1", "3 1", "4 1")), "names no images"),
    (lambda: instead(trees.cub, labels_txt=text("1 1", "2 3", "3 1", "4 2")), "class 3, there are 2 counted from 1"),
    (lambda: instead(trees.cub, labels_txt=text("1 1", "2 x", "3 1", "4 2")), "holds 'x' where a number belongs"),
    (lambda: instead(trees.cub, classes_txt=b"\xff\xfe"), r"classes\.txt .*is not text"),
    (lambda: without(trees.food, "meta/test.txt"), r"holds no meta/test\.txt"),
    (lambda: without(trees.food, "images/waffles/4.jpg"), r"such as images/waffles/4\.jpg"),
    (lambda: instead(trees.food, train_txt=text("soup/1", "waffles/2")), r"'soup/1', of no class in meta/classes\.txt"),
    (lambda: instead(trees.food, train_txt=text("baby_pie/3", "waffles/2")), "both to learn from and to test with"),
    (lambda: instead(trees.food, meta_classes_txt=text("baby_pie", "waffles", "waffles")), "class 'waffles' twice"),
    (lambda: without(trees.pets, "annotations/test.txt"), r"holds no annotations/test\.txt"),
    (lambda: instead(trees.pets, trainval_txt=text("Abyssinian_1")), "gives 'Abyssinian_1' no breed"),
    (lambda: instead(trees.pets, trainval_txt=text("Abyssinian_1 2 1 1")), "and great_pyrenees the number 2"),
    (lambda: instead(trees.pets, trainval_txt=text("Abyssinian_1 1", "great_pyrenees_2 2", "pug_1 4")), "of breed 3"),
    (lambda: without(trees.coco, "annotations/instances_val2017.json"), r"no annotations/instances_val2017\.json"),
    (lambda: without(trees.coco, "train2017/000000000002.jpg"), r"such as train2017/000000000002\.jpg"),
    (lambda: instead(trees.coco, train2017_json=b'{"images": [{"id": 1}]}'), "holds one of images that is not as"),
    (lambda: instead(trees.coco, train2017_json=b'{"images": [], "annotations"'), "is not whole JSON"),
    (lambda: instead(trees.coco, train2017_json=b'{"images": ' + b"[" * 100_000), "is not whole JSON"),
    (lambda: instead(trees.coco, train2017_json=b'{"images": []}'), "has no category 'person'"),
    (lambda: instead(trees.coco, train2017_json=trees.instances({}, [(9, 1, 1, 1)])), "boxes of image 9"),
    (lambda: instead(trees.coco, val2017_json=trees.coco()["annotations/instances_train2017.json"]), "3 images both"),
    (lambda: {n: d for n, d in trees.coco().items() if "json" not in n}, r"holds no annotations/instances_train2017"),
    (
        lambda: instead(trees.flowers, imagelabels_mat=mat_file({"labels": numbers(1, 2**60, dtype="uint64")})),
        "else than numbers from 1",
    ),
    (
        lambda: instead(trees.flowers, imagelabels_mat=mat_file({"labels": numbers(1, 2**30, dtype="int32")})),
        "names 1,073,741,824 classes; up to 4,096 can be learned",
    ),
    (
        lambda: instead(trees.flowers, imagelabels_mat=mat_file({"labels": np.array([1, np.inf])})),
        "else than numbers from 1",
    ),
    (lambda: trees.cifar10() | trees.flowers(), "several data sets, CIFAR-10, binary version in .* and Flowers-102 in"),
    (lambda: {"cifar-10-binary.tar.gz": b""}, r"holds no images; unpack cifar-10-binary\.tar\.gz there, and give the"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), BAD)
def test_a_tree_with_files_missing_or_of_the_wrong_kind_is_refused_in_one_sentence(
    tmp_path: Path, make: Callable[[], Files], message: str
) -> None:
    with pytest.raises(DataError, match=message) as raised:
        load_data(write(tmp_path, make()))
    assert "\n" not in str(raised.value)


def test_a_packed_file_is_not_unpacked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"food-101\.tar\.gz is packed in a way that is not read; unpack it"):
        load_data(write(tmp_path, {"food-101.tar.gz": b""}) / "food-101.tar.gz")


def test_images_that_would_take_far_too_much_are_counted_before_they_are_read(tmp_path: Path) -> None:
    names = [f"{n:03d}" for n in range(100)]
    files = {f"images/a_{n}.jpg": jpg(1, (640, 480)) for n in names[::2]}
    files |= {f"images/b_{n}.jpg": jpg(2, (640, 480)) for n in names[1::2]}
    files["annotations/trainval.txt"] = text(*(f"{'ab'[i % 2]}_{n} {i % 2 + 1}" for i, n in enumerate(names[:90])))
    files["annotations/test.txt"] = text(*(f"{'ab'[i % 2]}_{n} {i % 2 + 1}" for i, n in enumerate(names) if i >= 90))
    need = 100 * 640 * 480 * 3
    folder = write(tmp_path, files)
    with pytest.raises(
        DataError, match=rf"100 images, .*\(--short-side reduces it\), would take {need:,} bytes of memory"
    ):
        load_data(folder, need // 2)
    with pytest.raises(
        DataError, match=r"images/b_\d+\.jpg, 640×480 pixels, would take 1,228,800 bytes of memory beside"
    ):
        load_data(folder, need - 640 * 480 * 3)
    assert len(load_data(folder, need + 2**21).train) == 90
    assert {image.shape for image in load_data(folder, need // 2, short_side=96).test.images} == {(96, 128, 3)}
    with pytest.raises(DataError, match="reduced to a short side of 0 pixels; give 16 to 4,096"):
        load_data(folder, short_side=0)


@given(
    values=st.lists(st.integers(0, 255) | st.text(st.characters(max_codepoint=0xD7FF), max_size=9), max_size=5),
    order=st.sampled_from("<>"),
    deflated=st.booleans(),
)
@settings(max_examples=examples(60))
def test_a_mat_file_gives_back_what_was_written(values: list[int | str], order: str, deflated: bool) -> None:
    cells: list[Value] = [numbers(v, v, dtype="int32") if isinstance(v, int) else v for v in values]
    given: dict[str, Value] = {"cells": cells, "skipped": numbers(1), "rows": {"a": cells, "long_name": cells[::-1]}}
    read = read_mat(mat_file(given, order, deflated), "a.mat", Budget(2**20, DataError), ("cells", "rows"))
    assert set(read) == {"cells", "rows"}
    found, rows = read["cells"], read["rows"]
    assert isinstance(rows, dict)
    assert plain(found) == plain(rows["a"]) == [[v, v] if isinstance(v, int) else v for v in values]
    assert plain(rows["long_name"]) == plain(rows["a"])[::-1]


def plain(found: object) -> list[object]:
    """Numbers and text that a cell held."""
    assert isinstance(found, tuple)
    return [item if isinstance(item, str) else item.tolist() for item in found]


def test_a_small_mat_file_cannot_take_gigabytes() -> None:
    packed = zlib.compress(struct.pack("<II", 14, 2**31) + bytes(2**20))
    data = mat_file({})[:128] + struct.pack("<II", 15, len(packed)) + packed
    with pytest.raises(DataError, match="unpacked, would take 2,147,483,648 bytes of memory"):
        read_mat(data, "a.mat", Budget(2**30, DataError), ("x",))


MUCH = b"[" + b"[]," * 2**21 + b"[]]"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: instead(trees.coco, train2017_json=b'{"images": [' + MUCH + b"]}"), "an entry of over 4,194,304 char"),
        (
            lambda: instead(trees.cifar10_sheets, test_lables_json=MUCH),
            r"parsed, would take 201,\d{3},\d{3} bytes",
        ),
    ],
)
def test_json_that_would_grow_is_refused_before_it_does(
    tmp_path: Path, make: Callable[[], Files], message: str
) -> None:
    folder = write(tmp_path, make())
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=message):
            load_data(folder, 2**27)
        assert tracemalloc.get_traced_memory()[1] < 2**28
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("long", [10, 2**13 - 60, 2**13 - 12, 2**13, 2**18])
def test_entries_of_json_are_found_whatever_they_span(tmp_path: Path, long: int) -> None:
    files = trees.coco()
    name = "annotations/instances_train2017.json"
    files[name] = files[name].replace(b'"year": 2017', b'"year": ' + b"1" * min(long, 4000))
    files[name] = files[name].replace(b'"iscrowd": 0', b'"iscrowd": 0, "more": "' + b"x" * long + b'"')
    assert pairs(load_data(write(tmp_path, files))) == OF_COCO


@pytest.mark.parametrize("make", BUILDERS)
def test_damaged_lists_and_labels_raise_nothing_but_data_errors(tmp_path: Path, make: Callable[[], Files]) -> None:
    draw, files = random.Random(0), make()
    metadata = sorted(name for name in files if not name.endswith((".jpg", ".png", ".bin")))
    for _ in range(40):
        name = draw.choice(metadata)
        data = bytearray(files[name])
        if draw.random() < 0.5:
            del data[draw.randrange(len(data) + 1) :]
        for _ in range(draw.randrange(4)):
            if data:
                data[draw.randrange(len(data))] = draw.randrange(256)
        folder = write(tmp_path, {**files, name: bytes(data)})
        with suppress(DataError):
            load_data(folder)


def test_the_verbs_take_a_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "cars", trees.cars())
    write_smg(small_network(), tmp_path / "small.smg")
    write_smg(dequantized(small_network()), tmp_path / "float.smg")
    images = {f"jpg/image_{n:05d}.jpg": trees.boxed(n) for n in range(1, 11)}
    labels = {"imagelabels.mat": mat_file({"labels": numbers(*([1, 2] * 5))})}
    split = mat_file({"trnid": numbers(1, 2, 3, 4, 5, 6), "valid": numbers(7, 8), "tstid": numbers(9, 10)})
    write(tmp_path / "flowers", images | labels | {"setid.mat": split})
    for verb in (
        "train small.smg --scheme last:1 --data cars --epochs 1 --learning-rate 0.001 --short-side 64 -o out --json",
        "quantize float.smg --data flowers --pixels -1,1 -o int8.smg --json",
    ):
        done = CliRunner().invoke(cli.app, verb.split(), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        if verb.startswith("train"):
            assert (told["classes"], told["train_images"], told["test_images"]) == (list(CARS), 2, 2)
    assert (tmp_path / "int8.smg").exists()
