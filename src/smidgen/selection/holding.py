"""Part of the training images held back for judging, so that what is chosen with them never saw the test images."""

from __future__ import annotations

from dataclasses import replace

from smidgen.data import Data, DataError, Samples
from smidgen.data.samples import evenly

HELD = 4  # one image of so many is held back
FEWEST = 8  # images to judge with: with fewer, one image decides


def hold_back(data: Data) -> Data:
    """A quarter of each class's training images as test images, or of all where there are no classes, and the rest to
    learn from; the data's own test images are in neither part."""
    classes = data.classes if data.label_kind == "classes" else ()  # those of maps are the cells'
    places = _by_class(data.train, max(len(classes), 1))
    for name, of_class in zip(classes, places, strict=False):  # without classes all samples are of one
        if len(of_class) < 2:
            raise DataError(
                f"{data.name} holds {len(of_class)} training image{'' if len(of_class) == 1 else 's'} of {name!r}; one "
                "to learn from and one to judge with are needed: add images, or leave the class out"
            )
    held = sorted(place for of_class in places for place in _spaced(of_class, max(1, len(of_class) // HELD)))
    if len(held) < FEWEST:
        raise DataError(
            f"{data.name} holds {len(data.train)} training images, of which {len(held)} can be held back to judge "
            f"with; at least {FEWEST} are needed: add images, about {HELD * FEWEST} in all"
        )
    kept = set(held)
    rest = (place for place in range(len(data.train)) if place not in kept)
    return replace(data, train=data.train.at(rest), test=data.train.at(held))


def limit_samples(samples: Samples, most: int, classes: int) -> Samples:
    """At most `most` of the samples, of each class its share; a class that would have none keeps one besides."""
    if len(samples) <= most:
        return samples
    chosen = (
        place
        for of_class in _by_class(samples, classes)
        for place in evenly(of_class, max(1, most * len(of_class) // len(samples)))
    )
    return samples.at(sorted(chosen))


def _by_class(samples: Samples, classes: int) -> list[list[int]]:
    places: list[list[int]] = [[] for _ in range(classes)]
    for place, label in enumerate(samples.labels):
        places[label].append(place)
    return places


def _spaced(places: list[int], count: int) -> list[int]:
    """So many of them, each from the middle of a stretch of equal length."""
    return [places[(2 * i + 1) * len(places) // (2 * count)] for i in range(count)]
