"""Graph → QDQ ONNX that rounds as we do: layers are functions that make a runtime compute the same int8 numbers.

Ops that only move or compare elements are written as in the plain form. So are layers in float32, which a runtime sums
in its own order, and recurrent layers, whose gates it computes in float32.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import helper

from smidgen import numerics, ops
from smidgen.errors import ExportError
from smidgen.frontends.blocks import where
from smidgen.frontends.onnx.write import UINT8_SHIFT, OnnxWriter, Rule, functions, result_name, serialize
from smidgen.frontends.onnx.write.functions import DoubleRounding, rounding, rounding_of_sums
from smidgen.frontends.onnx.write.plain import RULES as PLAIN_RULES
from smidgen.frontends.onnx.write.plain import rows_first, rows_last, scale_and_shift
from smidgen.ir import Array, Graph, Node, Op, Value
from smidgen.numerics import INT8_MAX, INT8_MIN, INT32_MAX
from smidgen.numerics.fixed_point import INT32, shift_right
from smidgen.ops.elementwise import ADD_SHIFT
from smidgen.ops.log_softmax import LOG_LEAST
from smidgen.ops.matmul import INT8_SPAN, swapped
from smidgen.ops.normalize import epsilon_steps
from smidgen.ops.project import as_dense
from smidgen.ops.resize import ONE
from smidgen.ops.softmax import DIFF_BITS, MAX_DIFF, SUM_BITS
from smidgen.ops.weighted import Windowed, multipliers

EVERY = np.arange(INT8_MIN, INT8_MAX + 1).astype(np.int8)
LARGEST = INT8_MAX - INT8_MIN  # steps from a zero point, at most
Names = tuple[str, ...]


def write_onnx(graph: Graph) -> bytes:
    """Return the graph as the bytes of an `.onnx` file."""
    return serialize(ExactWriter(as_dense(graph), PLAIN_RULES))


class ExactWriter(OnnxWriter):
    """A writer that calls functions where the plain form leaves rounding to the runtime."""

    def apply(self, node: Node) -> None:
        rule = RULES.get(type(node.op))
        if rule is not None and _int8(node):
            rule(self, node, node.op)
        else:
            super().apply(node)

    def layer(self, node: Node, code: str, name: str, *ins: str, **attributes: object) -> str:
        rule = ROUNDED.get(type(node.op))
        if rule is None or not _int8(node):
            return super().layer(node, code, name, *ins, **attributes)
        kind, more = rule(self, node, node.op)
        return self.call(node, kind + code, *ins, *more, **attributes)

    def call(self, node: Node, code: str, *ins: str, **attributes: object) -> str:
        """Emit a call of a function, whose output is real numbers."""
        self.called.add(code)
        out = result_name(node)
        self.nodes.append(helper.make_node(code, list(ins), [out], domain=functions.DOMAIN, **attributes))  # type: ignore[arg-type]
        return out

    def weighted(self, node: Node, first: bool, order: tuple[int, ...]) -> Names:
        if not _int8(node):
            return super().weighted(node, first, order)
        (weights, wq, w_name), (bias, bq, b_name) = self.weights(node, order), self.bias(node)
        assert wq is not None
        assert bq is not None
        (w_steps, *w_more), (b_steps, *b_more) = self.quantized(weights, wq, w_name), self.quantized(bias, bq, b_name)
        return self.operand(node.ins[0], first), w_steps, b_steps, *w_more, *b_more, self.step(node.ins[0])

    def number(self, node: Node, what: str, data: Array | float, dtype: str) -> str:
        return self.constant(f"{node.out.name}:{what}", np.asarray(data).astype(dtype))

    def numbers(self, node: Node, parts: Mapping[str, Array], dtype: str = "float64") -> Names:
        return tuple(self.number(node, what, data, dtype) for what, data in parts.items())

    def step(self, value: Value) -> str:
        """Return the name of a value's scale."""
        return self.constant(f"{value.name}:step", np.array(value.type.scale, np.float32))

    def scaling(self, node: Node, how: DoubleRounding) -> Names:
        """Return the names of the numbers that scale a layer's sums to its output, whose step comes last."""
        return *self.numbers(node, how.parts()), self.step(node.out)

    def limited(self, node: Node, name: str, activation: str) -> str:
        """Emit an activation, with limits in whole steps where QuantizeLinear would round one the other way."""
        y = node.out.type
        if y.q is not None:
            limits = np.array(numerics.activation_range(activation, y)) - y.zero
            real = np.array(numerics.activation_limits(activation), np.float32) / np.float32(y.scale)
            if not np.array_equal(np.clip(np.rint(real) + y.zero, INT8_MIN, INT8_MAX), limits + y.zero):
                steps = limits.astype(np.float32) * np.float32(y.scale)
                return self.emit("Clip", f"{node.out.name}:active", name, *self.limits(*map(float, steps)))
        return super().limited(node, name, activation)


