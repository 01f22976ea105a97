"""The op table: importing this package enters every op into `smidgen.ir.OPS`."""

from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.ops.dense import Dense
from smidgen.ops.elementwise import Activate, Add, Dequantize, Mul, Quantize, Requantize
from smidgen.ops.gradient import AdvanceStepState, ChannelSum, FromFloat, Mask, RequantizeGrad, SumGrads
from smidgen.ops.lookup import Lookup
from smidgen.ops.loss import CrossEntropyGrad, MaxAbs, Rate, SoftmaxCrossEntropy
from smidgen.ops.norm import BatchNorm
from smidgen.ops.overlay import Overlay
from smidgen.ops.pool import AvgPool, MaxPool, Mean
from smidgen.ops.select import Crop, Gather
from smidgen.ops.shape import Concat, Pad, Reshape, Transpose
from smidgen.ops.softmax import Softmax
from smidgen.ops.update import BiasStep, DenseStep, WeightStep

__all__ = [
    "Activate",
    "Add",
    "AdvanceStepState",
    "AvgPool",
    "BatchNorm",
    "BiasStep",
    "ChannelSum",
    "Concat",
    "Conv2D",
    "Crop",
    "CrossEntropyGrad",
    "Dense",
    "DenseStep",
    "Depthwise",
    "Dequantize",
    "FromFloat",
    "Gather",
    "Lookup",
    "Mask",
    "MaxAbs",
    "MaxPool",
    "Mean",
    "Mul",
    "Overlay",
    "Pad",
    "Quantize",
    "Rate",
    "Requantize",
    "RequantizeGrad",
    "Reshape",
    "Softmax",
    "SoftmaxCrossEntropy",
    "SumGrads",
    "Transpose",
    "WeightStep",
]
