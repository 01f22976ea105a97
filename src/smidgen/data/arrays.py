"""Arrays of samples and their labels, .npz and .npy."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from smidgen.data.files import Budget, by_name, parse_npy, read_whole, unpack
from smidgen.data.samples import MAX_CLASSES, DataError, Given, Samples, repeated, sorted_labels
from smidgen.ir import MAX_RANK, Array

PARTS = ("x", "y", "x_test", "y_test")
ALSO = {"x_train": "x", "y_train": "y"}  # other names of the same
NAMES = "classes"
DTYPES = ("uint8", "int8", "float32", "float64")  # of samples
EACH = 256  # bytes that a sample takes beside its numbers, as an object
LARGEST = 255  # class of a cell, which is ignored if the model has no class of that number


def read_arrays(path: Path, budget: Budget) -> Given:
    """Read x, y, x_test, y_test and the names of classes; x alone has no labels."""
    read = _read(path, budget, (*PARTS, NAMES))
    found = [name for name in PARTS if name in read]
    if found not in (["x"], ["x", "y"], ["x", "x_test"], list(PARTS)):
        held = ", ".join(found) or "none of them"
        raise DataError(
            f"{path} holds {held} of the arrays {', '.join(PARTS)}; it needs x, the samples, and may have y, their "
            "labels, and x_test (with y_test) to test with"
        )
    names, read = _in_numbers(read, path, budget)
    parts = []
    for x, y in (("x", "y"), ("x_test", "y_test")):
        if x in read:
            images = as_samples(read[x], f"{x} in {path}", budget)
            parts.append(_labelled(images, read.get(y), f"{y} in {path}", budget))
    kinds = []
    for part in parts:  # one shape, pictures aside, and one kind of label
        first, label = part.images[0], "classes"
        if part.targets:
            label = f"{'maps' if part.targets[0].ndim == 2 else 'vectors'} of {list(part.targets[0].shape)}"
        kinds.append(f"{first.dtype}{'' if first.dtype == np.uint8 else list(first.shape)} with {label}")
    if len(set(kinds)) > 1:
        raise DataError(f"{path} holds {kinds[0]} to learn from and {kinds[1]} to test with; give both parts alike")
    classes = _classes(parts, names, path) if "y" in read else _without_classes(names, path)
    return Given(classes, *parts)


def read_x(path: Path, budget: Budget) -> Samples:
    """Read only the samples to learn from."""
    read = _read(path, budget, ("x",))
    if "x" not in read:
        raise DataError(f"{path} holds no array x of samples; store uint8[count, height, width, 3], or numbers")
    return _labelled(as_samples(read["x"], f"x in {path}", budget), None, "y", budget)


def as_samples(x: Array, where: str, budget: Budget) -> tuple[Array, ...]:
    """Return an array as samples: pictures, uint8 [height, width, 1 or 3], or tensors in uint8, int8 or float32."""
    if x.dtype not in DTYPES or x.ndim < 2:
        raise DataError(
            f"{where} is {x.dtype}{list(x.shape)}; images are uint8[count, height, width, 1 or 3], other samples "
            "float32, float64, int8 or uint8[count, …] in the shape that the model takes"
        )
    budget.take(f"{len(x):,} samples of {where}", EACH * len(x))
    if x.dtype == np.uint8 and x.ndim == 3:
        return tuple(x[..., None])
    return tuple(_float32(x, where, budget) if x.dtype.kind == "f" else x)


def _read(path: Path, budget: Budget, wanted: Sequence[str]) -> dict[str, Array]:
    """Return the wanted arrays by name; a .npy file is an x."""
    if path.suffix.lower() == ".npy":
        data = read_whole(path, budget.limit)
        budget.take(str(path), len(data))
        return {"x": _parse(data, str(path))}
    with zipfile.ZipFile(path) as archive:
        members: dict[str, zipfile.ZipInfo] = {}
        for name, member in by_name(archive.infolist(), str(path), budget).items():
            plain = name.removesuffix(".npy")
            if (meant := ALSO.get(plain, plain)) in wanted:
                if meant in members:
                    raise DataError(f"{path} holds {meant} under two names; leave one of them out")
                members[meant] = member
        budget.check(f"{path}, unpacked,", sum(member.file_size for member in members.values()))
        return {name: _parse(unpack(archive, m, budget), f"{name} in {path}") for name, m in members.items()}


def _parse(data: bytes, where: str) -> Array:
    if b"'|O'" in data[:128]:
        raise DataError(
            f"{where} holds Python objects, as happens when samples differ in size; store one array of one size"
        )
    return parse_npy(data, where, 1 + MAX_RANK)


def _in_numbers(read: dict[str, Array], path: Path, budget: Budget) -> tuple[tuple[str, ...] | None, dict[str, Array]]:
    """Return the names of classes, if there are any, and the arrays with labels in words as numbers."""
    given, labels = _names(read, path), [name for name in ("y", "y_test") if name in read]
    if not labels or any(read[name].dtype.kind != "U" for name in labels):
        return given, read
    if given is not None:
        raise DataError(f"{path} has labels in words and names classes in {NAMES}, too; leave {NAMES} out")
    for name in labels:
        budget.take(f"the words of {name} in {path}", read[name].nbytes + EACH * read[name].size)
    names = sorted_labels(str(word) for name in labels for word in np.unique(read[name]))
    number = {name: place for place, name in enumerate(names)}
    return names, read | {
        name: np.array([number[str(word)] for word in read[name].ravel()], np.int64).reshape(read[name].shape)
        for name in labels
    }


def _labelled(images: tuple[Array, ...], y: Array | None, where: str, budget: Budget) -> Samples:
    """Return samples with their labels y: a class, a vector or a map each."""
    count, unknown = len(images), (0,) * len(images)
    if y is None:
        return Samples(images, unknown)
    if y.dtype.kind not in "biuf" or not y.ndim or len(y) != count or y.ndim > 3:
        raise DataError(
            f"{where} is {y.dtype}{list(y.shape)} for {count:,} samples; give each an integer (its class), a vector of "
            "numbers, or a map of integers"
        )
    whole = y.dtype.kind != "f"
    if whole and y.size == count:
        if int(y.min()) < 0:
            raise DataError(f"{where} has a label of {int(y.min())}; labels count from 0")
        return Samples(images, tuple(int(label) for label in y.ravel()))
    if y.ndim < 3:
        return Samples(images, unknown, tuple(_float32(y, where, budget).reshape(count, -1)))
    budget.take(f"{where} as maps", y.size)
    if not whole or int(y.min()) < 0 or int(y.max()) > LARGEST:
        raise DataError(
            f"{where} is {y.dtype}{list(y.shape)} of {y.min()} to {y.max()}; maps hold the class of each cell as an "
            f"integer, 0 to {LARGEST}"
        )
    return Samples(images, unknown, tuple(y.astype(np.uint8)))


def _float32(numbers: Array, where: str, budget: Budget) -> Array:
    """Return finite numbers as float32."""
    if numbers.dtype != np.float32:
        budget.take(f"{where} as float32", 4 * numbers.size)
    with np.errstate(over="ignore"):
        single: Array = numbers.astype(np.float32, copy=False)
    if not (finite := np.isfinite(single)).all():
        place = int(np.argmin(finite.reshape(len(single), -1).all(axis=1)))
        raise DataError(f"{where} holds a number at place {place:,} that is not finite; leave that sample out")
    return single


def _names(read: Mapping[str, Array], path: Path) -> tuple[str, ...] | None:
    """Return the names that the file gives classes."""
    if NAMES not in read:
        return None
    given = read[NAMES]
    if given.dtype.kind != "U" or given.ndim != 1:
        raise DataError(f"{NAMES} in {path} is {given.dtype}{list(given.shape)}; give the names as text [count]")
    if len(given) > MAX_CLASSES:
        raise DataError(f"{NAMES} in {path} names {len(given):,} classes; up to {MAX_CLASSES:,} can be learned")
    names = tuple(str(name) for name in given)
    if len(set(names)) < len(names):
        twice = repeated(names)
        raise DataError(f"{NAMES} in {path} names {twice[:40]!r} twice; give each class another name")
    return names


def _classes(parts: Sequence[Samples], names: tuple[str, ...] | None, path: Path) -> tuple[str, ...]:
    """Return classes by the names given, or by number; none for vectors, and for maps only those with names."""
    if targets := parts[0].targets:
        return names or () if targets[0].ndim == 2 else _without_classes(names, path)
    count = 1 + max(max(part.labels) for part in parts)
    if count > MAX_CLASSES:
        raise DataError(f"{path} holds label {count - 1:,}; labels 0 to {MAX_CLASSES - 1:,} can be learned")
    if names is None:
        return tuple(map(str, range(count)))
    if len(names) < count:
        raise DataError(f"{path} holds label {count - 1} but names {len(names)} classes; name {count} or more")
    return names


def _without_classes(names: tuple[str, ...] | None, path: Path) -> tuple[str, ...]:
    if names is not None:
        raise DataError(f"{path} names {len(names)} classes, but its y holds none; leave {NAMES} out")
    return ()
