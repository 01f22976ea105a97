"""Weights of which some channels learn: the frozen tensor with the trained channels laid over it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, QParams, Type, Value, op
from smidgen.ops.checking import check_channels, check_dtypes
from smidgen.ops.select import Gather

MOST_CHANNELS = 2**15 - 1  # their numbers are int16 in C


@op
@dataclass(frozen=True)
class Overlay(Op):
    """`frozen` with its last axis replaced at `channels` by `trained`; the gradient asks for those channels alone."""

    channels: tuple[int, ...]

    virtual = True

    def infer(self, frozen: Type, trained: Type) -> Type:
        check_channels("Overlay", frozen)
        check_dtypes("Overlay", ("int8", "float32"), frozen)
        ascending = all(a < b for a, b in zip(self.channels, self.channels[1:], strict=False))
        if not (self.channels and ascending and self.channels[0] >= 0 and self.channels[-1] < frozen.shape[-1]):
            raise GraphError(f"Overlay's channels {self.channels[:4]}… must ascend within {list(frozen.shape)}")
        if frozen.shape[-1] > MOST_CHANNELS:
            raise GraphError(f"Overlay of {frozen.shape[-1]:,} channels; the most is {MOST_CHANNELS:,}")
        if trained.q != self.kept(frozen):
            raise GraphError(f"Overlay's {len(self.channels)} channels have other scales than those they replace")
        if trained.shape != (*frozen.shape[:-1], len(self.channels)) or trained.dtype != frozen.dtype:
            raise GraphError(
                f"Overlay of {list(trained.shape)} does not fit {len(self.channels)} of {list(frozen.shape)}"
            )
        Gather(self.channels).infer(frozen)  # raises where a channel is not there
        return frozen

    def kept(self, frozen: Type) -> QParams | None:
        """The quantization of the channels that learn."""
        q = frozen.q
        if q is None or q.axis != len(frozen.shape) - 1:
            return q
        return QParams(tuple(q.scale[c] for c in self.channels), q.zero, q.axis)

    def ref(self, node: Node, frozen: Array, trained: Array) -> Array:
        whole = frozen.copy()
        whole[..., list(self.channels)] = trained
        return whole

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        return None, g.emit(Gather(self.channels), dy)

    def params(self, node: Node) -> Params:
        return {"channel": np.array(self.channels, np.int16)}
