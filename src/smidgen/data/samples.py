"""Samples in memory: pictures or tensors, each labelled by a class, a vector or a map of classes, or by nothing."""

from __future__ import annotations

import base64
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from PIL import Image

from smidgen.errors import SmidgenError
from smidgen.ir import Array, LabelKind
from smidgen.tables import Brief, Table, counted, rows_of

Item = TypeVar("Item")
MAX_CLASSES = 4096
DIGITS = 255  # of a label that is a number; file systems allow no longer names
PICTURES = 8  # in a notebook
SIDE = 176  # pixels of a picture's short side: twice what a page shows, for screens of many pixels
SMALL = 64  # pixels: up to this side a picture keeps its size
QUALITY = 82  # of JPEG
HELD_OUT = 5  # where no samples to test with are given, every fifth of each class


class DataError(SmidgenError):
    """Samples or labels cannot be read, or do not fit together."""


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Brief):
    """The inputs of a model, and the label of each.

    Pictures are uint8 [height, width, 1 or 3] of any size. Everything else is a tensor of the shape that the model's
    input has behind its first dimension: float32 numbers, or int8 as the model takes them.
    """

    images: tuple[Array, ...]
    labels: tuple[int, ...]  # the class of each, 0 where there are none
    targets: tuple[Array, ...] = ()  # instead of classes: vectors, float32 [outputs], or maps, uint8 [rows, columns]

    def __len__(self) -> int:
        return len(self.labels)

    def __str__(self) -> str:
        first = f", the first {self.images[0].dtype}{list(self.images[0].shape)}" if self.images else ""
        return f"{len(self):,} samples{first}"

    def picture(self) -> str:
        """Show the first samples, where they are pictures."""
        addresses = filter(None, map(data_address, self.images[:PICTURES]))
        return "".join(f'<img src="{one}" width="64" height="64" alt="a sample">' for one in addresses)

    def at(self, places: Iterable[int]) -> Samples:
        """Return the samples at these places, in their order."""
        chosen = list(places)
        targets = tuple(self.targets[i] for i in chosen) if self.targets else ()
        return Samples(tuple(self.images[i] for i in chosen), tuple(self.labels[i] for i in chosen), targets)

    def target(self, place: int) -> int | Array:
        """Return a sample's label: its vector or map, or its class."""
        return self.targets[place] if self.targets else self.labels[place]

    def spread(self, count: int) -> Samples:
        """Return at most `count` samples, evenly from all of them."""
        return self.at(evenly(range(len(self)), count))


@dataclass(frozen=True, eq=False, repr=False)
class Data(Brief):
    """Samples to learn from and to test with, and the classes by name, none if samples have no classes."""

    name: str
    classes: tuple[str, ...]
    train: Samples
    test: Samples
    notes: tuple[str, ...] = field(
        default=(), kw_only=True
    )  # sentences on what was left out, or makes a test of little worth

    def __post_init__(self) -> None:
        for part, samples in (("to learn from", self.train), ("to test with", self.test)):
            if not len(samples):
                more = "add some of each class" if self.classes else f"give {HELD_OUT} or more, one is held out"
                raise DataError(f"{self.name} holds no samples {part}; {more}")

    def __str__(self) -> str:
        what = f"{len(self.classes)} classes" if self.label_kind == "classes" else self.label_text
        return f"{self.name}: {len(self.train):,} samples to learn from, {len(self.test):,} to test, {what}"

    def picture(self) -> str:
        """Show samples from all that is there to learn from, where they are pictures."""
        return self.train.spread(PICTURES).picture()

    def tables(self) -> tuple[Table, ...]:
        if self.label_kind != "classes":
            return ()
        counts = [Counter(samples.labels) for samples in (self.train, self.test)]
        rows = rows_of((name, *(counted(one[i]) for one in counts)) for i, name in enumerate(self.classes))
        return (Table("", ("class", "to learn from", "to test"), rows),)

    def check_several(self, one_class: bool = False) -> None:
        """Raise DataError for a single sample, what is not a number, and a single class unless that is enough."""
        if len(self.classes) == 1:
            raise DataError(f"{self.name} holds 1 class, {self.classes[0]!r}; learning needs at least two")
        if self.label_kind == "classes" and len(set(self.train.labels)) == 1 and not one_class:
            only, count = self.classes[self.train.labels[0]], len(self.train)
            raise DataError(
                f"all {count:,} training samples of {self.name} are of {only!r}; learning needs two classes"
            )
        first, *others = self.train.images
        if others and all(np.array_equal(first, other) for other in others):
            raise DataError(f"all {len(self.train):,} samples of {self.name} to learn from are the same; add others")
        for part, samples in (("to learn from", self.train), ("to test with", self.test)):
            for place, array in (*enumerate(samples.images), *enumerate(samples.targets)):
                if array.dtype.kind == "f" and not np.isfinite(array).all():
                    raise DataError(f"sample {place:,} {part} of {self.name} holds a number that is not finite")

    @property
    def label_kind(self) -> LabelKind:
        """The kind of label that the samples have."""
        if self.train.targets:
            return "maps" if self.train.targets[0].ndim == 2 else "vectors"
        return "classes" if self.classes else "nothing"

    @property
    def label_text(self) -> str:
        """The labels in words, for errors."""
        return "no labels" if self.label_kind == "nothing" else f"{self.label_kind} as labels"

    def check_classes(self, what: str) -> None:
        """Raise DataError unless samples have classes, by which something is judged."""
        if self.label_kind != "classes":
            raise DataError(f"{self.name} has {self.label_text}, {what} by classes; give data with classes")

    @property
    def names(self) -> tuple[str, ...]:
        """The classes by name; none where they are only numbers counted from 0, as in 0, 1 or 000, 001."""
        counted = _numbered(self.classes) and [int(name) for name in self.classes] == list(range(len(self.classes)))
        return () if counted else self.classes

    def arranged(self, classes: tuple[str, ...]) -> Data:
        """Return the data with its classes numbered as in `classes`, which has all of them."""
        numbers = [classes.index(name) for name in self.classes]
        both = self.train, self.test
        train, test = (replace(part, labels=tuple(numbers[label] for label in part.labels)) for part in both)
        return replace(self, classes=classes, train=train, test=test)

    def digest(self) -> str:
        """Return a fingerprint of every sample and label, by which a resumed run knows its data."""
        hashed = hashlib.sha256(repr(self.classes).encode())
        for samples in (self.train, self.test):
            hashed.update(repr((samples.labels, [image.shape for image in samples.images])).encode())
            for array in (*samples.images, *samples.targets):
                hashed.update(array.tobytes())
        return hashed.hexdigest()


