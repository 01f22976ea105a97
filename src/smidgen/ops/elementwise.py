"""Element by element: add, multiply, maximum, activations, the passages between float32 and int8, and gradients."""

import math
from dataclasses import dataclass

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, QParams, Type, Value, op
from smidgen.ops.checks import check_dtypes, check_repeats, check_shape
from smidgen.ops.gradient import GradOp, RequantizeGrad, mask_bytes, requantize_grad

ADD_SHIFT = 20  # headroom bits TFLite gives the sum of two int8 tensors


def check_quantized(what: str, *types: Type) -> None:
    """Raise GraphError unless all are int8 with one scale per tensor, or all are float32."""
    if all(t.dtype == "float32" for t in types):
        return
    if any(t.dtype != "int8" or t.q is None or t.q.axis is not None for t in types):
        found = ", ".join(t.dtype for t in types)
        raise GraphError(f"{what} takes float32, or int8 with one scale per tensor, not {found}")


def check_pair(what: str, a: Type, b: Type) -> None:
    """Raise GraphError unless b has a's shape, or repeats along a's leading dimensions."""
    check_quantized(what, a, b)
    check_repeats(what, a, b)


def ratio(*types: Type, over: Type) -> tuple[float, ...]:
    """Return a gradient's factor through a requantization, a product of scales over the output's; none in float32."""
    if over.q is None:
        return ()
    product = 1.0
    for type_ in types:
        product *= type_.scale
    return (product / over.scale,)


def repeat_grad(g: Builder, b: Value, d: Value) -> Value:
    """Emit a gradient of b's shape from one of the shape that b repeats along."""
    return d if d.type.shape == b.type.shape else g.emit(RepeatGrad(repeated=b.type.shape), d)


def pair_params(node: Node, activation: str) -> Params:
    a, b, y = node.ins[0].type, node.ins[1].type, node.out.type
    lo, hi = numerics.activation_range(activation, y)
    return {"a_zero": a.zero, "b_zero": b.zero, "y_zero": y.zero, "b_period": b.size, "lo": lo, "hi": hi}


@dataclass(frozen=True)
class Pair(Op):
    """The common part of sum and product; b may repeat along a's leading dimensions."""

    activation: str = "none"

    requantizes = True
    elementwise = True
    inplace = 0

    def infer(self, a: Type, b: Type) -> Type:
        numerics.check_activation(self.activation)
        check_pair(type(self).__name__, a, b)
        return Type(a.shape, a.dtype)


@op
class Add(Pair):
    """y = a + b."""

    kernel = "smg_add_s8"

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        a, b = node.ins
        da = requantize_grad(g, dy, node.out, ratio(a.type, over=node.out.type), self.activation)
        db = requantize_grad(g, dy, node.out, ratio(b.type, over=node.out.type), self.activation)
        return da, repeat_grad(g, b, db)

    def multipliers(self, node: Node) -> tuple[tuple[int, int], ...]:
        a, b, y = node.ins[0].type.scale, node.ins[1].type.scale, node.out.type.scale
        twice = 2 * max(a, b)
        reals = (a / twice, b / twice, twice / ((1 << ADD_SHIFT) * y))
        return tuple(numerics.quantize_multiplier(r) for r in reals)

    def ref(self, node: Node, a: Array, b: Array) -> Array:
        y = node.out.type
        if a.dtype == np.float32:
            return numerics.activated(a + b, self.activation, y)
        ma, mb, my = self.multipliers(node)
        left = numerics.multiply((a.astype(np.int64) - node.ins[0].type.zero) << ADD_SHIFT, *ma)
        right = numerics.multiply((b.astype(np.int64) - node.ins[1].type.zero) << ADD_SHIFT, *mb)
        return numerics.activated(numerics.multiply(left + right, *my), self.activation, y)

    def params(self, node: Node) -> Params:
        (ma, sa), (mb, sb), (my, sy) = self.multipliers(node)
        scales = {
            "a_multiplier": ma, "a_shift": sa, "b_multiplier": mb, "b_shift": sb, "y_multiplier": my, "y_shift": sy,
        }  # fmt: skip
        return {**pair_params(node, self.activation), **scales}


