"""Float graph + images → int8 graph: fold, equalise, calibrate, round, correct, report."""

from smidgen.quantization.calibration import METHODS, Method, QuantizationError, QuantizationProgress
from smidgen.quantization.folding import fold
from smidgen.quantization.quantizing import Quantized, Recipe, quantize
from smidgen.quantization.report import LayerNoise, Report

__all__ = [
    "METHODS",
    "LayerNoise",
    "Method",
    "QuantizationError",
    "QuantizationProgress",
    "Quantized",
    "Recipe",
    "Report",
    "fold",
    "quantize",
]
