"""Float graph + images → int8 graph: fold, equalise, calibrate, round, correct, report."""

from smidgen.quantization.calibration import METHODS, Method, QuantizationError, QuantizationProgress
from smidgen.quantization.folding import fold
from smidgen.quantization.pixels import CONVENTIONS, PixelChoice, Tried
from smidgen.quantization.recipe import Quantized, Recipe, is_float, quantize, quantize_with
from smidgen.quantization.report import Accuracy, LayerNoise, Report, scored_classes

__all__ = [
    "CONVENTIONS",
    "METHODS",
    "Accuracy",
    "LayerNoise",
    "Method",
    "PixelChoice",
    "QuantizationError",
    "QuantizationProgress",
    "Quantized",
    "Recipe",
    "Report",
    "Tried",
    "fold",
    "is_float",
    "quantize",
    "quantize_with",
    "scored_classes",
]
