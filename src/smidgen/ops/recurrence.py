"""What recurrent layers over a sequence of fixed length share; `lstm` and `gru` have them.

In int8, activations and what recurs are int8, gates and the state are int16: the LSTM as TFLite's kernel computes it,
the GRU, which TFLite has no int8 kernel of, in the same arithmetic. Every run begins with a state of zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Op, Params, Type
from smidgen.numerics import int16
from smidgen.ops.checking import check_dtypes, check_rank

MOST_SUMMED = 1 << 15  # products of one gate from one side: their sum stays in int32
BIASES = 4  # rows of a bias: those of a GRU are r, z and n from x, and n from h
SQUARED = 2.0**-30  # a step of the product of two numbers in Q0.15


@dataclass(frozen=True)
class Recurrent(Op, ABC):
    """Hidden states h of x [1, steps, inputs]: all of them as [1, steps, cells], or the last one as [1, cells].

    Weights are [gates, cells, inputs] for x and [gates, cells, cells] for h; the bias is [4, cells].
    """

    gates: ClassVar[int]
    state_step: ClassVar[float]  # of what is rounded to a hidden state in int8

    whole: bool = True

    requantizes = True
    working_memory = True

    def infer(self, x: Type, w: Type, u: Type, b: Type) -> Type:
        what = type(self).__name__
        check_rank(what, 3, x, w, u)
        check_dtypes(what, ("int8", "float32"), x)
        check_dtypes(what, (x.dtype,), w, u)
        cells, inputs = w.shape[1], x.shape[2]
        shapes = (self.gates, cells, inputs), (self.gates, cells, cells), (BIASES, cells)
        if x.shape[0] != 1 or (w.shape, u.shape, b.shape) != shapes:
            raise GraphError(
                f"{what} takes [1, steps, {inputs}] with weights and a bias of "
                f"{', '.join(str(list(s)) for s in shapes)}, not {list(x.shape)} with "
                f"{list(w.shape)}, {list(u.shape)}, {list(b.shape)}"
            )
        check_dtypes(what, ("int32" if x.dtype == "int8" else "float32",), b)
        if max(cells, inputs) > MOST_SUMMED:
            raise GraphError(f"{what} sums {max(cells, inputs):,} products for a gate; up to {MOST_SUMMED:,} fit int32")
        if x.dtype == "int8":
            _check_scales(what, self.gates, x, w, u)
        return Type((1, x.shape[1], cells) if self.whole else (1, cells), x.dtype)

    def ref(self, node: Node, x: Array, w: Array, u: Array, b: Array) -> Array:
        hidden, _ = self.states(node, x[0], w, u, b)
        return hidden[None] if self.whole else hidden[-1:]

    @abstractmethod
    def states(self, node: Node, x: Array, w: Array, u: Array, b: Array) -> tuple[Array, Array]:
        """The hidden state and the state behind it at every step of x [steps, inputs]."""

    def params(self, node: Node) -> Params:
        (x, w, u, _), y = (v.type for v in node.ins), node.out.type
        (x_multiplier, x_shift), (h_multiplier, h_shift) = gate_multipliers(x, w), gate_multipliers(y, u)
        y_multiplier, y_shift = numerics.quantize_single(self.state_step, over=y.scale)
        return {
            "steps": x.shape[1], "inputs": x.shape[2], "cells": y.shape[-1], "whole": int(self.whole),
            "x_zero": x.zero, "y_zero": y.zero, "y_multiplier": y_multiplier, "y_shift": y_shift,
            "x_multiplier": x_multiplier, "h_multiplier": h_multiplier, "x_shift": x_shift, "h_shift": h_shift,
        }  # fmt: skip

    def macs(self, node: Node) -> int:
        x, w, u, _ = (v.type for v in node.ins)
        return x.shape[1] * (w.size + u.size)


def _check_scales(what: str, gates: int, x: Type, w: Type, u: Type) -> None:
    if x.q is None or x.q.axis is not None:
        raise GraphError(f"{what} takes an int8 input with one scale")
    for weights in (w, u):
        q = weights.q
        if q is None or q.zero != 0 or (len(q.scale) > 1 and q.axis != 0):
            raise GraphError(f"{what} takes int8 weights with one scale per gate, {gates} along axis 0, from zero")


def gate_scales(weights: Type) -> tuple[float, ...]:
    """The scale of each gate's weights."""
    assert weights.q is not None
    scales = weights.q.scale
    return scales * weights.shape[0] if len(scales) == 1 else scales


def gate_multipliers(x: Type, weights: Type) -> tuple[Array, Array]:
    """Multipliers and shifts that bring each gate's sums to Q3.12, as int32 and int8."""
    unit = 2.0 ** (int16.GATE_BITS - int16.FRACTION)
    pairs = [numerics.quantize_single(scale, x.scale, over=unit) for scale in gate_scales(weights)]
    return np.array([m for m, _ in pairs], np.int32), np.array([s for _, s in pairs], np.int8)


def gate_sums(rows: Array, zero: int, weights: Array, bias: Array | int, scaling: tuple[Array, Array]) -> Array:
    """What rows of int8 numbers give to each gate, [rows, gates, cells], in Q3.12 and not yet limited to int16."""
    centred = rows.astype(np.float64) - zero
    acc = np.einsum("ri,gci->rgc", centred, weights.astype(np.float64)).astype(np.int64) + bias
    multiplier, shift = (part[:, None] for part in scaling)
    return numerics.multiply(acc.astype(np.int32), multiplier, shift)


def sigmoid(x: Array) -> Array:
    y: Array = 0.5 + 0.5 * np.tanh(x / 2)
    return y
