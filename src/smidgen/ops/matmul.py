"""The product of two tensors that are both computed, matrix by matrix, and its gradients."""

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, Type, Value, op
from smidgen.ops.elementwise import check_quantized, ratio
from smidgen.ops.gradient import GRADIENT_MOST, GradOp, requantize_grad

INT8_SPAN = 255  # the largest magnitude of an int8 number less its zero point


def check_matrices(what: str, a: Type, b: Type) -> None:
    """Raise GraphError unless both have two dimensions or more, and the same ones before the last two."""
    if len(a.shape) < 2 or len(a.shape) != len(b.shape) or a.shape[:-2] != b.shape[:-2]:
        raise GraphError(f"{what} takes as many matrices of each, not {list(a.shape)} and {list(b.shape)}")


def swapped(shape: tuple[int, ...], transposed: bool) -> tuple[int, ...]:
    """Return a shape as a product reads it: the last two dimensions swapped where the matrices are transposed."""
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape


def product_shape(what: str, left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a product of matrices; GraphError where they do not fit."""
    if left[-1] != right[-2]:
        raise GraphError(f"{what} of {list(left)} and {list(right)}: columns of the first must be rows of the second")
    return (*left[:-1], right[-1])


def turned(x: Array, transposed: bool) -> Array:
    """Return matrices as a product reads them."""
    return np.swapaxes(x, -1, -2) if transposed else x


def steps(shape: tuple[int, ...], transposed: bool) -> tuple[int, int]:
    """Return the elements from one row to the next and from one column to the next, as a product reads matrices."""
    return (1, shape[-1]) if transposed else (shape[-1], 1)


@op
class MatMul(Op):
    """y = a · b, matrix by matrix along leading dimensions, each matrix transposed or not."""

    transpose_a: bool = False
    transpose_b: bool = False

    kernel = "smg_matmul_s8"
    requantizes = True

    def infer(self, a: Type, b: Type) -> Type:
        check_quantized("MatMul", a, b)
        check_matrices("MatMul", a, b)
        shapes = swapped(a.shape, self.transpose_a), swapped(b.shape, self.transpose_b)
        return Type(product_shape("MatMul", *shapes), a.dtype)

    def multiplier(self, node: Node) -> tuple[int, int]:
        """Return s_a·s_b / s_y: TFLite multiplies the scales in float32 and divides in double."""
        a, b = (v.type.scale for v in node.ins)
        with np.errstate(over="ignore", under="ignore"):
            product = float(np.float32(a) * np.float32(b))
        return numerics.quantize_multiplier(product / node.out.type.scale)

    def ref(self, node: Node, a: Array, b: Array) -> Array:
        if a.dtype == np.float32:
            return np.asarray(turned(a, self.transpose_a) @ turned(b, self.transpose_b))
        left, right = (x.astype(np.float64) - v.type.zero for x, v in zip((a, b), node.ins, strict=True))
        sums = (turned(left, self.transpose_a) @ turned(right, self.transpose_b)).astype(np.int64)
        return numerics.to_int8(numerics.multiply(sums, *self.multiplier(node)), node.out.type.zero)

    def params(self, node: Node) -> Params:
        (a, b), y = (v.type for v in node.ins), node.out.type
        multiplier, shift = self.multiplier(node)
        a_row, a_step = steps(a.shape, self.transpose_a)
        b_step, b_column = steps(b.shape, self.transpose_b)
        rows, columns = y.shape[-2:]
        return {
            "count": y.size // (rows * columns), "rows": rows, "columns": columns,
            "depth": swapped(a.shape, self.transpose_a)[-1],
            "a_row": a_row, "a_step": a_step, "b_step": b_step, "b_column": b_column,
            "a_zero": a.zero, "b_zero": b.zero, "y_zero": y.zero, "multiplier": multiplier, "shift": shift,
        }  # fmt: skip

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        """Emit dy · bᵀ and aᵀ · dy, transposed where the operand was."""
        a, b = node.ins
        dz = requantize_grad(g, dy, node.out, ratio(a.type, b.type, over=node.out.type), "none")
        da = MatMulGrad(first=True, turn_other=not self.transpose_b)
        if self.transpose_a:
            da = MatMulGrad(first=False, turn=True, turn_other=self.transpose_b)
        db = MatMulGrad(first=False, turn_other=not self.transpose_a)
        if self.transpose_b:
            db = MatMulGrad(first=True, turn=True, turn_other=self.transpose_a)
        return g.emit(da, dz, b), g.emit(db, dz, a)

    def macs(self, node: Node) -> int:
        return node.out.type.size * swapped(node.ins[0].type.shape, self.transpose_a)[-1]


@op
class MatMulGrad(GradOp):
    """The gradient times the other operand, less its zero point, or the other way round; each may be transposed."""

    first: bool = True  # the gradient is the product's first factor
    turn: bool = False  # the gradient is transposed
    turn_other: bool = False

    kernel = "smg_matmul_grad_g8"
    operands = 2

    def sides(self, dy: tuple[int, ...], other: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of the product's factors, in order."""
        gradient, operand = swapped(dy, self.turn), swapped(other, self.turn_other)
        return (gradient, operand) if self.first else (operand, gradient)

    def shape(self, *operands: Type) -> tuple[int, ...]:
        check_matrices("MatMulGrad", *operands)
        return product_shape("MatMulGrad", *self.sides(operands[0].shape, operands[1].shape))

    def sums(self, node: Node, *operands: Array) -> Array:
        dy, other = operands
        whole = np.float64 if self.lowered else np.float32
        gradient = turned(dy.astype(whole), self.turn)
        operand = turned(other.astype(whole) - np.asarray(node.ins[1].type.zero, whole), self.turn_other)
        product: Array = gradient @ operand if self.first else operand @ gradient
        return product.astype(np.int64) if self.lowered else product

    def depth(self, node: Node) -> int:
        """Return how many products are summed."""
        return self.sides(node.ins[0].type.shape, node.ins[1].type.shape)[0][-1]

    def bound(self, node: Node) -> int:
        return GRADIENT_MOST * INT8_SPAN * self.depth(node)

    def params(self, node: Node) -> Params:
        dy, other = node.ins[0].type, node.ins[1].type
        out = node.outs[0].type
        gradient, operand = steps(dy.shape, self.turn), steps(other.shape, self.turn_other)
        (left_row, left_step), (right_step, right_column) = (gradient, operand) if self.first else (operand, gradient)
        rows, columns = out.shape[-2:]
        return {
            "count": out.size // (rows * columns), "rows": rows, "columns": columns, "depth": self.depth(node),
            "gradient_first": int(self.first), "left_row": left_row, "left_step": left_step,
            "right_step": right_step, "right_column": right_column, "zero": other.zero, **self.rounding(node),
        }  # fmt: skip
