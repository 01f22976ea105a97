"""The head of a network, and where it begins: what comes before it learns by a scheme, the head itself always does."""

from dataclasses import dataclass

from smidgen.errors import TrainingError
from smidgen.ir import Graph, Node, Op, Value
from smidgen.ir.rewriting import needed, producers
from smidgen.ops.elementwise import Activate, Dequantize
from smidgen.ops.lookup import Lookup
from smidgen.ops.pool import AvgPool, Mean
from smidgen.ops.shape import Reshape
from smidgen.ops.softmax import Softmax
from smidgen.ops.weighted import Weighted, weighted

AFTER: tuple[type[Op], ...] = (Softmax, Reshape, Dequantize, Activate, Lookup, Mean)  # what may follow a head
PLAIN: tuple[type[Op], ...] = (Softmax, Reshape, Dequantize)  # the same where it keeps the order of scores


@dataclass(frozen=True)
class Ending:
    """The end of a network: what its head reads, in int8, the head, and the nodes from it to the scores, in order."""

    features: Value
    layer: Node
    after: tuple[Node, ...]
    per_cell: bool  # the scores are a map, with classes for each of its cells

    @property
    def outputs(self) -> int:
        """Return how many scores there are, or how many there are for each cell."""
        return self.layer.out.type.shape[-1]

    @property
    def is_float(self) -> bool:
        """Return whether the head computes in float32, as an earlier run left it."""
        return self.layer.ins[0].type.dtype == "float32"

    @property
    def plain(self) -> bool:
        """Return whether the scores are a matrix times the features plus a bias, but for a softmax."""
        op = weighted(self.layer)
        single = not op.spatial or self.features.type.shape[1:3] == (1, 1)
        return single and op.activation == "none" and all(isinstance(node.op, PLAIN) for node in self.after)


def ending_of(graph: Graph) -> Ending:
    """Find the head of a network.

    It is the last layer before the graph's first output: a Dense (an autoencoder's last one, too), a convolution
    without groups whose map is averaged as a whole or is a single pixel, as where a network ends in convolution, ReLU
    and global mean, or one whose map is the output. Only softmax, reshapes, activations and that mean may follow it.
    """
    value, averaged, after = graph.scores, False, list[Node]()
    producer = producers(graph)
    while value in producer:
        node = producer[value]
        if isinstance(node.op, Weighted) and not node.op.spatial:
            before = producer.get(node.ins[0])
            wide = before is not None and isinstance(before.op, Dequantize)  # a float32 head, as an earlier run left it
            return Ending(before.ins[0] if before and wide else node.ins[0], node, tuple(after), False)
        if isinstance(node.op, Weighted) and node.op.mixes_all:
            single = averaged or node.out.type.shape[1:3] == (1, 1)
            if single or graph.scores.type.shape == node.out.type.shape:
                return Ending(node.ins[0], node, tuple(after), not single)
        whole = isinstance(node.op, AvgPool) and node.out.type.shape[1:3] == (1, 1)
        if not (isinstance(node.op, AFTER) or whole):
            break
        averaged = averaged or whole or isinstance(node.op, Mean)
        after.insert(0, node)
        value = node.ins[0]
    raise TrainingError(
        f"{graph.name} does not end in a Dense layer, nor in a convolution, with or without a global mean (its output "
        f"%{graph.scores.name} comes from elsewhere), so it has no head that could learn; bring a model that does"
    )


def layers(graph: Graph) -> tuple[Node, ...]:
    """Return the convolutions and dense layers a scheme numbers, first to last: those the head depends on.

    Where the head reads int8, a layer in float32 is a front that normalizes the input, and never learns.
    """
    try:
        features = ending_of(graph).features
    except TrainingError:
        return tuple(node for node in graph.nodes if isinstance(node.op, Weighted))
    same = features.type.dtype
    return tuple(n for n in needed(graph, features) if isinstance(n.op, Weighted) and n.out.type.dtype == same)
