"""Graph → ONNX: every int8 value between QuantizeLinear and DequantizeLinear, so that any runtime can run it.

Inputs and outputs are those of the graph, channels last and int8 where they are; in between maps lie channels first,
as ONNX's layers want them, and are transposed where they enter and leave. Weights are the same numbers moved to uint8:
with int8 ones ONNX Runtime lets 16-bit sums saturate on x86 without VNNI. This is the plain form, whose layers runtimes
fuse and round their own way, so that values differ by a step here and there, and where sums wrap beyond 32 bits (ours
do, as TFLite's) by more; `exact` has the form in which they do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from smidgen import ops
from smidgen.errors import ExportError
from smidgen.frontends.onnx.classes import CLASSES
from smidgen.frontends.onnx.functions import DOMAIN, OPERATORS, OPSET, VERSION, functions_needed
from smidgen.frontends.onnx.moves import FIRST, LAST, MOVES
from smidgen.frontends.onnx.products import PRODUCTS
from smidgen.frontends.onnx.recurrences import RECURRENCES
from smidgen.ir import Array, Graph, Node, Op, QParams, Value, verify
from smidgen.numerics import activation_limits
from smidgen.ops.weighted import Windowed
from smidgen.ops.window import Window

IR_VERSION = 9  # of the opset's time
KINDS = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "int32": TensorProto.INT32}
UINT8_SHIFT = 128  # from int8 to uint8

NamedConstant = tuple[Array, QParams | None, str]  # a constant, the quantization of its integers, and its name


def write_plain(graph: Graph) -> bytes:
    """The graph as the bytes of an `.onnx` file of ONNX's own operators alone."""
    return serialize(OnnxWriter(graph))


def serialize(writer: OnnxWriter) -> bytes:
    """What a writer makes of its graph, as a file."""
    graph = writer.graph
    verify(graph)
    if graph.variables:
        raise ExportError(
            f"{graph.name} carries {len(graph.variables)} variables from run to run, which ONNX lacks; write .tflite"
        )
    if graph.updates:
        raise ExportError(
            f"{graph.name} trains: it updates {len(graph.updates)} values, ONNX only infers; export the learned model"
        )
    writer.write()
    body = helper.make_graph(
        writer.nodes,
        graph.name,
        [_declared(v) for v in graph.inputs],
        [_declared(v) for v in graph.outputs],
        writer.constants,
    )
    versions = {"": OPSET, **({DOMAIN: VERSION} if writer.called else {})}
    model = helper.make_model(
        body,
        opset_imports=[helper.make_opsetid(*pair) for pair in versions.items()],
        functions=functions_needed(writer.called),
        ir_version=IR_VERSION,
        producer_name="smidgen",
    )
    if graph.classes:
        helper.set_model_props(model, {CLASSES: json.dumps(graph.classes)})
    data: bytes = model.SerializeToString()
    return data


def _declared(value: Value) -> onnx.ValueInfoProto:
    if value.type.dtype not in KINDS:
        raise ExportError(f"%{value.name} is {value.type.dtype}; ONNX export takes {', '.join(KINDS)}")
    return helper.make_tensor_value_info(value.name, KINDS[value.type.dtype], value.type.shape)


