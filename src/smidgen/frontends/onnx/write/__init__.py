"""Graph → ONNX: every int8 value between QuantizeLinear and DequantizeLinear, so that any runtime can run it.

Inputs and outputs are those of the graph, channels last and int8 where they are. In between, maps are channels first,
as ONNX's layers want them, and are transposed where they enter and leave. Weights are the same numbers moved to uint8:
with int8 ones ONNX Runtime lets 16-bit sums saturate on x86 without VNNI. `plain` has rules for ONNX's own operators,
which runtimes fuse and round in their own way, so that values differ by a step here and there, and by more where sums
wrap beyond 32 bits (ours do, as TFLite's). `exact` has the form in which they do not differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from smidgen.errors import ExportError
from smidgen.frontends.blocks import sum_scales, where
from smidgen.frontends.onnx.write.functions import DOMAIN, OPSET, VERSION, functions_needed
from smidgen.ir import Array, Graph, Node, Op, QParams, Value, verify
from smidgen.numerics import activation_limits

IR_VERSION = 9  # of the opset's time
CLASSES = "classes"  # the metadata key of the class names, a list in JSON
KINDS = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "int32": TensorProto.INT32}
UINT8_SHIFT = 128  # from int8 to uint8
FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # from channels last to first, and back

NamedConstant = tuple[Array, QParams | None, str]  # a constant, the quantization of its integers, and its name
Rule = Callable[[Any, Node, Any], None]  # the writer, a node and the node's op


def serialize(writer: OnnxWriter) -> bytes:
    """Return the writer's graph as the bytes of an `.onnx` file."""
    graph = writer.graph
    verify(graph)
    name, kept, trained = graph.name, len(graph.variables), len(graph.updates)
    if kept:
        raise ExportError(f"{name} carries {kept} variables between runs, which ONNX lacks; write .tflite")
    if trained:
        raise ExportError(f"{name} trains {trained} values, ONNX only infers; export the learned model")
    writer.write()
    inputs, outputs = ([_declared(v) for v in values] for values in (graph.inputs, graph.outputs))
    body = helper.make_graph(writer.nodes, graph.name, inputs, outputs, writer.constants)
    versions = {"": OPSET, **({DOMAIN: VERSION} if writer.called else {})}
    model = helper.make_model(
        body, opset_imports=[helper.make_opsetid(*pair) for pair in versions.items()],
        functions=functions_needed(writer.called), ir_version=IR_VERSION, producer_name="smidgen",
    )  # fmt: skip
    if graph.classes:
        helper.set_model_props(model, {CLASSES: json.dumps(graph.classes)})
    data: bytes = model.SerializeToString()
    return data


def _declared(value: Value) -> onnx.ValueInfoProto:
    if value.type.dtype not in KINDS:
        raise ExportError(f"%{value.name} is {value.type.dtype}; ONNX export takes {', '.join(KINDS)}")
    return helper.make_tensor_value_info(value.name, KINDS[value.type.dtype], value.type.shape)


