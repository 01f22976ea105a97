"""What TFLite's operators that move elements mean: resizes to the nearest, slices, splits, packs, repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.blocks import sliced, take
from smidgen.frontends.tflite.arguments import inputs_of
from smidgen.frontends.tflite.context import TfliteImport
from smidgen.frontends.tflite.flatbuffer import TfliteOperator, TfliteOptions
from smidgen.ir import Value
from smidgen.ops.resize import nearest

Shape = tuple[int, ...]
MovingRule = Callable[[TfliteImport, TfliteOperator], Value | tuple[Value, ...]]
LARGEST_SIDE = 1 << 14  # of a map that is resized


def resized_to(c: TfliteImport, operator: TfliteOperator) -> tuple[Value, int, int]:
    """The map that is resized, and its rows and columns afterwards."""
    xi, size = inputs_of(operator, 2, 2)
    x, wanted = c.value(xi), c.integers(size)
    if len(x.type.shape) != 4 or len(wanted) != 2 or not all(0 < n <= LARGEST_SIDE for n in wanted):
        raise ImportModelError(f"it resizes {list(x.type.shape)} to {list(wanted)}; give a map rows and columns")
    return x, wanted[0], wanted[1]


def _nearest(c: TfliteImport, operator: TfliteOperator) -> Value:
    x, rows, columns = resized_to(c, operator)
    corners, half = operator.options.align_corners, operator.options.half_pixel_centers
    places = (nearest(x.type.shape[axis], n, corners, half) for axis, n in ((1, rows), (2, columns)))
    return c.emit(operator, ops.Pick(*places), x)


def _bilinear(c: TfliteImport, operator: TfliteOperator) -> Value:
    x, rows, columns = resized_to(c, operator)
    options = operator.options
    op = ops.ResizeBilinear((rows, columns), bool(options.align_corners), bool(options.half_pixel_centers))
    return c.emit(operator, op, x)


def _part(c: TfliteImport, out: int, x: Value, places: list[range]) -> Value:
    return take(c.builder, x, places, c.name(out))


def _slice(c: TfliteImport, operator: TfliteOperator) -> Value:
    xi, begin, size = inputs_of(operator, 3, 3)
    x, starts, sizes = c.value(xi), c.integers(begin), c.integers(size)
    if not len(starts) == len(sizes) == len(x.type.shape):
        raise ImportModelError(f"it slices {list(x.type.shape)} from {list(starts)} by {list(sizes)}; fix the model")
    places = [range(a, a + n if n >= 0 else d) for a, n, d in zip(starts, sizes, x.type.shape, strict=True)]
    return _part(c, operator.outputs[0], x, places)


def strided(options: TfliteOptions, shape: Shape, *numbers: Shape) -> tuple[list[range], Shape]:
    """What a STRIDED_SLICE takes along each dimension, and the dimensions that go."""
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
            start, stop = (None if mask & bit else n for mask, n in
                           ((options.begin_mask, begin), (options.end_mask, end)))  # fmt: skip
            places[i] = sliced(shape[i], start, stop, step)
    return places, tuple(gone)


def _strided_slice(c: TfliteImport, operator: TfliteOperator) -> Value:
    xi, *numbers = inputs_of(operator, 4, 4)
    x = c.value(xi)
    places, gone = strided(operator.options, x.type.shape, *(c.integers(index) for index in numbers))
    value = _part(c, operator.outputs[0], x, places)
    shape = tuple(n for i, n in enumerate(value.type.shape) if i not in gone)
    return c.builder.emit(ops.Reshape(shape), value, name=value.name) if gone else value


def axis_of(axis: int, rank: int) -> int:
    """An axis, those below 0 counted from the end."""
    if not -rank <= axis < rank:
        raise ImportModelError(f"axis {axis} does not fit {rank} dimensions; convert the model again")
    return axis % rank


def _split(c: TfliteImport, operator: TfliteOperator) -> tuple[Value, ...]:
    """SPLIT into equal parts, SPLIT_V into parts of given sizes."""
    if operator.code == "SPLIT":
        where, xi = inputs_of(operator, 2, 2)
        sizes: Shape = ()
    else:
        xi, given, where = inputs_of(operator, 3, 3)
        sizes = c.integers(given)
    x, count = c.value(xi), len(operator.outputs)
    if len(c.integers(where)) != 1:
        raise ImportModelError(f"it splits along {len(c.integers(where))} dimensions; convert the model again")
    axis = axis_of(c.integers(where)[0], len(x.type.shape))
    total = x.type.shape[axis]
    sizes = sizes or (total // count,) * count
    rest = total - sum(n for n in sizes if n >= 0)
    sizes = tuple(rest if n < 0 else n for n in sizes)
    if sum(sizes) != total or len(sizes) != count or min(sizes) < 1:
        raise ImportModelError(f"it splits dimension {axis} of {list(x.type.shape)} into {list(sizes)}; fix the model")
    values, at = [], 0
    for out, size in zip(operator.outputs, sizes, strict=True):
        places = [range(at, at + size) if i == axis else range(n) for i, n in enumerate(x.type.shape)]
        values.append(_part(c, out, x, places))
        at += size
    return tuple(values)


def _pack(c: TfliteImport, operator: TfliteOperator) -> Value:
    xs = [c.value(index) for index in operator.inputs]
    if not xs:
        raise ImportModelError("it packs nothing; convert the model again")
    shape = xs[0].type.shape
    axis = axis_of(operator.options.axis, len(shape) + 1)
    parts = [c.builder.emit(ops.Reshape((*shape[:axis], 1, *shape[axis:])), x, name=f"{x.name}.part") for x in xs]
    return c.emit(operator, ops.Concat(axis), *parts)


def _unpack(c: TfliteImport, operator: TfliteOperator) -> tuple[Value, ...]:
    x = c.value(inputs_of(operator, 1, 1)[0])
    shape = x.type.shape
    axis = axis_of(operator.options.axis, len(shape))
    if len(operator.outputs) != shape[axis]:
        raise ImportModelError(f"it unpacks dimension {axis} of {list(shape)} into {len(operator.outputs)} tensors")
    values = []
    for at, out in enumerate(operator.outputs):
        places = [range(at, at + 1) if i == axis else range(n) for i, n in enumerate(shape)]
        value = _part(c, out, x, places)
        values.append(c.builder.emit(ops.Reshape((*shape[:axis], *shape[axis + 1 :])), value, name=value.name))
    return tuple(values)


def _tile(c: TfliteImport, operator: TfliteOperator) -> Value:
    xi, times = inputs_of(operator, 2, 2)
    x, counts = c.value(xi), c.integers(times)
    if len(counts) != len(x.type.shape) or not all(0 < n <= LARGEST_SIDE for n in counts):
        raise ImportModelError(f"it repeats {list(x.type.shape)} {list(counts)} times; convert the model again")
    places = [list(range(n)) * k for n, k in zip(x.type.shape, counts, strict=True)]
    return take(c.builder, x, places, c.name(operator.outputs[0]))


def gathered(c: TfliteImport, operator: TfliteOperator) -> Value:
    """Elements at constant places along one dimension; a single place that is no list makes it go."""
    xi, where = inputs_of(operator, 2, 2)
    x, found = c.value(xi), c.data(where)
    axis = axis_of(operator.options.axis, len(x.type.shape))
    if operator.options.batch_dims or found.ndim > 1 or found.dtype.kind != "i" or found.size > LARGEST_SIDE:
        raise ImportModelError(f"it gathers by {found.dtype}{list(found.shape)}; gather by a list of places")
    along = [int(n) for n in found.ravel()]
    value = take(
        c.builder, x, [along if i == axis else range(n) for i, n in enumerate(x.type.shape)],
        c.name(operator.outputs[0]),
    )  # fmt: skip
    if found.ndim:
        return value
    shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    return c.builder.emit(ops.Reshape(shape), value, name=value.name)


SEVERAL_OUTPUTS = ("SPLIT", "SPLIT_V", "UNPACK")
MOVING_RULES: Mapping[str, MovingRule] = {
    "PACK": _pack, "RESIZE_BILINEAR": _bilinear, "RESIZE_NEAREST_NEIGHBOR": _nearest,
    "SLICE": _slice, "SPLIT": _split, "SPLIT_V": _split, "STRIDED_SLICE": _strided_slice, "TILE": _tile,
    "UNPACK": _unpack,
}  # fmt: skip