@op
class Mul(Pair):
    """y = a · b."""

    kernel = "smg_mul_s8"

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        a, b = node.ins
        dz = requantize_grad(g, dy, node.out, ratio(a.type, b.type, over=node.out.type), self.activation)
        return g.emit(MulGrad(), dz, b), repeat_grad(g, b, g.emit(MulGrad(), dz, a))

    def multiplier(self, node: Node) -> tuple[int, int]:
        a, b = (v.type.scale for v in node.ins)
        return numerics.quantize_single(a, b, over=node.out.type.scale)

    def ref(self, node: Node, a: Array, b: Array) -> Array:
        y = node.out.type
        if a.dtype == np.float32:
            return numerics.activated(a * b, self.activation, y)
        product = (a.astype(np.int64) - node.ins[0].type.zero) * (b.astype(np.int64) - node.ins[1].type.zero)
        return numerics.activated(numerics.multiply(product, *self.multiplier(node)), self.activation, y)

    def params(self, node: Node) -> Params:
        multiplier, shift = self.multiplier(node)
        return {**pair_params(node, self.activation), "multiplier": multiplier, "shift": shift}


class Rescale(Op):
    """y = x limited to an activation's range, in another quantization."""

    activation: str

    kernel = "smg_rescale_s8"
    requantizes = True
    elementwise = True
    inplace = 0

    def multiplier(self, node: Node) -> tuple[int, int]:
        return numerics.quantize_single(node.ins[0].type.scale, over=node.out.type.scale)

    def ref(self, node: Node, x: Array) -> Array:
        y = node.out.type
        if x.dtype == np.float32:
            return numerics.activated(x, self.activation, y)
        scaled = numerics.multiply(x.astype(np.int64) - node.ins[0].type.zero, *self.multiplier(node))
        return numerics.activated(scaled, self.activation, y)

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        return (requantize_grad(g, dy, node.out, ratio(node.ins[0].type, over=node.out.type), self.activation),)

    def params(self, node: Node) -> Params:
        (multiplier, shift), x, y = self.multiplier(node), node.ins[0].type, node.out.type
        lo, hi = numerics.activation_range(self.activation, y)
        return {"x_zero": x.zero, "y_zero": y.zero, "multiplier": multiplier, "shift": shift, "lo": lo, "hi": hi}


@op
class Activate(Rescale):
    """An activation on its own."""

    activation: str = "relu"

    def infer(self, x: Type) -> Type:
        numerics.check_activation(self.activation)
        check_quantized("Activate", x)
        return Type(x.shape, x.dtype)


@op
class Requantize(Rescale):
    """The same real numbers in another int8 quantization."""

    activation = "none"

    def infer(self, x: Type) -> Type:
        if x.dtype != "int8" or x.q is None or x.q.axis is not None:
            raise GraphError(f"Requantize takes int8 with one scale, not {x.dtype}")
        return Type(x.shape, x.dtype)

    def multiplier(self, node: Node) -> tuple[int, int]:
        return numerics.quantize_multiplier(node.ins[0].type.scale / node.out.type.scale)


@op
class Quantize(Op):
    """float32 → int8."""

    kernel = "smg_quantize_f32_s8"
    takes = "float32"
    requantizes = True
    elementwise = True

    def infer(self, x: Type) -> Type:
        if x.dtype != "float32":
            raise GraphError(f"Quantize takes float32, not {x.dtype}; Requantize goes from int8 to int8")
        return Type(x.shape, "int8")

    def ref(self, node: Node, x: Array) -> Array:
        return numerics.quantize(x, _q(node.out.type))

    def params(self, node: Node) -> Params:
        return {"zero": node.out.type.zero, "scale": node.out.type.scale}


@op
class Dequantize(Op):
    """int8 → float32."""

    kernel = "smg_dequantize_s8_f32"
    elementwise = True

    def infer(self, x: Type) -> Type:
        if x.dtype != "int8" or x.q is None or x.q.axis is not None:
            raise GraphError(f"Dequantize takes int8 with one scale, not {x.dtype}")
        return Type(x.shape, "float32")

    def ref(self, node: Node, x: Array) -> Array:
        return numerics.dequantize(x, _q(node.ins[0].type))

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        return (g.emit(DequantizeGrad(node.ins[0].type.scale), dy),)

    def params(self, node: Node) -> Params:
        return {"zero": node.ins[0].type.zero, "scale": node.ins[0].type.scale}


