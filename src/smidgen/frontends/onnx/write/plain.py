"""Ops as ONNX's own operators on real numbers: the form of a file that leaves rounding to the runtime."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from smidgen import ops
from smidgen.errors import ExportError
from smidgen.frontends.blocks import where
from smidgen.frontends.onnx.write import FIRST, LAST, OnnxWriter, Rule, serialize
from smidgen.frontends.onnx.write.functions import OPERATORS
from smidgen.ir import Array, Graph, Node, Op, QParams, Value
from smidgen.ops.normalize import SHIFT_BITS
from smidgen.ops.project import as_dense
from smidgen.ops.recurrence import Recurrent, gate_scales
from smidgen.ops.weighted import Windowed
from smidgen.ops.window import Window

PLACES = LAST  # where each dimension of a channels-last map is in a channels-first one
GATES: Mapping[type[Op], tuple[int, ...]] = {ops.Lstm: (0, 3, 1, 2), ops.Gru: (1, 0, 2)}  # ours, in ONNX's order


def write_plain(graph: Graph) -> bytes:
    """Return the graph as the bytes of an `.onnx` file that has only ONNX's own operators."""
    return serialize(OnnxWriter(as_dense(graph), RULES))


def window_attributes(window: Window) -> dict[str, object]:
    top, bottom, left, right = window.pad
    return {"kernel_shape": window.size, "strides": window.stride, "pads": (top, left, bottom, right)}


def _conv(w: OnnxWriter, node: Node, op: Windowed) -> None:
    x, weights, _ = (v.type for v in node.ins)
    windows = window_attributes(op.window(weights))
    attributes = {**windows, "dilations": op.dilation, "group": op.separate_groups(x)}
    name = w.layer(node, "Conv", "", *w.weighted(node, True, op.out_in_rows_columns), **attributes)
    w.result(node, name, True, op.activation)


def _dense(w: OnnxWriter, node: Node, op: ops.Dense) -> None:
    w.result(node, w.layer(node, "Gemm", "", *w.weighted(node, False, (0, 1)), transB=1), False, op.activation)


def _binary(w: OnnxWriter, node: Node, op: ops.Add | ops.Mul | ops.Maximum | ops.PRelu) -> None:
    first, ins = w.pair(node)
    code = "Max" if isinstance(op, ops.Maximum) else type(op).__name__
    w.result(node, w.layer(node, code, "", *ins), first, getattr(op, "activation", "none"))


def _activate(w: OnnxWriter, node: Node, op: Op) -> None:
    (x,) = node.ins
    activation = op.activation if isinstance(op, ops.Activate) else "none"
    w.result(node, w.operand(x, w.first(x)), w.first(x), activation)


def _lookup(w: OnnxWriter, node: Node, op: ops.Lookup) -> None:
    (x,) = node.ins
    if op.slope or op.function not in OPERATORS:
        raise ExportError(f"{where(node)}: ONNX has no {op.function}{' slope' if op.slope else ''}")
    name, first = w.operand(x, w.first(x)), w.first(x)
    code, attributes = OPERATORS[op.function]
    out = f"{node.out.name}:function"
    if op.function == "silu":
        w.emit("Mul", out, name, w.emit("Sigmoid", f"{out}:gate", name))
    elif op.function in ("clip", "power"):
        w.emit(code, out, name, *w.limits(*(op.alpha, op.beta)[: 2 if code == "Clip" else 1]))
    elif op.function == "gelu_tanh":
        w.emit("Gelu", out, name, approximate="tanh")
    else:
        w.emit(code, out, name, **dict(zip(attributes, (op.alpha, op.beta), strict=False)))
    w.result(node, out, first)


def _pool(w: OnnxWriter, node: Node, op: ops.MaxPool | ops.AvgPool) -> None:
    code = "MaxPool" if isinstance(op, ops.MaxPool) else "AveragePool"
    name = w.layer(node, code, "", w.operand(node.ins[0], True), **window_attributes(op.window))
    w.result(node, name, True, op.activation)