class OnnxWriter:
    """Real numbers under each value's name with ':real', channels first with ':first'; no graph has such names."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.data = {**graph.constants, **graph.state}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.names: dict[tuple[Value, bool], str] = {}  # real numbers by value and whether channels come first
        self.steps: dict[Value, tuple[str, bool]] = {}  # int8 values as they were written
        self.held: set[str] = set()
        self.called: set[str] = set()  # functions

    def write(self) -> None:
        for value in self.graph.inputs:
            self.add_input(value)
        for node in self.graph.nodes:
            self.apply(node)
        for value in self.graph.outputs:
            if value not in self.graph.inputs:  # which leave under their own names
                self.add_output(value)

    def add_input(self, value: Value) -> None:
        self.register(value, value.name, False)

    def apply(self, node: Node) -> None:
        rule = RULES.get(type(node.op))
        if rule is None:
            known, what = ", ".join(sorted(op.__name__ for op in RULES)), type(node.op).__name__
            raise ExportError(f"{what} of %{node.outs[0].name} is not exported to ONNX; supported are {known}")
        rule(self, node)

    def add_output(self, value: Value) -> None:
        name, first = self.steps.get(value, (self.names.get((value, False)) or self.operand(value, False), False))
        if first:
            self.emit("Transpose", value.name, name, perm=LAST)
        else:
            self.emit("Identity", value.name, name)

    def emit(self, code: str, out: str, *ins: str, **attributes: object) -> str:
        self.emit_all(code, (out,), *ins, **attributes)
        return out

    def emit_all(self, code: str, outs: tuple[str, ...], *ins: str, **attributes: object) -> None:
        self.nodes.append(helper.make_node(code, list(ins), list(outs), **attributes))  # type: ignore[arg-type]

    def constant(self, name: str, data: Array) -> str:
        if name not in self.held:
            self.held.add(name)
            self.constants.append(numpy_helper.from_array(np.asarray(data, order="C"), name))
        return name

    def quantization(self, name: str, q: QParams, dtype: str = "int8") -> tuple[str, str]:
        """Names of a value's scales and zero points."""
        scale = np.array(q.scale, np.float32)
        zero = np.full(len(q.scale), q.zero, dtype)
        shape = () if q.axis is None else (-1,)
        return (
            self.constant(f"{name}:scale", scale.reshape(shape)), self.constant(f"{name}:zero", zero.reshape(shape)),
        )  # fmt: skip

    def register(self, value: Value, name: str, first: bool) -> None:
        """What stands for a value: int8 as it is or as real numbers, float32 as it is."""
        if value.type.q is None:
            self.names[value, first] = name
            return
        self.steps[value] = name, first
        real = self.emit("DequantizeLinear", f"{value.name}:real", name, *self.quantization(value.name, value.type.q))
        self.names[value, first] = real

    def result(self, node: Node, name: str, first: bool, activation: str = "none") -> None:
        """Real numbers become the node's output: limited, and quantized where it is int8."""
        out = node.out
        if activation != "none":
            name = self.limited(node, name, activation)
        if out.type.q is not None:
            name = self.emit("QuantizeLinear", f"{out.name}:steps", name, *self.quantization(out.name, out.type.q))
        self.register(out, name, first)

    def limited(self, node: Node, name: str, activation: str) -> str:
        """Real numbers between the limits of an activation."""
        out = f"{node.out.name}:active"
        if activation == "relu":
            return self.emit("Relu", out, name)
        return self.emit("Clip", out, name, *self.limits(*activation_limits(activation)))

    def limits(self, *numbers: float) -> tuple[str, ...]:
        return tuple(self.constant(f"limit:{n!r}", np.array(n, np.float32)) for n in numbers)

    def operand(self, value: Value, first: bool) -> str:
        """The name of a value's numbers in the order asked for."""
        if (value, first) in self.names:
            return self.names[value, first]
        if value in self.data:
            return self.constant_operand(value, first)
        perm, other = (FIRST, ":first") if first else (LAST, ":last")
        name = self.emit("Transpose", value.name + other, self.names[value, not first], perm=perm)
        self.names[value, first] = name
        return name

    def constant_operand(self, value: Value, first: bool) -> str:
        """The name of a constant operand."""
        return self.dequantized(
            self.constant_data(value, first), value.type.q, f"{value.name}:{'first' if first else 'last'}"
        )

    def constant_data(self, value: Value, first: bool) -> Array:
        """A constant, of four dimensions where channels come first."""
        data = self.data[value]
        return data.reshape((1,) * (4 - data.ndim) + data.shape).transpose(FIRST) if first else data

    def dequantized(self, data: Array, q: QParams | None, name: str) -> str:
        """The name of a constant's real numbers, as they are or from its integers."""
        if q is None:
            return self.constant(name, data)
        key = f"{name}:real"
        if key not in self.held:
            self.held.add(key)
            self.emit("DequantizeLinear", key, *self.integers(data, q, name), axis=0)
        return key

    def integers(self, data: Array, q: QParams, name: str) -> tuple[str, str, str]:
        """Names of a constant's integers, int8 moved to uint8, and of their scales and zero points."""
        if data.dtype == np.int8:
            data, q = as_uint8(data), replace(q, zero=q.zero + UINT8_SHIFT)
        return self.constant(name, data), *self.quantization(name, q, data.dtype.name)

    def first(self, value: Value) -> bool:
        """Whether a computed value lies channels first."""
        return (value, True) in self.names

    def both_first(self, a: Value, b: Value) -> bool:
        """Whether two operands that may repeat are read channels first."""
        return self.first(a) and (b in self.data or len(b.type.shape) == 4)

    def weights(self, node: Node, order: tuple[int, ...]) -> NamedConstant:
        w = node.ins[1]
        self.check_constant(node, w)
        q = None if w.type.q is None else QParams(w.type.q.scale, 0, None if w.type.q.axis is None else 0)
        return self.data[w].transpose(order), q, f"{w.name}:weights"

    def bias(self, node: Node) -> NamedConstant:
        """Integers at the scale of the sums they are added to."""
        x, w, b = node.ins
        self.check_constant(node, b)
        if b.type.dtype == "float32":
            return self.data[b], None, b.name
        assert w.type.q is not None
        scales = tuple(float(s) for s in np.float32(x.type.scale) * np.array(w.type.q.scale, np.float32))
        return self.data[b], QParams(scales, 0, None if len(scales) == 1 else 0), f"{node.out.name}:bias"

    def weighted(self, node: Node, first: bool, order: tuple[int, ...]) -> tuple[str, str, str]:
        """What a layer with weights reads, in real numbers."""
        held = self.weights(node, order), self.bias(node)
        weights, bias = (self.dequantized(*each) for each in held)
        return self.operand(node.ins[0], first), weights, bias

    def check_constant(self, node: Node, value: Value) -> None:
        if value not in self.data:
            what = f"{type(node.op).__name__} of %{node.out.name}"
            raise ExportError(f"{what}: its weights or bias %{value.name} are computed; ONNX export needs constants")


