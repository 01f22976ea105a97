"""Batch normalization as it is when a network infers: a scale and a shift for each channel."""

from __future__ import annotations

from dataclasses import dataclass

from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Op, Type, op


@op
@dataclass(frozen=True)
class BatchNorm(Op):
    """y = x · scale + shift along the last axis, in float32; quantization folds it into the layer beside it."""

    def infer(self, x: Type, scale: Type, shift: Type) -> Type:
        if any(t.dtype != "float32" for t in (x, scale, shift)):
            found = ", ".join(t.dtype for t in (x, scale, shift))
            raise GraphError(f"BatchNorm takes float32, not {found}; quantization folds it into the layer before it")
        if not x.shape or scale.shape != x.shape[-1:] or shift.shape != x.shape[-1:]:
            raise GraphError(
                f"BatchNorm of {list(x.shape)} needs one scale and one shift per channel, "
                f"got {list(scale.shape)} and {list(shift.shape)}"
            )
        return Type(x.shape, x.dtype)

    def ref(self, node: Node, x: Array, scale: Array, shift: Array) -> Array:
        y: Array = x * scale + shift
        return y
