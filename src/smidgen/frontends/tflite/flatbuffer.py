"""What a `.tflite` file says, as plain records: between the flatbuffer's bytes and the graph, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite

SAME, VALID = tflite.Padding.SAME, tflite.Padding.VALID
ACTIVATIONS: Mapping[str, int] = {
    "none": tflite.ActivationFunctionType.NONE,
    "relu": tflite.ActivationFunctionType.RELU,
    "relu6": tflite.ActivationFunctionType.RELU6,
    "relu_n1_to_1": tflite.ActivationFunctionType.RELU_N1_TO_1,
}
TENSOR_TYPES: Mapping[str, int] = {
    name.lower(): code for name, code in vars(tflite.TensorType).items() if isinstance(code, int)
}
OPERATORS: Mapping[str, int] = {
    name: code for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)
}
_WINDOW = ("padding", "stride_w", "stride_h", "fused_activation_function")
_DILATED = (*_WINDOW, "dilation_w_factor", "dilation_h_factor")
_POOL = ("Pool2DOptions", (*_WINDOW, "filter_width", "filter_height"))
_RESIZE = ("align_corners", "half_pixel_centers")
_REDUCER = ("ReducerOptions", ("keep_dims",))
CUSTOM = "the custom operator"  # and its name: what decoding calls an operator that is not TFLite's own
ZERO_PLACE = 128  # of an int8 zero in a table of all int8 numbers
# An operator's options table in the schema, and the fields of it that matter here.
OPTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "CONV_2D": ("Conv2DOptions", _DILATED),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", (*_DILATED, "depth_multiplier")),
    "FULLY_CONNECTED": ("FullyConnectedOptions", ("fused_activation_function", "weights_format", "keep_num_dims")),
    "MAX_POOL_2D": _POOL,
    "AVERAGE_POOL_2D": _POOL,
    "BATCH_MATMUL": ("BatchMatMulOptions", ("adj_x", "adj_y")),
    "ADD": ("AddOptions", ("fused_activation_function",)),
    "MUL": ("MulOptions", ("fused_activation_function",)),
    "SUB": ("SubOptions", ("fused_activation_function",)),
    "DIV": ("DivOptions", ("fused_activation_function",)),
    "MEAN": _REDUCER,
    "SUM": _REDUCER,
    "REDUCE_MAX": _REDUCER,
    "GELU": ("GeluOptions", ("approximate",)),
    "LEAKY_RELU": ("LeakyReluOptions", ("alpha",)),
    "L2_NORMALIZATION": ("L2NormOptions", ("fused_activation_function",)),
    "CONCATENATION": ("ConcatenationOptions", ("axis", "fused_activation_function")),
    "SOFTMAX": ("SoftmaxOptions", ("beta",)),
    "CAST": ("CastOptions", ("in_data_type", "out_data_type")),
    "REDUCE_PROD": _REDUCER,
    "GATHER": ("GatherOptions", ("axis", "batch_dims")),
    "PACK": ("PackOptions", ("values_count", "axis")),
    "RESIZE_BILINEAR": ("ResizeBilinearOptions", _RESIZE),
    "RESIZE_NEAREST_NEIGHBOR": ("ResizeNearestNeighborOptions", _RESIZE),
    "SHAPE": ("ShapeOptions", ("out_type",)),
    "SPLIT": ("SplitOptions", ("num_splits",)),
    "SPLIT_V": ("SplitVOptions", ("num_splits",)),
    "STRIDED_SLICE": (
        "StridedSliceOptions",
        ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"),
    ),
    "TRANSPOSE_CONV": ("TransposeConvOptions", _WINDOW),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        "UnidirectionalSequenceLSTMOptions",
        ("fused_activation_function", "cell_clip", "time_major", "diagonal_recurrent_tensors"),
    ),
    "UNPACK": ("UnpackOptions", ("num", "axis")),
    "CALL_ONCE": ("CallOnceOptions", ("init_subgraph_index",)),
    "VAR_HANDLE": ("VarHandleOptions", ("container", "shared_name")),
}


@dataclass(frozen=True)
class TfliteOptions:
    """The union of all operators' attributes, named as in the schema; each operator reads its own."""

    padding: int = VALID
    stride_w: int = 1
    stride_h: int = 1
    dilation_w_factor: int = 1
    dilation_h_factor: int = 1
    filter_width: int = 1
    filter_height: int = 1
    depth_multiplier: int = 1
    fused_activation_function: int = 0
    weights_format: int = 0
    keep_num_dims: bool = False
    keep_dims: bool = False
    adj_x: bool = False
    adj_y: bool = False
    approximate: bool = False
    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0
    axis: int = 0
    batch_dims: int = 0
    alpha: float = 0.0
    beta: float = 1.0
    values_count: int = 0
    out_type: int = tflite.TensorType.INT32
    num_splits: int = 0
    num: int = 0
    align_corners: bool = False
    half_pixel_centers: bool = False
    in_data_type: int = 0
    out_data_type: int = 0
    cell_clip: float = 0.0
    time_major: bool = False
    diagonal_recurrent_tensors: bool = False
    init_subgraph_index: int = 0
    container: str = ""
    shared_name: str = ""


def camel(field: str) -> str:
    """stride_w → StrideW, as the schema's accessors are called."""
    return "".join(word.capitalize() for word in field.split("_"))


@dataclass(frozen=True)
class TfliteTensor:
    """A tensor; `data` is None unless it is a constant, `signature` has −1 where a dimension is dynamic."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...] = ()
    zeros: tuple[int, ...] = ()
    axis: int = 0
    data: bytes | None = None
    signature: tuple[int, ...] = ()
    plain: bool = True  # neither sparse nor a variable that keeps its value between runs
    variable: bool = False  # written as one that does

    def array(self) -> np.ndarray[Any, np.dtype[Any]]:
        """A constant's elements."""
        assert self.data is not None
        flat = np.frombuffer(self.data, np.dtype(self.dtype).newbyteorder("<"))
        return flat.reshape(self.shape).astype(self.dtype, copy=False)


@dataclass(frozen=True)
class TfliteOperator:
    """One operator: what it is, the indices of its tensors (−1: left out), its attributes."""

    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: TfliteOptions = TfliteOptions()
    version: int = 1
    intermediates: tuple[int, ...] = ()  # tensors that say how results on the way are quantized


@dataclass(frozen=True)
class TfliteModel:
    """The first subgraph of a model, and those behind it."""

    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    name: str = "model"
    metadata: bytes = b""  # the flatbuffer that says what its inputs and outputs are; empty where there is none
    classes: tuple[str, ...] = ()  # by name, in a file that the metadata leads to
    others: tuple[TfliteModel, ...] = ()  # the further subgraphs
