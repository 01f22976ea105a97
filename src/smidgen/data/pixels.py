"""Pixels → a model's input: the one rule by which an image becomes numbers, or int8.

The preprocessing that a model carries gives the number of each pixel. Without it the quantization of the input does: it
can hold scale·(−128 − zero) to scale·(127 − zero), and images are −1 … 1, 0 … 1 or 0 … 255,
whichever of these that interval is; where it is none of them (an input normalized by a mean and a deviation, say),
pixels 0 … 255 span the interval itself. A float32 input tells nothing and takes no pixels. The number of a pixel is
then rounded to the nearest int8, halves down: the paper's networks hold −1 … 1 at scale 2/255 and zero point 0, where
every pixel falls on a half, and so becomes pixel − 128.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from smidgen.data.samples import DataError
from smidgen.ir import Array, Graph, Type
from smidgen.ir.log_mel import LogMel
from smidgen.ir.preprocessing import Preprocessing

RANGES = ((-1.0, 1.0), (0.0, 1.0), (0.0, 255.0))
NEAR = 0.02  # of an interval's width: quantizers round its ends
HALF = 0.5 + 2**-12  # a float32 scale puts halves a little off


@dataclass(frozen=True)
class PixelEncoding:
    """The type of a model's first input, and how pixels or audio become it."""

    type: Type
    preprocessing: Preprocessing | None = None
    audio: LogMel | None = None


def pixel_encoding(model: Graph) -> PixelEncoding:
    """Return how images or audio enter a model, by its first input."""
    if isinstance(model.preprocessing, LogMel):
        return PixelEncoding(model.image.type, audio=model.preprocessing)
    return PixelEncoding(model.image.type, model.preprocessing)


def from_pixels(pixels: Array, encoding: PixelEncoding) -> Array:
    """Return uint8 pixels [height, width, colours], red first, as a model's input [1, height, width, colours]."""
    if encoding.preprocessing is not None and encoding.preprocessing.order == "bgr":
        pixels = pixels[..., ::-1]
    table = pixel_table(encoding)
    if (table == table[:, :1]).all():  # in one look-up, several times as fast
        return table[:, 0].take(pixels)[None]
    converted: Array = table[pixels, np.arange(table.shape[1])][None]
    return converted


@cache
def pixel_table(encoding: PixelEncoding) -> Array:
    """Return the input's value for each of the 256 pixels in each channel, as [256, channels]."""
    type, channels = encoding.type, encoding.type.shape[-1]
    if type.dtype == "float32":
        if encoding.preprocessing is None:
            raise DataError("a float32 input does not say how pixels become numbers; state the preprocessing")
        return encoding.preprocessing.numbers(channels).astype(np.float32)
    if type.dtype != "int8" or type.q is None:
        raise DataError(f"images cannot be given as {type.dtype} without a scale; bring a model with an int8 input")
    if encoding.preprocessing is not None:
        numbers = encoding.preprocessing.numbers(channels)
    else:
        low, high = interval(type)
        numbers = np.repeat(low + np.arange(256)[:, None] * ((high - low) / 255), channels, axis=1)
    rounded: Array = np.clip(np.ceil(numbers / type.scale + type.zero - HALF), -128, 127).astype(np.int8)
    return rounded


def pixel_rule(encoding: PixelEncoding) -> str:
    """Return the rule in a sentence for whoever writes the image on a device; empty if the model does not state it."""
    stated = encoding.preprocessing
    if stated is None or encoding.type.q is None:
        return ""
    table, channels = pixel_table(encoding).astype(int), encoding.type.shape[-1]
    if np.array_equal(table, np.repeat(np.arange(-128, 128)[:, None], channels, axis=1)):
        return f"A pixel p of 0 to 255 ({stated.order} order) is written as p - 128."
    ends = stated.numbers(channels)[[0, 255]] / encoding.type.scale + encoding.type.zero
    lines = [f"p * {(high - low) / 255:.9g} {low:+.9g}" for low, high in ends.T]
    rule = lines[0] if len(set(lines)) == 1 else ", ".join(lines) + " by channel"
    return f"A pixel p of 0 to 255 ({stated.order} order) is written as {rule}, rounded to the nearest, halves down."


def interval(type: Type) -> tuple[float, float]:
    """Return the numbers that pixels 0 and 255 stand for, as the quantization implies."""
    low, high = type.scale * (-128 - type.zero), type.scale * (127 - type.zero)
    for ends in RANGES:
        if max(abs(ends[0] - low), abs(ends[1] - high)) <= NEAR * (high - low):
            return ends
    return low, high