def data_address(sample: Array) -> str:
    """Return the middle of a picture as a data address, small ones at their size; empty for a sample that is none."""
    if sample.dtype != np.uint8 or sample.ndim != 3 or sample.shape[2] not in (1, 3):
        return ""
    side = min(sample.shape[:2])
    top, left = ((length - side) // 2 for length in sample.shape[:2])
    image = Image.fromarray(np.squeeze(sample[top : top + side, left : left + side]))
    kept, kind = io.BytesIO(), "png" if side <= SMALL else "jpeg"
    if side > SIDE:
        image = image.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    if kind == "png":
        image.save(kept, "PNG", optimize=True)
    else:
        image.save(kept, "JPEG", quality=QUALITY)
    return f"data:image/{kind};base64,{base64.b64encode(kept.getvalue()).decode()}"


@dataclass(frozen=True, eq=False)
class Given:
    """The contents of a file: samples to learn from, or all, those to test with, and the classes by name."""

    classes: tuple[str, ...]
    train: Samples
    test: Samples | None = None

    def divided(self) -> tuple[Samples, Samples]:
        """Return samples to learn from and to test with: as given, else every fifth of each class is held out."""
        if self.test is not None:
            return self.train, self.test
        train, test = hold_out(self.train.labels)
        return self.train.at(train), self.train.at(test)


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return names of classes in order: by value if all are numbers."""
    names = set(labels)
    return tuple(sorted(names, key=(lambda name: (int(name), name)) if _numbered(names) else None))


def repeated(names: Iterable[str]) -> str:
    """Return the first name in order that is given twice; empty if none is."""
    return min((name for name, count in Counter(names).items() if count > 1), default="")


def _numbered(names: Iterable[str]) -> bool:
    return all(name.isdecimal() and len(name) <= DIGITS for name in names)


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` of them, from the first to the last at even distances."""
    places = np.linspace(0, len(items) - 1, min(most, len(items))).round()
    return [items[int(place)] for place in places]


def hold_out(labels: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return the places to learn from and those to test with: every fifth of each class, in order."""
    train, test, seen = list[int](), list[int](), Counter[int]()
    for place, label in enumerate(labels):
        seen[label] += 1
        (train if seen[label] % HELD_OUT else test).append(place)
    return train, test


@dataclass(frozen=True)
class Matched:
    """The place of each class of the data among a model's classes, all of them by name, and a note for the user."""

    places: tuple[int, ...]
    names: tuple[str, ...]
    note: str = ""


def match_classes(
    classes: tuple[str, ...], named: tuple[str, ...], known: tuple[str, ...], count: int, model: str
) -> Matched:
    """Match the classes of some data, `named` if they are more than numbers, with those of a model that scores `count`.

    If the model names all of them, they are matched by its `known` names in any order. Otherwise both must have equally
    many, and are matched in order.
    """
    named = named or (classes if set(classes) == set(known) else ())
    if named and len(set(known)) == len(known) and set(named) <= set(known):
        return Matched(tuple(known.index(name) for name in named), known)
    if len(classes) != count:
        missing = sorted(set(named) - set(known)) if known else []
        unknown = f", and {missing[0]!r} is none of them" if missing else ""
        raise DataError(
            f"the data has {len(classes)} classes, {model} scores {count}{unknown}; give data of the model's "
            "classes, or let the model learn those of the data first"
        )
    note = "the data names other classes than the model; they are matched in order" if named and known else ""
    return Matched(tuple(range(count)), known if len(known) == count else classes, note)


def renumbered(data: Data, known: tuple[str, ...]) -> Data:
    """Return the data with its classes in the order of these names if they are the same names, else unchanged.

    So a model whose head is kept goes on with its classes, whatever their order in a folder.
    """
    if known == data.classes or sorted(known) != sorted(data.classes) or len(set(known)) < len(known):
        return data
    return data.arranged(known)