def result_name(node: Node) -> str:
    """What a layer computes, by a name that leaves the layer's own to what is behind its activation."""
    linear = getattr(node.op, "activation", "none") == "none"
    return f"{node.out.name}{'' if linear else '.linear'}:computed"


def as_uint8(data: Array) -> Array:
    """int8 numbers as uint8, 128 up."""
    return (data.astype(np.int16) + UINT8_SHIFT).astype(np.uint8)


def window_attributes(window: Window) -> dict[str, object]:
    top, bottom, left, right = window.pad
    return {"kernel_shape": window.size, "strides": window.stride, "pads": (top, left, bottom, right)}


def conv_attributes(node: Node) -> dict[str, object]:
    op, (x, weights, _) = node.op, (v.type for v in node.ins)
    assert isinstance(op, Windowed)
    windows = window_attributes(op.window(weights))
    return {**windows, "dilations": op.dilation, "group": op.separate_groups(x)}


def _conv(w: OnnxWriter, node: Node) -> None:
    assert isinstance(node.op, Windowed)
    ins = w.weighted(node, True, node.op.out_in_rows_columns)
    w.result(node, w.emit("Conv", result_name(node), *ins, **conv_attributes(node)), True, node.op.activation)


def _dense(w: OnnxWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Dense)
    ins = w.weighted(node, False, (0, 1))
    w.result(node, w.emit("Gemm", result_name(node), *ins, transB=1), False, node.op.activation)


def _binary(w: OnnxWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Add | ops.Mul)
    a, b = node.ins
    first = w.both_first(a, b)
    name = w.emit(type(node.op).__name__, result_name(node), w.operand(a, first), w.operand(b, first))
    w.result(node, name, first, node.op.activation)


def _maximum(w: OnnxWriter, node: Node) -> None:
    a, b = node.ins
    first = w.both_first(a, b)
    w.result(node, w.emit("Max", result_name(node), w.operand(a, first), w.operand(b, first)), first)


def _prelu(w: OnnxWriter, node: Node) -> None:
    x, slope = node.ins
    first = w.both_first(x, slope)
    w.result(node, w.emit("PRelu", result_name(node), w.operand(x, first), w.operand(slope, first)), first)


def _activate(w: OnnxWriter, node: Node) -> None:
    (x,) = node.ins
    activation = node.op.activation if isinstance(node.op, ops.Activate) else "none"
    w.result(node, w.operand(x, w.first(x)), w.first(x), activation)


def _lookup(w: OnnxWriter, node: Node) -> None:
    op, (x,) = node.op, node.ins
    assert isinstance(op, ops.Lookup)
    if op.slope or op.function not in OPERATORS:
        raise ExportError(f"Lookup of %{node.out.name}: ONNX has no {op.function}{' slope' if op.slope else ''}")
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


def _pool(w: OnnxWriter, node: Node) -> None:
    op = node.op
    assert isinstance(op, ops.MaxPool | ops.AvgPool)
    code = "MaxPool" if isinstance(op, ops.MaxPool) else "AveragePool"
    name = w.emit(code, result_name(node), w.operand(node.ins[0], True), **window_attributes(op.window))
    w.result(node, name, True, op.activation)


def _mean(w: OnnxWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Mean)
    name = w.emit("GlobalAveragePool", f"{node.out.name}:mean", w.operand(node.ins[0], True))
    if not node.op.keep_dims:
        name = w.emit("Flatten", f"{node.out.name}:flat", name)
    w.result(node, name, node.op.keep_dims)


def _softmax(w: OnnxWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Softmax)
    name = w.operand(node.ins[0], False)
    if node.op.beta != 1.0:
        beta = w.constant(f"{node.out.name}:beta", np.array(node.op.beta, np.float32))
        name = w.emit("Mul", f"{node.out.name}:scaled", name, beta)
    w.result(node, w.emit("Softmax", f"{node.out.name}:softmax", name, axis=-1), False)


def _batch_norm(w: OnnxWriter, node: Node) -> None:
    x, scale, shift = node.ins
    first = w.first(x)
    product = w.emit("Mul", f"{node.out.name}:scaled", w.operand(x, first), w.operand(scale, first))
    w.result(node, w.emit("Add", f"{node.out.name}:shifted", product, w.operand(shift, first)), first)


RULES: Mapping[type[Op], Callable[[OnnxWriter, Node], None]] = {
    **MOVES, **PRODUCTS, **RECURRENCES,
    ops.Activate: _activate, ops.Add: _binary, ops.AvgPool: _pool, ops.BatchNorm: _batch_norm, ops.Conv2D: _conv,
    ops.Dense: _dense, ops.Depthwise: _conv, ops.Dequantize: _activate, ops.Lookup: _lookup, ops.Maximum: _maximum,
    ops.MaxPool: _pool, ops.Mean: _mean, ops.Mul: _binary, ops.PRelu: _prelu, ops.Quantize: _activate,
    ops.Requantize: _activate, ops.Softmax: _softmax,
}  # fmt: skip
