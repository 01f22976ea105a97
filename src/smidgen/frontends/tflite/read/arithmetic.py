"""Rules for TFLite's arithmetic: sums, products, functions, reductions, changes of type.

Differences, quotients and minima become sums, products and maxima. In int8, −x is exact: a byte q with zero point z
becomes −1 − q with −1 − z. So a − b is a + (−b), and min(a, b) is −max(−a, −b), without another rounding.
"""

import math
import re
from collections.abc import Callable, Mapping

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.channels import together
from smidgen.frontends.layout import axis_of
from smidgen.frontends.tflite.flatbuffer import FUNCTION_OPERATORS, ZERO_PLACE, TfliteOperator
from smidgen.frontends.tflite.read.context import Shape, TfliteImport, TfliteRule
from smidgen.frontends.tflite.read.moves import gathered
from smidgen.ir import MAX_RANK, Array, Op, QParams, Value
from smidgen.ops.functions import FUNCTIONS
from smidgen.ops.unit_norm import UNIT

NUMBER = r"-?\d+(\.\d+)?(e[+-]?\d+)?"
TABLE_NAME = re.compile(rf"(?P<slope>slope of )?(?P<function>\w+)\((?P<alpha>{NUMBER}), (?P<beta>{NUMBER})\)")
NO_TABLE = "a GATHER from anything but a table of a known function is not supported; import the model it came from"
# The limits that activations set to int32.
PLACE_LIMITS: Mapping[str, tuple[int | None, int | None]] = {
    "none": (None, None), "relu": (0, None), "relu6": (0, 6), "relu_n1_to_1": (-1, 1),
}  # fmt: skip
BYTES = QParams.per_tensor(1.0, -ZERO_PLACE)  # uint8 without a scale, as int8
LIMIT = float(np.finfo(np.float32).max)  # stands for an infinite limit
MOST_REPEATED = 1 << 14  # matrices


def _one(op: Callable[[TfliteOperator], Op], count: int = 1) -> TfliteRule:
    """Return the rule of an operator that is one op on `count` inputs."""
    return lambda c, operator: c.emit(operator, op(operator), *c.ins(operator, count))


def _wider_first(a: Value, b: Value) -> tuple[Value, Value]:
    """Return two operands; the one that may repeat along the other comes last."""
    return (b, a) if b.type.size > a.type.size or len(b.type.shape) > len(a.type.shape) else (a, b)


def _binary(c: TfliteImport, operator: TfliteOperator) -> Value | None:
    """Read a sum or product, or the sum of an int8 number as int32 and its offset in a table."""
    a, b = operator.reads(2, 2)
    if a not in c.places or operator.code != "ADD":
        op = ops.Add if operator.code == "ADD" else ops.Mul
        return c.emit(operator, op(operator.activation), *_wider_first(*c.ins(operator, 2)))
    (x, offset), numbers = c.places[a], c.integers(b)
    refuse(len(numbers) != 1, f"it adds {len(numbers)} numbers to int8 as int32; add one")
    offset += numbers[0]
    c.places[operator.outputs[0]] = _limited(c, x, offset, operator.activation), offset
    return None


def _limited(c: TfliteImport, x: Value, offset: int, activation: str) -> Value:
    """Return x limited so that x + offset, as int32, is within an activation's limits."""
    least, most = (limit if limit is None else limit - offset for limit in PLACE_LIMITS[activation])
    low, high = max(-128, -128 if least is None else least), min(127, 127 if most is None else most)
    if low > 127 or high < -128 or x.type.q is None:
        raise ImportModelError(f"its activation, {activation}, leaves one place of a table; compute nothing there")
    if (low, high) == (-128, 127):
        return x
    alpha, beta = ((limit - x.type.zero) * x.type.scale for limit in (low, high))
    return c.builder.emit(ops.Lookup("clip", alpha, beta), x, q=x.type.q, name=f"{x.name}.limited")


def _number(c: TfliteImport, number: float, like: Value) -> Value:
    """Return a number as a constant of the same element type: in int8 one step, of its size."""
    name = "minus" if number < 0 else "count"
    if like.type.q is None:
        return c.builder.constant(name, np.array([number], np.float32))
    return c.builder.constant(name, np.array([np.sign(number)], np.int8), QParams.per_tensor(abs(number)))


def _negative(c: TfliteImport, x: Value) -> Value:
    """Return −x: a constant if x is one, else a product with −1."""
    data, q = c.builder.data(x), None if x.type.q is None else QParams.per_tensor(x.type.scale, -1 - x.type.zero)
    if data is not None:
        return c.builder.constant(f"{x.name}.negative", -data if q is None else ~data, q)
    return c.builder.emit(ops.Mul(), x, _number(c, -1.0, x), q=q, name=f"{x.name}.negative")


def _sub(c: TfliteImport, operator: TfliteOperator) -> Value:
    a, b = c.ins(operator, 2)
    return c.emit(operator, ops.Add(operator.activation), *_wider_first(a, _negative(c, b)))


