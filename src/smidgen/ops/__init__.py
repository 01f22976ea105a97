"""The op table: importing this package enters every op into `smidgen.ir.OPS`."""

from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.ops.dense import Dense
from smidgen.ops.elementwise import Activate, Add, Compare, Dequantize, Maximum, Mul, Quantize, Requantize
from smidgen.ops.gradient import AdvanceStepState, ChannelSum, FromFloat, Mask, RequantizeGrad, SumGrads
from smidgen.ops.gru import Gru, GruGrad, GruSlopes
from smidgen.ops.log_softmax import LogSoftmax
from smidgen.ops.lookup import Lookup, PRelu
from smidgen.ops.losses import (
    CellCrossEntropy,
    CrossEntropyGrad,
    MeanSquaredError,
    ReconstructionError,
    SigmoidCrossEntropy,
    SoftmaxCrossEntropy,
)
from smidgen.ops.lstm import Lstm, LstmGrad, LstmSlopes
from smidgen.ops.matmul import MatMul
from smidgen.ops.normalize import BatchNorm, Normalize
from smidgen.ops.one_pass import Distance, ForgetClass, MergeSums, Observe, Solve
from smidgen.ops.pool import AvgPool, MaxPool, Mean
from smidgen.ops.project import Project
from smidgen.ops.resize import Pick, ResizeBilinear
from smidgen.ops.rules import MaxAbs, Rate
from smidgen.ops.shape import Concat, Crop, Pad, Reshape, Transpose
from smidgen.ops.softmax import Softmax
from smidgen.ops.state import Assign, Gather, LearnedBias, Overlay
from smidgen.ops.unit_norm import UnitNorm
from smidgen.ops.update import BiasStep, DenseStep, WeightStep

__all__ = [
    "Activate", "Add", "AdvanceStepState", "Assign", "AvgPool", "BatchNorm", "BiasStep", "CellCrossEntropy",
    "ChannelSum", "Compare", "Concat", "Conv2D", "Crop", "CrossEntropyGrad", "Dense", "DenseStep", "Depthwise",
    "Dequantize", "Distance", "ForgetClass", "FromFloat", "Gather", "Gru", "GruGrad", "GruSlopes", "LearnedBias",
    "LogSoftmax", "Lookup", "Lstm", "LstmGrad", "LstmSlopes", "Mask", "MatMul", "MaxAbs", "MaxPool", "Maximum", "Mean",
    "MeanSquaredError", "MergeSums", "Mul", "Normalize", "Observe", "Overlay", "PRelu", "Pad", "Pick", "Project",
    "Quantize", "Rate", "ReconstructionError", "Requantize", "RequantizeGrad", "Reshape", "ResizeBilinear",
    "SigmoidCrossEntropy", "Softmax", "SoftmaxCrossEntropy", "Solve", "SumGrads", "Transpose", "UnitNorm", "WeightStep",
]  # fmt: skip