def _mean(w: OnnxWriter, node: Node, op: ops.Mean) -> None:
    name = w.layer(node, "GlobalAveragePool", "mean", w.operand(node.ins[0], True))
    if not op.keep_dims:
        name = w.emit("Flatten", f"{node.out.name}:flat", name)
    w.result(node, name, op.keep_dims)


def _softmax(w: OnnxWriter, node: Node, op: ops.Softmax) -> None:
    name = w.operand(node.ins[0], False)
    if op.beta != 1.0:
        beta = w.constant(f"{node.out.name}:beta", np.array(op.beta, np.float32))
        name = w.emit("Mul", f"{node.out.name}:scaled", name, beta)
    w.result(node, w.layer(node, type(op).__name__, "softmax", name, axis=-1), False)


def _batch_norm(w: OnnxWriter, node: Node, op: ops.BatchNorm) -> None:
    x, scale, shift = node.ins
    first = w.first(x)
    product = w.emit("Mul", f"{node.out.name}:scaled", w.operand(x, first), w.operand(scale, first))
    w.result(node, w.emit("Add", f"{node.out.name}:shifted", product, w.operand(shift, first)), first)


def _pad(w: OnnxWriter, node: Node, op: ops.Pad) -> None:
    first, numbers = w.first(node.ins[0]), np.array([op.before, op.after], np.int64)
    pads = w.integers(node, "numbers", numbers[:, list(FIRST)] if first else numbers)
    w.result(node, w.layer(node, "Pad", "padded", w.operand(node.ins[0], first), pads), first)


def _crop(w: OnnxWriter, node: Node, op: ops.Crop) -> None:
    (x,), first = node.ins, w.first(node.ins[0])
    order = FIRST if first else tuple(range(len(x.type.shape)))
    spans = ("start", op.start), ("stop", op.stop)
    x_name, ends = w.operand(x, first), (w.integers(node, what, [span[i] for i in order]) for what, span in spans)
    w.result(node, w.layer(node, "Slice", "part", x_name, *ends), first)