@op
class DequantizeGrad(Op):
    """The gradient with respect to int8 steps; lowering makes it the passage from float32 to int8."""

    scale: float

    def infer(self, dy: Type) -> Type:
        check_dtypes("DequantizeGrad", ("float32",), dy)
        return dy

    def ref(self, node: Node, dy: Array) -> Array:
        return dy * np.float32(self.scale)


def _q(type: Type) -> QParams:
    assert type.q is not None
    return type.q


@op
class MulGrad(GradOp):
    """da = dy · (b − zero), b repeating along it."""

    kernel = "smg_mul_grad_g8"
    operands = 2

    def shape(self, *operands: Type) -> tuple[int, ...]:
        check_repeats("MulGrad", *operands)
        return operands[0].shape

    def sums(self, node: Node, *operands: Array) -> Array:
        dy, b = operands
        kind = np.int64 if self.lowered else np.float32
        return np.asarray(dy.astype(kind) * (b.astype(kind) - np.asarray(node.ins[1].type.zero, kind)))

    def bound(self, node: Node) -> int:
        return 127 * 255

    def sizes(self, node: Node) -> Params:
        b = node.ins[1].type
        return {**super().sizes(node), "b_period": b.size, "b_zero": b.zero}


@op
class RepeatGrad(GradOp):
    """The gradient of a value that repeated along another: the sum over the repetitions."""

    repeated: tuple[int, ...] = (1,)  # the shape of the value

    kernel = "smg_repeat_grad_g8"

    def shape(self, *operands: Type) -> tuple[int, ...]:
        check_shape("RepeatGrad", self.repeated)
        if operands[0].size % math.prod(self.repeated):
            raise GraphError(f"RepeatGrad of {list(operands[0].shape)} does not repeat {list(self.repeated)}")
        return self.repeated

    def sums(self, node: Node, *operands: Array) -> Array:
        size = int(np.prod(self.repeated))
        kind = np.int64 if self.lowered else np.float32
        return np.asarray(operands[0].reshape(-1, size).sum(axis=0, dtype=kind).reshape(self.repeated))

    def bound(self, node: Node) -> int:
        return 127 * (node.ins[0].type.size // node.outs[0].type.size)

    def sizes(self, node: Node) -> Params:
        return {**super().sizes(node), "repeats": node.ins[0].type.size // node.outs[0].type.size}


def check_comparable(what: str, a: Type, b: Type) -> None:
    """Raise GraphError unless b fits along a and both stand for the same real numbers."""
    check_pair(what, a, b)
    if a.q != b.q:
        raise GraphError(f"{what} compares numbers of one quantization, not of {a.q} and {b.q}; requantize one of them")


@op
class Maximum(Op):
    """y = max(a, b), all in one quantization; b may repeat along a's leading dimensions."""

    kernel = "smg_maximum_s8"
    elementwise = True
    inplace = 0

    def infer(self, a: Type, b: Type) -> Type:
        check_comparable("Maximum", a, b)
        return a

    def ref(self, node: Node, a: Array, b: Array) -> Array:
        return np.asarray(np.maximum(a, b))

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        """Pass each element's gradient to the operand it was taken from, to a where both are equal."""
        a, b = node.ins
        da, db = (g.emit(RequantizeGrad(masked=True), dy, g.emit(Compare(less), a, b)) for less in (False, True))
        return da, repeat_grad(g, b, db)

    def params(self, node: Node) -> Params:
        return {"b_period": node.ins[1].type.size}


@op
class Compare(Op):
    """One bit per element: whether a ≥ b or, with `less`, a < b."""

    less: bool = False

    kernel = "smg_compare_s8"
    saved = True

    def infer(self, a: Type, b: Type) -> Type:
        check_comparable("Compare", a, b)
        return Type((mask_bytes(a.size),), "uint8")

    def ref(self, node: Node, a: Array, b: Array) -> Array:
        return np.asarray(np.packbits(((a >= b) != self.less).ravel(), bitorder="little"))

    def params(self, node: Node) -> Params:
        a, b = node.ins
        return {"n": a.type.size, "b_period": b.type.size, "less": int(self.less)}