def _int8(node: Node) -> bool:
    return any(v.type.dtype == "int8" for v in (*node.ins, *node.outs))


def _of_sums(node: Node, largest: int, multiplier: int, shift: int) -> DoubleRounding:
    """Return the rounding of sums up to this magnitude."""
    if largest << max(shift, 0) > INT32_MAX:
        raise ExportError(f"{where(node)}: its sums can wrap beyond 32 bits; calibrate it again, or export it plain")
    return rounding_of_sums(multiplier, shift, where(node))


def _largest_sums(w: ExactWriter, node: Node, order: tuple[int, ...]) -> Array:
    """Return the largest magnitude of each output's sum, bias included."""
    zero, (weights, _, _), (bias, _, _) = node.ins[0].type.zero, w.weights(node, order), w.bias(node)
    size = np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(1)
    total: Array = size * max(zero - INT8_MIN, INT8_MAX - zero) + np.abs(bias.astype(np.int64))
    return total


def _uint8_zero(w: ExactWriter, node: Node) -> str:
    return w.number(node, "x_zero", node.ins[0].type.zero + UINT8_SHIFT, "uint8")


# How layers round: the kind of function that goes before the operator's name, and the inputs that follow its own.
def _conv(w: ExactWriter, node: Node, op: Windowed) -> tuple[str, Names]:
    multiplier, shift = (array.astype(np.int64).reshape(-1, 1, 1) for array in multipliers(node))
    reach, lift = _largest_sums(w, node, op.out_in_rows_columns), np.int64(1) << np.maximum(shift, 0)
    if (reach > functions.EXACT).any() or (reach * lift.ravel() > INT32_MAX).any():
        long = _uint8_zero(w, node), w.number(node, "lift", lift, "int64")
        how = rounding_of_sums(multiplier, np.minimum(shift, 0), where(node))
        return functions.LONG, (*long, *w.scaling(node, how))
    how = rounding_of_sums(multiplier, shift, where(node))
    if numerics.activation_range(op.activation, node.out.type)[0] >= node.out.type.zero:
        return functions.RECTIFIED, (
            *w.numbers(node, {"factor": how.factor, "up": how.half + how.tie}),
            w.step(node.out),
        )
    return "", w.scaling(node, how)


def _dense(w: ExactWriter, node: Node, op: ops.Dense) -> tuple[str, Names]:
    long = (_uint8_zero(w, node),) if (_largest_sums(w, node, (0, 1)) > functions.EXACT).any() else ()
    factor = w.number(node, "factor", op.scaling(node), "float64")
    return functions.LONG if long else "", (*long, factor, w.step(node.out))


def _add(w: ExactWriter, node: Node, op: ops.Add) -> tuple[str, Names]:
    left, right, last = op.multipliers(node)
    sides = rounding(*left, ADD_SHIFT).parts("left:") | rounding(*right, ADD_SHIFT).parts("right:")
    how = _of_sums(node, LARGEST << ADD_SHIFT, *last)  # each side is at most half of that
    return "", (*map(w.step, node.ins), *w.numbers(node, sides), *w.scaling(node, how))


