"""Arrays of samples: any shape and what is known of each, read as given and refused in one sentence."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smidgen.data import DataError, load_data, load_images, load_labelled
from smidgen.ir import Array
from tests.support.release_files import npy, zipped

X = np.random.default_rng(0).normal(0, 1, (20, 6, 3)).astype(np.float32)
Y = np.arange(20) % 2


def arrays(folder: Path, **given: Array) -> Path:
    path = folder / "a.npz"
    path.write_bytes(zipped({f"{name}.npy": npy(array) for name, array in given.items()}))
    return path


def same(got: tuple[Array, ...], wanted: Array) -> bool:
    return len(got) == len(wanted) and all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8"])
def test_samples_of_any_shape_keep_their_numbers(tmp_path: Path, dtype: str) -> None:
    for shape in ((20, 7), (20, 6, 3), (20, 5, 4, 2), (20, 2, 2, 2, 2)):
        x = np.random.default_rng(1).normal(0, 40, shape).astype(dtype)
        data = load_data(arrays(tmp_path, x=x, y=Y))
        assert data.label_kind == "classes"
        assert data.train.images[0].dtype == ("float32" if dtype == "float64" else dtype)
        held_out = [8, 9, 18, 19]
        expected = x.astype(np.float32) if dtype == "float64" else x
        if x.ndim == 3 and dtype == "uint8":
            expected = x[..., None]  # a picture in gray
        assert same(data.test.images, expected[held_out])
        assert same(data.train.images, np.delete(expected, held_out, axis=0))


def test_classes_are_numbers_names_or_words(tmp_path: Path) -> None:
    assert load_data(arrays(tmp_path, x=X, y=Y)).classes == ("0", "1")
    named = load_data(arrays(tmp_path, x=X, y=Y, classes=np.array(["rest", "walk", "run"])))
    assert (named.classes, named.test.labels) == (("rest", "walk", "run"), (0, 1, 0, 1))
    words = load_data(arrays(tmp_path, x=X, y=np.array(["walk", "rest"])[Y]))
    assert (words.classes, words.test.labels) == (("rest", "walk"), (1, 0, 1, 0))
    assert load_data(arrays(tmp_path, x=X, y=Y.astype(bool))).classes == ("0", "1")


def test_samples_are_told_vectors_maps_or_nothing(tmp_path: Path) -> None:
    numbers = np.random.default_rng(2).normal(0, 1, (20, 4))
    one, several = (load_data(arrays(tmp_path, x=X, y=y)) for y in (numbers[:, 0], numbers))
    assert one.label_kind == several.label_kind == "vectors"
    assert one.classes == several.classes == ()
    assert same(several.test.targets, numbers[4::5].astype(np.float32))
    assert [target.shape for target in one.train.targets] == [(1,)] * 16
    several_labels = load_data(arrays(tmp_path, x=X, y=np.stack([Y, 1 - Y], axis=1)))
    assert several_labels.label_kind == "vectors"
    cells = np.random.default_rng(3).integers(0, 3, (20, 2, 5))
    maps = load_data(arrays(tmp_path, x=X, y=cells, classes=np.array(["a", "b", "c"])))
    assert (maps.label_kind, maps.classes) == ("maps", ("a", "b", "c"))
    assert same(maps.test.targets, cells[4::5])
    assert maps.train.targets[0].dtype == np.uint8
    np.save(tmp_path / "x.npy", X)
    for path in (arrays(tmp_path, x=X), tmp_path / "x.npy"):
        data = load_data(path)
        assert (data.label_kind, data.classes, len(data.train), len(data.test)) == ("nothing", (), 16, 4)
        assert load_labelled(path, 5) is None
        assert same(load_images(path, 3), X[[0, 10, 19]])


def test_parts_to_test_with_are_kept_apart(tmp_path: Path) -> None:
    for told in ({"y": Y, "y_test": Y[:4]}, {}):
        data = load_data(arrays(tmp_path, x_train=X, x_test=X[:4], **told))
        assert (len(data.train), len(data.test)) == (20, 4)
    labelled = load_labelled(arrays(tmp_path, x=X, y=Y, x_test=X[:4], y_test=Y[:4]), 2)
    assert labelled is not None
    assert labelled.test.labels == (0, 1)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"z": X}, "holds none of them of the arrays x, y, x_test, y_test; it needs x"),
        ({"x": X, "y": Y, "x_test": X}, "holds x, y, x_test of the arrays"),
        ({"x": X, "x_train": X}, "holds x under two names"),
        ({"x": X.astype(np.int64), "y": Y}, r"x in .* is int64\[20, 6, 3\]; images are uint8.*float64, int8 or uint8"),
        ({"x": X[:, 0, 0], "y": Y}, r"is float32\[20\]"),
        ({"x": X.reshape(20, 3, 2, 1, 3, 1), "y": Y}, "x in .* declares 6 dimensions; up to 5 are read"),
        ({"x": np.where(X > 2, np.nan, X), "y": Y}, "x in .* holds a number at place 4 that is not finite"),
        ({"x": X.astype(np.float64) * 1e300, "y": Y}, "is not finite; leave that sample out"),
        ({"x": X, "y": np.where(Y, np.inf, 0.0)}, "y in .* holds a number at place 1 that is not finite"),
        ({"x": X, "y": Y[:7]}, r"y in .* is int64\[7\] for 20 samples; give each an integer"),
        ({"x": X, "y": np.zeros((20, 2, 2), np.float32)}, "maps hold the class of each cell as an integer, 0 to 255"),
        ({"x": X, "y": np.full((20, 2, 2), 256)}, "of 256 to 256; maps hold"),
        ({"x": X, "y": np.zeros((20, 2, 2, 2), int)}, "a vector of numbers, or a map"),
        ({"x": X, "y": Y - 1}, "a label of -1"),
        ({"x": X, "y": Y, "classes": np.array(["a"])}, "holds label 1 but names 1 classes; name 2 or more"),
        ({"x": X, "y": Y, "classes": np.array(["a", "a"])}, "names 'a' twice"),
        ({"x": X, "y": Y, "classes": np.arange(2)}, "give the names as text"),
        ({"x": X, "y": Y / 2, "classes": np.array(["a", "b"])}, "names 2 classes, but its y holds none"),
        ({"x": X, "classes": np.array(["a", "b"])}, "names 2 classes, but its y holds none"),
        ({"x": X, "y": np.array(["a", "b"])[Y], "classes": np.array(["a", "b"])}, "has labels in words and names"),
        ({"x": X, "y": Y, "x_test": X[:, :5], "y_test": Y}, r"\[6, 3\] with classes to learn from and float32\[5, 3\]"),
        ({"x": X, "y": Y, "x_test": X, "y_test": Y / 2}, r"with classes to learn from and .* vectors of \[1\] to test"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_one_sentence(
    tmp_path: Path, held: dict[str, Array], message: str
) -> None:
    with pytest.raises(DataError, match=message) as raised:
        load_data(arrays(tmp_path, **held))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("read", [load_data, lambda path: load_images(path, 8)])
def test_samples_of_one_byte_each_cannot_take_more_memory_than_is_allowed(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy(np.zeros((2**23, 1), np.uint8)))  # objects would take a hundred times as much
    path = tmp_path / "many.npz"
    path.write_bytes(whole.getvalue())
    with pytest.raises(DataError, match=r"8,388,608 samples of x in .* would take 2,147,483,648 bytes"):
        read(path)


def test_a_file_of_one_array_that_cannot_be_read_is_said_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"no array")
    with pytest.raises(DataError, match=r"x\.npy is not a \.npy file"):
        load_data(path)
    np.save(path, X)
    with pytest.raises(DataError, match="is no table, so column 'y' cannot be chosen; leave --label out"):
        load_data(path, label="y")
