"""Graph → QDQ ONNX that rounds as we do: layers are functions that make a runtime compute the same int8 numbers.

What only moves elements or compares them is as in the plain form, and so are layers in float32, which a runtime sums in
its own order, and recurrent layers, whose gates it computes in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import helper

from smidgen import numerics, ops
from smidgen.errors import ExportError
from smidgen.frontends.onnx.functions import DOMAIN, EXACT, LONG, OPERATORS, RECTIFIED, TABLES
from smidgen.frontends.onnx.moves import bilinear_inputs
from smidgen.frontends.onnx.products import exact_matmul, exact_normalize, exact_unit_norm
from smidgen.frontends.onnx.requantization import Rounding, rounding, rounding_of_sums
from smidgen.frontends.onnx.writer import (
    UINT8_SHIFT,
    OnnxWriter,
    conv_attributes,
    result_name,
    serialize,
    window_attributes,
)
from smidgen.ir import Array, Graph, Node, Op, Value
from smidgen.numerics import INT8_MAX, INT8_MIN, INT32_MAX
from smidgen.ops.elementwise import ADD_SHIFT
from smidgen.ops.resize import ONE
from smidgen.ops.softmax import MAX_DIFF, SUM_BITS, exp_negative, high_mul, shift_right
from smidgen.ops.weighted import Windowed, multipliers

EVERY = np.arange(INT8_MIN, INT8_MAX + 1).astype(np.int8)
LARGEST = INT8_MAX - INT8_MIN  # number of steps from a zero point


def write_onnx(graph: Graph) -> bytes:
    """The graph as the bytes of an `.onnx` file."""
    return serialize(ExactWriter(graph))


class ExactWriter(OnnxWriter):
    """Functions where the plain form leaves rounding to the runtime."""

    def apply(self, node: Node) -> None:
        rule = RULES.get(type(node.op))
        if rule is not None and any(v.type.dtype == "int8" for v in (*node.ins, *node.outs)):
            rule(self, node)
        else:
            super().apply(node)

    def call(self, node: Node, code: str, *ins: str, **attributes: object) -> str:
        """What a function makes of these inputs, in real numbers."""
        self.called.add(code)
        out = result_name(node)
        self.nodes.append(helper.make_node(code, list(ins), [out], domain=DOMAIN, **attributes))  # type: ignore[arg-type]
        return out

    def number(self, node: Node, what: str, data: Array | float, dtype: str) -> str:
        return self.constant(f"{node.out.name}:{what}", np.asarray(data).astype(dtype))

    def step(self, value: Value) -> str:
        """The name of a value's scale."""
        return self.constant(f"{value.name}:step", np.array(value.type.scale, np.float32))

    def numbers(self, node: Node, parts: Mapping[str, Array], dtype: str = "float64") -> tuple[str, ...]:
        return tuple(self.number(node, what, data, dtype) for what, data in parts.items())

    def scaling(self, node: Node, how: Rounding) -> tuple[str, ...]:
        """How a layer's sums become its output, whose step comes last."""
        return *self.numbers(node, how.parts()), self.step(node.out)

    def of_sums(self, node: Node, largest: int, multiplier: int, shift: int) -> Rounding:
        """How sums of this magnitude are scaled."""
        if largest << max(shift, 0) > INT32_MAX:
            raise ExportError(
                f"{_where(node)}: its sums can wrap beyond 32 bits; calibrate it again, or export it plain"
            )
        return rounding_of_sums(multiplier, shift, _where(node))

    def limited(self, node: Node, name: str, activation: str) -> str:
        """As they are, unless QuantizeLinear would round a limit that lies between two steps the other way."""
        y = node.out.type
        if y.q is not None:
            limits = np.array(numerics.activation_range(activation, y)) - y.zero
            real = np.array(numerics.activation_limits(activation), np.float32) / np.float32(y.scale)
            if not np.array_equal(np.clip(np.rint(real) + y.zero, INT8_MIN, INT8_MAX), limits + y.zero):
                steps = limits.astype(np.float32) * np.float32(y.scale)
                return self.emit("Clip", f"{node.out.name}:active", name, *self.limits(*map(float, steps)))
        return super().limited(node, name, activation)


def _where(node: Node) -> str:
    return f"{type(node.op).__name__} of %{node.out.name}"


def _largest_sums(w: ExactWriter, node: Node, order: tuple[int, ...]) -> Array:
    """The largest that each output's sum, bias included, can be in magnitude."""
    zero, (weights, _, _), (bias, _, _) = node.ins[0].type.zero, w.weights(node, order), w.bias(node)
    size = np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(1)
    total: Array = size * max(zero - INT8_MIN, INT8_MAX - zero) + np.abs(bias.astype(np.int64))
    return total


