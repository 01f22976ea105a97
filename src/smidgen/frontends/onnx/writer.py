"""Graph → ONNX: every int8 value between QuantizeLinear and DequantizeLinear, so that any runtime can run it.

Inputs and outputs are those of the graph, channels last and int8 where they are; in between maps lie channels first,
as ONNX's layers want them, and are transposed where they enter and leave. Weights are the same numbers moved to uint8:
with int8 ones ONNX Runtime lets 16-bit sums saturate on x86 without VNNI. It rounds its own way, so that values
differ by a step here and there, and where sums wrap beyond 32 bits (ours do, as TFLite's) by more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from smidgen import ops
from smidgen.errors import ExportError
from smidgen.ir import Array, Graph, Node, Op, QParams, Value, verify
from smidgen.ops.window import Window

OPSET, IR_VERSION = 20, 9  # the first with Gelu, and the format of its time
KINDS = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "int32": TensorProto.INT32}
FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # from channels last to first, and back
PLACES = (0, 2, 3, 1)  # where each dimension of a channels-last map is in a channels-first one


def write_onnx(graph: Graph) -> bytes:
    """The graph as the bytes of an `.onnx` file."""
    verify(graph)
    if graph.updates:
        raise ExportError(
            f"{graph.name} trains: it updates {len(graph.updates)} values, ONNX only infers; export the model"
        )
    writer = _Writer(graph)
    writer.write()
    body = helper.make_graph(
        writer.nodes,
        graph.name,
        [_declared(v) for v in graph.inputs],
        [_declared(v) for v in graph.outputs],
        writer.constants,
    )
    model = helper.make_model(
        body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="smidgen"
    )
    data: bytes = model.SerializeToString()
    return data


def _declared(value: Value) -> onnx.ValueInfoProto:
    if value.type.dtype not in KINDS:
        raise ExportError(f"%{value.name} is {value.type.dtype}; ONNX export takes {', '.join(KINDS)}")
    return helper.make_tensor_value_info(value.name, KINDS[value.type.dtype], value.type.shape)


class _Writer:
    """Real numbers under each value's name with ':real', channels first with ':first'; no graph has such names."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.data = {**graph.constants, **graph.state}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.reals: dict[tuple[Value, bool], str] = {}  # by value and whether channels come first
        self.steps: dict[Value, tuple[str, bool]] = {}  # int8 values as they were written
        self.held: set[str] = set()

    def write(self) -> None:
        for value in self.graph.inputs:
            self.written(value, value.name, False)
        for node in self.graph.nodes:
            rule = RULES.get(type(node.op))
            if rule is None:
                known, what = ", ".join(sorted(op.__name__ for op in RULES)), type(node.op).__name__
                raise ExportError(f"{what} of %{node.outs[0].name} is not exported to ONNX; exported are {known}")
            rule(self, node)
        for value in self.graph.outputs:
            name, first = self.steps.get(value, (self.reals.get((value, False)) or self.real(value, False), False))
            if first:
                self.emit("Transpose", value.name, name, perm=LAST)
            else:
                self.emit("Identity", value.name, name)

    def emit(self, code: str, out: str, *ins: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(code, list(ins), [out], **attributes))  # type: ignore[arg-type]
        return out

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

    def written(self, value: Value, name: str, first: bool) -> None:
        """What stands for a value: int8 as it is or as real numbers, float32 as it is."""
        if value.type.q is None:
            self.reals[value, first] = name
            return
        self.steps[value] = name, first
        real = self.emit("DequantizeLinear", f"{value.name}:real", name, *self.quantization(value.name, value.type.q))
        self.reals[value, first] = real

    def result(self, node: Node, name: str, first: bool, activation: str = "none") -> None:
        """Real numbers become the node's output: limited, and quantized where it is int8."""
        out = node.out
        if activation != "none":
            name = self.limited(f"{out.name}:active", name, activation)
        if out.type.q is not None:
            name = self.emit("QuantizeLinear", f"{out.name}:steps", name, *self.quantization(out.name, out.type.q))
        self.written(out, name, first)

    def limited(self, out: str, name: str, activation: str) -> str:
        if activation == "relu":
            return self.emit("Relu", out, name)
        low, high = {"relu6": (0, 6), "relu_n1_to_1": (-1, 1)}[activation]
        limits = (self.constant(f"limit:{n}", np.array(n, np.float32)) for n in (low, high))
        return self.emit("Clip", out, name, *limits)

    def real(self, value: Value, first: bool) -> str:
        """A value's real numbers in the order asked for."""
        if (value, first) in self.reals:
            return self.reals[value, first]
        if value in self.data:
            return self._held(value, first)
        perm, other = (FIRST, ":first") if first else (LAST, ":last")
        name = self.emit("Transpose", value.name + other, self.reals[value, not first], perm=perm)
        self.reals[value, first] = name
        return name

    def _held(self, value: Value, first: bool) -> str:
        """A constant operand, of four dimensions where channels come first."""
        data = self.data[value]
        lifted = data.reshape((1,) * (4 - data.ndim) + data.shape).transpose(FIRST) if first else data
        return self.dequantized(lifted, value.type.q, f"{value.name}:{'first' if first else 'last'}")

    def dequantized(self, data: Array, q: QParams | None, name: str) -> str:
        """A constant's real numbers: as they are, or from its integers, int8 moved to uint8, and scales."""
        if q is None:
            return self.constant(name, data)
        key = f"{name}:real"
        if key not in self.held:
            self.held.add(key)
            if data.dtype == np.int8:
                data, q = (data.astype(np.int16) + 128).astype(np.uint8), replace(q, zero=q.zero + 128)
            scales = self.quantization(name, q, data.dtype.name)
            self.emit("DequantizeLinear", key, self.constant(name, data), *scales, axis=0)
        return key

    def first(self, value: Value) -> bool:
        """Whether a computed value lies channels first."""
        return (value, True) in self.reals

    def weights(self, node: Node, order: tuple[int, ...]) -> str:
        w = node.ins[1]
        self._check_constant(node, w)
        q = None if w.type.q is None else QParams(w.type.q.scale, 0, None if w.type.q.axis is None else 0)
        return self.dequantized(self.data[w].transpose(order), q, f"{w.name}:weights")

    def bias(self, node: Node) -> str:
        """Integers at the scale of the sums they are added to."""
        x, w, b = node.ins
        self._check_constant(node, b)
        if b.type.dtype == "float32":
            return self.constant(b.name, self.data[b])
        assert w.type.q is not None
        scales = tuple(float(s) for s in np.float32(x.type.scale) * np.array(w.type.q.scale, np.float32))
        q = QParams(scales, 0, None if len(scales) == 1 else 0)
        return self.dequantized(self.data[b], q, f"{node.out.name}:bias")

    def _check_constant(self, node: Node, value: Value) -> None:
        if value not in self.data:
            what = f"{type(node.op).__name__} of %{node.out.name}"
            raise ExportError(f"{what}: its weights or bias %{value.name} are computed; ONNX export wants constants")


