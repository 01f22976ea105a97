"""TFLite's products of two tensors, matrix by matrix, and rows brought to the length of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.tflite.arguments import activation_of, inputs_of
from smidgen.frontends.tflite.context import TfliteImport
from smidgen.frontends.tflite.flatbuffer import TfliteOperator
from smidgen.ir import MAX_RANK, Value
from smidgen.ops.unit_norm import UNIT

Shape = tuple[int, ...]
MOST_REPEATED = 1 << 14  # matrices


def _batch_matmul(c: TfliteImport, operator: TfliteOperator) -> Value:
    a, b = (c.value(index) for index in inputs_of(operator, 2, 2))
    options = operator.options
    try:
        outer = tuple(np.broadcast_shapes(a.type.shape[:-2], b.type.shape[:-2]))
    except ValueError:
        raise ImportModelError(f"{list(a.type.shape)} and {list(b.type.shape)} do not go together") from None
    if min(len(a.type.shape), len(b.type.shape)) < 2 or len(outer) + 2 > MAX_RANK:
        raise ImportModelError(
            f"a product of {list(a.type.shape)} and {list(b.type.shape)} is not supported; use two to four dimensions"
        )
    left, right = (_repeated(c, x, outer) for x in (a, b))
    return c.emit(operator, ops.MatMul(bool(options.adj_x), bool(options.adj_y)), left, right)


def _repeated(c: TfliteImport, x: Value, outer: Shape) -> Value:
    """The matrices of a tensor along these dimensions."""
    shape, rows, columns = x.type.shape, *x.type.shape[-2:]
    if shape[:-2] == outer:
        return x
    if math.prod(shape[:-2]) != math.prod(outer):
        if math.prod(shape[:-2]) != 1 or math.prod(outer) > MOST_REPEATED:
            raise ImportModelError(
                f"{list(shape)} is repeated to {list(outer)}; repeat it as a whole, {MOST_REPEATED:,} times at most"
            )
        flat = c.builder.emit(ops.Reshape((1, 1, 1, rows * columns)), x)
        x = c.builder.emit(ops.Pick((0,) * math.prod(outer)), flat, name=f"{x.name}.repeated")
    return c.builder.emit(ops.Reshape((*outer, rows, columns)), x)


def _unit_norm(c: TfliteImport, operator: TfliteOperator) -> Value:
    (x,) = (c.value(index) for index in inputs_of(operator, 1, 1))
    if activation_of(operator) != "none" or (x.type.q is not None and c.q(operator.outputs[0]) != UNIT):
        raise ImportModelError(f"its output has another scale than {UNIT.one}, or an activation; convert it again")
    return c.emit(operator, ops.UnitNorm(), x)


PRODUCT_RULES: Mapping[str, Callable[[TfliteImport, TfliteOperator], Value]] = {
    "BATCH_MATMUL": _batch_matmul, "L2_NORMALIZATION": _unit_norm,
}  # fmt: skip