def _mul(w: ExactWriter, node: Node, op: ops.Mul) -> tuple[str, Names]:
    how = _of_sums(node, LARGEST**2, *op.multiplier(node))
    return "", (*map(w.step, node.ins), *w.scaling(node, how))


def _prelu(w: ExactWriter, node: Node, op: ops.PRelu) -> tuple[str, Names]:
    above, below = op.multipliers(node)
    up, how = _of_sums(node, LARGEST, *above), _of_sums(node, LARGEST**2, *below)
    return "", (*map(w.step, node.ins), *w.numbers(node, up.parts("up:")), *w.scaling(node, how))


def _mean(w: ExactWriter, node: Node, op: ops.Mean) -> tuple[str, Names]:
    (x,) = node.ins
    how = _of_sums(node, LARGEST * x.type.shape[1] * x.type.shape[2], *op.multiplier(node))
    return "", (w.step(x), *w.scaling(node, how))


def _avg_pool(w: ExactWriter, node: Node, op: ops.AvgPool) -> tuple[str, Names]:
    (x,) = node.ins
    inside = np.ones((*x.type.shape[:3], 1), np.int64)
    count = op.window.patches(inside, 0).sum(axis=(2, 3)).transpose(2, 0, 1)
    near = np.full((), 2.0**-20)  # less than half of a share, more than double's error of one
    numbers = (
        w.number(node, "size", op.size[0] * op.size[1], "float32"),
        w.number(node, "zeros", count * x.type.zero, "float32"), w.number(node, "x_zero", x.type.zero, "float64"),
    )  # fmt: skip
    return "", (w.step(x), *numbers, *w.scaling(node, DoubleRounding(1 / count, near, np.zeros(()))))


def _bilinear(w: ExactWriter, node: Node, op: ops.ResizeBilinear) -> tuple[str, Names]:
    (x,) = node.ins
    rows, columns = (spread.integers().matrix(spread.size) / ONE for spread in op.spreads(x.type))
    zero = w.number(node, "x_zero", x.type.zero, "float64")
    shares = w.numbers(node, {"rows": rows, "columns": columns.T})
    return "", (w.step(x), zero, *shares, w.step(node.out))


def _matmul(w: ExactWriter, node: Node, op: ops.MatMul) -> tuple[str, Names]:
    depth = swapped(node.ins[0].type.shape, op.transpose_a)[-1]
    how = _of_sums(node, INT8_SPAN**2 * depth, *op.multiplier(node))
    return "", (*map(w.step, node.ins), *w.scaling(node, how))


ROUNDED: Mapping[type[Op], Callable[[ExactWriter, Node, Any], tuple[str, Names]]] = {
    ops.Add: _add, ops.AvgPool: _avg_pool, ops.Conv2D: _conv, ops.Dense: _dense, ops.Depthwise: _conv,
    ops.MatMul: _matmul, ops.Mean: _mean, ops.Mul: _mul, ops.PRelu: _prelu, ops.ResizeBilinear: _bilinear,
    ops.UnitNorm: lambda w, node, op: ("", (w.step(node.ins[0]), w.step(node.out))),
}  # fmt: skip


# Layers whose functions take other inputs than the operators.
def _table(w: ExactWriter, node: Node, code: str, *more: str, **attributes: object) -> None:
    """Write a layer of one int8 value as a table of 256 real results, those for steps from zero on first."""
    (x,), y = node.ins, node.out.type
    results = node.op.ref(node, EVERY)
    assert isinstance(results, np.ndarray)
    real = results if y.q is None else (results - np.float32(y.zero)) * np.float32(y.scale)
    table = w.number(node, "table", np.roll(real, INT8_MIN - x.type.zero), "float32")
    name = w.call(node, code, w.operand(x, w.first(x)), *more, w.step(x), table, **attributes)
    w.result(node, name, w.first(x), node.op.activation if isinstance(node.op, ops.Activate) else "none")


def _requantize(w: ExactWriter, node: Node, op: Op) -> None:
    _table(w, node, "Requantized")