def _weighted(w: ExactWriter, node: Node, first: bool, order: tuple[int, ...]) -> tuple[str, ...]:
    """What a layer with weights reads, up to what says how its sums are scaled."""
    (weights, wq, w_name), (bias, bq, b_name) = w.weights(node, order), w.bias(node)
    assert wq is not None
    assert bq is not None
    (w_steps, *w_more), (b_steps, *b_more) = w.integers(weights, wq, w_name), w.integers(bias, bq, b_name)
    return w.operand(node.ins[0], first), w_steps, b_steps, *w_more, *b_more, w.step(node.ins[0])


def _conv(w: ExactWriter, node: Node) -> None:
    assert isinstance(node.op, Windowed)
    order = node.op.out_in_rows_columns
    multiplier, shift = (array.astype(np.int64).reshape(-1, 1, 1) for array in multipliers(node))
    reach, lift = _largest_sums(w, node, order), np.int64(1) << np.maximum(shift, 0)
    code, ins = "Conv", _weighted(w, node, True, order)
    if (reach > EXACT).any() or (reach * lift.ravel() > INT32_MAX).any():
        code, ins = LONG + code, (*ins, _uint8_zero(w, node), w.number(node, "lift", lift, "int64"))
        shift = np.minimum(shift, 0)
    how = rounding_of_sums(multiplier, shift, _where(node))
    if code == "Conv" and numerics.activation_range(node.op.activation, node.out.type)[0] >= node.out.type.zero:
        parts = {"factor": how.factor, "up": how.half + how.tie}
        code, scaling = RECTIFIED + code, (*w.numbers(node, parts), w.step(node.out))
    else:
        scaling = w.scaling(node, how)
    name = w.call(node, code, *ins, *scaling, **conv_attributes(node))
    w.result(node, name, True, node.op.activation)


def _dense(w: ExactWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Dense)
    code, ins = "Gemm", _weighted(w, node, False, (0, 1))
    if (_largest_sums(w, node, (0, 1)) > EXACT).any():
        code, ins = LONG + code, (*ins, _uint8_zero(w, node))
    factor = w.number(node, "factor", node.op.scaling(node), "float64")
    w.result(node, w.call(node, code, *ins, factor, w.step(node.out), transB=1), False, node.op.activation)


def _uint8_zero(w: ExactWriter, node: Node) -> str:
    return w.number(node, "x_zero", node.ins[0].type.zero + UINT8_SHIFT, "uint8")


def _add(w: ExactWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Add)
    first = w.both_first(*node.ins)
    left, right, last = node.op.multipliers(node)
    ins = (*(w.operand(value, first) for value in node.ins), *map(w.step, node.ins))
    sides = rounding(*left, ADD_SHIFT).parts("left:") | rounding(*right, ADD_SHIFT).parts("right:")
    how = w.of_sums(node, LARGEST << ADD_SHIFT, *last)  # each side is at most half of that
    name = w.call(node, "Add", *ins, *w.numbers(node, sides), *w.scaling(node, how))
    w.result(node, name, first, node.op.activation)


def _mul(w: ExactWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Mul)
    first = w.both_first(*node.ins)
    ins = (*(w.operand(value, first) for value in node.ins), *map(w.step, node.ins))
    how = w.of_sums(node, LARGEST**2, *node.op.multiplier(node))
    w.result(node, w.call(node, "Mul", *ins, *w.scaling(node, how)), first, node.op.activation)


def _prelu(w: ExactWriter, node: Node) -> None:
    assert isinstance(node.op, ops.PRelu)
    first = w.both_first(*node.ins)
    above, below = node.op.multipliers(node)
    ins = (*(w.operand(value, first) for value in node.ins), *map(w.step, node.ins))
    up, how = w.of_sums(node, LARGEST, *above), w.of_sums(node, LARGEST**2, *below)
    w.result(node, w.call(node, "PRelu", *ins, *w.numbers(node, up.parts("up:")), *w.scaling(node, how)), first)


def _mean(w: ExactWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Mean)
    (x,) = node.ins
    how = w.of_sums(node, LARGEST * x.type.shape[1] * x.type.shape[2], *node.op.multiplier(node))
    name = w.call(node, "GlobalAveragePool", w.operand(x, True), w.step(x), *w.scaling(node, how))
    if not node.op.keep_dims:
        name = w.emit("Flatten", f"{node.out.name}:flat", name)
    w.result(node, name, node.op.keep_dims)


def _avg_pool(w: ExactWriter, node: Node) -> None:
    op, (x,) = node.op, node.ins
    assert isinstance(op, ops.AvgPool)
    inside = np.ones((*x.type.shape[:3], 1), np.int64)
    count = op.window.patches(inside, 0).sum(axis=(2, 3)).transpose(2, 0, 1)
    near = np.full((), 2.0**-20)  # less than half of a share, more than what double gets wrong of one
    numbers = (
        w.number(node, "size", op.size[0] * op.size[1], "float32"),
        w.number(node, "zeros", count * x.type.zero, "float32"), w.number(node, "x_zero", x.type.zero, "float64"),
    )  # fmt: skip
    ins = (w.operand(x, True), w.step(x), *numbers, *w.scaling(node, Rounding(1 / count, near, np.zeros(()))))
    w.result(node, w.call(node, "AveragePool", *ins, **window_attributes(op.window)), True, op.activation)


