"""What TFLite files compute from sizes alone: integers that are known once the sizes are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from smidgen.errors import ImportModelError
from smidgen.frontends.tflite.context import MAX_INTEGERS, TfliteImport
from smidgen.frontends.tflite.flatbuffer import TfliteOperator
from smidgen.frontends.tflite.moving import axis_of, strided
from smidgen.ir import Array

Fold = Callable[[TfliteImport, TfliteOperator, list[Array]], Array]


def foldable(c: TfliteImport, operator: TfliteOperator) -> bool:
    """Whether an operator computes integers from a few that are known."""
    return operator.code in FOLDED and all(
        c.is_constant(index) and c.tensor(index).dtype in ("int32", "int64") for index in operator.inputs
    )


def fold(c: TfliteImport, operator: TfliteOperator) -> Array:
    """What such an operator gives."""
    known = [np.array(c.integers(index), np.int64).reshape(c.data(index).shape) for index in operator.inputs]
    try:
        result = FOLDED[operator.code](c, operator, known)
    except (ValueError, IndexError, TypeError, ZeroDivisionError) as error:
        raise ImportModelError(f"its constant inputs do not go together: {str(error)[:120]}") from None
    if result.size > MAX_INTEGERS:
        raise ImportModelError(f"it gives {result.size} integers; up to {MAX_INTEGERS} are folded")
    return result.astype(np.int32)  # as wide as sizes are


def _strided(c: TfliteImport, operator: TfliteOperator, known: list[Array]) -> Array:
    x, *numbers = known
    places, gone = strided(operator.options, x.shape, *(tuple(int(n) for n in a.ravel()) for a in numbers))
    taken = x[np.ix_(*places)]
    return taken.reshape(tuple(n for i, n in enumerate(taken.shape) if i not in gone))


def _pack(c: TfliteImport, operator: TfliteOperator, known: list[Array]) -> Array:
    return np.stack(known, axis_of(operator.options.axis, known[0].ndim + 1))


def _concat(c: TfliteImport, operator: TfliteOperator, known: list[Array]) -> Array:
    return np.concatenate(known, axis_of(operator.options.axis, known[0].ndim))


def _gather(c: TfliteImport, operator: TfliteOperator, known: list[Array]) -> Array:
    return np.take(known[0], known[1], axis_of(operator.options.axis, known[0].ndim))


def _shaped(c: TfliteImport, operator: TfliteOperator, known: list[Array]) -> Array:
    return known[0].reshape(c.tensor(operator.outputs[0]).shape)


def _binary(function: Callable[[Array, Array], Array]) -> Fold:
    return lambda c, operator, known: np.asarray(function(*known))


FOLDED: Mapping[str, Fold] = {
    "ADD": _binary(np.add), "CAST": lambda c, operator, known: known[0], "CONCATENATION": _concat,
    "EXPAND_DIMS": _shaped, "FLOOR_DIV": _binary(np.floor_divide), "GATHER": _gather, "MUL": _binary(np.multiply),
    "PACK": _pack, "REDUCE_PROD": lambda c, operator, known: np.asarray(np.prod(known[0])), "RESHAPE": _shaped,
    "SHAPE": lambda c, operator, known: np.array(known[0].shape), "SQUEEZE": _shaped,
    "STRIDED_SLICE": _strided, "SUB": _binary(np.subtract),
}  # fmt: skip
