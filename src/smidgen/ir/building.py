"""Growing a graph node by node."""

from __future__ import annotations

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir.graph import Graph, Node, Op, Value, infer
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ir.types import Array, QParams, Type
from smidgen.ir.verifying import verify


class Builder:
    """Grows a graph node by node; names it does not get are v0, v1, …"""

    def __init__(self, name: str = "model", preprocessing: Preprocessing | None = None) -> None:
        self.name, self.preprocessing = name, preprocessing
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.state: dict[Value, Array] = {}
        self.updates: dict[Value, Value] = {}
        self._names: set[str] = set()

    @staticmethod
    def upon(graph: Graph) -> Builder:
        """A builder that goes on where a graph ends."""
        g = Builder(graph.name, graph.preprocessing)
        g.inputs, g.nodes = list(graph.inputs), list(graph.nodes)
        g.constants, g.state, g.updates = dict(graph.constants), dict(graph.state), dict(graph.updates)
        g._names = {v.name for v in (*g.inputs, *g.constants, *g.state)}
        g._names |= {v.name for node in g.nodes for v in node.outs}
        return g

    def fresh(self, stem: str) -> str:
        """`stem`, or `stem_1`, `stem_2`, … where it is taken."""
        name, count = stem, 0
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._names.add(name)
        return name

    def input(self, name: str, type: Type) -> Value:
        value = Value(self.fresh(name), type)
        self.inputs.append(value)
        return value

    def constant(self, name: str, data: Array, q: QParams | None = None) -> Value:
        data = np.ascontiguousarray(data)
        data.setflags(write=False)
        value = Value(self.fresh(name), Type(data.shape, data.dtype.name, q))
        self.constants[value] = data
        return value

    def persistent(self, name: str, data: Array, q: QParams | None = None) -> Value:
        """A state value with its initial data."""
        value = self.constant(name, data, q)
        self.state[value] = self.constants.pop(value)
        return value

    def emit(self, op: Op, *ins: Value, q: QParams | None = None, name: str | None = None) -> Value:
        """Append a node with one output; `q` is that output's quantization where the op leaves it open."""
        (value,) = self.emit_all(op, *ins, q=q, name=name)
        return value

    def emit_all(self, op: Op, *ins: Value, q: QParams | None = None, name: str | None = None) -> tuple[Value, ...]:
        stem = name or f"v{len(self.nodes)}"
        types = infer(op, tuple(v.type for v in ins))
        if op.requantizes and types[0].dtype == "int8":
            if q is None:
                raise GraphError(f"{type(op).__name__} needs the quantization of its output, %{stem}")
            types = (Type(types[0].shape, types[0].dtype, q), *types[1:])
        outs = tuple(Value(self.fresh(stem), t) for t in types)
        self.nodes.append(Node(op, ins, outs))
        return outs

    def graph(self, *outputs: Value) -> Graph:
        """The graph so far, verified; constants nobody reads are left out."""
        read = {v for node in self.nodes for v in node.ins} | set(outputs)
        constants = {v: data for v, data in self.constants.items() if v in read}
        graph = Graph(
            tuple(self.inputs),
            outputs,
            tuple(self.nodes),
            constants,
            self.name,
            dict(self.state),
            dict(self.updates),
            self.preprocessing,
        )
        verify(graph)
        return graph
