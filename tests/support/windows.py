"""A toy to learn from nothing: windows of two channels in other units, whose class is the pace of one of them."""

from __future__ import annotations

import numpy as np

from smidgen.data.samples import Data, Samples
from smidgen.ir import Array

PACES = ("calm", "brisk", "wild")
MOMENTS = 24


def draw_window(label: int, rng: np.random.Generator) -> Array:
    """A pressure of some 100,000 without a meaning, and an acceleration of some thousandths."""
    phase = 2 * np.pi * ((label + 1) * np.arange(MOMENTS) / MOMENTS + rng.uniform())
    channels = 1e5 + 300 * rng.normal(size=MOMENTS), 2e-3 * np.sin(phase) + 4e-4 * rng.normal(size=MOMENTS)
    return np.stack(channels, axis=1).astype(np.float32)


def draw_windows(train: int, test: int, seed: int = 0) -> Data:
    """So many windows of each pace to learn from and to test with."""
    rng = np.random.default_rng(seed)
    labels = [[i % len(PACES) for i in range(len(PACES) * count)] for count in (train, test)]
    return Data("windows", PACES, *(Samples(tuple(draw_window(k, rng) for k in part), tuple(part)) for part in labels))


def as_rows(data: Data) -> Data:
    """The same as rows: the mean size of each channel's changes over one, two and four moments."""

    def row(window: Array) -> Array:
        return np.concatenate([np.abs(window[k:] - window[:-k]).mean(axis=0) for k in (1, 2, 4)])

    parts = (Samples(tuple(map(row, part.images)), part.labels) for part in (data.train, data.test))
    return Data("rows", data.classes, *parts)