def _window(window: Window) -> dict[str, object]:
    top, bottom, left, right = window.pad
    return {"kernel_shape": window.size, "strides": window.stride, "pads": (top, left, bottom, right)}


def _conv(w: _Writer, node: Node) -> None:
    op, (x, weights, _) = node.op, (v.type for v in node.ins)
    assert isinstance(op, ops.Conv2D | ops.Depthwise)
    depthwise = isinstance(op, ops.Depthwise)
    group = x.shape[3] if isinstance(op, ops.Depthwise) else op.groups
    ins = (w.real(node.ins[0], True), w.weights(node, (3, 0, 1, 2) if depthwise else (0, 3, 1, 2)), w.bias(node))
    attributes = {**_window(op.window(weights)), "dilations": op.dilation, "group": group}
    w.result(node, w.emit("Conv", f"{node.out.name}:sums", *ins, **attributes), True, op.activation)


def _dense(w: _Writer, node: Node) -> None:
    assert isinstance(node.op, ops.Dense)
    ins = (w.real(node.ins[0], False), w.weights(node, (0, 1)), w.bias(node))
    w.result(node, w.emit("Gemm", f"{node.out.name}:sums", *ins, transB=1), False, node.op.activation)


def _pair(w: _Writer, node: Node) -> None:
    assert isinstance(node.op, ops.Add | ops.Mul)
    a, b = node.ins
    first = w.first(a) and (b in w.data or len(b.type.shape) == 4)
    name = w.emit(type(node.op).__name__, f"{node.out.name}:both", w.real(a, first), w.real(b, first))
    w.result(node, name, first, node.op.activation)


def _activate(w: _Writer, node: Node) -> None:
    (x,) = node.ins
    activation = node.op.activation if isinstance(node.op, ops.Activate) else "none"
    w.result(node, w.real(x, w.first(x)), w.first(x), activation)


def _lookup(w: _Writer, node: Node) -> None:
    op, (x,) = node.op, node.ins
    assert isinstance(op, ops.Lookup)
    if op.slope or op.function not in FUNCTIONS:
        raise ExportError(f"Lookup of %{node.out.name}: ONNX has no {op.function}{' slope' if op.slope else ''}")
    name, first = w.real(x, w.first(x)), w.first(x)
    code, attributes = FUNCTIONS[op.function]
    out = f"{node.out.name}:function"
    if op.function == "silu":
        w.emit("Mul", out, name, w.emit("Sigmoid", f"{out}:gate", name))
    elif op.function == "clip":
        limits = [w.constant(f"limit:{n!r}", np.array(n, np.float32)) for n in (op.alpha, op.beta)]
        w.emit("Clip", out, name, *limits)
    elif op.function == "gelu_tanh":
        w.emit("Gelu", out, name, approximate="tanh")
    else:
        w.emit(code, out, name, **dict(zip(attributes, (op.alpha, op.beta), strict=False)))
    w.result(node, out, first)


