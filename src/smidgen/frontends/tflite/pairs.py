"""TFLite's differences, quotients and minima, said with sums, products and maxima.

In int8, −x is exact: a byte q from a zero point z becomes −1 − q from −1 − z. So a − b is a + (−b), and the smaller of
two is −max(−a, −b), without a rounding of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.tflite.arguments import activation_of, inputs_of
from smidgen.frontends.tflite.context import TfliteImport
from smidgen.frontends.tflite.flatbuffer import TfliteOperator
from smidgen.ir import Array, QParams, Type, Value

LIMIT = float(np.finfo(np.float32).max)  # stands for a limit that is infinite


def wider_first(a: Value, b: Value) -> tuple[Value, Value]:
    """Two operands, the one that may repeat along the other last."""
    return (b, a) if b.type.size > a.type.size or len(b.type.shape) > len(a.type.shape) else (a, b)


def _negative_q(x: Type) -> QParams | None:
    return None if x.q is None else QParams.per_tensor(x.scale, -1 - x.zero)


def _negative(c: TfliteImport, x: Value) -> Value:
    """−x: of a constant a constant, else a product with −1."""
    data, q = c.builder.data(x), _negative_q(x.type)
    if data is not None:
        return c.builder.constant(f"{x.name}.negative", -data if q is None else ~data, q)
    minus, one = (np.array([-1], np.float32), None) if q is None else (np.array([-1], np.int8), QParams.per_tensor(1.0))
    return c.builder.emit(ops.Mul(), x, c.builder.constant("minus", minus, one), q=q, name=f"{x.name}.negative")


def _sub(c: TfliteImport, operator: TfliteOperator) -> Value:
    a, b = (c.value(index) for index in inputs_of(operator, 2, 2))
    return c.emit(operator, ops.Add(activation_of(operator)), *wider_first(a, _negative(c, b)))


def _div(c: TfliteImport, operator: TfliteOperator) -> Value:
    """Division by a constant, a product with its reciprocal; in int8 by one number, or by one for each channel."""
    a, b = (c.value(index) for index in inputs_of(operator, 2, 2))
    data = c.builder.data(b)
    if data is None or not np.all(real := data.astype(np.float64) - b.type.zero):
        raise ImportModelError("it divides by what is computed, or by 0; only division by constants is supported")
    if b.type.q is None:
        times = c.builder.constant(f"{b.name}.reciprocal", (1 / data).astype(np.float32))
    elif data.size == 1:
        number = float(real.item()) * b.type.scale
        q = QParams.per_tensor(abs(1 / number))
        times = c.builder.constant(f"{b.name}.reciprocal", np.array([np.sign(number)], np.int8), q)
    else:
        return _divided_channels(c, operator, a, real.reshape(-1) * b.type.scale)
    return c.emit(operator, ops.Mul(activation_of(operator)), a, times)


def _divided_channels(c: TfliteImport, operator: TfliteOperator, x: Value, numbers: Array) -> Value:
    """Each channel by a number of its own: a depthwise layer of one weight, ±1, at the reciprocal's scale."""
    shape, channels = x.type.shape, len(numbers)
    if not shape or shape[-1] != channels:
        raise ImportModelError(f"it divides {list(shape)} by {channels} numbers; divide by one, or one per channel")
    lined = (1, x.type.size // channels, 1, channels)
    source = x if len(shape) == 4 and shape[0] == 1 else c.builder.emit(ops.Reshape(lined), x, name=f"{x.name}.lined")
    signs = np.sign(numbers).astype(np.int8).reshape(1, 1, 1, channels)
    w = c.builder.constant(f"{x.name}.reciprocals", signs, QParams.per_channel(np.abs(1 / numbers), 3))
    b = c.builder.constant(f"{x.name}.nothing", np.zeros(channels, np.int32))
    op = ops.Depthwise(activation=activation_of(operator))
    if source is x:
        return c.emit(operator, op, source, w, b)
    y = c.builder.emit(op, source, w, b, q=c.q(operator.outputs[0]))
    return c.emit(operator, ops.Reshape(shape), y)


def _minimum(c: TfliteImport, operator: TfliteOperator) -> Value:
    a, b = wider_first(*(c.value(index) for index in inputs_of(operator, 2, 2)))
    if not a.type.q == b.type.q == c.q(operator.outputs[0]):
        raise ImportModelError("it compares tensors of different scales; convert the model with one scale for all")
    data = c.builder.data(b)
    if data is not None and data.size == 1:
        scale = 1.0 if b.type.q is None else b.type.scale
        limit = (float(data.item()) - b.type.zero) * scale
        return c.emit(operator, ops.Lookup("clip", -LIMIT, min(limit, LIMIT)), a)
    larger = c.builder.emit(ops.Maximum(), _negative(c, a), _negative(c, b), name=f"{a.name}.larger")
    minus, one = (np.array([-1], np.int8), QParams.per_tensor(1.0)) if a.type.q else (np.array([-1], np.float32), None)
    return c.emit(operator, ops.Mul(), larger, c.builder.constant("minus", minus, one))


def _prelu(c: TfliteImport, operator: TfliteOperator) -> Value:
    x, slope = (c.value(index) for index in inputs_of(operator, 2, 2))
    return c.emit(operator, ops.PRelu(), x, slope)


PAIR_RULES: Mapping[str, Callable[[TfliteImport, TfliteOperator], Value]] = {
    "DIV": _div, "MINIMUM": _minimum, "PRELU": _prelu, "SUB": _sub,
}  # fmt: skip
