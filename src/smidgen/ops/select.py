"""Some channels of a tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Op, Params, Type, op
from smidgen.ops.checking import check_channels


@op
@dataclass(frozen=True)
class Gather(Op):
    """Some channels of a tensor: what a partly trained layer keeps of its input."""

    channels: tuple[int, ...]

    kernel = "smg_gather_s8"
    saved = True

    def infer(self, x: Type) -> Type:
        check_channels("Gather", x)
        if not self.channels or not all(0 <= c < x.shape[-1] for c in self.channels):
            raise GraphError(f"Gather of channels {self.channels[:4]}… does not fit {list(x.shape)}")
        return Type((*x.shape[:-1], len(self.channels)), x.dtype, x.q)

    def ref(self, node: Node, x: Array) -> Array:
        return np.ascontiguousarray(x[..., list(self.channels)])

    def params(self, node: Node) -> Params:
        x = node.ins[0].type
        return {
            "n": x.size // x.shape[-1], "x_c": x.shape[-1], "y_c": len(self.channels),
            "channel": np.array(self.channels, np.int32),
        }  # fmt: skip