def _bilinear(w: ExactWriter, node: Node) -> None:
    op, (x,) = node.op, node.ins
    assert isinstance(op, ops.ResizeBilinear)
    ins, how = bilinear_inputs(w, node)
    rows, columns = (spread.integers().matrix(spread.size) / ONE for spread in op.spreads(x.type))
    zero = w.number(node, "x_zero", x.type.zero, "float64")
    shares = w.numbers(node, {"rows": rows, "columns": columns.T})
    w.result(node, w.call(node, "Resize", *ins, w.step(x), zero, *shares, w.step(node.out), **how), True)


def _table(w: ExactWriter, node: Node, code: str, *more: str, **attributes: object) -> str:
    """A layer that reads one int8 value alone, as the real numbers of its 256 results, those from zero on first."""
    (x,), y = node.ins, node.out.type
    results = node.op.ref(node, EVERY)
    assert isinstance(results, np.ndarray)
    real = results if y.q is None else (results - np.float32(y.zero)) * np.float32(y.scale)
    table = w.number(node, "table", np.roll(real, INT8_MIN - x.type.zero), "float32")
    return w.call(node, code, w.operand(x, w.first(x)), *more, w.step(x), table, **attributes)


def _activate(w: ExactWriter, node: Node) -> None:
    activation = node.op.activation if isinstance(node.op, ops.Activate) else "none"
    w.result(node, _table(w, node, "Requantized"), w.first(node.ins[0]), activation)


def _lookup(w: ExactWriter, node: Node) -> None:
    op = node.op
    assert isinstance(op, ops.Lookup)
    code, names = OPERATORS[op.function]
    attributes: dict[str, object] = dict(zip(names, (op.alpha, op.beta), strict=False))
    more: tuple[str, ...] = ()
    if op.slope:
        code, attributes = "Table", {}
    elif op.function == "silu":
        code = "Swish"
    elif op.function == "gelu_tanh":
        attributes = {"approximate": "tanh"}
    elif op.function in ("clip", "power"):
        more = w.limits(op.alpha, op.beta) if op.function == "clip" else w.limits(op.alpha)
    if "tflite" in TABLES.get(code, ("", ""))[0]:
        attributes["tflite"] = int(op.tflite)
    w.result(node, _table(w, node, code, *more, **attributes), w.first(node.ins[0]))


def _quantize(w: ExactWriter, node: Node) -> None:
    (x,), first = node.ins, w.first(node.ins[0])
    w.result(node, w.call(node, "Quantized", w.operand(x, first), w.step(node.out)), first)


def _dequantize(w: ExactWriter, node: Node) -> None:
    """As it is, unless the scale is not a float32 number."""
    x = node.ins[0].type
    if x.scale == np.float32(x.scale):
        OnnxWriter.apply(w, node)
    else:
        w.result(node, _table(w, node, "Requantized"), w.first(node.ins[0]))


def _softmax(w: ExactWriter, node: Node) -> None:
    op, x = node.op, node.ins[0]
    assert isinstance(op, ops.Softmax)
    multiplier, shift, least = op.scaling(x.type)
    below = -np.arange(MAX_DIFF + 1)
    exps = np.where(below >= least, exp_negative(high_mul(np.maximum(below, least) << shift, multiplier)), 0)
    divisors = np.int64(1) << (np.arange(SUM_BITS) + 31 - 8)
    tables = {"exponentials": exps, "parts": shift_right(exps, SUM_BITS), "halves": divisors // 2, "divisors": divisors}
    ins = (w.operand(x, False), w.step(x), *w.numbers(node, tables, "int64"), w.step(node.out))
    w.result(node, w.call(node, "Softmax", *ins, axis=-1, beta=op.beta), False)


RULES: Mapping[type[Op], Callable[[ExactWriter, Node], None]] = {
    ops.Activate: _activate, ops.Add: _add, ops.AvgPool: _avg_pool, ops.Conv2D: _conv, ops.Dense: _dense,
    ops.Depthwise: _conv, ops.Dequantize: _dequantize, ops.Lookup: _lookup, ops.MatMul: exact_matmul,
    ops.Mean: _mean, ops.Mul: _mul, ops.Normalize: exact_normalize,
    ops.PRelu: _prelu, ops.Quantize: _quantize, ops.Requantize: _activate, ops.ResizeBilinear: _bilinear,
    ops.Softmax: _softmax, ops.UnitNorm: exact_unit_norm,
}  # fmt: skip
