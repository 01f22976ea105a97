"""Float networks for tests: the real-valued network behind an int8 one."""

from __future__ import annotations

import numpy as np

from smidgen.ir import Array, Builder, Graph, QParams, Type, Value
from smidgen.ops import Requantize
from smidgen.preprocessing import Preprocessing


def dequantized(graph: Graph, preprocessing: Preprocessing | None = None, activation: str = "relu6") -> Graph:
    """The same layers in float32; where the int8 output began at zero, saturation becomes an activation."""
    g = Builder(graph.name, preprocessing)
    values: dict[Value, Value] = {v: g.input(v.name, Type(v.type.shape, "float32")) for v in graph.inputs}
    for node in graph.nodes:
        for index, value in enumerate(node.ins):
            if value in graph.constants and value not in values:
                data = _real(graph.constants[value], value.type, node.ins, index)
                values[value] = g.constant(value.name, data)
        ins = tuple(values[v] for v in node.ins)
        op = node.op
        if isinstance(op, Requantize):
            values[node.out] = ins[0]
            continue
        if getattr(op, "activation", None) == "none" and node.out.type.zero == -128 and op.requantizes:
            op = type(op)(**{**vars(op), "activation": activation})
        values[node.out] = g.emit(op, *ins, name=node.out.name)
    return g.graph(*(values[v] for v in graph.outputs))


def _real(data: Array, type: Type, ins: tuple[Value, ...], index: int) -> Array:
    if type.q is not None:
        return _times(data.astype(np.float64) - type.q.zero, type.q)
    x, w = ins[0].type, ins[1].type
    assert index == 2
    assert w.q is not None
    return (data * (x.scale * np.array(w.q.scale))).astype(np.float32)


def _times(data: Array, q: QParams) -> Array:
    along = [-1 if i == q.axis else 1 for i in range(data.ndim)]
    return (data * np.array(q.scale).reshape(along if q.axis is not None else ())).astype(np.float32)
