"""Images come in as bytes of one meaning, are cut the same way every time, and bad sources are told in a sentence."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from smidgen.data import (
    Augment,
    Data,
    DataError,
    PixelEncoding,
    Samples,
    centre,
    examples,
    from_pixels,
    load_data,
    load_images,
    load_labelled,
)
from smidgen.data.images import centre_box
from smidgen.errors import InputError
from smidgen.ir import Array, QParams, Type
from smidgen.ir.preprocessing import Preprocessing
from tests.support import tiers
from tests.support.release_files import SHARED, npy, zipped

PAPER = Type((1, 128, 128, 3), "int8", QParams.per_tensor(2 / 255, 0))
PIXELS = np.arange(256, dtype=np.uint8).reshape(1, 256, 1)


def png(shade: int, size: tuple[int, int] = (6, 5), mode: str = "RGB") -> bytes:
    data = io.BytesIO()
    Image.new(mode, size, (shade,) * 3 if mode == "RGB" else shade).save(data, "png")
    return data.getvalue()


def tree(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def divided(labels: tuple[str, ...] = ("2", "10")) -> dict[str, bytes]:
    names = [f"{split}/{label}/{i}.png" for split in ("train", "test") for label in labels for i in range(2)]
    return {name: png(10 * place) for place, name in enumerate(names)}


def signature(data: Data) -> tuple[object, ...]:
    shades = [[int(image[0, 0, 0]) for image in part.images] for part in (data.train, data.test)]
    return data.classes, data.train.labels, shades[0], data.test.labels, shades[1]


def arrays(path: Path, **given: Array) -> Path:
    path.write_bytes(zipped({f"{name}.npy": npy(array) for name, array in given.items()}))
    return path


def pictures(count: int, side: int = 4) -> Array:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3)).astype(np.uint8)


def test_labels_are_numbered_by_value_where_all_are_numbers_and_by_name_otherwise(tmp_path: Path) -> None:
    numbers = load_data(tree(tmp_path / "n", divided(("2", "10"))))
    labels = (0, 0, 1, 1)
    assert signature(numbers) == (("2", "10"), labels, [0, 10, 20, 30], labels, [40, 50, 60, 70])
    assert load_data(tree(tmp_path / "t", divided(("2b", "10b")))).classes == ("10b", "2b")


def test_an_archive_holds_what_its_folder_does_wherever_its_root_is(tmp_path: Path) -> None:
    files = divided()
    expected = signature(load_data(tree(tmp_path / "folder", files)))
    for prefix in ("", "deep/er/"):
        (tmp_path / "a.zip").write_bytes(
            zipped({f"{prefix}{name}": data for name, data in files.items()} | {"meta.json": b"{}"})
        )
        assert signature(load_data(tmp_path / "a.zip")) == expected


def test_without_test_images_every_fifth_of_each_class_is_held_out(tmp_path: Path) -> None:
    files = {f"{label}/{i}.png": png(i) for label in ("cat", "dog") for i in range(10)}
    data = load_data(tree(tmp_path / "plain", {**files, "readme.png": png(99)}))
    assert data.classes == ("cat", "dog")
    assert [int(image[0, 0, 0]) for image in data.test.images] == [4, 9, 4, 9]
    assert data.test.labels == (0, 0, 1, 1)
    assert len(data.train) == 16
    x, y = pictures(20), np.tile([0, 1], 10)
    split = load_data(arrays(tmp_path / "a.npz", x=x, y=y))
    assert split.test.labels == (0, 1, 0, 1)
    assert np.array_equal(split.test.images[0], x[8])


def test_arrays_are_taken_in_colour_and_in_grey_under_either_name(tmp_path: Path) -> None:
    x, y = pictures(4), np.array([[0], [1], [2], [0]])
    data = load_data(arrays(tmp_path / "a.npz", x=x, y=y, x_test=x[:2], y_test=y[:2]))
    assert data.classes == ("0", "1", "2")
    assert data.test.labels == (0, 1)
    assert all(np.array_equal(a, b) for a, b in zip(data.train.images, x, strict=True))
    grey = arrays(tmp_path / "b.npz", x_train=x[..., 0], y_train=y, x_test=x[:2, :, :, :1], y_test=y[:2])
    assert load_data(grey).train.images[0].shape == load_data(grey).test.images[0].shape == (4, 4, 1)


def test_one_class_can_be_read_and_cannot_be_learned_alone(tmp_path: Path) -> None:
    data = load_data(tree(tmp_path / "d", divided(("only",))))
    with pytest.raises(DataError, match="holds 1 class, 'only'; learning needs at least two"):
        data.check_several()


def test_grey_images_turned_photographs_and_very_large_ones_are_read(tmp_path: Path) -> None:
    turned = io.BytesIO()
    image = Image.new("RGB", (6, 2))
    image.getexif()[0x0112] = 6  # the camera was held upright
    image.save(turned, "jpeg", exif=image.getexif())
    large = png(7, (2048, 1024))
    files = divided() | {"train/2/0.png": png(9, mode="L"), "train/2/1.png": large}
    files |= {"train/10/0.jpg": turned.getvalue()}
    images = load_data(tree(tmp_path / "d", files)).train.images
    assert [image.shape for image in images[:3]] == [(5, 6, 1), (512, 1024, 3), (6, 2, 3)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d / "absent", "there is no"),
        (lambda d: tree(d, {"a.txt": b""}) / "a.txt", "neither a folder nor"),
        (lambda d: tree(d, {"notes.txt": b""}), "holds no images; put images in train/<label>/"),
        (lambda d: tree(d, {"1.png": png(1), "2.png": png(1)}), "2 images, none in a folder by its label"),
        (lambda d: tree(d, {k: v for k, v in divided().items() if "test" not in k}), "no images in test/"),
        (
            lambda d: tree(d, divided() | {"test/new/1.png": png(1)}),
            "has test images of label 'new' but none in train/",
        ),
        (lambda d: tree(d, divided() | {"train/2/1.png": b"no image"}), "train/2/1.png cannot be read as an image"),
        (lambda d: tree(d, divided() | {"train/2/1.png": png(1)[:40]}), "train/2/1.png cannot be read as an image"),
        (lambda d: tree(d, {"a/1.png": png(1), "b/1.png": png(1)}), "no samples to test with; add some of each class"),
        (lambda d: tree(d, {"a.zip": b"PK no archive"}) / "a.zip", "not a complete archive"),
        (lambda d: tree(d, {"a.zip": zipped(divided())[:-30]}) / "a.zip", "not a complete archive"),
        (lambda d: tree(d, {"a.zip": zipped({})}) / "a.zip", "holds no images"),
        (lambda d: tree(d, {"a.npz": b"no arrays"}) / "a.npz", "not a complete archive"),
        (lambda d: arrays(d / "a.npz", x=pictures(2)), "no samples to test with; give 5 or more"),
        (lambda d: arrays(d / "a.npz", x=pictures(2), y=np.zeros(3, int)), r"y in .* is int64\[3\] for 2 samples"),
        (lambda d: arrays(d / "a.npz", x=pictures(2), y=np.array([0, -1])), "a label of -1"),
        (lambda d: arrays(d / "a.npz", x=pictures(2), y=np.array([0, 5000])), "label 5,000"),
        (lambda d: arrays(d / "a.npz", x=pictures(2).astype(np.int32), y=np.arange(2)), "is int32.*images are uint8"),
    ],
)
def test_bad_sources_are_refused_in_one_sentence(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(DataError, match=message) as raised:
        load_data(make(tmp_path))
    assert "\n" not in str(raised.value)


def test_images_of_sizes_that_differ_in_an_array_of_objects_are_refused_unread(tmp_path: Path) -> None:
    x = np.empty(2, object)
    x[:] = [pictures(1)[0], pictures(1, 5)[0]]
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(2))
    with pytest.raises(DataError, match="samples differ in size; store one array of one size"):
        load_data(tmp_path / "a.npz")


def test_a_member_that_lies_about_its_sum_is_named(tmp_path: Path) -> None:
    whole = zipped(divided())
    at = whole.index(png(0)[-20:])
    (tmp_path / "a.zip").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(DataError, match=r"train/2/0\.png cannot be read"):
        load_data(tmp_path / "a.zip")


def test_the_paper_s_input_is_pixel_minus_128() -> None:
    pixels = PIXELS.repeat(3, axis=2)
    assert np.array_equal(from_pixels(pixels, PixelEncoding(PAPER))[0].astype(int), pixels.astype(int) - 128)


@pytest.mark.parametrize(("scale", "zero"), [(1 / 255, -128), (1 / 256, -128), (1.0, -128), (0.0187, -14), (2.0, 7)])
def test_pixels_span_what_an_input_can_hold(scale: float, zero: int) -> None:
    got = from_pixels(PIXELS, PixelEncoding(Type((1, 1, 256, 1), "int8", QParams.per_tensor(scale, zero))))
    assert np.abs(got[0].astype(int) - (PIXELS.astype(int) - 128)).max() <= 1


@given(scale=st.floats(0.0070, 0.0080), zero=st.integers(-2, 2))
@settings(max_examples=tiers.examples(60))
def test_a_pixel_becomes_the_nearest_int8_of_its_number(scale: float, zero: int) -> None:
    type = Type((1, 1, 256, 1), "int8", QParams.per_tensor(scale, zero))
    ends = type.scale * (-128 - zero), type.scale * (127 - zero)
    got = from_pixels(PIXELS, PixelEncoding(type)).astype(np.float64).ravel()
    near = max(abs(ends[0] + 1), abs(ends[1] - 1)) <= 0.02 * (ends[1] - ends[0])
    low, high = (-1.0, 1.0) if near else ends
    numbers = np.clip(low + np.arange(256) / 255 * (high - low), *ends)
    assert np.abs(type.scale * (got - zero) - numbers).max() <= 0.501 * type.scale


def test_float_inputs_take_pixels_as_is_stated_and_never_by_a_guess() -> None:
    numbers = from_pixels(PIXELS, PixelEncoding(Type((1, 1, 256, 1), "float32"), Preprocessing())).ravel()
    assert numbers.dtype == np.float32
    assert (numbers[0], numbers[-1]) == (-1, 1)
    with pytest.raises(DataError, match="a float32 input does not say how pixels become numbers"):
        from_pixels(PIXELS, PixelEncoding(Type((1, 1, 256, 1), "float32")))
    with pytest.raises(DataError, match="uint8 without a scale"):
        from_pixels(PIXELS, PixelEncoding(Type((1, 1, 256, 1), "uint8")))
    with pytest.raises(DataError, match="is not an image"):
        centre(pictures(1)[0], PixelEncoding(Type((1, 10), "int8", PAPER.q)))


def test_the_middle_is_kept_and_an_image_of_the_right_size_is_left_alone() -> None:
    taken = PixelEncoding(Type((1, 4, 4, 3), "int8", PAPER.q))
    image = pictures(1)[0]
    assert np.array_equal(centre(image, taken)[0], image.astype(int) - 128)
    wide = np.concatenate([np.zeros((4, 3, 3), np.uint8), image, np.full((4, 3, 3), 255, np.uint8)], axis=1)
    assert np.array_equal(centre(wide, taken), centre(image, taken))
    assert np.array_equal(centre(wide.transpose(1, 0, 2), taken), centre(image.transpose(1, 0, 2), taken))


def test_colours_follow_the_model() -> None:
    image = pictures(1)[0]
    grey = centre(image, PixelEncoding(Type((1, 4, 4, 1), "int8", PAPER.q)))
    assert grey.shape == (1, 4, 4, 1)
    assert centre(image[..., :1], PixelEncoding(Type((1, 4, 4, 3), "int8", PAPER.q))).shape == (1, 4, 4, 3)


def test_crops_are_the_generators_and_stay_inside_the_image() -> None:
    augment, taken = Augment(), PixelEncoding(Type((1, 8, 8, 3), "int8", PAPER.q))
    image = pictures(1, 20)[0]
    drawn = [augment.apply(image, taken, np.random.default_rng((1, i))) for i in range(20)]
    again = [augment.apply(image, taken, np.random.default_rng((1, i))) for i in range(20)]
    assert all(np.array_equal(a, b) for a, b in zip(drawn, again, strict=True))
    assert len({crop.tobytes() for crop in drawn}) == 20
    boxes = [augment.draw(30, 20, taken, np.random.default_rng(i))[0] for i in range(200)]
    for box in boxes:
        left, top, right, bottom = box
        assert 0 <= left < right <= 20
        assert 0 <= top < bottom <= 30
        assert 0.04 < (right - left) * (bottom - top) / 600 <= 1
        assert 0.5 < (right - left) / (bottom - top) < 2
    whole = Augment(scale=(1.0, 1.0)).draw(1, 900, taken, np.random.default_rng(0))[0]
    assert whole == centre_box(1, 900, taken)


def test_without_crops_half_of_the_images_are_mirrored() -> None:
    taken, image = PixelEncoding(Type((1, 4, 4, 3), "int8", PAPER.q)), pictures(1)[0]
    plain, mirrored = centre(image, taken), centre(image[:, ::-1].copy(), taken)
    drawn = [Augment(scale=(1.0, 1.0)).apply(image, taken, np.random.default_rng(i)) for i in range(40)]
    flips = [np.array_equal(crop, mirrored) for crop in drawn]
    assert all(flip or np.array_equal(crop, plain) for crop, flip in zip(drawn, flips, strict=True))
    assert 8 < sum(flips) < 32
    still = Augment(scale=(1.0, 1.0), flip=False)
    assert np.array_equal(still.apply(image, taken, np.random.default_rng(0)), plain)


@pytest.mark.parametrize("augment", [Augment(scale=(0, 1)), Augment(scale=(0.5, 2)), Augment(aspect=(0, 1))])
def test_crops_that_cannot_be_drawn_are_refused(augment: Augment) -> None:
    with pytest.raises(InputError, match=r"not possible; give (shares|ratios) above 0"):
        augment.check()


def test_a_digest_follows_pixels_labels_and_classes(tmp_path: Path) -> None:
    x, y = pictures(10), np.tile([0, 1], 5)
    first = load_data(arrays(tmp_path / "a.npz", x=x, y=y)).digest()
    assert load_data(arrays(tmp_path / "b.npz", x=x, y=y)).digest() == first
    assert load_data(arrays(tmp_path / "c.npz", x=x ^ 1, y=y)).digest() != first
    assert load_data(arrays(tmp_path / "d.npz", x=x, y=1 - y)).digest() != first


def test_the_shared_photographs_are_read_as_their_list_says() -> None:
    path = SHARED / "data" / "vww.zip"
    if not path.exists():
        pytest.skip(f"the photographs are not beside the checkout: no {path.name}")
    data = load_data(path)
    with zipfile.ZipFile(path) as archive:
        listed = archive.read("labels.csv").decode().splitlines()[1:]
    labels = [int(line.split(",")[2]) for line in listed if line.split(",")[1] == "test"]
    assert (len(data.train), len(data.test), len(data.classes)) == (2344, 1600, 2)
    assert np.bincount(data.test.labels).tolist() == np.bincount(labels).tolist()
    assert examples(data.train, PixelEncoding(PAPER), 3)[0].shape == PAPER.shape


def test_the_sample_of_cifar10_comes_along_whole() -> None:
    data = load_data("cifar10")
    assert data.classes[3] == "cat"
    for samples, each in ((data.train, 100), (data.test, 50)):
        assert [samples.labels.count(c) for c in range(10)] == [each] * 10
        assert {image.shape for image in samples.images} == {(32, 32, 3)}
        assert len({image.tobytes() for image in samples.images}) == len(samples)  # no tile is cut twice
    assert data.digest().startswith("4315687c75e91009")


def test_images_without_labels_are_read_evenly_and_from_the_training_part(tmp_path: Path) -> None:
    loose = tree(tmp_path / "loose", {f"{i}.png": png(10 * i) for i in range(9)})
    assert [int(image[0, 0, 0]) for image in load_images(loose, 5)] == [0, 20, 40, 60, 80]
    assert len(load_images(tree(tmp_path / "n", divided()), 99)) == 4
    (tmp_path / "a.zip").write_bytes(zipped(divided()))
    assert [int(image[0, 0, 0]) for image in load_images(tmp_path / "a.zip", 99)] == [20, 30, 0, 10]
    assert len(load_images("cifar10", 30)) == 30


def same_samples(a: Samples, b: Samples) -> bool:
    return a.labels == b.labels and all(np.array_equal(x, y) for x, y in zip(a.images, b.images, strict=True))


def test_labelled_images_are_taken_evenly_of_each_part_and_none_where_there_are_no_labels(tmp_path: Path) -> None:
    for source in (two_classes(tmp_path / "divided", "train", "test"), two_classes(tmp_path / "whole"), "cifar10"):
        data, found = load_data(source), load_labelled(source, 10_000)
        assert found is not None
        assert found.classes == data.classes
        assert same_samples(found.test, data.test)
        assert same_samples(found.train, data.train)
        few = load_labelled(source, 2)
        assert few is not None
        assert same_samples(few.test, data.test.spread(2))
        assert same_samples(few.train, data.train.spread(2))
    alone = load_labelled(two_classes(tmp_path / "alone", "train"), 10_000)
    assert alone is not None
    assert sorted(alone.train.labels) == sorted(alone.test.labels) == [0] * 6 + [1] * 6
    loose = tmp_path / "loose"
    loose.mkdir()
    Image.new("RGB", (4, 4)).save(loose / "a.png")
    np.savez(tmp_path / "x.npz", x=np.zeros((9, 4, 4, 3), np.uint8))
    assert load_labelled(loose, 9) is None
    assert load_labelled(tmp_path / "x.npz", 9) is None


def two_classes(folder: Path, *parts: str) -> Path:
    """Six images of each of two classes, in each part."""
    for number, part in enumerate(parts or ("",)):
        for label in ("cat", "dog"):
            (folder / part / label).mkdir(parents=True)
            for shade in range(6):
                Image.new("RGB", (4, 4), (shade, number, len(label))).save(folder / part / label / f"{shade}.png")
    return folder


def test_tensors_of_an_archive_are_given_as_they_are(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4, 7, 3)).astype(np.float32)
    read = load_images(arrays(tmp_path / "a.npz", x=x), 4)
    assert all(np.array_equal(a, b) for a, b in zip(read, x, strict=True))
    pixels = load_images(arrays(tmp_path / "b.npz", x_train=pictures(3)), 4)
    assert len(pixels) == 3
    assert pixels[0].dtype == np.uint8
    with pytest.raises(DataError, match="holds no array x"):
        load_images(arrays(tmp_path / "c.npz", z=x), 4)
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="none holds no images"):
        load_images(tmp_path / "none", 4)
