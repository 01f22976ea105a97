"""Graph → ONNX in which integer nodes state our arithmetic: a runtime that keeps to ONNX computes every int8 as we do.

int8 numbers stand as uint8, 128 up, from where they enter to where they leave: ONNX Runtime multiplies those exactly
everywhere. A layer that reads one int8 value alone is a table of its 256 results. Layers in float32 are those of the
other form, summed in the runtime's order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from smidgen import numerics, ops
from smidgen.errors import ExportError
from smidgen.frontends.onnx.arithmetic import Steps
from smidgen.frontends.onnx.writer import (
    MOVED,
    Writer,
    conv_attributes,
    conv_order,
    moved,
    pads,
    serialized,
    window_attributes,
)
from smidgen.ir import Graph, Node, Op, Value
from smidgen.numerics import INT8_MAX, INT8_MIN
from smidgen.ops.conv import multipliers
from smidgen.ops.elementwise import ADD_SHIFT
from smidgen.ops.softmax import MAX_DIFF, SUM_BITS, exp_negative, high_mul, shift_right

EVERY = np.arange(INT8_MIN, INT8_MAX + 1).astype(np.int8)


def write_exact(graph: Graph) -> bytes:
    """The graph as the bytes of an `.onnx` file that computes its int8 numbers exactly."""
    values = (*graph.inputs, *(value for node in graph.nodes for value in node.outs))
    if not any(value.type.dtype == "int8" for value in values):
        raise ExportError(
            f"{graph.name} computes in float32 alone, which every runtime sums in an order of its own; "
            "quantize it first, or export it without exact"
        )
    return serialized(_Exact(graph))


class _Exact(Writer):
    """Every name stands for the numbers themselves: float32 as they are, int8 as uint8."""

    def enter(self, value: Value) -> None:
        name = value.name
        if value.type.dtype == "int8":
            steps = Steps(self, value.name)
            name = steps.emit("BitwiseXor", steps.cast(name, "uint8"), steps.number(MOVED, "uint8"))
        self.written(value, name, False)

    def apply(self, node: Node) -> None:
        rule = EXACT.get(type(node.op))
        if rule is not None and any(v.type.dtype == "int8" for v in (*node.ins, *node.outs)):
            rule(self, node, Steps(self, node.out.name))
        else:
            super().apply(node)

    def leave(self, value: Value) -> None:
        name = self.operand(value, False)
        if value.type.dtype == "int8":
            steps = Steps(self, value.name)
            name = steps.cast(steps.emit("BitwiseXor", name, steps.number(MOVED, "uint8")), "int8")
        self.emit("Identity", value.name, name)

    def written(self, value: Value, name: str, first: bool) -> None:
        self.names[value, first] = name

    def result(self, node: Node, name: str, first: bool, activation: str = "none") -> None:
        if node.out.type.dtype == "int8":  # moved about, as uint8
            self.written(node.out, name, first)
        else:
            super().result(node, name, first, activation)

    def kept(self, value: Value, first: bool) -> str:
        if value.type.dtype != "int8":
            return super().kept(value, first)
        return self.constant(f"{value.name}:{'first' if first else 'last'}", moved(self.lifted(value, first)))


def _finish(w: _Exact, node: Node, name: str, first: bool, activation: str = "none", zero: int | None = None) -> None:
    """int32 steps from the zero point become the output: limited before it is added, so that nothing overflows."""
    steps, y = Steps(w, node.out.name), node.out.type
    zero = y.zero if zero is None else zero
    limits = (steps.number(limit - zero, "int32") for limit in numerics.activation_range(activation, y))
    name = steps.emit("Clip", name, *limits)
    if zero + MOVED:
        name = steps.emit("Add", name, steps.number(zero + MOVED, "int32"))
    w.written(node.out, steps.cast(name, "uint8"), first)


def _zero(steps: Steps, value: Value, dtype: str = "uint8") -> str:
    """The number that stands for real zero."""
    return steps.number(value.type.zero + MOVED, dtype)


def _centred(steps: Steps, name: str, value: Value) -> str:
    """Distances from the zero point, as int32."""
    return steps.emit("Sub", steps.cast(name, "int32"), _zero(steps, value, "int32"))


def _sums(w: _Exact, node: Node, steps: Steps, code: str, first: bool, order: tuple[int, ...]) -> str:
    """What a layer with weights sums up, bias included, as int32, which wraps as ours does."""
    x, weights, b = node.ins
    for value in (weights, b):
        w.check_constant(node, value)
    held = steps.number(moved(w.data[weights].transpose(order)), "uint8")
    ins = (w.operand(x, first), held, _zero(steps, x), steps.number(MOVED, "uint8"))
    attributes = conv_attributes(node) if first else {}
    bias = w.data[b].reshape((-1, 1, 1) if first else (-1,))
    return steps.emit("Add", steps.emit(code, *ins, **attributes), steps.number(bias, "int32"))


def _conv(w: _Exact, node: Node, steps: Steps) -> None:
    assert isinstance(node.op, ops.Conv2D | ops.Depthwise)
    sums = _sums(w, node, steps, "ConvInteger", True, conv_order(node.op))
    multiplier, shift = (array.reshape(-1, 1, 1) for array in multipliers(node))
    _finish(w, node, steps.multiply(sums, multiplier, shift), True, node.op.activation)


def _dense(w: _Exact, node: Node, steps: Steps) -> None:
    assert isinstance(node.op, ops.Dense)
    sums = _sums(w, node, steps, "MatMulInteger", False, (1, 0))
    _finish(w, node, steps.scale_double(sums, node.op.scaling(node)), False, node.op.activation)


def _add(w: _Exact, node: Node, steps: Steps) -> None:
    assert isinstance(node.op, ops.Add)
    first = w.both_first(*node.ins)
    *each, last = node.op.multipliers(node)
    raised = []
    for value, (multiplier, shift) in zip(node.ins, each, strict=True):
        table = numerics.multiply((EVERY.astype(np.int64) - value.type.zero) << ADD_SHIFT, multiplier, shift)
        raised.append(steps.pick(table.astype(np.int32), steps.cast(w.operand(value, first), "int32")))
    _finish(w, node, steps.multiply(steps.emit("Add", *raised), *last), first, node.op.activation)


def _mul(w: _Exact, node: Node, steps: Steps) -> None:
    assert isinstance(node.op, ops.Mul)
    first = w.both_first(*node.ins)
    product = steps.emit("Mul", *(_centred(steps, w.operand(value, first), value) for value in node.ins))
    _finish(w, node, steps.multiply(product, *node.op.multiplier(node)), first, node.op.activation)


def _table(w: _Exact, node: Node, steps: Steps) -> None:
    """A layer that reads one int8 value alone, as its results for all of them."""
    (x,) = node.ins
    results = node.op.ref(node, EVERY)
    assert isinstance(results, np.ndarray)
    table = moved(results) if results.dtype == np.int8 else results
    first = w.first(x)
    w.written(node.out, steps.pick(table, steps.cast(w.operand(x, first), "int32")), first)


def _quantize(w: _Exact, node: Node, steps: Steps) -> None:
    (x,), first = node.ins, w.first(node.ins[0])
    ratio = steps.emit("Div", w.operand(x, first), steps.number(node.out.type.scale, "float32"))
    limited = steps.emit("Clip", ratio, steps.number(-1e6, "float32"), steps.number(1e6, "float32"))
    twice = steps.cast(steps.emit("Add", limited, limited), "int32")
    _finish(w, node, steps.over(twice, 2, "int32"), first)


def _max_pool(w: _Exact, node: Node, steps: Steps) -> None:
    assert isinstance(node.op, ops.MaxPool)
    name = steps.emit("MaxPool", w.operand(node.ins[0], True), **window_attributes(node.op.window))
    if node.op.activation != "none":
        limits = numerics.activation_range(node.op.activation, node.out.type)
        name = steps.emit("Clip", name, *(steps.number(limit + MOVED, "uint8") for limit in limits))
    w.written(node.out, name, True)


def _avg_pool(w: _Exact, node: Node, steps: Steps) -> None:
    """Sums as a convolution with ones, which pads by nothing, over the count of elements inside the map."""
    op, x = node.op, node.ins[0]
    assert isinstance(op, ops.AvgPool)
    channels = x.type.shape[3]
    ones = steps.number(np.ones((channels, 1, *op.size)), "uint8")
    attributes = {**window_attributes(op.window), "group": channels}
    total = steps.emit("ConvInteger", w.operand(x, True), ones, steps.number(MOVED, "uint8"), **attributes)
    inside = np.ones((*x.type.shape[:3], 1), np.int64)
    count = op.window.patches(inside, 0).sum(axis=(2, 3)).transpose(2, 0, 1)
    _finish(w, node, steps.over(total, count, "int32"), True, op.activation, zero=0)


def _mean(w: _Exact, node: Node, steps: Steps) -> None:
    assert isinstance(node.op, ops.Mean)
    x, keep = node.ins[0], node.op.keep_dims
    centred = _centred(steps, w.operand(x, True), x)
    total = steps.emit("ReduceSum", centred, steps.number([2, 3]), keepdims=int(keep))
    _finish(w, node, steps.multiply(total, *node.op.multiplier(node)), keep)


def _pad(w: _Exact, node: Node, steps: Steps) -> None:
    (x,), first = node.ins, w.first(node.ins[0])
    w.written(node.out, steps.emit("Pad", w.operand(x, first), pads(w, node, first), _zero(steps, x)), first)


def _softmax(w: _Exact, node: Node, steps: Steps) -> None:
    """Exponentials are a table, since an element lies 0 to 255 steps below the largest of its row."""
    op, x = node.op, node.ins[0]
    assert isinstance(op, ops.Softmax)
    multiplier, shift, least = op.scaling(x.type)
    below = -np.arange(MAX_DIFF + 1)
    exps = np.where(below >= least, exp_negative(high_mul(np.maximum(below, least) << shift, multiplier)), 0)
    name = w.operand(x, False)
    largest = steps.emit("ReduceMax", name, steps.number([-1]), keepdims=1)
    at = steps.emit("Sub", steps.cast(largest, "int32"), steps.cast(name, "int32"))
    parts = steps.pick(shift_right(exps, SUM_BITS), at)
    scale, above = steps.reciprocal(steps.emit("ReduceSum", parts, steps.number([-1]), keepdims=1))
    share = steps.high_mul(steps.pick(exps, at), scale)
    divisors = np.int64(1) << (np.arange(SUM_BITS) + 31 - 8)
    halves, wholes = steps.pick(divisors // 2, above), steps.pick(divisors, above)
    _finish(w, node, steps.cast(steps.emit("Div", steps.emit("Add", share, halves), wholes), "int32"), False)


EXACT: Mapping[type[Op], Callable[[_Exact, Node, Steps], None]] = {
    ops.Activate: _table, ops.Add: _add, ops.AvgPool: _avg_pool, ops.Conv2D: _conv, ops.Dense: _dense,
    ops.Depthwise: _conv, ops.Dequantize: _table, ops.Lookup: _table, ops.MaxPool: _max_pool, ops.Mean: _mean,
    ops.Mul: _mul, ops.Pad: _pad, ops.Quantize: _quantize, ops.Requantize: _table, ops.Softmax: _softmax,
}  # fmt: skip
