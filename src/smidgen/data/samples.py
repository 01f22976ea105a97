"""Labelled images in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from smidgen.errors import SmidgenError
from smidgen.ir import Array

Item = TypeVar("Item")
MAX_CLASSES = 4096
HELD_OUT = 5  # where no test images are given, every fifth of each class


class DataError(SmidgenError):
    """Images or labels cannot be read, or do not fit together."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Images, uint8 [height, width, 1 or 3] of any size, and the class of each."""

    images: tuple[Array, ...]
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, places: Iterable[int]) -> Samples:
        """The samples at these places, in their order."""
        chosen = list(places)
        return Samples(tuple(self.images[i] for i in chosen), tuple(self.labels[i] for i in chosen))

    def spread(self, count: int) -> Samples:
        """At most so many samples, evenly from all of them."""
        return self.at(evenly(range(len(self)), count))


@dataclass(frozen=True, eq=False)
class Data:
    """What is learned from, what is tested with, and the classes by name."""

    name: str
    classes: tuple[str, ...]
    train: Samples
    test: Samples

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise DataError(
                f"{self.name} holds {len(self.classes)} class, {self.classes[0]!r}; learning needs at least two"
            )
        for part, samples in (("to learn from", self.train), ("to test with", self.test)):
            if not len(samples):
                raise DataError(f"{self.name} holds no images {part}; add some of each class")

    def digest(self) -> str:
        """A fingerprint of every pixel and label, by which a resumed run knows its data."""
        hashed = hashlib.sha256(repr(self.classes).encode())
        for samples in (self.train, self.test):
            hashed.update(repr((samples.labels, [image.shape for image in samples.images])).encode())
            for image in samples.images:
                hashed.update(image.tobytes())
        return hashed.hexdigest()


@dataclass(frozen=True, eq=False)
class Labelled:
    """Images to test with, and the classes by name that their labels count."""

    classes: tuple[str, ...]
    samples: Samples


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of them, from the first to the last at even distances."""
    places = np.linspace(0, len(items) - 1, min(most, len(items))).round()
    return [items[int(place)] for place in places]


def hold_out(labels: Iterable[int]) -> tuple[list[int], list[int]]:
    """The places of what to learn from and of what to test with: every fifth of each class, in order."""
    train: list[int] = []
    test: list[int] = []
    seen: dict[int, int] = {}
    for place, label in enumerate(labels):
        seen[label] = seen.get(label, 0) + 1
        (train if seen[label] % HELD_OUT else test).append(place)
    return train, test
