"""Samples that a model learns from: pictures, audio and numbers of any shape, read and turned into its input."""

from smidgen.data.images import Augment, centre
from smidgen.data.inputs import as_input, examples
from smidgen.data.load import load_data, load_images, load_labelled
from smidgen.data.pixels import PixelEncoding, from_pixels, pixel_encoding
from smidgen.data.samples import Data, DataError, Samples

__all__ = [
    "Augment", "Data", "DataError", "PixelEncoding", "Samples", "as_input", "centre", "examples", "from_pixels",
    "load_data", "load_images", "load_labelled", "pixel_encoding",
]  # fmt: skip
