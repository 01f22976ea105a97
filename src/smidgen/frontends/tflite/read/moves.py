"""Rules for TFLite's operators that move elements: reshapes, padding, slices, splits, packs, repeats, resizes."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from smidgen import ops
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.blocks import sliced, take
from smidgen.frontends.layout import axis_of, resolved
from smidgen.frontends.tflite.flatbuffer import TfliteOperator, TfliteOptions
from smidgen.frontends.tflite.read.context import Shape, TfliteImport, TfliteRule
from smidgen.ir import Value
from smidgen.ops.resize import nearest

LARGEST_SIDE = 1 << 14  # of a map that is resized


def _pads(c: TfliteImport, index: int) -> tuple[Shape, Shape]:
    pads = c.integers(index)
    return pads[::2], pads[1::2]


def _pad(c: TfliteImport, operator: TfliteOperator) -> Value:
    x, pads = operator.reads(2, 2)
    return c.emit(operator, ops.Pad(*_pads(c, pads)), c.value(x))


def _pad_with(c: TfliteImport, operator: TfliteOperator) -> Value | None:
    """Read padding with a given number: zero is Pad, the lowest number belongs to the max pool that follows."""
    xi, pads, fill = operator.reads(3, 3)
    x, (before, after), number = c.value(xi), _pads(c, pads), c.data(fill)
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
    if asked is not None and (
        len(asked) != len(shape) or any(a not in (-1, d) for a, d in zip(asked, shape, strict=True))
    ):
        raise ImportModelError(f"it reshapes to {list(asked)}, the file declares {list(shape)}; convert it again")
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
    refuse(not xs, "it packs nothing; convert the model again")
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


def _slice(c: TfliteImport, operator: TfliteOperator) -> Value:
    xi, begin, size = operator.reads(3, 3)
    x, starts, sizes = c.value(xi), c.integers(begin), c.integers(size)
    if not len(starts) == len(sizes) == len(x.type.shape):
        raise ImportModelError(f"it slices {list(x.type.shape)} from {list(starts)} by {list(sizes)}; fix the model")
    places = [range(a, a + n if n >= 0 else d) for a, n, d in zip(starts, sizes, x.type.shape, strict=True)]
    return _take(c, operator.outputs[0], x, places)


def strided(options: TfliteOptions, shape: Shape, *numbers: Shape) -> tuple[list[range], list[int]]:
    """Return the places that a STRIDED_SLICE takes along each dimension, and the dimensions it drops."""
    begins, ends, steps = numbers
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


def _strided_slice(c: TfliteImport, operator: TfliteOperator) -> Value:
    xi, *numbers = operator.reads(4, 4)
    x = c.value(xi)
    places, gone = strided(operator.options, x.type.shape, *(c.integers(index) for index in numbers))
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
    refuse(len(axes) != 1, f"it splits along {len(axes)} dimensions; convert the model again")
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
    (x,) = c.ins(operator, 1)
    shape, count = x.type.shape, len(operator.outputs)
    axis = axis_of(operator.options.axis, shape)
    refuse(count != shape[axis], f"it unpacks dimension {axis} of {list(shape)} into {count} tensors")
    return tuple(
        _without(c, _take_along(c, out, x, axis, range(at, at + 1)), [axis]) for at, out in enumerate(operator.outputs)
    )


def check_repeats(shape: Shape, counts: Shape) -> Shape:
    """Return how often a tensor is repeated along each dimension; raise where that makes no sense."""
    if len(counts) != len(shape) or not all(0 < n <= LARGEST_SIDE for n in counts):
        raise ImportModelError(f"it repeats {list(shape)} {list(counts)} times; convert the model again")
    return counts


def _tile(c: TfliteImport, operator: TfliteOperator) -> Value:
    xi, times = operator.reads(2, 2)
    x = c.value(xi)
    counts = check_repeats(x.type.shape, c.integers(times))
    places = [list(range(n)) * k for n, k in zip(x.type.shape, counts, strict=True)]
    return _take(c, operator.outputs[0], x, places)


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
    "CONCATENATION": _concat, "EXPAND_DIMS": _reshape, "PACK": _pack, "PAD": _pad, "PADV2": _pad_with,
    "RESHAPE": _reshape, "RESIZE_BILINEAR": _resize, "RESIZE_NEAREST_NEIGHBOR": _resize, "SLICE": _slice,
    "SPLIT": _split, "SPLIT_V": _split, "SQUEEZE": _reshape, "STRIDED_SLICE": _strided_slice, "TILE": _tile,
    "TRANSPOSE": _transpose, "UNPACK": _unpack,
}  # fmt: skip
