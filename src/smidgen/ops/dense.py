"""The fully connected layer and its gradients."""

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Params, Type, Value, op
from smidgen.ops.checks import check_rank
from smidgen.ops.gradient import ChannelSum, GradOp, requantize_grad
from smidgen.ops.weighted import Weighted, WeightGrad, check_weighted, factors, narrow, wide

LANES = 8  # partial sums of a float32 dot product; SMG_LANES in C


def dot_f32(x: Array, w: Array) -> Array:
    """Return x · wᵀ in float32 in one fixed order: lane i sums every eighth product, then the lanes fold in halves."""
    width = -(-x.shape[1] // LANES) * LANES
    a, b = (np.pad(m, ((0, 0), (0, width - m.shape[1]))).reshape(m.shape[0], -1, LANES) for m in (x, w))
    lanes = np.zeros((x.shape[0], w.shape[0], LANES), np.float32)
    for k in range(a.shape[1]):
        lanes = lanes + a[:, None, k] * b[None, :, k]
    while lanes.shape[2] > 1:
        half = lanes.shape[2] // 2
        lanes = lanes[:, :, :half] + lanes[:, :, half:]
    return lanes[:, :, 0]


@op
class Dense(Weighted):
    """y[m, n] = Σ_k x[m, k]·w[n, k] + b[n]; weights are [out, in]."""

    activation: str = "none"

    weight_axis = 0
    learns_in_parts = False

    def symbol(self, node: Node) -> str:
        if node.ins[0].type.dtype == "int8":
            return "smg_dense_s8"
        return "smg_dense_f32" if self.activation == "none" else ""

    def infer(self, x: Type, w: Type, b: Type) -> Type:
        numerics.check_activation(self.activation)
        if len(x.shape) != 2 or len(w.shape) != 2 or x.shape[1] != w.shape[1]:
            raise GraphError(f"Dense needs [rows, in] and [out, in], got {list(x.shape)} and {list(w.shape)}")
        check_weighted("Dense", x, w, b, w.shape[0], self.weight_axis)
        return Type((x.shape[0], w.shape[0]), x.dtype)

    def scaling(self, node: Node) -> Array:
        """Return s_x·s_w / s_y of each output: here, and here alone, TFLite's reference kernel multiplies in double."""
        x, w, y = node.ins[0].type, node.ins[1].type, node.out.type
        assert w.q is not None
        return np.broadcast_to(x.scale * np.array(w.q.scale, np.float64) / y.scale, (y.shape[1],))

    def ref(self, node: Node, x: Array, w: Array, b: Array) -> Array:
        if x.dtype == np.float32:
            return self.finish(node, dot_f32(x, w) + b)
        acc = (x.astype(np.float64) - node.ins[0].type.zero) @ w.T.astype(np.float64)
        return self.finish(node, acc.astype(np.int64) + b)

    def finish(self, node: Node, acc: Array) -> Array:
        y = node.out.type
        if y.dtype == "float32":
            return super().finish(node, acc)
        return numerics.activated(numerics.scale_double(acc.astype(np.int32), self.scaling(node)), self.activation, y)

    def params(self, node: Node) -> Params:
        x, y = node.ins[0].type, node.out.type
        if x.dtype == "float32":
            return {"rows": x.shape[0], "x_c": x.shape[1], "y_c": y.shape[1]}
        lo, hi = numerics.activation_range(self.activation, y)
        return {
            "rows": x.shape[0], "x_c": x.shape[1], "y_c": y.shape[1],
            "x_zero": x.zero, "y_zero": y.zero, "lo": lo, "hi": hi,
            "factor": self.scaling(node),
        }  # fmt: skip

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        x, w, _ = node.ins
        dz = requantize_grad(g, dy, node.out, factors(node), self.activation)
        return g.emit(DenseGradInput(), dz, w), g.emit(DenseGradWeight(), x, dz), g.emit(ChannelSum(), dz)


@op
class DenseGradInput(GradOp):
    """dx = dy · w; in float32 the sum runs over the outputs in order."""

    operands = 2

    def symbol(self, node: Node) -> str:
        if self.lowered:
            return "smg_dense_grad_g8"
        plain = not self.masked and not self.factors and node.ins[1].type.dtype == "float32"
        return "smg_dense_grad_f32" if plain else ""

    def shape(self, *operands: Type) -> tuple[int, ...]:
        dy, w = operands
        check_rank("DenseGradInput", 2, dy, w)
        if dy.shape[1] != w.shape[0]:
            raise GraphError(f"DenseGradInput of {list(dy.shape)} cannot use weights {list(w.shape)}")
        return (dy.shape[0], w.shape[1])

    def sums(self, node: Node, *operands: Array) -> Array:
        dy, w = operands
        if dy.dtype == np.int8:
            return np.asarray((dy.astype(np.float64) @ w.astype(np.float64)).astype(np.int64))
        total = np.zeros(node.outs[0].type.shape, np.float32)
        for n in range(w.shape[0]):
            total = total + dy[:, n : n + 1] * w[n].astype(np.float32)
        return total

    def bound(self, node: Node) -> int:
        return 127 * 128 * node.ins[1].type.shape[0]

    def sizes(self, node: Node) -> Params:
        rows, n = node.ins[0].type.shape
        return {"rows": rows, "x_c": node.outs[0].type.shape[1], "y_c": n}

    def params(self, node: Node) -> Params:
        return super().params(node) if self.lowered else self.sizes(node)

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        return super().arguments(node) if self.lowered else (*node.ins, *node.outs)

    def macs(self, node: Node) -> int:
        return node.ins[0].type.size * node.ins[1].type.shape[1]


@op
class DenseGradWeight(WeightGrad):
    """dw[n] = Σ over rows of dy[n] · (x − zero)."""

    kernel = "smg_dense_grad_weight_g8"
    fused_kernel = "smg_dense_weight_step"

    def infer(self, x: Type, dy: Type) -> Type:
        if len(x.shape) != 2 or len(dy.shape) != 2 or x.shape[0] != dy.shape[0]:
            raise GraphError(f"DenseGradWeight of {list(x.shape)} does not fit the gradient {list(dy.shape)}")
        return self.sum_type(x, dy, (dy.shape[1], x.shape[1]))

    def ref(self, node: Node, x: Array, dy: Array) -> Array:
        shifted: Array = x.astype(wide(dy)) - node.ins[0].type.zero
        outs: Array = dy.T.astype(wide(dy))
        return narrow(outs @ shifted, dy).astype(node.out.type.dtype)

    def params(self, node: Node) -> Params:
        x, dy = (v.type for v in node.ins)
        return {"rows": x.shape[0], "x_c": x.shape[1], "y_c": dy.shape[1], "x_zero": x.zero}
