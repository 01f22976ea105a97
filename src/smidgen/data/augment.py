"""Crops of an image, random ones to learn from and the middle to test with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from smidgen.data.pixels import PixelEncoding, from_pixels
from smidgen.data.samples import DataError
from smidgen.errors import InputError
from smidgen.ir import Array

ATTEMPTS = 10  # at a random rectangle that fits, before the middle is taken
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Augment:
    """A random resized crop (its share of the area, its aspect) and a flip half of the time, as the paper's."""

    scale: tuple[float, float] = (0.08, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True

    def check(self) -> None:
        """Raise InputError unless there are such crops."""
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise InputError(
                f"a crop of {self.scale[0]} to {self.scale[1]} of an image is not possible; give shares above 0 "
                "and at most 1"
            )
        if not 0 < self.aspect[0] <= self.aspect[1] < math.inf:
            raise InputError(
                f"crops of aspect {self.aspect[0]} to {self.aspect[1]} are not possible; give ratios above 0"
            )

    def apply(self, image: Array, encoding: PixelEncoding, rng: np.random.Generator) -> Array:
        """The image as a model's input, cropped and flipped as the generator says."""
        box, flipped = self.draw(image.shape[0], image.shape[1], encoding, rng)
        return _resize(image, encoding, box, flipped)

    def draw(self, height: int, width: int, encoding: PixelEncoding, rng: np.random.Generator) -> tuple[Box, bool]:
        """What of an image of this size is shown, and whether it is flipped."""
        box = self._box(height, width, rng) if self.scale[0] < 1 else None
        flipped = self.flip and rng.random() < 0.5
        return box or centre_box(height, width, encoding), flipped

    def _box(self, height: int, width: int, rng: np.random.Generator) -> Box | None:
        """A rectangle inside the image, drawn as torchvision's RandomResizedCrop does; None where none fits."""
        for _ in range(ATTEMPTS):
            area = height * width * rng.uniform(*self.scale)
            aspect = math.exp(rng.uniform(math.log(self.aspect[0]), math.log(self.aspect[1])))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                left, top = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
                return left, top, left + w, top + h
        return None


def centre(image: Array, encoding: PixelEncoding) -> Array:
    """The image as a model's input: resized to cover it, the middle kept, or stretched where the model says so."""
    return _resize(image, encoding, centre_box(image.shape[0], image.shape[1], encoding), flipped=False)


def centre_box(height: int, width: int, encoding: PixelEncoding) -> Box:
    """The largest rectangle of the input's shape in the middle of the image, or all of it where it is stretched."""
    _, rows, columns, _ = image_shape(encoding)
    if encoding.preprocessing is not None and encoding.preprocessing.fit == "stretch":
        return 0, 0, width, height
    scale = min(height / rows, width / columns)
    w, h = min(columns * scale, width), min(rows * scale, height)  # a rounded product may stick out
    left, top = (width - w) / 2, (height - h) / 2
    return left, top, left + w, top + h


def _resize(image: Array, encoding: PixelEncoding, box: Box, flipped: bool) -> Array:
    _, rows, columns, colours = image_shape(encoding)
    left, top, right, bottom = box
    # Across, then down, each rounded to bytes: which comes first is otherwise a matter of Pillow's version.
    shown = in_colours(image, encoding)
    shown = shown.resize((columns, shown.height), Image.Resampling.BILINEAR, (left, 0, right, shown.height))
    shown = shown.resize((columns, rows), Image.Resampling.BILINEAR, (0, top, columns, bottom))
    seen = np.asarray(shown, np.uint8).reshape(rows, columns, -1)
    pixels = np.broadcast_to(seen, (rows, columns, colours))
    return from_pixels(pixels[:, ::-1] if flipped else pixels, encoding)


def in_colours(image: Array, encoding: PixelEncoding) -> Image.Image:
    """The image in the colours a model sees, red, green and blue or gray alone, in its own size."""
    colours = image_shape(encoding)[3]
    gray = colours == 1 or (encoding.preprocessing is not None and encoding.preprocessing.order == "gray")
    shown = Image.fromarray(image if image.shape[2] == 3 else image[:, :, 0])
    return shown if shown.mode == (mode := "L" if gray else "RGB") else shown.convert(mode)


def image_shape(encoding: PixelEncoding) -> tuple[int, int, int, int]:
    match encoding.type.shape:
        case (1, rows, columns, 1 | 3 as colours):
            return 1, rows, columns, colours
    raise DataError(
        f"the model's input {list(encoding.type.shape)} is not an image; images need an input of [1, height, "
        "width, 1 or 3]"
    )
