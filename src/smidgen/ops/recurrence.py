"""Long short-term memory over a sequence of fixed length, in int8 as TFLite's kernel computes it.

Activations and the hidden state are int8; the gates and the cell state are int16. Every run begins with a state of
zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Op, Params, Type, op
from smidgen.numerics import int16
from smidgen.ops.checking import check_dtypes, check_rank

MOST_SUMMED = 1 << 15  # products of one gate from one side: their sum stays in int32
MOST_BITS = 6  # before the point of a cell state


def check_recurrent(what: str, gates: int, x: Type, w: Type, u: Type) -> int:
    """The number of cells, once x is [steps, inputs], w [gates, cells, inputs] and u [gates, cells, cells]."""
    check_rank(what, 2, x)
    check_rank(what, 3, w, u)
    check_dtypes(what, ("int8", "float32"), x)
    check_dtypes(what, (x.dtype,), w, u)
    cells = w.shape[1]
    if w.shape != (gates, cells, x.shape[1]) or u.shape != (gates, cells, cells):
        raise GraphError(
            f"{what} of {list(x.shape)} takes weights [{gates}, cells, {x.shape[1]}] and [{gates}, cells, cells], "
            f"not {list(w.shape)} and {list(u.shape)}"
        )
    if max(cells, x.shape[1]) > MOST_SUMMED:
        raise GraphError(f"{what} sums {max(cells, x.shape[1]):,} products for a gate; up to {MOST_SUMMED:,} fit int32")
    if x.dtype == "int8":
        _check_scales(what, gates, x, w, u)
    return cells


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


def gate_sums(steps: Array, zero: int, weights: Array, bias: Array | int, scaling: tuple[Array, Array]) -> Array:
    """What rows of int8 numbers give to each gate, [rows, gates, cells], in Q3.12 and not yet limited to int16."""
    centred = steps.astype(np.float64) - zero
    acc = np.einsum("ri,gci->rgc", centred, weights.astype(np.float64)).astype(np.int64) + bias
    multiplier, shift = (part[:, None] for part in scaling)
    return numerics.multiply(acc.astype(np.int32), multiplier, shift)


@op
@dataclass(frozen=True)
class Lstm(Op):
    """c ← f·c + i·g, h ← o·tanh(c) at every step of x [steps, inputs]; y holds every h, or the last one alone.

    The gates i, f, g, o are [4, cells, …] of the weights of x, of those of h and of the bias, in that order; i, f and o
    are sigmoids, g is a tanh. `clip` limits c, where it is above 0; `bits` are those before its point in int8.
    """

    gates: ClassVar[int] = 4

    whole: bool = True
    clip: float = 0.0
    bits: int = 3

    kernel = "smg_lstm_s8"
    requantizes = True
    working_memory = True

    def infer(self, x: Type, w: Type, u: Type, b: Type) -> Type:
        cells = check_recurrent("Lstm", self.gates, x, w, u)
        if b.shape != (self.gates, cells) or b.dtype != ("int32" if x.dtype == "int8" else "float32"):
            raise GraphError(f"Lstm of {cells} cells takes a bias of [{self.gates}, {cells}], not {list(b.shape)}")
        if not 0 <= self.bits <= MOST_BITS or not (math.isfinite(self.clip) and self.clip >= 0):
            raise GraphError(
                f"Lstm holds its cell state with {self.bits} bits before the point, limited to {self.clip}; "
                f"give 0 to {MOST_BITS} bits, and a limit of 0 or more"
            )
        return Type((x.shape[0] if self.whole else 1, cells), x.dtype)

    def ref(self, node: Node, x: Array, w: Array, u: Array, b: Array) -> Array:
        hidden, _ = self.run(node, x, w, u, b)
        return hidden if self.whole else hidden[-1:]

    def run(self, node: Node, x: Array, w: Array, u: Array, b: Array) -> tuple[Array, Array]:
        """Every hidden state and every cell state."""
        return (_float_lstm(self, x, w, u, b)) if x.dtype == np.float32 else _int8_lstm(self, node, x, w, u, b)

    def cell_limit(self) -> int:
        """The limit of the cell state in its own steps; 0 for none."""
        return int(min(float(np.float32(self.clip)) * 2.0 ** (int16.FRACTION - self.bits), int16.INT16_MAX))

    def params(self, node: Node) -> Params:
        x, w, u, _ = (v.type for v in node.ins)
        y = node.out.type
        (x_multiplier, x_shift), (h_multiplier, h_shift) = gate_multipliers(x, w), gate_multipliers(y, u)
        y_multiplier, y_shift = numerics.quantize_single(2.0**-30, over=y.scale)
        return {
            "steps": x.shape[0], "inputs": x.shape[1], "cells": y.shape[1], "whole": int(self.whole),
            "x_zero": x.zero, "y_zero": y.zero, "bits": self.bits, "limit": self.cell_limit(),
            "y_multiplier": y_multiplier, "y_shift": y_shift,
            "x_multiplier": x_multiplier, "x_shift": x_shift, "h_multiplier": h_multiplier, "h_shift": h_shift,
        }  # fmt: skip

    def macs(self, node: Node) -> int:
        x, w, u, _ = (v.type for v in node.ins)
        return x.shape[0] * (w.size + u.size)


def _float_lstm(op: Lstm, x: Array, w: Array, u: Array, b: Array) -> tuple[Array, Array]:
    hidden, cells = (np.zeros((len(x), w.shape[1]), np.float32) for _ in range(2))
    h = c = np.zeros(w.shape[1], np.float32)
    for t, now in enumerate(x):
        sums = w @ now + u @ h + b
        i, f, _, o = 0.5 + 0.5 * np.tanh(sums / 2)
        c = f * c + i * np.tanh(sums[2])
        c = np.clip(c, -op.clip, op.clip) if op.clip else c
        h = o * np.tanh(c)
        hidden[t], cells[t] = h, c
    return hidden, cells


def _int8_lstm(op: Lstm, node: Node, x: Array, w: Array, u: Array, b: Array) -> tuple[Array, Array]:
    (x_type, w_type, u_type, _), y = (v.type for v in node.ins), node.out.type
    limit, last = op.cell_limit(), numerics.quantize_single(2.0**-30, over=y.scale)
    from_h = gate_multipliers(y, u_type)
    given = int16.saturate(gate_sums(x, x_type.zero, w, b, gate_multipliers(x_type, w_type)))
    hidden, cells = np.zeros((len(x), w.shape[1]), np.int8), np.zeros((len(x), w.shape[1]), np.int16)
    h, c = np.full(w.shape[1], y.zero, np.int8), np.zeros(w.shape[1], np.int64)
    for t, now in enumerate(given):
        sums = int16.saturate(now + gate_sums(h[None], y.zero, u, 0, from_h)[0])
        i, f, o = (int16.sigmoid(sums[gate]) for gate in (0, 1, 3))
        added = int16.shift_right(i * int16.tanh(sums[2], int16.GATE_BITS), int16.FRACTION + op.bits)
        c = int16.saturate(int16.shift_right(f * c, int16.FRACTION) + added)
        c = np.clip(c, -limit, limit) if limit else c
        h = numerics.to_int8(numerics.multiply(o * int16.tanh(c, op.bits), *last), y.zero)
        hidden[t], cells[t] = h, c
    return hidden, cells
