"""Samples → a model's input: pictures by the rule of pixels, audio by its front end, tensors by the quantization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from smidgen.data.audio import audio_input, is_audio
from smidgen.data.images import centre
from smidgen.data.pixels import PixelEncoding
from smidgen.data.samples import DataError, Samples, evenly
from smidgen.ir import Array, Type
from smidgen.numerics import quantize

Kind = Literal["picture", "audio", "tensor"]  # of a sample; each becomes an input in another way


def as_input(sample: Array, encoding: PixelEncoding) -> Array:
    """Return a sample as a model takes it: the middle of a picture or of a recording, a tensor unchanged."""
    match kind_of(sample, encoding.type):
        case "picture" if encoding.audio is not None:
            raise DataError("the model expects audio, but a sample is a picture; give audio, or features as float32")
        case "picture":
            return centre(sample, encoding)
        case "audio":
            return audio_input(sample, encoding)
        case "tensor":
            return as_tensor(sample, encoding.type)


def kind_of(sample: Array, type: Type) -> Kind:
    """Return the kind of a sample: bytes of an image's shape are a picture if the model takes images."""
    if is_audio(sample):
        return "audio"
    return "picture" if takes_images(type.shape) and shows_image(sample) else "tensor"


def takes_images(shape: Sequence[int]) -> bool:
    """Return whether an input of a shape may be a picture."""
    return len(shape) == 4 and shape[0] == 1 and shape[3] in (1, 3)


def as_tensor(sample: Array, type: Type) -> Array:
    """Return numbers as an input of this type, rounded to the nearest int8 if it is int8; int8 is kept.

    The shape is the input's, dimensions of one aside. A list of numbers fills an input of any shape, and an input that
    is a list takes numbers of any shape, row by row.
    """
    if not fits(sample.shape, type.shape):
        found = f"a sample is {sample.dtype}{list(sample.shape)}, the model's input {type.dtype}{list(type.shape)}"
        if shows_image(sample):
            raise DataError(f"{found} is not an image; images need an input of [1, height, width, 1 or 3]")
        order = ", channels last," if sorted(sample.shape) == sorted(d for d in type.shape if d != 1) else ""
        row = f"{math.prod(type.shape):,} numbers in a row"
        raise DataError(f"{found}; give samples of {list(type.shape[1:])}{order} or of {row}")
    shaped: Array = sample.reshape(type.shape)
    if type.dtype == "int8" and type.q is not None:
        return shaped if shaped.dtype == np.int8 else quantize(_numbers(shaped), type.q)
    if type.dtype != "float32":
        raise DataError(f"samples cannot be given as {type.dtype}; bring a model whose input is int8 or float32")
    if shaped.dtype == np.int8:
        raise DataError(
            "a sample is int8, as an int8 model takes it, but the model's input is float32; give numbers as float32"
        )
    return _numbers(shaped)


def fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Return whether numbers of a shape fill an input of the wanted one, dimensions of one aside."""
    given, taken = ([d for d in dims if d != 1] for dims in (shape, wanted))
    row = min(len(given), len(taken)) <= 1
    return given == taken or (row and math.prod(given) == math.prod(taken))


def examples(samples: Samples, encoding: PixelEncoding, count: int = 8) -> tuple[Array, ...]:
    """Return `count` samples as a model's input, spread evenly over all."""
    return tuple(as_input(sample, encoding) for sample in evenly(samples.images, count))


def shows_image(sample: Array) -> bool:
    return sample.dtype == np.uint8 and sample.ndim == 3 and sample.shape[2] in (1, 3)


def _numbers(sample: Array) -> Array:
    """Return finite float32 numbers; bytes count as 0 … 255."""
    if sample.dtype not in (np.float32, np.float64, np.uint8):
        raise DataError(f"a sample is {sample.dtype}; give float32 numbers, int8 as the model takes it, or uint8")
    with np.errstate(over="ignore"):
        numbers: Array = sample.astype(np.float32)
    if not np.isfinite(numbers).all():
        bad = int((~np.isfinite(numbers)).sum())
        raise DataError(f"a sample holds {bad} of {numbers.size:,} numbers that are not finite; leave it out")
    return numbers
