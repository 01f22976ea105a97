"""TFLite operators on constants, computed while reading: arithmetic on shapes, and weights stored in fewer bits.

Keras asks a tensor for its shape and computes from it the shape of a reshape; once all sizes are known these are
constants, and so are weights that a file keeps in float16 or int8 and converts before use.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.tflite.flatbuffer import TfliteOperator, TfliteOptions
from smidgen.frontends.tflite.read.context import MAX_INTEGERS, TfliteImport
from smidgen.frontends.tflite.read.moves import check_repeats, strided
from smidgen.ir import Array

Fold = Callable[[TfliteOptions, Sequence[Array]], Array]
CASTS = ("int32", "int64", "float32")
ABSURD = (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError, MemoryError)


def fold(c: TfliteImport, operator: TfliteOperator) -> Array | None:
    """Return the operator's result if it is known now; None leaves the operator to a rule."""
    if operator.code == "SHAPE":
        (x,) = c.ins(operator, 1)
        return np.array(x.type.shape, np.int32)
    if operator.code == "DEQUANTIZE" and len(operator.inputs) == 1 and c.known(operator.inputs[0]):
        return c.real(operator.inputs[0])
    if not operator.inputs or not all(c.known(index) for index in operator.inputs):
        return None
    if operator.code in ANY_TYPE:
        return ANY_TYPE[operator.code](c, operator)
    if operator.code not in FOLDS:
        return None
    arrays = [c.data(index) for index in operator.inputs]
    whole = all(array.dtype.kind == "i" and array.dtype != np.int8 for array in arrays)
    if not whole or any(array.size > MAX_INTEGERS for array in arrays):
        return None
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(FOLDS[operator.code](operator.options, arrays))
    except ABSURD as error:
        shapes = [list(array.shape) for array in arrays]
        raise ImportModelError(f"it computes a constant from {shapes}: {str(error)[:80]}; convert again") from None
    if result.size > MAX_INTEGERS**2:
        raise ImportModelError(f"it computes a constant of {list(result.shape[:8])}; {MAX_INTEGERS**2} elements fit")
    return result.astype(np.result_type(*arrays))


def _cast(c: TfliteImport, operator: TfliteOperator) -> Array | None:
    """Change a constant's type to the declared one; the options, which say it too, may be left out."""
    (x,), name = operator.reads(1, 1), c.tensor(operator.outputs[0]).dtype
    if c.tensor(x).dtype == "int8":  # it may have been uint8
        return None
    refuse(name not in CASTS, f"a cast to {name} is not supported; use {', '.join(CASTS)}")
    return c.data(x).astype(name)


def _tile(c: TfliteImport, operator: TfliteOperator) -> Array:
    x, times = operator.reads(2, 2)
    data, counts = c.data(x), check_repeats(c.data(x).shape, c.integers(times))
    c.budget.take("its result", data.nbytes * math.prod(counts))
    return np.tile(data, counts)


def _strided_slice(options: TfliteOptions, ins: Sequence[Array]) -> Array:
    x, *numbers = ins
    places, gone = strided(options, x.shape, *(tuple(int(n) for n in part.ravel()) for part in numbers))
    return x[np.ix_(*places)].squeeze(axis=tuple(gone))


def _slice(options: TfliteOptions, ins: Sequence[Array]) -> Array:
    x, begin, size = ins
    ends = [slice(int(b), None if n == -1 else int(b + n)) for b, n in zip(begin.ravel(), size.ravel(), strict=True)]
    return np.asarray(x[tuple(ends)])


def _divide(options: TfliteOptions, ins: Sequence[Array]) -> Array:
    """Divide toward zero, as C does."""
    a, b = ins
    if not b.all():
        raise ZeroDivisionError("it divides by 0")
    return np.fix(a / b)


# Operators that are folded for constants of any type and size, not only for small integers.
ANY_TYPE: Mapping[str, Callable[[TfliteImport, TfliteOperator], Array | None]] = {"CAST": _cast, "TILE": _tile}
FOLDS: Mapping[str, Fold] = {
    "ADD": lambda o, ins: ins[0] + ins[1], "DIV": _divide, "MUL": lambda o, ins: ins[0] * ins[1],
    "CONCATENATION": lambda o, ins: np.concatenate([np.atleast_1d(x) for x in ins], axis=o.axis),
    "EXPAND_DIMS": lambda o, ins: np.expand_dims(ins[0], int(ins[1].reshape(()))),
    "FLOOR_DIV": lambda o, ins: np.floor_divide(ins[0], ins[1]) if ins[1].all() else _divide(o, ins),
    "GATHER": lambda o, ins: np.take(ins[0], ins[1], axis=o.axis),
    "MAXIMUM": lambda o, ins: np.maximum(*ins), "MINIMUM": lambda o, ins: np.minimum(*ins),
    "PACK": lambda o, ins: np.stack(list(ins), axis=o.axis),
    "REDUCE_PROD": lambda o, ins: np.prod(ins[0], axis=tuple(ins[1].ravel().tolist()), keepdims=bool(o.keep_dims)),
    "RESHAPE": lambda o, ins: ins[0].reshape(tuple(int(d) for d in ins[1].ravel())), "SLICE": _slice,
    "SQUEEZE": lambda o, ins: np.squeeze(ins[0]), "STRIDED_SLICE": _strided_slice,
    "SUB": lambda o, ins: ins[0] - ins[1],
}  # fmt: skip
# Operators that are folded or refused: a device computes none of them.
FOLDED_ONLY = frozenset(FOLDS) | {"SHAPE"}