def _div(c: TfliteImport, operator: TfliteOperator) -> Value:
    """Read division by a constant as a product with its reciprocal; in int8, by one number or one per channel."""
    a, b = c.ins(operator, 2)
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
    return c.emit(operator, ops.Mul(operator.activation), a, times)


def _divided_channels(c: TfliteImport, operator: TfliteOperator, x: Value, numbers: Array) -> Value:
    """Divide each channel by its number: a depthwise layer of one weight, ±1, whose scale is the reciprocal."""
    shape, channels = x.type.shape, len(numbers)
    if not shape or shape[-1] != channels:
        raise ImportModelError(f"it divides {list(shape)} by {channels} numbers; divide by one, or one per channel")
    lined = shape if len(shape) == 4 and shape[0] == 1 else (1, x.type.size // channels, 1, channels)
    source = c.reshaped(x, lined, "lined")
    signs = np.sign(numbers).astype(np.int8).reshape(1, 1, 1, channels)
    w = c.builder.constant(f"{x.name}.reciprocals", signs, QParams.per_channel(np.abs(1 / numbers), 3))
    b = c.builder.constant(f"{x.name}.nothing", np.zeros(channels, np.int32))
    return c.emit_shaped(operator, shape, ops.Depthwise(activation=operator.activation), source, w, b)


def _extreme(c: TfliteImport, operator: TfliteOperator) -> Value:
    """Read MAXIMUM or MINIMUM; a minimum with one number is a limit."""
    a, b = _wider_first(*c.ins(operator, 2))
    if not a.type.q == b.type.q == c.q(operator.outputs[0]):
        raise ImportModelError("it compares tensors of different scales; convert the model with one scale for all")
    if operator.code == "MAXIMUM":
        return c.emit(operator, ops.Maximum(), a, b)
    data = c.builder.data(b)
    if data is not None and data.size == 1:
        limit = (float(data.item()) - b.type.zero) * (1.0 if b.type.q is None else b.type.scale)
        return c.emit(operator, ops.Lookup("clip", -LIMIT, min(limit, LIMIT)), a)
    larger = c.builder.emit(ops.Maximum(), _negative(c, a), _negative(c, b), name=f"{a.name}.larger")
    return c.emit(operator, ops.Mul(), larger, _number(c, -1.0, a))


def _function(c: TfliteImport, operator: TfliteOperator) -> Value:
    (x,) = c.ins(operator)
    name, alpha, _ = FUNCTION_OPERATORS[operator.code]
    if operator.code == "GELU" and operator.options.approximate:
        name = "gelu_tanh"
    if operator.code == "LEAKY_RELU":
        alpha = float(operator.options.alpha)
    return c.emit(operator, ops.Lookup(name, alpha, tflite=x.type.dtype == "int8"), x)


def _gather(c: TfliteImport, operator: TfliteOperator) -> Value:
    """Read a gather at constant places, or a table of int8 results whose name states the function, as we write it."""
    table, places = operator.reads(2, 2)
    if c.known(places):
        return gathered(c, operator)
    x, zero = c.places.get(places, (None, 0))
    found = TABLE_NAME.fullmatch(c.tensor(table).name)
    if x is None or zero != ZERO_PLACE or found is None or found["function"] not in FUNCTIONS:
        raise ImportModelError(NO_TABLE)
    op = ops.Lookup(found["function"], float(found["alpha"]), float(found["beta"]), slope=bool(found["slope"]))
    value = c.emit(operator, op, x)
    refuse(value.type.q is None or not np.array_equal(op.table(x.type, value.type), c.data(table)), NO_TABLE)
    return value


def _quantize(c: TfliteImport, operator: TfliteOperator) -> Value:
    (x,) = c.ins(operator)
    if x.type.dtype == "int8" and x.type.q == c.type(operator.outputs[0]).q:
        return x  # from uint8 or to it: the same int8
    return c.emit(operator, ops.Quantize() if x.type.dtype == "float32" else ops.Requantize(), x)


def _cast(c: TfliteImport, operator: TfliteOperator) -> Value | None:
    """Read a cast of bytes 0 … 255 to float32, or of int8 to int32, which may only index a table."""
    (x,) = c.ins(operator)
    y = c.tensor(operator.outputs[0])
    if x.type.q == BYTES and y.dtype == "float32":
        return c.emit(operator, ops.Dequantize(), x)
    if x.type.dtype != "int8" or y.dtype != "int32":
        raise ImportModelError(f"a cast from {x.type.dtype} to {y.dtype} is not supported; use QUANTIZE and DEQUANTIZE")
    c.places[operator.outputs[0]] = x, 0
    return None


def _batch_matmul(c: TfliteImport, operator: TfliteOperator) -> Value:
    a, b = c.ins(operator, 2)
    ranks, outer = (len(a.type.shape), len(b.type.shape)), together(a.type.shape[:-2], b.type.shape[:-2])
    if min(ranks) < 2 or len(outer) + 2 > MAX_RANK:
        raise ImportModelError(f"a product of {ranks[0]} and {ranks[1]} dimensions is not supported; use two to four")
    op = ops.MatMul(bool(operator.options.adj_x), bool(operator.options.adj_y))
    return c.emit(operator, op, *[_repeated(c, x, outer) for x in (a, b)])


def _repeated(c: TfliteImport, x: Value, outer: Shape) -> Value:
    """Return a tensor's matrices, repeated to these outer dimensions."""
    shape, rows, columns = x.type.shape, *x.type.shape[-2:]
    if shape[:-2] == outer:
        return x
    if math.prod(shape[:-2]) != math.prod(outer):
        if math.prod(shape[:-2]) != 1 or math.prod(outer) > MOST_REPEATED:
            raise ImportModelError(
                f"{list(shape)} repeats to {list(outer)}; repeat the whole, up to {MOST_REPEATED:,} times"
            )
        flat = c.builder.emit(ops.Reshape((1, 1, 1, rows * columns)), x)
        x = c.builder.emit(ops.Pick((0,) * math.prod(outer)), flat, name=f"{x.name}.repeated")
    return c.builder.emit(ops.Reshape((*outer, rows, columns)), x)


def _arg_max(c: TfliteImport, operator: TfliteOperator) -> None:
    """Read the choice of a class, which ends a model: the scores are the output, and the largest is the class."""
    xi, where = operator.reads(2, 2)
    x, axes = c.value(xi), c.integers(where)
    last = [axis_of(axis, x.type.shape) for axis in axes] == [len(x.type.shape) - 1]
    refuse(not last, f"it chooses along {list(axes)} of {list(x.type.shape)}; choose along the last dimension")
    c.chosen[operator.outputs[0]] = x


def _unit_norm(c: TfliteImport, operator: TfliteOperator) -> Value:
    (x,) = c.ins(operator)
    if operator.activation != "none" or (x.type.q is not None and c.q(operator.outputs[0]) != UNIT):
        raise ImportModelError(f"its output has another scale than {UNIT.one}, or an activation")
    return c.emit(operator, ops.UnitNorm(), x)


def _reduce(c: TfliteImport, operator: TfliteOperator) -> Value:
    """Read a mean, sum or maximum over any dimensions.

    Transpose and reshape to [1, count, 1, rest], reduce the count, reshape to the declared shape.
    """
    index, axes = operator.reads(2, 2)
    x, keep = c.value(index), operator.options.keep_dims
    over = tuple(sorted({axis_of(axis, x.type.shape) for axis in c.integers(axes)}))
    if over == (1, 2) and len(x.type.shape) == 4 and x.type.shape[0] == 1 and operator.code == "MEAN":
        return c.emit(operator, ops.Mean(bool(keep)), x)
    refuse(not over, f"it reduces no dimension of {list(x.type.shape)}; leave it out")
    count = math.prod(x.type.shape[i] for i in over)
    shape = tuple(1 if i in over else d for i, d in enumerate(x.type.shape) if keep or i not in over)
    perm = over + tuple(i for i in range(len(x.type.shape)) if i not in over)
    moved = [i for i in perm if x.type.shape[i] > 1]
    if moved != sorted(moved):
        x = c.builder.emit(ops.Transpose(perm), x, name=f"{x.name}.moved")
    source = c.reshaped(x, (1, count, 1, x.type.size // count), "lined")
    if operator.code == "SUM":  # the steps of an int8 mean are smaller by the count, so that the sum's fit
        q = c.q(operator.outputs[0])
        fine = None if q is None else QParams.per_tensor(q.one / count, q.zero)
        mean = c.builder.emit(ops.Mean(keep_dims=True), source, q=fine)
        return c.emit_shaped(operator, shape, ops.Mul(), mean, _number(c, float(count), mean))
    op = ops.Mean(keep_dims=True) if operator.code == "MEAN" else ops.MaxPool((count, 1), (1, 1))
    return c.emit_shaped(operator, shape, op, source)


ARITHMETIC_RULES: Mapping[str, TfliteRule] = {
    **dict.fromkeys(FUNCTION_OPERATORS, _function), **dict.fromkeys(("MEAN", "REDUCE_MAX", "SUM"), _reduce),
    **dict.fromkeys(("RELU", "RELU6", "RELU_N1_TO_1"), _one(lambda o: ops.Activate(o.code.lower()))),
    "ADD": _binary, "ARG_MAX": _arg_max, "BATCH_MATMUL": _batch_matmul, "CAST": _cast,
    "DEQUANTIZE": _one(lambda o: ops.Dequantize()), "DIV": _div, "GATHER": _gather, "L2_NORMALIZATION": _unit_norm,
    "LOG_SOFTMAX": _one(lambda o: ops.LogSoftmax()), "MAXIMUM": _extreme, "MINIMUM": _extreme, "MUL": _binary,
    "PRELU": _one(lambda o: ops.PRelu(), 2), "QUANTIZE": _quantize,
    "SOFTMAX": _one(lambda o: ops.Softmax(float(o.options.beta))), "SUB": _sub,
}  # fmt: skip
