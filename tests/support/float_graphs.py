"""Float networks for tests: the real-valued network behind an int8 one."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from smidgen.ir import Array, Builder, Graph, QParams, Type, Value
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ops import (
    Activate,
    Add,
    AvgPool,
    BatchNorm,
    Conv2D,
    Dense,
    Depthwise,
    Lookup,
    MaxPool,
    Mean,
    Mul,
    Pad,
    Requantize,
)


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
    real: Array = (data * (x.scale * np.array(w.q.scale))).astype(np.float32)
    return real


def _times(data: Array, q: QParams) -> Array:
    along = [-1 if i == q.axis else 1 for i in range(data.ndim)]
    real: Array = (data * np.array(q.scale).reshape(along if q.axis is not None else ())).astype(np.float32)
    return real


class FloatNet:
    """A float network in the making on a small map."""

    def __init__(self, seed: int, shape: tuple[int, ...] = (1, 6, 6, 3)) -> None:
        self.rng, self.g, self.shape = np.random.default_rng(seed), Builder(f"float{seed}"), shape
        self.x = self.g.input("image", Type(shape, "float32"))

    def constant(self, *shape: int, spread: float = 1.0) -> Value:
        data = (
            self.rng.normal(size=shape)
            * np.exp(self.rng.uniform(0, np.log(spread), shape[:1] or ()))[(...,) + (None,) * (len(shape) - 1)]
        )
        return self.g.constant("c", data.astype(np.float32))

    def conv(
        self, x: Value, out: int, k: int = 1, pad: int = 0, groups: int = 1, activation: str = "none", spread: float = 1
    ) -> Value:
        w = self.constant(out, k, k, x.type.shape[3] // groups, spread=spread)
        op = Conv2D(pad=(pad,) * 4, groups=groups, activation=activation)
        return self.g.emit(op, x, w, self.constant(out))

    def depthwise(self, x: Value, times: int = 1, activation: str = "none") -> Value:
        c = x.type.shape[3] * times
        op = Depthwise(pad=(1, 1, 1, 1), activation=activation)
        return self.g.emit(op, x, self.constant(1, 3, 3, c), self.constant(c))

    def norm(self, x: Value) -> Value:
        return self.g.emit(BatchNorm(), x, self.constant(x.type.shape[-1]), self.constant(x.type.shape[-1]))


@st.composite
def float_graphs(draw: st.DrawFn) -> Graph:
    """A chain of layers with norms, activations, pads, products and residuals in any order."""
    n = FloatNet(draw(st.integers(0, 2**16)))
    kinds = ("conv", "grouped", "depthwise", "norm", "act", "pad", "scale", "shift", "add", "lookup", "max", "avg")
    x = n.conv(n.x, 6)
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=8)):
        c = x.type.shape[3]
        match kind:
            case "conv":
                x = n.conv(x, 6, k=draw(st.sampled_from((1, 3))), pad=1)
            case "grouped":
                x = n.conv(x, 6, groups=2)
            case "depthwise":
                x = n.depthwise(x)
            case "norm":
                x = n.norm(x)
            case "act":
                x = n.g.emit(Activate(draw(st.sampled_from(("relu", "relu6", "none")))), x)
            case "pad":
                x = n.g.emit(Pad((0, 1, 0, 0), (0, 0, 1, 0)), x)
            case "scale":
                x = n.g.emit(Mul(), x, n.constant(draw(st.sampled_from((1, c)))))
            case "shift":
                x = n.g.emit(Add(), x, n.constant(c))
            case "add":
                x = n.g.emit(Add(), x, n.conv(x, c))
            case "lookup":
                x = n.g.emit(Lookup("hard_swish"), x)
            case "max" if min(x.type.shape[1:3]) > 1:
                x = n.g.emit(MaxPool((2, 2), (1, 1)), x)
            case "avg":
                x = n.g.emit(AvgPool((2, 2), (1, 1), (0, 1, 0, 1)), x)
    if draw(st.booleans()):
        w = n.constant(5, x.type.shape[3])
        x = n.g.emit(Dense(), n.norm(n.g.emit(Mean(), x)), w, n.constant(5))
    return n.g.graph(x)
