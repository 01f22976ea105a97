"""Image files → pixels, within a budget of memory."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from PIL import Image, ImageOps

from smidgen.data.budget import Budget
from smidgen.data.files import first_line
from smidgen.data.samples import DataError, evenly
from smidgen.data.trees import Box, SampleFile
from smidgen.ir import Array

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
SHORT_SIDE = 512  # larger photographs are reduced to this, unless told otherwise: no microcontroller sees more
SIDES = (16, 4096)  # that can be asked for
MAX_PIXELS = 2**26  # of one image
TRIED = 64  # images whose sizes tell what all of them take
SURELY = 1.25  # times the limit is refused on that account; what comes nearer is counted as it is read
GRAY = ("1", "L", "LA")  # modes of Pillow


def read_images(files: Sequence[SampleFile], budget: Budget, side: int = SHORT_SIDE) -> tuple[Array, ...]:
    """All images, those whose short side is longer than so many pixels reduced to it; counted as they are read."""
    _check_sizes(files, budget, side)
    images = []
    for file in files:
        images.append(_decode(file, budget, side))
        budget.take(file.name, images[-1].nbytes)
    return tuple(images)


def _check_sizes(files: Sequence[SampleFile], budget: Budget, side: int) -> None:
    """Raise where some of many images, by the sizes they declare, tell that all would take far too much."""
    if not SIDES[0] <= side <= SIDES[1]:
        raise DataError(f"images cannot be reduced to a short side of {side} pixels; give {SIDES[0]} to {SIDES[1]:,}")
    if len(files) <= TRIED:
        return
    total = 0
    for file in evenly(files, TRIED):
        with opened(file) as image:
            box = file.box
            size = image.size if box is None else (max(box[2] - box[0], 1), max(box[3] - box[1], 1))
            width, height = _reduced(size, side)
            total += width * height * (1 if image.mode in GRAY else 3)
    need = total * len(files) // TRIED
    if need > SURELY * (budget.limit - budget.taken):
        what = f"{len(files):,} images, each with a short side of at most {side} pixels (--short-side reduces it),"
        budget.check(what, need)


def _decode(file: SampleFile, budget: Budget, side: int) -> Array:
    """An image, or its box, as uint8 [height, width, 1 or 3], upright, reduced where it is very large."""
    with opened(file) as image:
        budget.check(f"{file.name}, {image.width}×{image.height} pixels,", 4 * image.width * image.height)
        part = image if file.box is None else image.crop(_inside(file, image, file.box))
        part = ImageOps.exif_transpose(part)
        part = part.convert("L" if part.mode in GRAY else "RGB")
    if (size := _reduced(part.size, side)) != part.size:
        part = part.resize(size)
    return np.asarray(part, np.uint8).reshape(part.height, part.width, -1)


@contextmanager
def opened(file: SampleFile) -> Iterator[Image.Image]:
    """An image before its pixels are read; what goes wrong meanwhile is said in one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(file.read()))
            if image.width * image.height > MAX_PIXELS:
                raise DataError(f"{file.name} has {image.width}×{image.height} pixels, too many; reduce it")
            yield image
    except DataError:
        raise
    except Exception as error:  # Pillow's readers raise whatever a damaged file makes them
        why = first_line(error)
        raise DataError(f"{file.name} cannot be read as an image ({why}); replace or remove it") from None


def _inside(file: SampleFile, image: Image.Image, box: Box) -> Box:
    left, top, right, bottom = max(box[0], 0), max(box[1], 0), min(box[2], image.width), min(box[3], image.height)
    if left >= right or top >= bottom:
        raise DataError(
            f"{file.name} has {image.width}×{image.height} pixels, none of them in its box {list(box)}; image and "
            "annotations are not of the same data set"
        )
    return left, top, right, bottom


def _reduced(size: tuple[int, int], side: int) -> tuple[int, int]:
    excess = max(min(size) / side, 1)
    return round(size[0] / excess), round(size[1] / excess)
