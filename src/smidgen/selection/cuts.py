"""A model cut in two: the front that stays frozen, whose outputs are computed once, and the back that learns from them.

The back is a model like any other, whose samples are int8 tensors, so that it is compiled, trained and simulated like
any other. Trials of one scheme at several rates share what the front made of every sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from smidgen.ir import Graph, Value
from smidgen.ir.rewriting import prune
from smidgen.ops.loss import Loss
from smidgen.ops.losses import LOSSES
from smidgen.training.head import ending_of, layers
from smidgen.training.scheme import Scheme


@dataclass(frozen=True, eq=False)
class Back:
    """The part of a model behind a value, and how many layers stand before it."""

    model: Graph
    value: Value  # that it reads
    skipped: int

    def scheme(self, whole: Scheme) -> Scheme:
        """Return a scheme of the whole model with the numbers that its layers have here."""
        weights = tuple((layer - self.skipped, part) for layer, part in whole.weights)
        return replace(whole, weights=weights, made_for=None)


def back_of(graph: Graph, scheme: Scheme, loss: Loss) -> Back:
    """Cut a model as late as a scheme allows: before the first layer that learns, where a single int8 value passes.

    A model is left whole where the loss compares its outputs with its input.
    """
    numbered = layers(graph)
    if graph.variables or len(graph.inputs) != 1 or "nothing" in LOSSES[loss].accepts:
        return Back(graph, graph.image, 0)
    first = len(numbered) - scheme.biases
    stop = numbered[first] if scheme.biases else ending_of(graph).layer
    place = next(i for i, node in enumerate(graph.nodes) if node.outs == stop.outs)
    last_use = {v: i for i, node in enumerate(graph.nodes) for v in node.ins}
    last_use |= dict.fromkeys(graph.outputs, len(graph.nodes))
    made = [graph.image]
    value, at = graph.image, 0
    for i, node in enumerate(graph.nodes[: place + 1]):
        alive = [v for v in made if last_use.get(v, -1) >= i]
        if len(alive) == 1 and alive[0].type.dtype == "int8":
            value, at = alive[0], i
        made.extend(node.outs)
    if value == graph.image:
        return Back(graph, value, 0)
    behind = replace(graph, inputs=(value,), nodes=graph.nodes[at:], preprocessing=None)
    back = prune(behind)
    return Back(back, value, len(numbered) - len(layers(back)))


def front_of(graph: Graph, values: tuple[Value, ...]) -> Graph:
    """Return the part of a model that computes some values."""
    return prune(replace(graph, outputs=values, classes=()))