def _pick(w: OnnxWriter, node: Node, op: ops.Pick) -> None:
    """Write a resize to the nearest where it is one, else gather rows and columns."""
    (x,), out = node.ins, node.out.name
    first, (sizes, wanted) = w.first(x), (v.type.shape[1:3] for v in (x, node.out))
    every = tuple(tuple(p) or tuple(range(n)) for p, n in zip((op.rows, op.columns), sizes, strict=True))
    whole = ((n, m) for n, m in zip(sizes, wanted, strict=True) if m % n == 0)
    if first and every == tuple(tuple(i // (m // n) for i in range(m)) for n, m in whole):
        scales = w.constant(f"{out}:scales", np.array([1, 1, *np.divide(wanted, sizes)], np.float32))
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        w.result(node, w.emit("Resize", f"{out}:resized", w.operand(x, first), "", scales, **how), first)
        return
    name = w.operand(x, first)
    for axis, places, what in ((1, op.rows, "rows"), (2, op.columns, "columns")):
        if places:
            along = w.integers(node, what, places)
            name = w.emit("Gather", f"{out}:picked_{what}", name, along, axis=PLACES[axis] if first else axis)
    w.result(node, name, first)


def _bilinear(w: OnnxWriter, node: Node, op: ops.ResizeBilinear) -> None:
    (x,) = node.ins
    kind = "align_corners" if op.align_corners else "half_pixel" if op.half_pixel else "asymmetric"
    sizes = w.integers(node, "sizes", [1, x.type.shape[3], *op.size])
    how = {"mode": "linear", "coordinate_transformation_mode": kind}
    w.result(node, w.layer(node, "Resize", "resized", w.operand(x, True), "", "", sizes, **how), True)


def _in_order(code: str, name: str, attributes: Callable[[Any], dict[str, object]], integers: str = "") -> Rule:
    """Return the rule of an op that is one operator on channels-last numbers, with an attribute of it as an input."""

    def rule(w: OnnxWriter, node: Node, op: Op) -> None:
        more = [w.integers(node, "numbers", getattr(op, integers))] if integers else []
        w.result(node, w.layer(node, code, name, w.operand(node.ins[0], False), *more, **attributes(op)), False)

    return rule


def _concat(w: OnnxWriter, node: Node, op: ops.Concat) -> None:
    first = len(node.out.type.shape) == 4 and any(w.first(v) for v in node.ins)
    axis = PLACES[op.axis] if first else op.axis
    ins = (w.operand(v, first) for v in node.ins)
    w.result(node, w.layer(node, "Concat", "joined", *ins, axis=axis), first)


def _factor(w: OnnxWriter, node: Node, value: Value, transposed: bool) -> str:
    """Return the name of a product's factor; constants get three dimensions or more, unlike weights."""
    rank = len(value.type.shape)
    turned = f"{node.out.name}:{value.name}:turned"
    if value in w.data:
        data = np.swapaxes(w.data[value], -1, -2) if transposed else w.data[value]
        name = turned if transposed else f"{node.out.name}:{value.name}:factor"
        return w.dequantized(data.reshape((1,) * max(0, 3 - rank) + data.shape), value.type.q, name)
    name = w.operand(value, False)
    if not transposed:
        return name
    if turned not in w.held:
        w.held.add(turned)
        w.emit("Transpose", turned, name, perm=(*range(rank - 2), rank - 1, rank - 2))
    return turned


def _matmul(w: OnnxWriter, node: Node, op: ops.MatMul) -> None:
    """Write a product, and reshape it where a constant factor gave it one dimension too many."""
    a, b = node.ins
    factors = _factor(w, node, a, op.transpose_a), _factor(w, node, b, op.transpose_b)
    name = w.layer(node, "MatMul", "product", *factors)
    if len(node.out.type.shape) < 3 and any(v in w.data for v in node.ins):
        shape = w.integers(node, "shape", node.out.type.shape)
        name = w.emit("Reshape", f"{node.out.name}:reshaped", name, shape)
    w.result(node, name, False)


def scale_and_shift(w: OnnxWriter, node: Node) -> tuple[str, str]:
    """Return the names of a normalization's scales and shifts in real numbers, held as floats or as integers."""
    _, scale, shift = node.ins
    w.check_constant(node, scale)
    w.check_constant(node, shift)
    if scale.type.q is None:
        return w.constant(scale.name, w.data[scale]), w.constant(shift.name, w.data[shift])
    fine = QParams.per_tensor(node.out.type.scale / (1 << SHIFT_BITS))
    held = ((scale, w.data[scale].astype(np.int32), scale.type.q), (shift, w.data[shift], fine))
    first, second = (w.dequantized(data, q, f"{node.out.name}:{v.name}:held") for v, data, q in held)
    return first, second


def rows_first(w: OnnxWriter, node: Node) -> str:
    """Return the rows of a node's input as a map of one dimension, channels first."""
    x, out = node.ins[0], node.out.name
    shape = (1, x.type.size // x.type.shape[-1], x.type.shape[-1])
    flat = w.emit("Reshape", f"{out}:rows", w.operand(x, False), w.integers(node, "rows_of", shape))
    return w.emit("Transpose", f"{out}:rows_first", flat, perm=(0, 2, 1))


def rows_last(w: OnnxWriter, node: Node, name: str) -> None:
    """Make a map of one dimension the node's output."""
    last, out = w.emit("Transpose", f"{node.out.name}:rows_last", name, perm=(0, 2, 1)), node.out
    shape = w.integers(node, "shape", out.type.shape)
    w.result(node, w.emit("Reshape", f"{out.name}:reshaped", last, shape), False)


def _normalize(w: OnnxWriter, node: Node, op: ops.Normalize) -> None:
    x, constants = node.ins[0], scale_and_shift(w, node)
    if not op.groups:
        name = w.operand(x, False)
        y = w.layer(node, "LayerNormalization", "normalized", name, *constants, axis=-1, epsilon=op.epsilon)
        w.result(node, y, False)
    elif op.groups == x.type.shape[-1]:
        rows = rows_first(w, node)
        y = w.layer(node, "InstanceNormalization", "normalized", rows, *constants, epsilon=op.epsilon)
        rows_last(w, node, y)
    else:
        raise ExportError(
            f"{where(node)}: ONNX has groups of channels with a scale each from opset 21 on; export it with functions, "
            "not plain"
        )


def _real_weights(w: OnnxWriter, node: Node) -> tuple[Array, Array, Array]:
    """Return a recurrent layer's weights and bias in real numbers."""
    for value in node.ins[1:]:
        w.check_constant(node, value)
    weights, recurrent, bias = (w.data[value].astype(np.float64) for value in node.ins[1:])
    (x, w_type, u_type, _), y = (v.type for v in node.ins), node.out.type
    if x.q is None:
        return weights, recurrent, bias
    given, kept = (np.array(gate_scales(t)) for t in (w_type, u_type))
    steps = np.append(x.scale * given, y.scale * kept[-1:])[:, None]
    return weights * given[:, None, None], recurrent * kept[:, None, None], bias * steps[: len(bias)]


def _recurrent(w: OnnxWriter, node: Node, op: Recurrent) -> None:
    """Write a recurrent layer in real numbers, in both forms: no runtime rounds its gates as ours do."""
    out, cells = node.out.name, node.out.type.shape[-1]
    if isinstance(op, ops.Lstm) and op.clip:
        raise ExportError(f"{where(node)} limits its cells to {op.clip}, which ONNX's does not; export it to .tflite")
    order, (weights, recurrent, bias) = list(GATES[type(op)]), _real_weights(w, node)
    beside = np.zeros((op.gates, cells))
    beside[-1] = bias[-1] if len(bias) > op.gates else 0.0
    parts = {"w": weights[order], "u": recurrent[order], "b": np.concatenate([bias[: op.gates][order], beside[order]])}
    shapes = {"w": (1, op.gates * cells, -1), "u": (1, op.gates * cells, -1), "b": (1, -1)}
    held = [w.constant(f"{out}:{k}", part.reshape(shapes[k]).astype(np.float32)) for k, part in parts.items()]
    _, steps, inputs = node.ins[0].type.shape
    shape, flat = w.integers(node, "sequence", (steps, 1, inputs)), w.integers(node, "rows", node.out.type.shape)
    x = w.emit("Reshape", f"{out}:x", w.operand(node.ins[0], False), shape)
    more = {"linear_before_reset": int(op.reset_after)} if isinstance(op, ops.Gru) else {}
    outs = (f"{out}:states",) if op.whole else ("", f"{out}:states")
    w.emit_all(type(op).__name__.upper(), outs, x, *held, hidden_size=cells, **more)
    w.result(node, w.emit("Reshape", f"{out}:recurrent", f"{out}:states", flat), False)


RULES: Mapping[type[Op], Rule] = {
    ops.Activate: _activate, ops.Add: _binary, ops.AvgPool: _pool, ops.BatchNorm: _batch_norm, ops.Concat: _concat,
    ops.Conv2D: _conv, ops.Crop: _crop, ops.Dense: _dense, ops.Depthwise: _conv, ops.Dequantize: _activate,
    ops.Gru: _recurrent, ops.LogSoftmax: _softmax, ops.Lookup: _lookup, ops.Lstm: _recurrent, ops.MatMul: _matmul,
    ops.Maximum: _binary, ops.MaxPool: _pool, ops.Mean: _mean, ops.Mul: _binary, ops.Normalize: _normalize,
    ops.Pad: _pad, ops.Pick: _pick, ops.PRelu: _binary, ops.Quantize: _activate, ops.Requantize: _activate,
    ops.Reshape: _in_order("Reshape", "shaped", lambda op: {}, "shape"), ops.ResizeBilinear: _bilinear,
    ops.Softmax: _softmax, ops.Transpose: _in_order("Transpose", "moved", lambda op: {"perm": op.perm}),
    ops.UnitNorm: _in_order("LpNormalization", "unit", lambda op: {"axis": -1, "p": 2}),
}  # fmt: skip
