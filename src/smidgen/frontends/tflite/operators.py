"""What each TFLite operator means: one rule per operator, from its record to a node of the graph."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.tflite.arguments import NO_TENSOR
from smidgen.frontends.tflite.arguments import activation_of as _activation
from smidgen.frontends.tflite.arguments import inputs_of as _inputs
from smidgen.frontends.tflite.context import TfliteImport
from smidgen.frontends.tflite.enlarging import transpose_conv
from smidgen.frontends.tflite.flatbuffer import SAME, VALID, ZERO_PLACE, TfliteOperator
from smidgen.frontends.tflite.functions import FUNCTION_RULES
from smidgen.frontends.tflite.moving import MOVING_RULES, gathered
from smidgen.frontends.tflite.pairs import PAIR_RULES, wider_first
from smidgen.frontends.tflite.products import PRODUCT_RULES
from smidgen.frontends.tflite.recurrence import sequence_lstm
from smidgen.frontends.tflite.reductions import REDUCTION_RULES
from smidgen.frontends.tflite.variables import VARIABLE_RULES
from smidgen.ir import QParams, Type, Value
from smidgen.ops.functions import FUNCTIONS
from smidgen.ops.window import Pad, same_pad

NUMBER = r"-?\d+(\.\d+)?(e[+-]?\d+)?"
TABLE_NAME = re.compile(rf"(?P<slope>slope of )?(?P<function>\w+)\((?P<alpha>{NUMBER}), (?P<beta>{NUMBER})\)")
# What activations of int32 limit to.
PLACE_LIMITS: Mapping[str, tuple[int | None, int | None]] = {
    "none": (None, None), "relu": (0, None), "relu6": (0, 6), "relu_n1_to_1": (-1, 1),
}  # fmt: skip
BYTES = QParams.per_tensor(1.0, -ZERO_PLACE)  # uint8 without a scale, as int8


TfliteRule = Callable[[TfliteImport, TfliteOperator], Value | tuple[Value, ...] | None]


def _pad_of(operator: TfliteOperator, x: Type, size: tuple[int, int], dilation: tuple[int, int] = (1, 1)) -> Pad:
    """SAME or VALID as numbers."""
    options = operator.options
    stride = options.stride_h, options.stride_w
    if len(x.shape) != 4 or min(*stride, *dilation, *size) < 1 or options.padding not in (SAME, VALID):
        raise ImportModelError(
            f"window {size}, stride {stride}, dilation {dilation} and padding {options.padding} do not fit "
            f"{list(x.shape)}; convert the model again"
        )
    return same_pad(x.shape, size, stride, dilation) if options.padding == SAME else (0, 0, 0, 0)


def _bias(c: TfliteImport, index: int, x: Value, channels: int, stem: str) -> Value:
    """The bias, or zeros where it is left out."""
    if index == NO_TENSOR:
        return c.builder.constant(
            f"{stem}.bias", np.zeros(channels, np.int32 if x.type.dtype == "int8" else np.float32)
        )
    return c.value(index)


def _conv(c: TfliteImport, operator: TfliteOperator) -> Value:
    xi, wi, bi = _inputs(operator, 2, 3)
    x = c.value(xi)
    w = c.weights(wi, x)
    if len(w.type.shape) != 4 or len(x.type.shape) != 4:
        raise ImportModelError(
            f"input {list(x.type.shape)} and weights {list(w.type.shape)} should have four dimensions"
        )
    options, depthwise = operator.options, operator.code == "DEPTHWISE_CONV_2D"
    dilation = options.dilation_h_factor, options.dilation_w_factor
    pad = _pad_of(operator, x.type, (w.type.shape[1], w.type.shape[2]), dilation)
    stride, activation = (options.stride_h, options.stride_w), _activation(operator)
    b = _bias(c, bi, x, w.type.shape[3 if depthwise else 0], w.name)
    if depthwise:
        return c.emit(operator, ops.Depthwise(stride, pad, dilation, activation), x, w, b)
    groups = max(x.type.shape[3] // w.type.shape[3], 1)
    return c.emit(operator, ops.Conv2D(stride, pad, dilation, groups, activation), x, w, b)


def _dense(c: TfliteImport, operator: TfliteOperator) -> Value:
    xi, wi, bi = _inputs(operator, 2, 3)
    x = c.value(xi)
    w = c.weights(wi, x)
    if operator.options.weights_format != 0 or len(w.type.shape) != 2 or x.type.size % w.type.shape[1]:
        raise ImportModelError(
            f"input {list(x.type.shape)} and weights {list(w.type.shape)} in format {operator.options.weights_format} "
            "are not a matrix product; convert the model with plain [out, in] weights"
        )
    rows, columns = x.type.size // w.type.shape[1], w.type.shape[1]
    flat = x
    if x.type.shape != (rows, columns):
        flat = c.builder.emit(ops.Reshape((rows, columns)), x, name=f"{x.name}.rows")
    b = _bias(c, bi, x, w.type.shape[0], w.name)
    shape = (*x.type.shape[:-1], w.type.shape[0]) if operator.options.keep_num_dims else (rows, w.type.shape[0])
    if not c.is_open(operator.outputs[0]):
        shape = c.type(operator.outputs[0]).shape
    if shape == (rows, w.type.shape[0]):
        return c.emit(operator, ops.Dense(_activation(operator)), flat, w, b)
    y = c.builder.emit(ops.Dense(_activation(operator)), flat, w, b, q=c.q(operator.outputs[0]))
    return c.emit(operator, ops.Reshape(shape), y)


def _binary(c: TfliteImport, operator: TfliteOperator) -> Value:
    a, b = (c.value(index) for index in _inputs(operator, 2, 2))
    a, b = wider_first(a, b)
    op = ops.Add if operator.code == "ADD" else ops.Mul
    return c.emit(operator, op(_activation(operator)), a, b)


def _maximum(c: TfliteImport, operator: TfliteOperator) -> Value:
    a, b = (c.value(index) for index in _inputs(operator, 2, 2))
    if not a.type.q == b.type.q == c.q(operator.outputs[0]):
        raise ImportModelError("it compares tensors of different scales; convert the model with one scale for all")
    return c.emit(operator, ops.Maximum(), *wider_first(a, b))


def _pool(c: TfliteImport, operator: TfliteOperator) -> Value:
    (index,) = _inputs(operator, 1, 1)
    options = operator.options
    size, stride = (options.filter_height, options.filter_width), (options.stride_h, options.stride_w)
    op = ops.MaxPool if operator.code == "MAX_POOL_2D" else ops.AvgPool
    if index in c.pads and op is ops.MaxPool and options.padding == VALID:
        x, before, after = c.pads[index]
        return c.emit(operator, op(size, stride, (before[1], after[1], before[2], after[2]), _activation(operator)), x)
    x = c.value(index)
    return c.emit(operator, op(size, stride, _pad_of(operator, x.type, size), _activation(operator)), x)


def _pads(c: TfliteImport, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    pads = c.integers(index)
    return pads[::2], pads[1::2]


def _pad(c: TfliteImport, operator: TfliteOperator) -> Value:
    x, pads = _inputs(operator, 2, 2)
    return c.emit(operator, ops.Pad(*_pads(c, pads)), c.value(x))


def _pad_with(c: TfliteImport, operator: TfliteOperator) -> Value | None:
    """Padding with a number of choice: zero is Pad, the least one belongs to the max pool behind it."""
    xi, pads, fill = _inputs(operator, 3, 3)
    x, (before, after), number = c.value(xi), _pads(c, pads), c.data(fill)
    if number.size != 1 or number.dtype.name != x.type.dtype:
        raise ImportModelError(
            f"it pads {x.type.dtype} with {number.dtype}{list(number.shape)}; use one number of the same type"
        )
    if number.item() == x.type.zero:
        return c.emit(operator, ops.Pad(before, after), x)
    least = -math.inf if x.type.dtype == "float32" else -128
    if number.item() != least or len(before) != 4 or len(after) != 4 or any((*before[::3], *after[::3])):
        raise ImportModelError(f"padding with {number.item()} is not supported; pad with zero")
    c.pads[operator.outputs[0]] = x, before, after
    return None


def _reshape(c: TfliteImport, operator: TfliteOperator) -> Value:
    """RESHAPE, SQUEEZE and EXPAND_DIMS: the bytes stay, the file declares the shape."""
    x = c.value(_inputs(operator, 1, 2)[0])
    asked = c.integers(operator.inputs[1]) if operator.code == "RESHAPE" and len(operator.inputs) == 2 else None
    if asked is not None and c.is_open(operator.outputs[0]):
        return c.emit(operator, ops.Reshape(_resolved(asked, x.type)), x)
    shape = c.type(operator.outputs[0]).shape
    if asked is not None and (
        len(asked) != len(shape) or any(a not in (-1, d) for a, d in zip(asked, shape, strict=True))
    ):
        raise ImportModelError(
            f"it reshapes to {list(asked)}, the file declares {list(shape)}; convert the model again"
        )
    return c.emit(operator, ops.Reshape(shape), x)


def _resolved(asked: tuple[int, ...], x: Type) -> tuple[int, ...]:
    """The shape asked for, with a number for −1."""
    known = math.prod(d for d in asked if d != -1)
    if asked.count(-1) > 1 or known < 1 or x.size % known:
        raise ImportModelError(f"it reshapes {list(x.shape)} to {list(asked)}; convert the model with fixed shapes")
    return tuple(x.size // known if d == -1 else d for d in asked)


def _transpose(c: TfliteImport, operator: TfliteOperator) -> Value:
    x, perm = _inputs(operator, 2, 2)
    rank = len(c.type(x).shape)
    return c.emit(operator, ops.Transpose(tuple(p + rank if p < 0 else p for p in c.integers(perm))), c.value(x))


def _concat(c: TfliteImport, operator: TfliteOperator) -> Value:
    xs = [c.value(index) for index in operator.inputs]
    if not xs or _activation(operator) != "none":
        raise ImportModelError("a concatenation of nothing or with an activation is not supported; use a separate one")
    axis = operator.options.axis
    return c.emit(operator, ops.Concat(axis + len(xs[0].type.shape) if axis < 0 else axis), *xs)


def _softmax(c: TfliteImport, operator: TfliteOperator) -> Value:
    (x,) = _inputs(operator, 1, 1)
    return c.emit(operator, ops.Softmax(float(operator.options.beta)), c.value(x))


def _activate(c: TfliteImport, operator: TfliteOperator) -> Value:
    (x,) = _inputs(operator, 1, 1)
    return c.emit(operator, ops.Activate(operator.code.lower()), c.value(x))


def _quantize(c: TfliteImport, operator: TfliteOperator) -> Value:
    (index,) = _inputs(operator, 1, 1)
    x = c.value(index)
    if x.type.dtype == "int8" and x.type.q == c.type(operator.outputs[0]).q:
        return x  # from uint8 or to it: the same int8
    return c.emit(operator, ops.Quantize() if x.type.dtype == "float32" else ops.Requantize(), x)


def _dequantize(c: TfliteImport, operator: TfliteOperator) -> Value:
    (x,) = _inputs(operator, 1, 1)
    return c.emit(operator, ops.Dequantize(), c.value(x))


def _cast(c: TfliteImport, operator: TfliteOperator) -> Value | None:
    """Bytes 0 … 255 as float32; int8 as int32: places in a table, as nothing else is computed in int32."""
    (index,) = _inputs(operator, 1, 1)
    x, y = c.value(index), c.tensor(operator.outputs[0])
    if x.type.q == BYTES and y.dtype == "float32":
        return c.emit(operator, ops.Dequantize(), x)
    if x.type.dtype != "int8" or y.dtype != "int32":
        raise ImportModelError(f"a cast from {x.type.dtype} to {y.dtype} is not supported; use QUANTIZE and DEQUANTIZE")
    c.places[operator.outputs[0]] = x, 0
    return None


def _add(c: TfliteImport, operator: TfliteOperator) -> Value | None:
    a, b = _inputs(operator, 2, 2)
    if a not in c.places:
        return _binary(c, operator)
    (x, offset), numbers = c.places[a], c.integers(b)
    if len(numbers) != 1:
        raise ImportModelError(f"it adds {len(numbers)} numbers to int8 as int32; add one")
    offset += numbers[0]
    c.places[operator.outputs[0]] = _limited(c, x, offset, _activation(operator)), offset
    return None


def _limited(c: TfliteImport, x: Value, offset: int, activation: str) -> Value:
    """The int8 numbers that are, with an offset as int32, within the limits of an activation."""
    least, most = (limit if limit is None else limit - offset for limit in PLACE_LIMITS[activation])
    low, high = max(-128, -128 if least is None else least), min(127, 127 if most is None else most)
    if low > 127 or high < -128 or x.type.q is None:
        raise ImportModelError(f"its activation, {activation}, leaves one place of a table; compute nothing there")
    if (low, high) == (-128, 127):
        return x
    alpha, beta = ((limit - x.type.zero) * x.type.scale for limit in (low, high))
    return c.builder.emit(ops.Lookup("clip", alpha, beta), x, q=x.type.q, name=f"{x.name}.limited")


def _gather(c: TfliteImport, operator: TfliteOperator) -> Value:
    """A table of int8 results that its name says the function of, as files of our own have it."""
    table, places = _inputs(operator, 2, 2)
    if c.known(places):
        return gathered(c, operator)
    what = "a GATHER from anything but a table of a known function is not supported; import the model it came from"
    x, zero = c.places.get(places, (None, 0))
    found = TABLE_NAME.fullmatch(c.tensor(table).name)
    if x is None or zero != ZERO_PLACE or found is None or found["function"] not in FUNCTIONS:
        raise ImportModelError(what)
    op = ops.Lookup(found["function"], float(found["alpha"]), float(found["beta"]), slope=bool(found["slope"]))
    value = c.emit(operator, op, x)
    if value.type.q is None or not np.array_equal(op.table(x.type, value.type), c.data(table)):
        raise ImportModelError(what)
    return value


OPERATOR_RULES: Mapping[str, TfliteRule] = {
    **FUNCTION_RULES, **MOVING_RULES, **PAIR_RULES, **PRODUCT_RULES, **REDUCTION_RULES, **VARIABLE_RULES,
    "ADD": _add, "AVERAGE_POOL_2D": _pool, "CAST": _cast, "CONCATENATION": _concat, "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _conv, "DEQUANTIZE": _dequantize, "EXPAND_DIMS": _reshape, "FULLY_CONNECTED": _dense,
    "GATHER": _gather, "MAXIMUM": _maximum, "MAX_POOL_2D": _pool, "MUL": _binary, "PAD": _pad,
    "PADV2": _pad_with, "QUANTIZE": _quantize, "RELU": _activate, "RELU6": _activate, "RELU_N1_TO_1": _activate,
    "RESHAPE": _reshape, "SOFTMAX": _softmax, "SQUEEZE": _reshape, "TRANSPOSE": _transpose,
    "TRANSPOSE_CONV": transpose_conv, "UNIDIRECTIONAL_SEQUENCE_LSTM": sequence_lstm,
}  # fmt: skip
