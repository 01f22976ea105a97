"""Rules for TFLite's operators that move elements, and operators on constants, computed while reading.

Keras asks a tensor for its shape and computes from it the shape of a reshape; once all sizes are known these are
constants, and so are weights that a file keeps in float16 or int8 and converts before use.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.blocks import sliced, take
from smidgen.frontends.layout import axis_of, resolved
from smidgen.frontends.tflite.flatbuffer import TfliteOperator, TfliteOptions
from smidgen.frontends.tflite.read.context import MAX_INTEGERS, Shape, TfliteImport, TfliteRule
from smidgen.ir import Array, Value
from smidgen.ops.resize import nearest

LARGEST_SIDE = 1 << 14  # of a map that is resized
CASTS = ("int32", "int64", "float32")
ABSURD = (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError, MemoryError)
Taken = tuple[Sequence[Sequence[int]], Sequence[int]]  # the places along each dimension, and the dimensions that go
Fold = Callable[[TfliteOptions, Sequence[Array]], Array]


def _pad(c: TfliteImport, operator: TfliteOperator) -> Value | None:
    """Read padding with zero, or with a given number: the lowest one belongs to the max pool that follows."""
    count = 3 if operator.code == "PADV2" else 2
    xi, places, *fill = operator.reads(count, count)
    x, pads = c.value(xi), c.integers(places)
    before, after = pads[::2], pads[1::2]
    number = c.data(fill[0]) if fill else np.array([x.type.zero], x.type.dtype)
    if number.size != 1 or number.dtype.name != x.type.dtype:
        raise ImportModelError(f"it pads {x.type.dtype} with {number.dtype}{list(number.shape)}; use one of that type")
    if number.item() == x.type.zero:
        return c.emit(operator, ops.Pad(before, after), x)
    least = -math.inf if x.type.dtype == "float32" else -128
    if number.item() != least or len(before) != 4 or len(after) != 4 or any((*before[::3], *after[::3])):
        raise ImportModelError(f"padding with {number.item()} is not supported; pad with zero")
    c.pads[operator.outputs[0]] = x, before, after
    return None


def _reshape(c: TfliteImport, operator: TfliteOperator) -> Value:
    """Read RESHAPE, SQUEEZE or EXPAND_DIMS: the bytes stay, the file declares the shape."""
    x = c.value(operator.reads(1, 2)[0])
    asked = c.integers(operator.inputs[1]) if operator.code == "RESHAPE" and len(operator.inputs) == 2 else None
    if asked is not None and c.is_open(operator.outputs[0]):
        return c.emit(operator, ops.Reshape(resolved(asked, x.type.size)), x)
    shape = c.type(operator.outputs[0]).shape
    fits = asked is None or (len(asked) == len(shape) and all(map(lambda a, d: a in (-1, d), asked, shape)))
    if asked is not None and not fits:
        raise ImportModelError(f"it reshapes to {list(asked)}, the file declares {list(shape)}")
    return c.emit(operator, ops.Reshape(shape), x)


def _transpose(c: TfliteImport, operator: TfliteOperator) -> Value:
    x, perm = operator.reads(2, 2)
    rank = len(c.type(x).shape)
    return c.emit(operator, ops.Transpose(tuple(p + rank if p < 0 else p for p in c.integers(perm))), c.value(x))


def _concat(c: TfliteImport, operator: TfliteOperator) -> Value:
    xs = [c.value(index) for index in operator.inputs]
    if not xs or operator.activation != "none":
        raise ImportModelError("a concatenation of nothing or with an activation is not supported; use a separate one")
    return c.emit(operator, ops.Concat(axis_of(operator.options.axis, xs[0].type.shape)), *xs)


def _pack(c: TfliteImport, operator: TfliteOperator) -> Value:
    xs = [c.value(index) for index in operator.inputs]
    refuse(not xs, "it packs nothing")
    shape = xs[0].type.shape
    axis = axis_of(operator.options.axis, (1, *shape))
    parts = [c.builder.emit(ops.Reshape((*shape[:axis], 1, *shape[axis:])), x, name=f"{x.name}.part") for x in xs]
    return c.emit(operator, ops.Concat(axis), *parts)


def _resize(c: TfliteImport, operator: TfliteOperator) -> Value:
    xi, size = operator.reads(2, 2)
    x, wanted, options = c.value(xi), c.integers(size), operator.options
    if len(x.type.shape) != 4 or len(wanted) != 2 or not all(0 < n <= LARGEST_SIDE for n in wanted):
        raise ImportModelError(f"it resizes {list(x.type.shape)} to {list(wanted)}; give a map rows and columns")
    corners, half = bool(options.align_corners), bool(options.half_pixel_centers)
    if operator.code == "RESIZE_BILINEAR":
        return c.emit(operator, ops.ResizeBilinear((wanted[0], wanted[1]), corners, half), x)
    places = (nearest(n, m, corners, half) for n, m in zip(x.type.shape[1:3], wanted, strict=True))
    return c.emit(operator, ops.Pick(*places), x)


def _take(c: TfliteImport, out: int, x: Value, places: Sequence[Sequence[int]]) -> Value:
    return take(c.builder, x, places, c.name(out))


def _take_along(c: TfliteImport, out: int, x: Value, axis: int, places: Sequence[int]) -> Value:
    return _take(c, out, x, [places if i == axis else range(n) for i, n in enumerate(x.type.shape)])


def _without(c: TfliteImport, x: Value, axes: Sequence[int]) -> Value:
    """Return x without these dimensions of one element, under the same name."""
    shape = tuple(n for i, n in enumerate(x.type.shape) if i not in axes)
    return c.builder.emit(ops.Reshape(shape), x, name=x.name)


def _sliced(shape: Shape, options: TfliteOptions, starts: Shape, sizes: Shape) -> Taken:
    if not len(starts) == len(sizes) == len(shape):
        raise ImportModelError(f"it slices {list(shape)} from {list(starts)} by {list(sizes)}; fix the model")
    return [range(a, a + n if n >= 0 else d) for a, n, d in zip(starts, sizes, shape, strict=True)], []


def _strided(shape: Shape, options: TfliteOptions, begins: Shape, ends: Shape, steps: Shape) -> Taken:
    if options.ellipsis_mask or options.new_axis_mask or not len(begins) == len(ends) == len(steps) <= len(shape):
        raise ImportModelError(f"slices of {list(shape)} with an ellipsis or a new axis are not supported; reshape it")
    places, gone = [range(n) for n in shape], []
    for i, (begin, end, step) in enumerate(zip(begins, ends, steps, strict=True)):
        bit = 1 << i
        if options.shrink_axis_mask & bit:
            at = begin + shape[i] if begin < 0 else begin
            places[i] = range(at, at + 1)
            gone.append(i)
        else:
            start, stop = None if options.begin_mask & bit else begin, None if options.end_mask & bit else end
            places[i] = sliced(shape[i], start, stop, step)
    return places, gone


def _tiled(shape: Shape, options: TfliteOptions, counts: Shape) -> Taken:
    if len(counts) != len(shape) or not all(0 < n <= LARGEST_SIDE for n in counts):
        raise ImportModelError(f"it repeats {list(shape)} {list(counts)} times")
    return [list(range(n)) * k for n, k in zip(shape, counts, strict=True)], []


# The parts that operators take, from the shape, the options and constant integers, of which there are so many.
TAKES: Mapping[str, tuple[int, Callable[..., Taken]]] = {
    "SLICE": (2, _sliced), "STRIDED_SLICE": (3, _strided), "TILE": (1, _tiled),
}  # fmt: skip


def _part(c: TfliteImport, operator: TfliteOperator) -> Value:
    count, taken = TAKES[operator.code]
    xi, *numbers = operator.reads(1 + count, 1 + count)
    x = c.value(xi)
    places, gone = taken(x.type.shape, operator.options, *(c.integers(index) for index in numbers))
    y = _take(c, operator.outputs[0], x, places)
    return _without(c, y, gone) if gone else y


def _split(c: TfliteImport, operator: TfliteOperator) -> tuple[Value, ...]:
    """Read SPLIT into equal parts, or SPLIT_V into parts of given sizes."""
    if operator.code == "SPLIT":
        where, xi = operator.reads(2, 2)
        sizes: Shape = ()
    else:
        xi, given, where = operator.reads(3, 3)
        sizes = c.integers(given)
    x, count, axes = c.value(xi), len(operator.outputs), c.integers(where)
    refuse(len(axes) != 1, f"it splits along {len(axes)} dimensions")
    axis = axis_of(axes[0], x.type.shape)
    total = x.type.shape[axis]
    sizes = sizes or (total // count,) * count
    rest = total - sum(n for n in sizes if n >= 0)
    sizes = tuple(rest if n < 0 else n for n in sizes)
    if sum(sizes) != total or len(sizes) != count or min(sizes) < 1:
        raise ImportModelError(f"it splits dimension {axis} of {list(x.type.shape)} into {list(sizes)}; fix the model")
    return tuple(
        _take_along(c, out, x, axis, range(end - size, end))
        for out, size, end in zip(operator.outputs, sizes, accumulate(sizes), strict=True)
    )


def _unpack(c: TfliteImport, operator: TfliteOperator) -> tuple[Value, ...]:
    (x,) = c.ins(operator)
    shape, count = x.type.shape, len(operator.outputs)
    axis = axis_of(operator.options.axis, shape)
    refuse(count != shape[axis], f"it unpacks dimension {axis} of {list(shape)} into {count} tensors")
    parts = (_take_along(c, out, x, axis, range(at, at + 1)) for at, out in enumerate(operator.outputs))
    return tuple(_without(c, part, [axis]) for part in parts)


def gathered(c: TfliteImport, operator: TfliteOperator) -> Value:
    """Read a gather at constant places along one dimension; a single place that is not a list drops the dimension."""
    xi, where = operator.reads(2, 2)
    x, found = c.value(xi), c.data(where)
    axis = axis_of(operator.options.axis, x.type.shape)
    if operator.options.batch_dims or found.ndim > 1 or found.dtype.kind != "i" or found.size > LARGEST_SIDE:
        raise ImportModelError(f"it gathers by {found.dtype}{list(found.shape)}; gather by a list of places")
    y = _take_along(c, operator.outputs[0], x, axis, [int(n) for n in found.ravel()])
    return y if found.ndim else _without(c, y, [axis])


SEVERAL_OUTPUTS = ("SPLIT", "SPLIT_V", "UNPACK")
MOVE_RULES: Mapping[str, TfliteRule] = {
    "CONCATENATION": _concat, "EXPAND_DIMS": _reshape, "PACK": _pack, "PAD": _pad, "PADV2": _pad,
    "RESHAPE": _reshape, "RESIZE_BILINEAR": _resize, "RESIZE_NEAREST_NEIGHBOR": _resize,
    "SPLIT": _split, "SPLIT_V": _split, "SQUEEZE": _reshape, "TRANSPOSE": _transpose, "UNPACK": _unpack,
    **dict.fromkeys(TAKES, _part),
}  # fmt: skip


def fold(c: TfliteImport, operator: TfliteOperator) -> Array | None:
    """Return the operator's result if it is known now; None leaves the operator to a rule."""
    if operator.code == "SHAPE":
        (x,) = c.ins(operator)
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
    data, counts = c.data(x), c.integers(times)
    places, _ = _tiled(data.shape, operator.options, counts)
    c.budget.take("its result", data.nbytes * math.prod(counts))
    return data[np.ix_(*places)]


def _constant_part(taken: Callable[..., Taken], options: TfliteOptions, ins: Sequence[Array]) -> Array:
    x, *numbers = ins
    places, gone = taken(x.shape, options, *(tuple(part.ravel().tolist()) for part in numbers))
    return x[np.ix_(*places)].squeeze(axis=tuple(gone))


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
    "RESHAPE": lambda o, ins: ins[0].reshape(tuple(int(d) for d in ins[1].ravel())),
    "SQUEEZE": lambda o, ins: np.squeeze(ins[0]), "SUB": lambda o, ins: ins[0] - ins[1],
    **{code: partial(_constant_part, taken) for code, (_, taken) in TAKES.items() if code not in ANY_TYPE},
}  # fmt: skip
# Operators that are folded or refused: a device computes none of them.
FOLDED_ONLY = frozenset(FOLDS) | {"SHAPE"}
