"""A toy to learn, made in code: crosses, discs, rings and squares in any colour and place."""

from __future__ import annotations

import numpy as np

from smidgen.data.samples import Data, Samples
from smidgen.ir import Array

SHAPES = ("cross", "disc", "ring", "square")
SIDE = 32


def draw_shape(kind: str, rng: np.random.Generator) -> Array:
    """A shape in one colour on a ground of another, with some noise."""
    y, x = np.mgrid[:SIDE, :SIDE] - rng.uniform(11, 20, (2, 1, 1))
    r, far = rng.uniform(7, 10), np.maximum(abs(x), abs(y))
    inside = {
        "cross": (np.minimum(abs(x), abs(y)) < 2) & (far < r),
        "disc": x * x + y * y < r * r,
        "ring": abs(np.hypot(x, y) - r) < 2,
        "square": (abs(far - r) < 1) | (far < r / 3),
    }[kind]
    shape, ground = rng.uniform(150, 255, 3), rng.uniform(0, 100, 3)
    pixels = np.where(inside[..., None], shape, ground) + rng.normal(0, 8, (SIDE, SIDE, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def draw_shapes(train: int, test: int, seed: int = 0) -> Data:
    """So many images of each kind to learn from and to test with."""
    rng = np.random.default_rng(seed)
    labels = [[i % len(SHAPES) for i in range(len(SHAPES) * count)] for count in (train, test)]
    parts = [Samples(tuple(draw_shape(SHAPES[k], rng) for k in part), tuple(part)) for part in labels]
    return Data("shapes", SHAPES, *parts)
