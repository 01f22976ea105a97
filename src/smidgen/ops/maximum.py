"""The larger of two tensors, and the mask by which its gradient finds the one it came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, Type, Value, op
from smidgen.ops.elementwise import check_pair, repeat_grad
from smidgen.ops.gradient import RequantizeGrad, mask_bytes


def check_comparable(what: str, a: Type, b: Type) -> None:
    """Raise GraphError unless b fits along a and both stand for the same real numbers."""
    check_pair(what, a, b)
    if a.q != b.q:
        raise GraphError(f"{what} compares numbers of one quantization, not of {a.q} and {b.q}; requantize one of them")


@op
@dataclass(frozen=True)
class Maximum(Op):
    """y = max(a, b), all in one quantization; b may repeat along a's leading dimensions."""

    kernel = "smg_maximum_s8"
    elementwise = True
    inplace = 0

    def infer(self, a: Type, b: Type) -> Type:
        check_comparable("Maximum", a, b)
        return a

    def ref(self, node: Node, a: Array, b: Array) -> Array:
        larger: Array = np.maximum(a, b)
        return larger

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        """Each element's gradient goes to the operand it was taken from, to a where both are equal."""
        a, b = node.ins
        da, db = (g.emit(RequantizeGrad(masked=True), dy, g.emit(Compare(less), a, b)) for less in (False, True))
        return da, repeat_grad(g, b, db)

    def params(self, node: Node) -> Params:
        return {"b_period": node.ins[1].type.size}


@op
@dataclass(frozen=True)
class Compare(Op):
    """One bit per element: whether a ≥ b or, with `less`, a < b."""

    less: bool = False

    kernel = "smg_compare_s8"
    saved = True

    def infer(self, a: Type, b: Type) -> Type:
        check_comparable("Compare", a, b)
        return Type((mask_bytes(a.size),), "uint8")

    def ref(self, node: Node, a: Array, b: Array) -> Array:
        bits: Array = np.packbits(((a >= b) != self.less).ravel(), bitorder="little")
        return bits

    def params(self, node: Node) -> Params:
        a, b = node.ins
        return {"n": a.type.size, "b_period": b.type.size, "less": int(self.less)}
