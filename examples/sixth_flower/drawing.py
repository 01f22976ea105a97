"""Flowers drawn by code: six kinds that differ in petals, colours and hearts, in a meadow of any light."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

import smidgen as sm
from smidgen.data import Samples

SIDE = 256  # pixels that are drawn on; a picture is half as wide
Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Flower:
    """A kind of flower."""

    petals: tuple[int, int]  # at least, at most
    long: float  # of a petal, beside the flower's radius
    wide: float
    colours: tuple[Colour, ...]
    heart: Colour
    heart_size: float


WHITE, YELLOW, RED, BLUE, PINK = (240, 238, 230), (245, 205, 40), (205, 40, 45), (80, 90, 205), (235, 130, 185)
FLOWERS = {
    "daisy": Flower((14, 20), 0.95, 0.16, (WHITE, PINK), (235, 190, 40), 0.28),
    "pansy": Flower((5, 5), 0.75, 0.75, (BLUE, YELLOW, (110, 40, 130)), (40, 20, 50), 0.34),
    "poppy": Flower((4, 5), 0.8, 0.9, (RED, (235, 105, 50)), (30, 30, 25), 0.25),
    "primrose": Flower((5, 6), 0.8, 0.5, (YELLOW, WHITE, PINK), (200, 170, 30), 0.15),
    "sunflower": Flower((18, 26), 0.98, 0.2, (YELLOW, (235, 165, 25)), (85, 50, 25), 0.5),
    "cornflower": Flower((8, 12), 0.9, 0.3, (BLUE, (120, 70, 190), WHITE), (70, 40, 110), 0.22),
}


def meadow(learn: int, test: int, seed: int) -> sm.Data:
    """So many pictures of each kind to learn from, and to test with."""
    rng = np.random.default_rng(seed)
    return sm.Data("drawn flowers", tuple(FLOWERS), _samples(learn, rng), _samples(test, rng))


def _samples(each: int, rng: np.random.Generator) -> Samples:
    labels = tuple(i % len(FLOWERS) for i in range(each * len(FLOWERS)))
    kinds = tuple(FLOWERS.values())
    return Samples(tuple(picture(kinds[label], rng) for label in labels), labels)


def picture(flower: Flower, rng: np.random.Generator) -> NDArray[np.uint8]:
    """One picture, [128, 128, 3]: one flower in the middle, leaves and grass behind it, others' petals beside it."""
    ground = rng.uniform((20, 50, 15), (120, 150, 90)) + rng.normal(0, 14, (SIDE // 4, SIDE // 4, 3))
    image = Image.fromarray(np.clip(np.kron(ground, np.ones((4, 4, 1))), 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(6, 25))):
        start, end = rng.uniform(0, SIDE, 2), rng.uniform(0, SIDE, 2)
        draw.line((*start, *end), fill=_near((60, 120, 50), rng, 40), width=int(rng.integers(2, 14)))
    for _ in range(int(rng.integers(0, 4))):
        others = tuple(FLOWERS.values())[int(rng.integers(len(FLOWERS)))]
        x, y = rng.uniform(0, SIDE, 2)
        r = rng.uniform(6, 16)
        draw.ellipse((x - r, y - r, x + r, y + r), fill=_near(others.colours[0], rng, 20))
    _draw_flower(image, flower, rng)
    small = image.resize((SIDE // 2, SIDE // 2), Image.Resampling.BOX)
    pixels = np.asarray(small.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 1.2)))), np.float64)
    lit = pixels * rng.uniform(0.5, 1.2) * rng.uniform(0.88, 1.12, 3) + rng.normal(0, rng.uniform(2, 12), pixels.shape)
    return np.clip(lit, 0, 255).astype(np.uint8)


def _draw_flower(image: Image.Image, flower: Flower, rng: np.random.Generator) -> None:
    """Petals around a heart, seen from somewhat aside."""
    draw = ImageDraw.Draw(image)
    middle, radius = rng.uniform(0.36, 0.64, 2) * SIDE, rng.uniform(0.16, 0.42) * SIDE
    squeezed = np.array([[1.0, 0.0], [0.0, rng.uniform(0.5, 1.0)]])
    angle = rng.uniform(0, np.pi)
    view = _turn(angle) @ squeezed @ _turn(-angle)
    count = int(rng.integers(flower.petals[0], flower.petals[1] + 1))
    colour = _near(flower.colours[int(rng.integers(len(flower.colours)))], rng, 22)
    round_ = np.linspace(0, 2 * np.pi, 24)
    first = rng.uniform(0, 7)
    for petal in range(count):
        long = flower.long * radius * rng.uniform(0.88, 1.08)
        shape = np.stack([long / 2 + long / 2 * np.cos(round_), flower.wide * radius / 2 * np.sin(round_)])
        points = (view @ _turn(first + 2 * np.pi * petal / count + rng.normal(0, 0.06)) @ shape).T + middle
        draw.polygon(
            [(float(x), float(y)) for x, y in points], fill=_near(colour, rng, 14), outline=_near(colour, rng, 40)
        )
    heart = (view @ (flower.heart_size * radius * np.stack([np.cos(round_), np.sin(round_)]))).T + middle
    draw.polygon([(float(x), float(y)) for x, y in heart], fill=_near(flower.heart, rng, 22))


def _near(base: Colour, rng: np.random.Generator, by: int) -> Colour:
    red, green, blue = (int(c) for c in np.clip(np.array(base) + rng.integers(-by, by + 1, 3), 0, 255))
    return red, green, blue


def _turn(angle: float) -> NDArray[np.float64]:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
