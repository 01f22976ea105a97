"""Images to learn from: read once, kept as bytes, cropped and turned into a model's input."""

from smidgen.data.augment import Augment, centre, examples
from smidgen.data.pixels import PixelEncoding, from_pixels, pixel_encoding
from smidgen.data.reading import load_data, load_images, load_labelled
from smidgen.data.samples import Data, DataError, Labelled, Samples

__all__ = [
    "Augment",
    "Data",
    "DataError",
    "Labelled",
    "PixelEncoding",
    "Samples",
    "centre",
    "examples",
    "from_pixels",
    "load_data",
    "load_images",
    "load_labelled",
    "pixel_encoding",
]
