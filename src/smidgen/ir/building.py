"""Growing a graph node by node."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir.graph import Graph, Node, Op, Roles, Value, infer
from smidgen.ir.log_mel import LogMel
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ir.types import Array, QParams, Type
from smidgen.ir.verifying import verify


class Builder:
    """Grows a graph node by node; names it does not get are v0, v1, …"""

    def __init__(
        self, name: str = "model", preprocessing: Preprocessing | LogMel | None = None, classes: tuple[str, ...] = ()
    ) -> None:
        self._name, self._preprocessing, self._classes = name, preprocessing, classes
        self._inputs: list[Value] = []
        self._nodes: list[Node] = []
        self._constants: dict[Value, Array] = {}
        self._state: dict[Value, Array] = {}
        self._updates: dict[Value, Value] = {}
        self._names: set[str] = set()

    @staticmethod
    def before(graph: Graph) -> Builder:
        """Return a builder with a graph's inputs, constants, state and updates, and none of its nodes yet."""
        g = Builder(graph.name, graph.preprocessing, graph.classes)
        g._inputs, g._constants = list(graph.inputs), dict(graph.constants)
        g._state, g._updates = dict(graph.state), dict(graph.updates)
        g.reserve(*g._inputs, *g._constants, *g._state)
        return g

    @staticmethod
    def upon(graph: Graph) -> Builder:
        """Return a builder that goes on where a graph ends."""
        g = Builder.before(graph)
        for node in graph.nodes:
            g.append(node)
        return g

    def reserve(self, *values: Value) -> None:
        """Keep the names of values free for them."""
        self._names.update(v.name for v in values)

    def fresh(self, stem: str) -> str:
        """Return `stem`, or `stem_1`, `stem_2`, … where it is taken."""
        name, count = stem, 0
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._names.add(name)
        return name

    def input(self, name: str, type: Type) -> Value:
        value = Value(self.fresh(name), type)
        self._inputs.append(value)
        return value

    def constant(self, name: str, data: Array, q: QParams | None = None) -> Value:
        data = np.ascontiguousarray(data)
        data.setflags(write=False)
        value = Value(self.fresh(name), Type(data.shape, data.dtype.name, q))
        self._constants[value] = data
        return value

    def persistent(self, name: str, data: Array, q: QParams | None = None) -> Value:
        """Add a state value with its initial data."""
        value = self.constant(name, data, q)
        self._state[value] = self._constants.pop(value)
        return value

    def update(self, olds: Iterable[Value], news: Iterable[Value]) -> None:
        """Replace state values by their successors once a run is over."""
        self._updates.update(zip(olds, news, strict=True))

    def data(self, value: Value) -> Array | None:
        """Return the data of a constant; None for a value that is not a constant."""
        return self._constants.get(value)

    @property
    def last(self) -> Node:
        """Return the node appended last."""
        return self._nodes[-1]

    def append(self, node: Node) -> None:
        """Append a node unchanged, under its own names."""
        self.reserve(*node.outs)
        self._nodes.append(node)

    def emit(self, op: Op, *ins: Value, q: QParams | None = None, name: str | None = None) -> Value:
        """Append a node with one output; `q` is that output's quantization where the op leaves it open."""
        (value,) = self.emit_all(op, *ins, q=q, name=name)
        return value

    def emit_all(self, op: Op, *ins: Value, q: QParams | None = None, name: str | None = None) -> tuple[Value, ...]:
        stem = name or f"v{len(self._nodes)}"
        types = infer(op, tuple(v.type for v in ins))
        if op.requantizes and types[0].dtype == "int8":
            if q is None:
                raise GraphError(f"{type(op).__name__} needs the quantization of its output, %{stem}")
            types = (Type(types[0].shape, types[0].dtype, q), *types[1:])
        outs = tuple(Value(self.fresh(stem), t) for t in types)
        self._nodes.append(Node(op, ins, outs))
        return outs

    def graph(self, *outputs: Value, roles: Roles | None = None) -> Graph:
        """Return the graph so far, verified; constants nobody reads are left out."""
        read = {v for node in self._nodes for v in node.ins} | set(outputs)
        constants = {v: data for v, data in self._constants.items() if v in read}
        graph = Graph(
            tuple(self._inputs), outputs, tuple(self._nodes), constants, self._name, dict(self._state),
            dict(self._updates), self._preprocessing, roles, self._classes,
        )  # fmt: skip
        verify(graph)
        return graph
