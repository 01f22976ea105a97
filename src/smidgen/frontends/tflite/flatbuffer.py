"""The contents of a `.tflite` file as plain records, between the bytes and the graph in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import tflite

from smidgen.errors import ImportModelError

SAME, VALID = tflite.Padding.SAME, tflite.Padding.VALID
NO_TENSOR = -1  # the index of an optional input that is left out
ACTIVATIONS: Mapping[str, int] = {
    name: getattr(tflite.ActivationFunctionType, name.upper()) for name in ("none", "relu", "relu6", "relu_n1_to_1")
}
TANH: int = tflite.ActivationFunctionType.TANH
TENSOR_TYPES: Mapping[str, int] = {
    name.lower(): code for name, code in vars(tflite.TensorType).items() if isinstance(code, int)
}
TYPE_NAMES: Mapping[int, str] = {code: name for name, code in TENSOR_TYPES.items()}
OPERATORS: Mapping[str, int] = {
    name: code for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)
}
CUSTOM = "the custom operator"  # followed by its name: how decoding labels operators that TFLite does not define
ZERO_PLACE = 128  # of an int8 zero in a table of all int8 numbers
# The function of `Lookup` that each operator computes, its alpha where that is fixed, and the first int8 version.
FUNCTION_OPERATORS: Mapping[str, tuple[str, float, int]] = {
    "ABS": ("abs", 0.0, 2), "ELU": ("elu", 1.0, 1), "EXP": ("exp", 0.0, 2), "GELU": ("gelu", 0.0, 2),
    "HARD_SWISH": ("hard_swish", 0.0, 1), "LEAKY_RELU": ("leaky_relu", 0.0, 2), "LOGISTIC": ("sigmoid", 0.0, 2),
    "LOG": ("log", 0.0, 2), "RSQRT": ("power", -0.5, 2), "SQRT": ("power", 0.5, 1), "TANH": ("tanh", 0.0, 2),
}  # fmt: skip
_ACTIVATION = ("fused_activation_function",)
_WINDOW = ("padding", "stride_w", "stride_h", *_ACTIVATION)
_DILATED = (*_WINDOW, "dilation_w_factor", "dilation_h_factor")
_RESIZE = ("align_corners", "half_pixel_centers")
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_VARIABLE = ("container", "shared_name")
_LSTM = (*_ACTIVATION, "cell_clip", "time_major", "diagonal_recurrent_tensors")
# The options table of each operator in the schema, and the fields of it that are read and written.
OPTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **{code: (f"{code.capitalize()}Options", _ACTIVATION) for code in ("ADD", "DIV", "MUL", "SUB")},
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), ("Pool2DOptions", (*_WINDOW, "filter_width", "filter_height"))),
    **dict.fromkeys(("MEAN", "REDUCE_MAX", "REDUCE_PROD", "SUM"), ("ReducerOptions", ("keep_dims",))),
    "ARG_MAX": ("ArgMaxOptions", ("output_type",)), "BATCH_MATMUL": ("BatchMatMulOptions", ("adj_x", "adj_y")),
    "CALL_ONCE": ("CallOnceOptions", ("init_subgraph_index",)),
    "CAST": ("CastOptions", ("in_data_type", "out_data_type")),
    "CONCATENATION": ("ConcatenationOptions", ("axis", *_ACTIVATION)), "CONV_2D": ("Conv2DOptions", _DILATED),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", (*_DILATED, "depth_multiplier")),
    "FULLY_CONNECTED": ("FullyConnectedOptions", (*_ACTIVATION, "weights_format", "keep_num_dims")),
    "GATHER": ("GatherOptions", ("axis", "batch_dims")), "GELU": ("GeluOptions", ("approximate",)),
    "L2_NORMALIZATION": ("L2NormOptions", _ACTIVATION), "LEAKY_RELU": ("LeakyReluOptions", ("alpha",)),
    "PACK": ("PackOptions", ("values_count", "axis")), "RESIZE_BILINEAR": ("ResizeBilinearOptions", _RESIZE),
    "RESIZE_NEAREST_NEIGHBOR": ("ResizeNearestNeighborOptions", _RESIZE), "SHAPE": ("ShapeOptions", ("out_type",)),
    "SOFTMAX": ("SoftmaxOptions", ("beta",)), "SPLIT": ("SplitOptions", ("num_splits",)),
    "SPLIT_V": ("SplitVOptions", ("num_splits",)), "STRIDED_SLICE": ("StridedSliceOptions", _MASKS),
    "TRANSPOSE_CONV": ("TransposeConvOptions", _WINDOW),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": ("UnidirectionalSequenceLSTMOptions", _LSTM),
    "UNPACK": ("UnpackOptions", ("num", "axis")), "VAR_HANDLE": ("VarHandleOptions", _VARIABLE),
}  # fmt: skip


FIELDS = frozenset(field for _, fields in OPTIONS.values() for field in fields)
# Attributes that are left out are 0, but for these.
DEFAULTS: Mapping[str, float | str] = {
    **dict.fromkeys(("stride_w", "stride_h", "dilation_w_factor", "dilation_h_factor", "filter_width"), 1),
    **dict.fromkeys(("out_type", "output_type"), tflite.TensorType.INT32), **dict.fromkeys(_VARIABLE, ""),
    "beta": 1.0, "depth_multiplier": 1, "filter_height": 1, "padding": VALID,
}  # fmt: skip


class TfliteOptions(SimpleNamespace):
    """An operator's attributes, named as in the schema."""

    def __getattr__(self, field: str) -> Any:
        if field not in FIELDS:
            raise AttributeError(f"no operator has the attribute {field}")
        return DEFAULTS.get(field, 0)

    def but(self, **changed: Any) -> TfliteOptions:
        """Return the same attributes but for some."""
        return TfliteOptions(**{**vars(self), **changed})


