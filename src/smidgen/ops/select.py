"""Parts of tensors: crops, and some channels of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Op, Params, Type, op
from smidgen.ops.checking import check_channels


@op
@dataclass(frozen=True)
class Crop(Op):
    """The part of a tensor from `start` to `stop` in each dimension: the gradient of padding and concatenation."""

    start: tuple[int, ...]
    stop: tuple[int, ...]

    kernel = "smg_crop_s8"

    def infer(self, x: Type) -> Type:
        inside = len(self.start) == len(self.stop) == len(x.shape) and all(
            0 <= a < b <= d for a, b, d in zip(self.start, self.stop, x.shape, strict=True)
        )
        if not inside:
            raise GraphError(f"Crop from {self.start} to {self.stop} does not fit {list(x.shape)}")
        return Type(tuple(b - a for a, b in zip(self.start, self.stop, strict=True)), x.dtype, x.q)

    def ref(self, node: Node, x: Array) -> Array:
        return np.ascontiguousarray(x[tuple(slice(a, b) for a, b in zip(self.start, self.stop, strict=True))])

    def params(self, node: Node) -> Params:
        lead = (1,) * (4 - len(self.start))
        return {
            "x_shape": np.array(lead + node.ins[0].type.shape, np.int32),
            "y_shape": np.array(lead + node.out.type.shape, np.int32),
            "start": np.array((0,) * len(lead) + self.start, np.int32),
        }


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
