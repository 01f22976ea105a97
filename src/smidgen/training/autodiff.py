"""Differentiation at compile time: walk the graph backward and emit ordinary ops."""

from __future__ import annotations

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Builder, Graph, Value
from smidgen.ops.gradient import SumGrads


def differentiate(graph: Graph, wanted: tuple[Value, ...]) -> Graph:
    """Append the gradients of the graph's first output, a loss; the outputs gain one for each value wanted.

    Gradients are float32 here, whatever the forward pass computes in: with respect to quantized values,
    straight through rounding, zero where a clamp acted.
    """
    on_path = set(wanted)
    for node in graph.nodes:
        if on_path & set(node.ins):
            on_path |= set(node.outs)
    loss = graph.outputs[0]
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
    return g.graph(*graph.outputs, *(grads[v] for v in wanted))
