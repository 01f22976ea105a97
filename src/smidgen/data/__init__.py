"""Images to learn from: read once, kept as bytes, cropped and turned into a model's input."""

from smidgen.data.augment import Augment, centre, examples
from smidgen.data.pixels import PixelEncoding, from_pixels, pixel_encoding
from smidgen.data.reading import load_data, load_images
from smidgen.data.samples import Data, DataError, Samples

__all__ = [
    "Augment",
    "Data",
    "DataError",
    "PixelEncoding",
    "Samples",
    "centre",
    "examples",
    "from_pixels",
    "load_data",
    "load_images",
    "pixel_encoding",
]
