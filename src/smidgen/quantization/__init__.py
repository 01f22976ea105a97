"""Float graph + images → int8 graph: fold, equalise, calibrate, round, correct, report."""

from smidgen.quantization.batch import QuantizationProgress
from smidgen.quantization.calibration import METHODS, Method, QuantizationError
from smidgen.quantization.folding import fold
from smidgen.quantization.pixels import (
    CONVENTIONS,
    GivenPixels,
    PixelChoice,
    Tried,
    known_pixels,
    labels_for,
    settle_pixels,
)
from smidgen.quantization.recipe import Quantized, Recipe, is_float, quantize, quantize_with
from smidgen.quantization.report import Accuracy, LayerNoise, QuantizationReport, scored_classes

__all__ = [
    "CONVENTIONS", "METHODS", "Accuracy", "GivenPixels", "LayerNoise", "Method", "PixelChoice", "QuantizationError",
    "QuantizationProgress", "QuantizationReport", "Quantized", "Recipe", "Tried", "fold", "is_float",
    "known_pixels", "labels_for", "quantize", "quantize_with", "scored_classes", "settle_pixels",
]  # fmt: skip
