"""A network that knows five flowers learns a sixth from ten pictures, and keeps the five, on a Cortex-M7.

First the five are learned, as if in the factory. Then the head gets a sixth row, from the mean of the new pictures, and
learns from them and from ten old pictures of each known flower, whose latents a board keeps in flash.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import smidgen as sm
from smidgen.data import Samples, examples, pixel_encoding
from smidgen.learning import extend

sys.path.append(str(Path(__file__).parents[2]))
from examples import common
from examples.sixth_flower.drawing import meadow

BOARD = "stm32f746"  # a Cortex-M7
FLASH = "64KB"  # that keeps latents
FACTORY, TESTED = 20, 40  # pictures of each flower
KEPT, NEW = 10, 10  # pictures of each known flower that stay, and of the new one
EPOCHS, RATE = 10, 4 / 256
STEPS = 3  # on the emulated board


def main() -> None:
    given = common.arguments(__doc__, "a folder with a subfolder of pictures for each class; the last by name is new")
    data = sm.load_data(given.data) if given.data else meadow(FACTORY, TESTED, given.seed)
    known, new = range(len(data.classes) - 1), len(data.classes) - 1
    five = replace(data, classes=data.classes[:-1], train=some(data.train, known), test=some(data.test, known))
    course = sm.Course(EPOCHS, RATE, augment=sm.Augment((0.8, 1.0)), seed=given.seed, test_every=EPOCHS)
    factory = sm.learn(program(sm.load("mcunet-5fps"), five, "host", given.seed), five, course)

    old, few = (some(data.train, [label], KEPT) for label in known), some(data.train, [new], NEW)
    extended = extend(factory.model, replace(data, train=together(*old, few)))
    here = program(extended.model, extended.data, "host", given.seed)
    learned = sm.learn(here, extended.data, course)
    there = program(extended.model, extended.data, BOARD, given.seed)
    board = common.on_board(here, there, extended.data, RATE, STEPS)

    sixth = replace(data, train=few, test=some(data.test, [new]))
    five_after, sixth_after = (right(learned.model, part) for part in (replace(five, classes=data.classes), sixth))
    figures = (
        common.Figure("pictures of the sixth recognized", 0.0, sixth_after),  # which the five-class head cannot say
        common.Figure("pictures of the five recognized", factory.accuracy, five_after),
    )
    outcome = common.Outcome("sixth_flower", len(extended.data.train), len(data.test), figures, board)
    common.finish(given, outcome, learned.model, lambda of: program(of, extended.data, BOARD, given.seed))


def program(of: sm.Graph, data: sm.Data, target: str, seed: int) -> sm.Program:
    """A program whose head learns; on a board its camera is read row by row, and flash keeps latents."""
    options, images = sm.Options(len(data.classes), seed=seed), examples(data.train, pixel_encoding(of))
    flash = None if target == "host" else FLASH
    return sm.compile(
        of, "head", target, options=options, images=images, streamed_input=target != "host", replay=flash,
        class_names=data.classes,
    )  # fmt: skip


def some(samples: Samples, labels: range | list[int], most: int | None = None) -> Samples:
    """Those of some classes, or the first few of them."""
    return samples.at([place for place, label in enumerate(samples.labels) if label in labels][:most])


def together(*parts: Samples) -> Samples:
    images, labels = (sum((getattr(part, name) for part in parts), ()) for name in ("images", "labels"))
    return Samples(images, labels)


def right(model: sm.Graph, data: sm.Data) -> float:
    """The share of pictures to test with that a model names."""
    tested = sm.test(model, data)
    assert tested.told == "classes"
    return tested.accuracy


if __name__ == "__main__":
    common.start(main)
