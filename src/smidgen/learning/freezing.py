"""What was learned as a model of its own: the forward pass with its state turned into constants."""

from __future__ import annotations

from collections.abc import Mapping

from smidgen.errors import InputError
from smidgen.ir import Array, Builder, Graph, Value
from smidgen.ir.rewriting import prune
from smidgen.ops.overlay import Overlay
from smidgen.training import Training


def learned_graph(training: Training, state: Mapping[str, Array]) -> Graph:
    """An ordinary inference graph that computes the logits of the program in this state, bit for bit."""
    forward = training.forward
    g = Builder(forward.name, forward.preprocessing)
    values: dict[Value, Value] = {v: g.input(v.name, v.type) for v in forward.inputs}
    held = {**forward.constants, **{v: _found(v, state) for v in forward.state}}
    for v, data in held.items():
        values[v] = g.constant(v.name, data, v.type.q)
    for node in forward.nodes:
        ins = tuple(values[v] for v in node.ins)
        if isinstance(node.op, Overlay):
            arrays = (held[v] for v in node.ins)
            values[node.out] = g.constant(node.out.name, node.op.ref(node, *arrays), node.out.type.q)
        else:
            outs = g.emit_all(node.op, *ins, q=node.outs[0].type.q, name=node.outs[0].name)
            values.update(zip(node.outs, outs, strict=True))
    return prune(g.graph(*(values[v] for v in forward.outputs)))


def _found(value: Value, state: Mapping[str, Array]) -> Array:
    data = state.get(value.name)
    if data is None or data.shape != value.type.shape or data.dtype.name != value.type.dtype:
        what = "nothing" if data is None else f"{data.dtype.name}{list(data.shape)}"
        raise InputError(
            f"%{value.name} is {value.type.dtype}{list(value.type.shape)}, the state given holds {what}: "
            "it is of another program"
        )
    return data.copy()
