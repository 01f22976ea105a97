"""The projection of features to fewer numbers, which a head reads in their place."""

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Graph, Node, Params, QParams, Type, Value, op
from smidgen.ir.graph import Op
from smidgen.ir.rewriting import rewrite
from smidgen.numerics import projection
from smidgen.ops.checks import shown
from smidgen.ops.dense import Dense, DenseGradInput
from smidgen.ops.gradient import requantize_grad

MOST_FEATURES = 4096


@op
class Project(Op):
    """y = signs · x: `count` sums of all features, each with a sign; in int8 halved `shift` times.

    `numerics/projection.py` has the signs.
    """

    count: int
    shift: int

    kernel = "smg_project_s8"
    working_memory = True

    def infer(self, x: Type) -> Type:
        quantized = x.dtype == "int8" and x.q is not None and x.q.axis is None
        if not (quantized or x.dtype == "float32") or len(x.shape) != 2 or x.shape[0] != 1:
            raise GraphError(f"Project takes [1, features], float32 or int8 with one scale, not {shown(x)}")
        d = x.shape[1]
        if not 1 <= self.count <= d <= MOST_FEATURES:
            raise GraphError(f"Project makes up to {MOST_FEATURES} features fewer, not {self.count} numbers of {d}")
        if not 0 <= self.shift <= projection.MOST_SHIFT:
            raise GraphError(f"Project halves its sums {self.shift} times; give 0 to {projection.MOST_SHIFT}")
        q = QParams.per_tensor(x.scale * 2.0**self.shift, 0) if quantized else None
        return Type((1, self.count), x.dtype, q)

    def ref(self, node: Node, x: Array) -> Array:
        if x.dtype == np.float32:
            return x @ projection.matrix(x.shape[1], self.count).astype(np.float32).T
        return projection.project(x.astype(np.int64) - node.ins[0].type.zero, self.count, self.shift)

    def params(self, node: Node) -> Params:
        x = node.ins[0].type
        return {
            "d": x.shape[1], "count": self.count, "width": projection.width(x.shape[1]), "zero": x.zero,
            "shift": self.shift,
        }  # fmt: skip

    def macs(self, node: Node) -> int:
        width = projection.width(node.ins[0].type.shape[1])
        return width * (width.bit_length() - 1)

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        """Emit the gradient of the dense layer of the same signs, which lie in flash for it."""
        factors = (2.0**-self.shift,) if node.out.type.q else ()
        dz = requantize_grad(g, dy, node.out, factors, "none")
        return (g.emit(DenseGradInput(), dz, _weights(g, node)),)


def _weights(g: Builder, node: Node) -> Value:
    """Add the signs as the weights of a dense layer."""
    x, y = node.ins[0].type.shape[1], node.out.type.shape[1]
    signs = projection.matrix(x, y).astype(np.int8)
    return g.constant(f"{node.out.name}.signs", signs, QParams.per_tensor(1.0, 0))


def as_dense(graph: Graph) -> Graph:
    """Return a graph in which projections are dense layers, of the same bytes, as files of other tools have them."""

    def rule(g: Builder, node: Node) -> Node | None:
        if not isinstance(node.op, Project):
            return None
        biases = g.constant(f"{node.out.name}.biases", np.zeros(node.op.count, np.int32))
        return Node(Dense(), (node.ins[0], _weights(g, node), biases), node.outs)

    return rewrite(graph, rule) if any(isinstance(node.op, Project) for node in graph.nodes) else graph
