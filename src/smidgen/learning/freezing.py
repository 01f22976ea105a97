"""What was learned as a model of its own: the forward pass with its state turned into constants.

Variables stay what they are, and begin as they did before learning.
"""

from __future__ import annotations

from collections.abc import Mapping

from smidgen.ir import Array, Builder, Graph, Value
from smidgen.ir.rewriting import prune
from smidgen.ops.state import LearnedBias, Overlay
from smidgen.targets.device import held
from smidgen.training import Training


def learned_graph(training: Training, state: Mapping[str, Array]) -> Graph:
    """An ordinary inference graph that computes the logits of the program in this state, bit for bit."""
    forward = training.forward
    g = Builder(forward.name, forward.preprocessing, forward.classes)
    values: dict[Value, Value] = {v: g.input(v.name, v.type) for v in forward.inputs}
    variables = forward.variables
    learned = {v: held(state, v, forward.name).copy() for v in forward.state if v not in variables}
    known = {**forward.constants, **learned}
    for v, data in known.items():
        values[v] = g.constant(v.name, data, v.type.q)
    for v in variables:
        values[v] = g.persistent(v.name, forward.state[v], v.type.q)
    for node in forward.nodes:
        ins = tuple(values[v] for v in node.ins)
        if isinstance(node.op, Overlay | LearnedBias):
            arrays = (known[v] for v in node.ins)
            values[node.out] = g.constant(node.out.name, node.op.ref(node, *arrays), node.out.type.q)
        else:
            outs = g.emit_all(node.op, *ins, q=node.outs[0].type.q, name=node.outs[0].name)
            values.update(zip(node.outs, outs, strict=True))
    g.update((values[v] for v in variables), (values[forward.updates[v]] for v in variables))
    return prune(g.graph(*(values[v] for v in forward.outputs)))
