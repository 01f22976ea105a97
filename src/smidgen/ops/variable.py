"""Variables: what a streaming network carries from one run to the next.

A variable is state of the graph. A run reads it like any value, and an `Assign` says what replaces it, where nobody
reads the old value any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Op, Params, Type, Value, op
from smidgen.ops.checking import check_dtypes


@op
@dataclass(frozen=True)
class Assign(Op):
    """y = x, in the memory of a variable and in its place from the next run on."""

    kernel = "smg_assign_s8"
    inplace = 0
    carries = True

    def infer(self, variable: Type, x: Type) -> Type:
        check_dtypes("Assign", ("int8", "float32"), variable, x)
        if variable != x:
            raise GraphError(f"Assign gives {x} to a variable of {variable}; both must be of one type and quantization")
        return variable

    def ref(self, node: Node, variable: Array, x: Array) -> Array:
        return x.copy()

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        return node.ins[1], node.out

    def params(self, node: Node) -> Params:
        return {"n": node.out.type.size}
