"""Where a network's classifier begins: what comes before it learns by a scheme, the classifier itself is replaced."""

from __future__ import annotations

from smidgen.errors import SmidgenError
from smidgen.ir import Graph, Node, Op, Value
from smidgen.ir.rewriting import needed, producers
from smidgen.ops.conv import Conv2D
from smidgen.ops.dense import Dense
from smidgen.ops.elementwise import Activate, Dequantize
from smidgen.ops.lookup import Lookup
from smidgen.ops.pool import AvgPool, Mean
from smidgen.ops.shape import Reshape
from smidgen.ops.softmax import Softmax
from smidgen.ops.weighted import Weighted

AFTER: tuple[type[Op], ...] = (Softmax, Reshape, Dequantize, Activate, Lookup, Mean)  # what may follow a classifier


class TrainingError(SmidgenError):
    """A model cannot be turned into a training program."""


def features_of(graph: Graph) -> tuple[Value, Node]:
    """What the classifier reads, in int8, and the classifier.

    The classifier is the last layer before the graph's first output: a Dense (an autoencoder's last one, too), or a
    convolution without groups whose map is averaged as a whole or is a single pixel, as where a network ends in
    convolution, ReLU and global mean. Only softmax, reshapes, activations and that mean may follow it. Where the
    features are a map, the new classifier reads their mean.
    """
    value, averaged = graph.scores, False
    producer = producers(graph)
    while value in producer:
        node = producer[value]
        if isinstance(node.op, Dense):
            before = producer.get(node.ins[0])
            if before is not None and isinstance(before.op, Dequantize):  # a float32 head, as an earlier run left it
                return before.ins[0], node
            return node.ins[0], node
        if isinstance(node.op, Conv2D) and node.op.groups == 1 and (averaged or node.out.type.shape[1:3] == (1, 1)):
            return node.ins[0], node
        whole = isinstance(node.op, AvgPool) and node.out.type.shape[1:3] == (1, 1)
        if not (isinstance(node.op, AFTER) or whole):
            break
        averaged = averaged or whole or isinstance(node.op, Mean)
        value = node.ins[0]
    raise TrainingError(
        f"{graph.name} does not end in a Dense classifier, nor in a convolution and a global mean (its output "
        f"%{graph.scores.name} comes from elsewhere), so there is no head to replace; bring a model that does"
    )


def layers(graph: Graph) -> tuple[Node, ...]:
    """The convolutions and dense layers a scheme numbers, first to last: those the classifier depends on."""
    try:
        features, _ = features_of(graph)
    except TrainingError:
        return tuple(node for node in graph.nodes if isinstance(node.op, Weighted))
    return tuple(node for node in needed(graph, features) if isinstance(node.op, Weighted))
