"""Scenes drawn by code: rooms and streets with trees, lamps, animals and chairs, and in half of them a person."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

import smidgen as sm
from smidgen.data import Samples

SIDE = 256  # pixels that are drawn on; a picture is half as wide
CLASSES = ("no person", "person")
SKINS = ((255, 224, 196), (234, 192, 160), (198, 140, 104), (141, 92, 62), (90, 58, 40))
Colour = tuple[int, ...]
Point = tuple[float, float]


def scenes(learn: int, test: int, seed: int) -> sm.Data:
    """So many pictures to learn from and to test with, every second one with a person."""
    rng = np.random.default_rng(seed)
    return sm.Data("drawn scenes", CLASSES, _samples(learn, rng), _samples(test, rng))


def _samples(count: int, rng: np.random.Generator) -> Samples:
    labels = tuple(i % 2 for i in range(count))
    return Samples(tuple(scene(label == 1, rng) for label in labels), labels)


def scene(person: bool, rng: np.random.Generator) -> NDArray[np.uint8]:
    """One picture, [128, 128, 3]: one to three things; a person takes the place of one, and another may hide it."""
    pen = Pen(rng)
    things = [THINGS[int(i)] for i in rng.integers(len(THINGS), size=int(rng.integers(1, 4)))]
    if person:
        things[max(len(things) - 1 - int(rng.integers(2)), 0)] = draw_person
    for thing in things:
        thing(pen, float(rng.uniform(30, SIDE - 30)), float(rng.uniform(205, 250)), float(rng.uniform(110, 215)))
    return pen.photograph()


class Pen:
    """A picture under way, with the colours and chances of its scene."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        top, bottom = (rng.uniform(low, high) + rng.normal(0, 18, 3) for low, high in ((90, 240), (50, 180)))
        rows = np.linspace(0, 1, SIDE)[:, None, None]
        horizon = rng.uniform(0.4, 0.8)
        shade = np.where(rows < horizon, top * (1 - 0.3 * rows), bottom * (0.6 + 0.5 * rows))
        texture = np.kron(rng.normal(0, 10, (SIDE // 8, SIDE // 8, 1)), np.ones((8, 8, 1)))
        self.image = Image.fromarray(np.clip(shade + texture, 0, 255).astype(np.uint8))
        self.draw = ImageDraw.Draw(self.image)

    def colour(self, low: int = 20, high: int = 235) -> Colour:
        return tuple(int(c) for c in self.rng.integers(low, high, 3))

    def near(self, base: Colour, by: int = 25) -> Colour:
        """A colour like this one."""
        return tuple(int(np.clip(c + self.rng.integers(-by, by + 1), 0, 255)) for c in base)

    def blob(self, centre: Point, width: float, height: float, colour: Colour) -> None:
        x, y = centre
        self.draw.ellipse((x - width / 2, y - height / 2, x + width / 2, y + height / 2), fill=colour)

    def limb(self, points: list[Point], width: float, colour: Colour) -> None:
        """A line of round joints."""
        for one, other in pairwise(points):
            self.draw.line((*one, *other), fill=colour, width=max(int(width), 1))
        for point in points:
            self.blob(point, width, width, colour)

    def photograph(self) -> NDArray[np.uint8]:
        """What a cheap camera makes of it: light from a side, a colour cast, blur and noise."""
        rng = self.rng
        small = self.image.resize((SIDE // 2, SIDE // 2), Image.Resampling.BOX)
        pixels = np.asarray(small.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 1)))), np.float64)
        side = np.linspace(-1, 1, SIDE // 2)[None, :, None] * rng.uniform(-0.3, 0.3)
        lit = pixels * rng.uniform(0.5, 1.15) * (1 + side) * rng.uniform(0.85, 1.15, 3)
        return np.clip(lit + rng.normal(0, rng.uniform(2, 12), pixels.shape), 0, 255).astype(np.uint8)


def draw_person(pen: Pen, x: float, y: float, h: float) -> None:
    """Somebody who stands, walks or waves, in any clothes."""
    rng = pen.rng
    skin = pen.near(SKINS[int(rng.integers(len(SKINS)))], 10)
    shirt, trousers, hair, stout = pen.colour(), pen.colour(), pen.colour(0, 140), rng.uniform(0.8, 1.4)
    lean, width = rng.normal(0, 0.04) * h, 0.085 * h * stout
    hip, neck = (x, y - 0.47 * h), (x + lean, y - 0.8 * h)
    for side in (-1, 1):
        stride = side * rng.uniform(0.02, 0.16) * h
        foot = (x + 1.2 * stride, y - rng.uniform(0, 0.04) * h)
        pen.limb([(x + side * 0.045 * h, hip[1]), (x + stride, y - 0.24 * h), foot], width, trousers)
        pen.blob(foot, 0.11 * h, 0.05 * h, (30, 25, 25))
    pen.limb([hip, neck], 0.2 * h * stout, shirt)
    for side in (-1, 1):
        shoulder = (neck[0] + side * 0.1 * h * stout, neck[1] + 0.02 * h)
        angle, bend = rng.uniform(-0.6, 2.6), rng.uniform(-0.3, 1.5)
        elbow = (shoulder[0] + side * np.sin(angle) * 0.17 * h, shoulder[1] + np.cos(angle) * 0.17 * h)
        reach = angle + bend
        hand = (elbow[0] + side * np.sin(reach) * 0.16 * h, elbow[1] + np.cos(reach) * 0.16 * h)
        pen.limb([shoulder, elbow, hand], 0.6 * width, shirt)
        pen.blob(hand, 0.055 * h, 0.055 * h, skin)
    head = (neck[0] + rng.normal(0, 0.01) * h, neck[1] - 0.11 * h)
    pen.blob((head[0], head[1] - 0.02 * h), 0.16 * h, 0.17 * h, hair)
    pen.blob((head[0] + rng.normal(0, 0.012) * h, head[1] + 0.015 * h), 0.125 * h, 0.15 * h, skin)


def draw_tree(pen: Pen, x: float, y: float, h: float) -> None:
    green = pen.near((60, 120, 50), 45)
    pen.limb([(x, y), (x + pen.rng.normal(0, 5), y - 0.6 * h)], 0.09 * h, pen.near((96, 70, 48)))
    for _ in range(int(pen.rng.integers(3, 8))):
        at = (x + pen.rng.normal(0, 0.12 * h), y - pen.rng.uniform(0.55, 0.95) * h)
        pen.blob(at, 0.35 * h, 0.3 * h, pen.near(green))


def draw_lamp(pen: Pen, x: float, y: float, h: float) -> None:
    """A post with a ball on top, which looks a little like a head on a body."""
    pen.limb([(x, y), (x, y - 0.85 * h)], 0.045 * h, pen.colour(20, 120))
    pen.blob((x, y - 0.9 * h), 0.15 * h, 0.15 * h, pen.near(SKINS[0], 30))
    pen.blob((x, y), 0.2 * h, 0.06 * h, pen.colour(20, 120))


def draw_animal(pen: Pen, x: float, y: float, h: float) -> None:
    """Four legs, a long body, a head: a dog, a cow, nobody in particular."""
    fur, size, side = pen.colour(30, 220), 0.55 * h, float(pen.rng.choice((-1, 1)))
    for leg in (-0.5, -0.35, 0.35, 0.5):
        pen.limb([(x + leg * size, y - 0.4 * size), (x + leg * size + pen.rng.normal(0, 4), y)], 0.1 * size, fur)
    pen.blob((x, y - 0.55 * size), 1.3 * size, 0.45 * size, fur)
    pen.limb([(x + side * 0.5 * size, y - 0.65 * size), (x + side * 0.75 * size, y - 0.95 * size)], 0.18 * size, fur)
    pen.blob((x + side * 0.8 * size, y - size), 0.4 * size, 0.28 * size, pen.near(fur))


def draw_chair(pen: Pen, x: float, y: float, h: float) -> None:
    wood, size = pen.colour(30, 200), 0.6 * h
    for leg in (-0.3, 0.3):
        pen.limb([(x + leg * size, y), (x + leg * size, y - 0.5 * size)], 0.07 * size, wood)
    pen.draw.rectangle((x - 0.35 * size, y - 0.6 * size, x + 0.35 * size, y - 0.48 * size), fill=pen.near(wood))
    pen.draw.rectangle((x - 0.35 * size, y - 1.2 * size, x + 0.35 * size, y - 0.75 * size), fill=wood)


def draw_bottle(pen: Pen, x: float, y: float, h: float) -> None:
    """A body with shoulders, a neck and a cap."""
    glass, w = pen.colour(), 0.16 * h
    pen.limb([(x, y - 0.1 * h), (x, y - 0.5 * h)], 2 * w, glass)
    pen.limb([(x, y - 0.5 * h), (x, y - 0.8 * h)], 0.8 * w, pen.near(glass))
    pen.blob((x, y - 0.82 * h), 0.9 * w, 0.06 * h, pen.colour())


def draw_box(pen: Pen, x: float, y: float, h: float) -> None:
    """A cupboard, a car, a house far away: a box with smaller ones on it."""
    w, tall = pen.rng.uniform(0.3, 0.9) * h, pen.rng.uniform(0.3, 0.9) * h
    pen.draw.rectangle((x - w / 2, y - tall, x + w / 2, y), fill=pen.colour())
    for _ in range(int(pen.rng.integers(0, 4))):
        left, top = x + pen.rng.uniform(-0.4, 0.1) * w, y - pen.rng.uniform(0.4, 0.9) * tall
        pen.draw.rectangle((left, top, left + 0.25 * w, top + 0.25 * tall), fill=pen.colour())


THINGS: tuple[Callable[[Pen, float, float, float], None], ...] = (
    draw_tree, draw_lamp, draw_animal, draw_chair, draw_bottle, draw_box,
)  # fmt: skip
