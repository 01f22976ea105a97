"""Weights of which some channels learn: the frozen tensor with the trained channels laid over it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, Type, Value, op
from smidgen.ops.gradient import Gather


@op
@dataclass(frozen=True)
class Overlay(Op):
    """`frozen` with its last axis replaced at `channels` by `trained`; the gradient asks for those channels alone."""

    channels: tuple[int, ...]

    virtual = True

    def infer(self, frozen: Type, trained: Type) -> Type:
        if trained.shape != (*frozen.shape[:-1], len(self.channels)) or trained.dtype != frozen.dtype:
            raise GraphError(
                f"Overlay of {list(trained.shape)} does not fit {len(self.channels)} of {list(frozen.shape)}"
            )
        Gather(self.channels).infer(frozen)  # raises where a channel is not there
        return frozen

    def ref(self, node: Node, frozen: Array, trained: Array) -> Array:
        whole = frozen.copy()
        whole[..., list(self.channels)] = trained
        return whole

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        return None, g.emit(Gather(self.channels), dy)

    def params(self, node: Node) -> Params:
        return {"channel": np.array(self.channels, np.int16)}