def camel(field: str) -> str:
    """Return the schema's spelling of a field: stride_w → StrideW."""
    return "".join(word.capitalize() for word in field.split("_"))


@dataclass(frozen=True)
class TfliteTensor:
    """A tensor; `data` is None unless it is constant, `signature` has −1 for each dynamic dimension."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...] = ()
    zeros: tuple[int, ...] = ()
    axis: int = 0
    data: bytes | None = None
    signature: tuple[int, ...] = ()
    plain: bool = True  # neither sparse nor a variable that keeps its value between runs
    variable: bool = False  # written as a variable

    def array(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return a constant's elements."""
        assert self.data is not None
        flat = np.frombuffer(self.data, np.dtype(self.dtype).newbyteorder("<"))
        return flat.reshape(self.shape).astype(self.dtype, copy=False)


@dataclass(frozen=True)
class TfliteOperator:
    """One operator: its name, the indices of its tensors (NO_TENSOR: left out) and its attributes."""

    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: TfliteOptions = field(default_factory=TfliteOptions)
    version: int = 1
    intermediates: tuple[int, ...] = ()  # tensors whose quantization intermediate results take

    def reads(self, least: int, most: int) -> tuple[int, ...]:
        """Return the operator's inputs, with NO_TENSOR for optional ones that are left out."""
        count = len(self.inputs)
        if not least <= count <= most:
            raise ImportModelError(f"it has {count} inputs instead of {least} to {most}; convert the model again")
        return self.inputs + (NO_TENSOR,) * (most - count)

    @property
    def activation(self) -> str:
        """Return the name of the fused activation."""
        number = self.options.fused_activation_function
        for name, known in ACTIVATIONS.items():
            if known == number:
                return name
        raise ImportModelError(f"fused activation {number} is not supported; use {', '.join(ACTIVATIONS)}")


@dataclass(frozen=True)
class TfliteModel:
    """A model: its first subgraph, with the others attached."""

    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    name: str = "model"
    metadata: bytes = b""  # the flatbuffer that describes inputs and outputs; empty if the file has none
    classes: tuple[str, ...] = ()  # class names, from a file that the metadata names
    others: tuple[TfliteModel, ...] = ()  # further subgraphs