class OnnxWriter:
    """An ONNX graph under construction: real numbers are named after their value with ':real' or ':first' behind."""

    def __init__(self, graph: Graph, rules: Mapping[type[Op], Rule]) -> None:
        self.graph, self.rules = graph, rules
        self.data = {**graph.constants, **graph.state}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.names: dict[tuple[Value, bool], str] = {}  # real numbers, by value and whether channels come first
        self.steps: dict[Value, tuple[str, bool]] = {}  # int8 values as written, and whether channels come first
        self.held: set[str] = set()
        self.called: set[str] = set()  # functions

    def write(self) -> None:
        for value in self.graph.inputs:
            self.register(value, value.name, False)
        for node in self.graph.nodes:
            self.apply(node)
        for value in (v for v in self.graph.outputs if v not in self.graph.inputs):  # inputs keep their names
            name, first = self.steps.get(value, (self.names.get((value, False)) or self.operand(value, False), False))
            if first:
                self.emit("Transpose", value.name, name, perm=LAST)
            else:
                self.emit("Identity", value.name, name)

    def apply(self, node: Node) -> None:
        rule = self.rules.get(type(node.op))
        if rule is None:
            known = ", ".join(sorted(op.__name__ for op in self.rules))
            raise ExportError(f"{where(node)} is not exported to ONNX; supported are {known}")
        rule(self, node, node.op)

    def emit(self, code: str, out: str, *ins: str, **attributes: object) -> str:
        self.emit_all(code, (out,), *ins, **attributes)
        return out

    def emit_all(self, code: str, outs: tuple[str, ...], *ins: str, **attributes: object) -> None:
        self.nodes.append(helper.make_node(code, list(ins), list(outs), **attributes))  # type: ignore[arg-type]

    def layer(self, node: Node, code: str, name: str, *ins: str, **attributes: object) -> str:
        """Emit the operator that computes a node in real numbers; `name`, if any, goes behind the output's."""
        return self.emit(code, f"{node.out.name}:{name}" if name else result_name(node), *ins, **attributes)

    def constant(self, name: str, data: Array) -> str:
        if name not in self.held:
            self.held.add(name)
            self.constants.append(numpy_helper.from_array(np.asarray(data, order="C"), name))
        return name

    def integers(self, node: Node, what: str, numbers: object) -> str:
        """Add whole numbers that belong to a node."""
        return self.constant(f"{node.out.name}:{what}", np.asarray(numbers, np.int64).reshape(-1))

    def quantization(self, name: str, q: QParams, dtype: str = "int8") -> tuple[str, str]:
        """Return the names of a value's scales and zero points."""
        scale = np.array(q.scale, np.float32)
        zero = np.full(len(q.scale), q.zero, dtype)
        shape = () if q.axis is None else (-1,)
        return self.constant(f"{name}:scale", scale.reshape(shape)), self.constant(f"{name}:zero", zero.reshape(shape))

    def register(self, value: Value, name: str, first: bool) -> None:
        """Record the name under which a value was written, and dequantize it where it is int8."""
        if value.type.q is not None:
            self.steps[value] = name, first
            scale_and_zero = self.quantization(value.name, value.type.q)
            name = self.emit("DequantizeLinear", f"{value.name}:real", name, *scale_and_zero)
        self.names[value, first] = name

    def result(self, node: Node, name: str, first: bool, activation: str = "none") -> None:
        """Make real numbers the node's output: limited, and quantized where it is int8."""
        out = node.out
        if activation != "none":
            name = self.limited(node, name, activation)
        if out.type.q is not None:
            name = self.emit("QuantizeLinear", f"{out.name}:steps", name, *self.quantization(out.name, out.type.q))
        self.register(out, name, first)

    def limited(self, node: Node, name: str, activation: str) -> str:
        """Emit an activation of real numbers."""
        out = f"{node.out.name}:active"
        if activation == "relu":
            return self.emit("Relu", out, name)
        return self.emit("Clip", out, name, *self.limits(*activation_limits(activation)))

    def limits(self, *numbers: float) -> tuple[str, ...]:
        return tuple(self.constant(f"limit:{n!r}", np.array(n, np.float32)) for n in numbers)

    def operand(self, value: Value, first: bool) -> str:
        """Return the name of a value's real numbers, channels first or last."""
        if (value, first) in self.names:
            return self.names[value, first]
        if value in self.data:
            data = self.data[value]
            data = data.reshape((1,) * (4 - data.ndim) + data.shape).transpose(FIRST) if first else data
            return self.dequantized(data, value.type.q, f"{value.name}:{'first' if first else 'last'}")
        perm, other = (FIRST, ":first") if first else (LAST, ":last")
        name = self.emit("Transpose", value.name + other, self.names[value, not first], perm=perm)
        self.names[value, first] = name
        return name

    def dequantized(self, data: Array, q: QParams | None, name: str) -> str:
        """Return the name of a constant's real numbers, held as floats or as integers."""
        if q is None:
            return self.constant(name, data)
        key = f"{name}:real"
        if key not in self.held:
            self.held.add(key)
            self.emit("DequantizeLinear", key, *self.quantized(data, q, name), axis=0)
        return key

    def quantized(self, data: Array, q: QParams, name: str) -> tuple[str, str, str]:
        """Return the names of a constant's integers, int8 moved to uint8, and of their scales and zero points."""
        if data.dtype == np.int8:
            data = (data.astype(np.int16) + UINT8_SHIFT).astype(np.uint8)
            q = replace(q, zero=q.zero + UINT8_SHIFT)
        return self.constant(name, data), *self.quantization(name, q, data.dtype.name)

    def first(self, value: Value) -> bool:
        """Return whether a computed value is held channels first."""
        return (value, True) in self.names

    def pair(self, node: Node) -> tuple[bool, tuple[str, str]]:
        """Return whether two operands, of which one may repeat, are read channels first, and their names."""
        a, b = node.ins
        first = self.first(a) and (b in self.data or len(b.type.shape) == 4)
        return first, (self.operand(a, first), self.operand(b, first))

    def weights(self, node: Node, order: tuple[int, ...]) -> NamedConstant:
        w = node.ins[1]
        self.check_constant(node, w)
        q = None if w.type.q is None else QParams(w.type.q.scale, 0, None if w.type.q.axis is None else 0)
        return self.data[w].transpose(order), q, f"{w.name}:weights"

    def bias(self, node: Node) -> NamedConstant:
        """Return the bias: integers have the scale of the sums they are added to."""
        b = node.ins[2]
        self.check_constant(node, b)
        if b.type.dtype == "float32":
            return self.data[b], None, b.name
        scales = sum_scales(node)
        return self.data[b], QParams(scales, 0, None if len(scales) == 1 else 0), f"{node.out.name}:bias"

    def weighted(self, node: Node, first: bool, order: tuple[int, ...]) -> tuple[str, ...]:
        """Return the names of the inputs of a layer with weights."""
        weights, bias = (self.dequantized(*each) for each in (self.weights(node, order), self.bias(node)))
        return self.operand(node.ins[0], first), weights, bias

    def check_constant(self, node: Node, value: Value) -> None:
        if value not in self.data:
            raise ExportError(f"{where(node)}: its weights or bias %{value.name} are computed; ONNX needs constants")


def result_name(node: Node) -> str:
    """Return the name of a layer's numbers before its activation."""
    linear = getattr(node.op, "activation", "none") == "none"
    return f"{node.out.name}{'' if linear else '.linear'}:computed"
