"""The op table: importing this package enters every op into `smidgen.ir.OPS`."""

from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.ops.dense import Dense
from smidgen.ops.elementwise import Activate, Add, Dequantize, Mul, Quantize, Requantize
from smidgen.ops.pool import AvgPool, MaxPool, Mean
from smidgen.ops.shape import Concat, Pad, Reshape, Transpose
from smidgen.ops.softmax import Softmax

__all__ = [
    "Activate", "Add", "AvgPool", "Concat", "Conv2D", "Dense", "Depthwise", "Dequantize", "MaxPool", "Mean", "Mul",
    "Pad", "Quantize", "Requantize", "Reshape", "Softmax", "Transpose",
]  # fmt: skip
