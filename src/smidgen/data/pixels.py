"""Pixels → a model's input: the one rule by which an image becomes int8.

A model's quantization says which numbers its input can hold, from scale·(−128 − zero) to scale·(127 − zero).
Images are −1 … 1, 0 … 1 or 0 … 255, whichever of these that interval is; where it is none of them (an input
normalized by a mean and a deviation, say), pixels 0 … 255 span the interval itself. The number of a pixel is
then rounded to the nearest int8, halves down: the paper's networks hold −1 … 1 at scale 2/255 and zero point 0,
where every pixel falls on a half, and so becomes pixel − 128. A float32 input takes −1 … 1.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from smidgen.data.samples import DataError
from smidgen.ir import Array, Type

RANGES = ((-1.0, 1.0), (0.0, 1.0), (0.0, 255.0))
NEAR = 0.02  # of an interval's width: quantizers round its ends
HALF = 0.5 + 2**-12  # a float32 scale puts halves a little off


def from_pixels(pixels: Array, type: Type) -> Array:
    """uint8 pixels [height, width, colours] as a model's input [1, height, width, colours]."""
    converted: Array = _table(type)[pixels][None]
    return converted


@cache
def _table(type: Type) -> Array:
    """The input's value for each of the 256 pixels."""
    if type.dtype == "float32":
        return (np.arange(256) / 127.5 - 1).astype(np.float32)
    if type.dtype != "int8" or type.q is None:
        raise DataError(f"images cannot be given as {type.dtype} without a scale; bring a model with an int8 input")
    low, high = interval(type)
    numbers = low + np.arange(256) * ((high - low) / 255)
    rounded: Array = np.clip(np.ceil(numbers / type.scale + type.zero - HALF), -128, 127).astype(np.int8)
    return rounded


def interval(type: Type) -> tuple[float, float]:
    """The numbers that pixels 0 and 255 stand for."""
    low, high = type.scale * (-128 - type.zero), type.scale * (127 - type.zero)
    for ends in RANGES:
        if max(abs(ends[0] - low), abs(ends[1] - high)) <= NEAR * (high - low):
            return ends
    return low, high