def _lookup(w: ExactWriter, node: Node, op: ops.Lookup) -> None:
    code, names = functions.OPERATORS[op.function]
    attributes: dict[str, object] = dict(zip(names, (op.alpha, op.beta), strict=False))
    more: Names = ()
    if op.slope:
        code, attributes = "Table", {}
    elif op.function == "silu":
        code = "Swish"
    elif op.function == "gelu_tanh":
        attributes = {"approximate": "tanh"}
    elif op.function in ("clip", "power"):
        more = w.limits(op.alpha, op.beta) if op.function == "clip" else w.limits(op.alpha)
    if "tflite" in functions.TABLES.get(code, ("", ""))[0]:
        attributes["tflite"] = int(op.tflite)
    _table(w, node, code, *more, **attributes)


def _quantize(w: ExactWriter, node: Node, op: ops.Quantize) -> None:
    (x,), first = node.ins, w.first(node.ins[0])
    w.result(node, w.call(node, "Quantized", w.operand(x, first), w.step(node.out)), first)


def _dequantize(w: ExactWriter, node: Node, op: ops.Dequantize) -> None:
    """Write an ordinary DequantizeLinear, unless the scale is not a float32 number."""
    x = node.ins[0].type
    (PLAIN_RULES[ops.Dequantize] if x.scale == np.float32(x.scale) else _requantize)(w, node, op)


def _softmax(w: ExactWriter, node: Node, op: ops.Softmax) -> None:
    x = node.ins[0]
    multiplier, shift, least = op.scaling(x.type)
    below = -np.arange(MAX_DIFF + 1)
    differences = INT32.product(np.maximum(below, least) << shift, multiplier)
    exps = np.where(below >= least, INT32.exp_negative(differences, DIFF_BITS), 0)
    parts = shift_right(exps, SUM_BITS)
    if isinstance(op, ops.LogSoftmax):
        tables = {"differences": np.where(below >= least, differences, LOG_LEAST), "parts": parts}
    else:
        divisors = np.int64(1) << (np.arange(SUM_BITS) + 31 - 8)
        tables = {"exponentials": exps, "parts": parts, "halves": divisors // 2, "divisors": divisors}
    ins = (w.operand(x, False), w.step(x), *w.numbers(node, tables, "int64"), w.step(node.out))
    w.result(node, w.call(node, type(op).__name__, *ins, axis=-1, beta=op.beta), False)


def _normalize(w: ExactWriter, node: Node, op: ops.Normalize) -> None:
    x, scale, shift = node.ins
    split, (multiplier, exponent) = op.split(x.type), op.multiplier(node)
    along = (-1, 1) if op.groups else (-1,)
    numbers = {
        "size": np.array(split.size), "least": np.array(epsilon_steps(x.type, split.size, op.epsilon)),
        "scales": w.data[scale].reshape(along), "shifts": w.data[shift].reshape(along),
        "multiplier": np.array(multiplier), "divisor": np.array(1 << (31 - exponent)),
    }  # fmt: skip
    rest = (w.step(x), *w.numbers(node, numbers, "int64"), w.step(node.out))
    if not op.groups:
        ins = (w.operand(x, False), *scale_and_shift(w, node), *rest)
        w.result(node, w.call(node, "LayerNormalization", *ins, axis=-1, epsilon=op.epsilon), False)
        return
    grouped = w.integers(node, "grouped", (1, op.groups, split.size))
    ins = (rows_first(w, node), *scale_and_shift(w, node), *rest, grouped)
    rows_last(w, node, w.call(node, "GroupNormalization", *ins, num_groups=op.groups, epsilon=op.epsilon))


RULES: Mapping[type[Op], Rule] = {
    ops.Activate: _requantize, ops.Dequantize: _dequantize, ops.Lookup: _lookup, ops.Normalize: _normalize,
    ops.Quantize: _quantize, ops.Requantize: _requantize, ops.Softmax: _softmax,
    ops.LogSoftmax: _softmax,
}  # fmt: skip
