"""Differentiation at compile time: walk the graph backward and emit ordinary ops."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Builder, Graph, Value
from smidgen.ops.gradient import SumGrads


@dataclass(frozen=True)
class Differentiated:
    """A graph that also computes, and gives as outputs, the gradients of its loss."""

    graph: Graph
    gradients: Mapping[Value, Value]  # by the values they are of


def differentiate(graph: Graph, loss: Value, wanted: tuple[Value, ...]) -> Differentiated:
    """Append the gradients of a loss with respect to the values wanted.

    Gradients are float32 here, whatever the forward pass computes in: with respect to quantized values,
    straight through rounding, zero where a clamp acted.
    """
    on_path = set(wanted)
    for node in graph.nodes:
        if on_path & set(node.ins):
            on_path |= set(node.outs)
    if loss not in on_path:
        raise GraphError(f"%{loss.name} does not depend on any of the {len(wanted)} values to train")

    g = Builder.upon(graph)
    grads: dict[Value, Value] = {loss: g.constant("one", np.ones(1, np.float32))}
    for node in reversed(graph.nodes):
        dy = next((grads[v] for v in node.outs if v in grads), None)
        if dy is None or not on_path & set(node.ins):
            continue
        for v, d in zip(node.ins, node.op.grad(g, node, dy), strict=True):
            if v in on_path and d is not None:
                grads[v] = g.emit(SumGrads(), grads[v], d) if v in grads else d
    for value in wanted:
        if value not in grads:
            raise GraphError(f"the loss %{loss.name} does not depend on %{value.name}")
    gradients = {v: grads[v] for v in wanted}
    return Differentiated(g.graph(*graph.outputs, *gradients.values()), gradients)
