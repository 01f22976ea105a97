"""The function at a graph's end that makes its scores probabilities."""

from typing import Literal

from smidgen.ir import Graph, Op
from smidgen.ir.rewriting import producers
from smidgen.ops.elementwise import Dequantize, Quantize, Requantize
from smidgen.ops.lookup import Lookup
from smidgen.ops.shape import Reshape
from smidgen.ops.softmax import Softmax

Ending = Literal["softmax", "sigmoid"]
KEEPS: tuple[type[Op], ...] = (Dequantize, Quantize, Requantize, Reshape)  # these change no number but by rounding


def ending_of(graph: Graph) -> Ending | None:
    """Return the function at the end of the graph that makes the scores probabilities, if any."""
    made, value = producers(graph), graph.scores
    while value in made:
        node = made[value]
        if type(node.op) is Softmax:  # logarithms of its results are scores like any others
            return "softmax"
        if isinstance(node.op, Lookup) and node.op.function == "sigmoid" and not node.op.slope:
            return "sigmoid"
        if not isinstance(node.op, KEEPS):
            return None
        value = node.ins[0]
    return None
