"""Image files → pixels within a budget of memory, and crops: random ones to learn from, the middle to test with."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from smidgen.data.files import Budget, SampleFile, Tree, first_line
from smidgen.data.pixels import PixelEncoding, from_pixels
from smidgen.data.samples import DataError, evenly
from smidgen.errors import InputError
from smidgen.ir import Array

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")  # as Pillow names them; EPS would start Ghostscript
READ = "JPEG, PNG, WebP, BMP, GIF, TIFF and PPM"
OTHERS: tuple[tuple[str, tuple[str, ...], bytes], ...] = (  # what else people have, by suffix and by how it begins
    ("a HEIC image", (".heic", ".heif"), rb".{4}ftyp(hei|hev|mif1|msf1)"),
    ("an AVIF image", (".avif",), rb".{4}ftypavi[fs]"),
    ("a PostScript file", (".eps", ".ps"), rb"%!|\xc5\xd0\xd3\xc6"),
    ("an SVG drawing", (".svg",), rb"(\xef\xbb\xbf)?\s*(<\?xml|<!DOCTYPE svg|<svg)"),
    ("a PDF document", (), rb"%PDF"),
    ("a Photoshop image", (".psd",), rb"8BPS"),
    ("a JPEG 2000 image", (".jp2", ".j2k"), rb"\0{3}\x0cjP  |\xff\x4f\xff\x51"),
    ("a JPEG XL image", (".jxl",), rb"\0{3}\x0cJXL |\xff\x0a"),
    ("an icon", (".ico",), rb"\0\0\x01\0"),
    ("a camera's raw image", (".dng", ".cr2", ".cr3", ".nef", ".arw"), rb"(?!)"),  # most begin as TIFF does
)
SHORT_SIDE = 512  # larger photographs are reduced to this, by default: no microcontroller sees more
SIDES = (16, 4096)  # that can be asked for
MAX_PIXELS = 2**26  # of one image
TRIED = 64  # images whose sizes are looked at to predict the size of all
SURELY = 1.25  # times the limit is refused by that prediction; anything nearer is counted while it is read
GRAY = ("1", "L", "LA")  # modes of Pillow
ATTEMPTS = 10  # at a random rectangle that fits, before the middle is taken
Crop = tuple[float, float, float, float]  # left, top, right, bottom


def read_images(files: Sequence[SampleFile], budget: Budget, side: int = SHORT_SIDE) -> tuple[Array, ...]:
    """Read all images, those with a longer short side than `side` reduced to it; counted as they are read."""
    _check_sizes(files, budget, side)
    images = []
    for file in files:
        images.append(_decode(file, budget, side))
        budget.take(file.name, images[-1].nbytes)
    return tuple(images)


def _check_sizes(files: Sequence[SampleFile], budget: Budget, side: int) -> None:
    """Raise if the declared sizes of some of many images show that all would take far too much."""
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
    """Return an image, or its box, as uint8 [height, width, 1 or 3], upright, reduced to the short side."""
    with opened(file, budget) as image:
        part = image
        if (box := file.box) is not None:
            inside = max(box[0], 0), max(box[1], 0), min(box[2], image.width), min(box[3], image.height)
            if inside[0] >= inside[2] or inside[1] >= inside[3]:
                raise DataError(
                    f"{file.name} has {image.width}×{image.height} pixels, none of them in its box {list(box)}; image "
                    "and annotations are not of the same data set"
                )
            part = image.crop(inside)
        part = ImageOps.exif_transpose(part)
        part = part.convert("L" if part.mode in GRAY else "RGB")
    if (size := _reduced(part.size, side)) != part.size:
        part = part.resize(size)
    return np.asarray(part, np.uint8).reshape(part.height, part.width, -1)


@contextmanager
def opened(file: SampleFile, budget: Budget | None = None) -> Iterator[Image.Image]:
    """Open an image before its pixels are read, for which the budget must have room; failures become one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            data = file.read()
            for what, _, begin in OTHERS:
                if re.match(begin, data, re.DOTALL):
                    raise _refusal(file, what)
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            if image.width * image.height > MAX_PIXELS:
                raise DataError(f"{file.name} has {image.width}×{image.height} pixels, too many; reduce it")
            if budget is not None:
                budget.check(f"{file.name}, {image.width}×{image.height} pixels,", 4 * image.width * image.height)
            yield image
    except DataError:
        raise
    except Exception as error:  # Pillow's readers raise whatever a damaged file makes them
        why = f"it is none of {READ}" if isinstance(error, UnidentifiedImageError) else first_line(error)
        raise DataError(f"{file.name} cannot be read as an image ({why}); replace or remove it") from None


def refuse_others(tree: Tree, used: Sequence[SampleFile]) -> None:
    """Raise DataError if an image in a format that is not read lies beside those that are, or where none are."""
    places = {(len(file.parts), file.parts[:-2]) for file in used}
    names = {suffix: what for what, suffixes, _ in OTHERS for suffix in suffixes}
    for file in tree.ending(tuple(names)):
        if not places or (len(file.parts), file.parts[:-2]) in places:
            raise _refusal(file, names["." + file.name.lower().rpartition(".")[2]])


def _refusal(file: SampleFile, what: str) -> DataError:
    return DataError(f"{file.name} is {what}; Smidgen reads {READ}: convert it first, or leave it out")


def _reduced(size: tuple[int, int], side: int) -> tuple[int, int]:
    excess = max(min(size) / side, 1)
    return round(size[0] / excess), round(size[1] / excess)


@dataclass(frozen=True)
class Augment:
    """A random resized crop (its share of the area, its aspect) and a flip half of the time, as the paper's."""

    scale: tuple[float, float] = (0.08, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True

    def check(self) -> None:
        """Raise InputError unless crops of this scale and aspect exist."""
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
        """Return the image as a model's input, cropped and flipped at random."""
        box, flipped = self.draw(image.shape[0], image.shape[1], encoding, rng)
        return _resize(image, encoding, box, flipped)

    def draw(self, height: int, width: int, encoding: PixelEncoding, rng: np.random.Generator) -> tuple[Crop, bool]:
        """Draw the crop of an image of this size, and whether it is flipped."""
        box: Crop = centre_box(height, width, encoding)
        for _ in range(ATTEMPTS if self.scale[0] < 1 else 0):  # as torchvision's RandomResizedCrop does
            area = height * width * rng.uniform(*self.scale)
            aspect = math.exp(rng.uniform(math.log(self.aspect[0]), math.log(self.aspect[1])))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                left, top = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
                box = left, top, left + w, top + h
                break
        return box, self.flip and rng.random() < 0.5


def centre(image: Array, encoding: PixelEncoding) -> Array:
    """Return the image as a model's input: resized to cover it, the middle kept, or stretched if the model asks it."""
    return _resize(image, encoding, centre_box(image.shape[0], image.shape[1], encoding), flipped=False)


def centre_box(height: int, width: int, encoding: PixelEncoding) -> Crop:
    """Return the largest rectangle of the input's shape in the middle of the image, or all of it if it is stretched."""
    _, rows, columns, _ = image_shape(encoding)
    if encoding.preprocessing is not None and encoding.preprocessing.fit == "stretch":
        return 0, 0, width, height
    scale = min(height / rows, width / columns)
    w, h = min(columns * scale, width), min(rows * scale, height)  # a rounded product may stick out
    left, top = (width - w) / 2, (height - h) / 2
    return left, top, left + w, top + h


def _resize(image: Array, encoding: PixelEncoding, box: Crop, flipped: bool) -> Array:
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
    """Return the image in the colours a model takes, red, green and blue or gray alone, at its original size."""
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
