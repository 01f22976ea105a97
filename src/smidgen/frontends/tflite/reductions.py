"""TFLite's means, sums and maxima over any dimensions: those that go are brought together, then one op reduces them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.tflite.arguments import inputs_of
from smidgen.frontends.tflite.context import TfliteImport
from smidgen.frontends.tflite.flatbuffer import TfliteOperator
from smidgen.ir import Op, QParams, Value


def _reduce(c: TfliteImport, operator: TfliteOperator) -> Value:
    """Transpose and reshape to [1, count, 1, rest], reduce the count, reshape to what the file declares."""
    index, axes = inputs_of(operator, 2, 2)
    x, q = c.value(index), c.q(operator.outputs[0])
    over = _axes(c.integers(axes), len(x.type.shape))
    if over == (1, 2) and len(x.type.shape) == 4 and x.type.shape[0] == 1 and operator.code == "MEAN":
        return c.emit(operator, ops.Mean(bool(operator.options.keep_dims)), x)
    if not over:
        raise ImportModelError(f"it reduces no dimension of {list(x.type.shape)}; leave it out")
    count = math.prod(x.type.shape[i] for i in over)
    source = _gathered(c, x, over, count)
    kept = (1, 1, 1, x.type.size // count)
    keep = operator.options.keep_dims
    shape = tuple(1 if i in over else d for i, d in enumerate(x.type.shape) if keep or i not in over)
    if operator.code == "MEAN":
        y = _emit(c, operator, ops.Mean(keep_dims=True), source, q=q, last=shape == kept)
    elif operator.code == "REDUCE_MAX":
        y = _emit(c, operator, ops.MaxPool((count, 1), (1, 1)), source, q=q, last=shape == kept)
    else:
        y = _sum(c, operator, source, count, q, last=shape == kept)
    return y if shape == kept else c.emit(operator, ops.Reshape(shape), y)


def _axes(given: tuple[int, ...], rank: int) -> tuple[int, ...]:
    over = tuple(sorted({axis + rank if axis < 0 else axis for axis in given}))
    if any(not 0 <= axis < rank for axis in over):
        raise ImportModelError(f"it reduces dimensions {list(given)} of {rank}; convert the model again")
    return over


def _gathered(c: TfliteImport, x: Value, over: tuple[int, ...], count: int) -> Value:
    """The tensor as [1, count, 1, rest], with the dimensions that go in front."""
    rest = tuple(i for i in range(len(x.type.shape)) if i not in over)
    perm = over + rest
    moved = [i for i in perm if x.type.shape[i] > 1]
    if moved != sorted(moved):
        x = c.builder.emit(ops.Transpose(perm), x, name=f"{x.name}.moved")
    shape = (1, count, 1, x.type.size // count)
    return x if x.type.shape == shape else c.builder.emit(ops.Reshape(shape), x, name=f"{x.name}.lined")


def _emit(c: TfliteImport, operator: TfliteOperator, op: Op, *ins: Value, q: QParams | None, last: bool) -> Value:
    """A node that gives the operator's output or, where a reshape follows, what that takes."""
    return c.emit(operator, op, *ins) if last else c.builder.emit(op, *ins, q=q)


def _sum(c: TfliteImport, operator: TfliteOperator, x: Value, count: int, q: QParams | None, last: bool) -> Value:
    """The mean, times the count: in int8 a mean in steps smaller by the count, whose steps are then the sum's."""
    if q is None:
        mean = c.builder.emit(ops.Mean(keep_dims=True), x)
        times = c.builder.constant("count", np.array([count], np.float32))
    else:
        mean = c.builder.emit(ops.Mean(keep_dims=True), x, q=QParams.per_tensor(q.one / count, q.zero))
        times = c.builder.constant("count", np.ones(1, np.int8), QParams.per_tensor(float(count)))
    return _emit(c, operator, ops.Mul(), mean, times, q=q, last=last)


REDUCTION_RULES: Mapping[str, Callable[[TfliteImport, TfliteOperator], Value]] = dict.fromkeys(
    ("MEAN", "REDUCE_MAX", "SUM"), _reduce
)