def _pool(w: _Writer, node: Node) -> None:
    op = node.op
    assert isinstance(op, ops.MaxPool | ops.AvgPool)
    code = "MaxPool" if isinstance(op, ops.MaxPool) else "AveragePool"
    name = w.emit(code, f"{node.out.name}:pooled", w.real(node.ins[0], True), **_window(op.window))
    w.result(node, name, True, op.activation)


def _mean(w: _Writer, node: Node) -> None:
    assert isinstance(node.op, ops.Mean)
    name = w.emit("GlobalAveragePool", f"{node.out.name}:mean", w.real(node.ins[0], True))
    if not node.op.keep_dims:
        name = w.emit("Flatten", f"{node.out.name}:flat", name)
    w.result(node, name, node.op.keep_dims)


def _pad(w: _Writer, node: Node) -> None:
    op, (x,) = node.op, node.ins
    assert isinstance(op, ops.Pad)
    first = w.first(x)
    pads = np.array([op.before, op.after], np.int64)
    pads = pads[:, list(FIRST)] if first else pads
    w.result(node, w.emit("Pad", f"{node.out.name}:padded", w.real(x, first), _integers(w, node, pads)), first)


def _integers(w: _Writer, node: Node, numbers: Array) -> str:
    return w.constant(f"{node.out.name}:numbers", np.asarray(numbers, np.int64).reshape(-1))


def _reshape(w: _Writer, node: Node) -> None:
    assert isinstance(node.op, ops.Reshape)
    shape = _integers(w, node, np.array(node.op.shape))
    w.result(node, w.emit("Reshape", f"{node.out.name}:shaped", w.real(node.ins[0], False), shape), False)


def _transpose(w: _Writer, node: Node) -> None:
    assert isinstance(node.op, ops.Transpose)
    name = w.emit("Transpose", f"{node.out.name}:moved", w.real(node.ins[0], False), perm=node.op.perm)
    w.result(node, name, False)


def _concat(w: _Writer, node: Node) -> None:
    assert isinstance(node.op, ops.Concat)
    first = len(node.out.type.shape) == 4 and any(w.first(v) for v in node.ins)
    axis = PLACES[node.op.axis] if first else node.op.axis
    name = w.emit("Concat", f"{node.out.name}:joined", *(w.real(v, first) for v in node.ins), axis=axis)
    w.result(node, name, first)


def _softmax(w: _Writer, node: Node) -> None:
    assert isinstance(node.op, ops.Softmax)
    name = w.real(node.ins[0], False)
    if node.op.beta != 1.0:
        beta = w.constant(f"{node.out.name}:beta", np.array(node.op.beta, np.float32))
        name = w.emit("Mul", f"{node.out.name}:scaled", name, beta)
    w.result(node, w.emit("Softmax", f"{node.out.name}:softmax", name, axis=-1), False)


def _batch_norm(w: _Writer, node: Node) -> None:
    x, scale, shift = node.ins
    first = w.first(x)
    product = w.emit("Mul", f"{node.out.name}:scaled", w.real(x, first), w.real(scale, first))
    w.result(node, w.emit("Add", f"{node.out.name}:shifted", product, w.real(shift, first)), first)


FUNCTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "abs": ("Abs", ()), "celu": ("Celu", ("alpha",)), "clip": ("Clip", ()), "elu": ("Elu", ("alpha",)),
    "erf": ("Erf", ()), "exp": ("Exp", ()), "gelu": ("Gelu", ()), "gelu_tanh": ("Gelu", ()),
    "hard_sigmoid": ("HardSigmoid", ("alpha", "beta")), "hard_swish": ("HardSwish", ()),
    "leaky_relu": ("LeakyRelu", ("alpha",)), "mish": ("Mish", ()), "selu": ("Selu", ("alpha", "gamma")),
    "sigmoid": ("Sigmoid", ()), "silu": ("Sigmoid", ()), "softplus": ("Softplus", ()), "softsign": ("Softsign", ()),
    "tanh": ("Tanh", ()),
}  # fmt: skip
RULES: Mapping[type[Op], Callable[[_Writer, Node], None]] = {
    ops.Activate: _activate, ops.Add: _pair, ops.AvgPool: _pool, ops.BatchNorm: _batch_norm, ops.Concat: _concat,
    ops.Conv2D: _conv, ops.Dense: _dense, ops.Depthwise: _conv, ops.Dequantize: _activate, ops.Lookup: _lookup,
    ops.MaxPool: _pool, ops.Mean: _mean, ops.Mul: _pair, ops.Pad: _pad, ops.Quantize: _activate,
    ops.Requantize: _activate, ops.Reshape: _reshape, ops.Softmax: _softmax, ops.Transpose: _transpose,
}  # fmt: skip
