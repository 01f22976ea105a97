"""Long short-term memory, in int8 as TFLite's kernel computes it, and its gradient back through time.

At every step h ← o·tanh(c) and c ← f·c + i·g. In int8 the slopes of a step are six bytes of each cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Params, Type, op
from smidgen.numerics import int16
from smidgen.numerics.fixed_point import shift_right
from smidgen.ops.recurrence import (
    COARSE,
    FINE,
    ONE,
    SHARE,
    SHARE_ZERO,
    SQUARED,
    Arithmetic,
    PassedBack,
    Recurrent,
    RecurrentGrad,
    RecurrentSlopes,
    RecurrentStep,
    gate_multipliers,
    gate_sums,
    sigmoid,
)

MOST_BITS = 6  # before the point of a cell state
SLOPES = 6  # from dh to o and to c; from dc to i, f and g, and to the c before


@op
class Lstm(Recurrent):
    """c ← f·c + i·g, h ← o·tanh(c); i, f and o are sigmoids, g is a tanh; weights hold them in the order i, f, g, o.

    `clip` limits c, where it is above 0; `bits` are those before its point in int8.
    """

    gates: ClassVar[int] = 4
    state_step: ClassVar[float] = SQUARED

    clip: float = 0.0
    bits: int = 3

    kernel = "smg_lstm_s8"

    def infer(self, x: Type, w: Type, u: Type, b: Type) -> Type:
        if not 0 <= self.bits <= MOST_BITS or not (math.isfinite(self.clip) and self.clip >= 0):
            raise GraphError(
                f"Lstm holds its cell state with {self.bits} bits before the point, limited to {self.clip}; "
                f"give 0 to {MOST_BITS} bits, and a limit of 0 or more"
            )
        return super().infer(x, w, u, b)

    def cell_limit(self) -> int:
        """Return the limit of the cell state in its own steps; 0 for none."""
        return int(min(float(np.float32(self.clip)) * 2.0 ** (int16.FRACTION - self.bits), int16.INT16_MAX))

    def real_steps(self, x: Array, w: Array, u: Array, b: Array) -> Iterator[RecurrentStep]:
        h = c = np.zeros(w.shape[1], np.float32)
        for now in x:
            sums = w @ now + u @ h + b
            i, f, _, o = sigmoid(sums)
            g, before = np.tanh(sums[2]), c
            c = f * c + i * g
            c = np.clip(c, -self.clip, self.clip) if self.clip else c
            h = o * np.tanh(c)
            yield RecurrentStep((i, f, g, o), before, c, h)

    def int8_steps(self, node: Node, y: Type, x: Array, w: Array, u: Array, b: Array) -> Iterator[RecurrentStep]:
        x_type, w_type, u_type, _ = (v.type for v in node.ins)
        limit, last = self.cell_limit(), numerics.quantize_single(self.state_step, over=y.scale)
        from_h = gate_multipliers(y, u_type)
        given = int16.saturate(gate_sums(x, x_type.zero, w, b, gate_multipliers(x_type, w_type)))
        h, c = np.full(w.shape[1], y.zero, np.int8), np.zeros(w.shape[1], np.int64)
        for now in given:
            sums = int16.saturate(now + gate_sums(h[None], y.zero, u, 0, from_h)[0])
            i, f, o = (int16.sigmoid(sums[gate]) for gate in (0, 1, 3))
            g, before = int16.tanh(sums[2], int16.GATE_BITS), c
            c = shift_right(f * c, int16.FRACTION) + shift_right(i * g, int16.FRACTION + self.bits)
            c = np.clip(int16.saturate(c), -limit, limit) if limit else int16.saturate(c)
            h = numerics.to_int8(numerics.multiply(o * int16.tanh(c, self.bits), *last), y.zero)
            yield RecurrentStep((i, f, g, o), before, c, h)

    def backward(self, factors: tuple[float, ...], scale: float, zero: int) -> tuple[LstmSlopes, LstmGrad]:
        return LstmSlopes(self.clip, self.bits, scale, zero), LstmGrad(factors, bits=self.bits)

    def params(self, node: Node) -> Params:
        return {**super().params(node), "bits": self.bits, "limit": self.cell_limit()}


@op
class LstmSlopes(RecurrentSlopes):
    """The six slopes of an LSTM: from dh to o and to c; from dc to i, f and g, and to the c before."""

    clip: float = 0.0
    bits: int = 3
    y_scale: float = 1.0
    y_zero: int = 0

    kernel = "smg_lstm_slopes_s8"
    kinds = SLOPES

    @property
    def layer(self) -> Lstm:
        return Lstm(True, self.clip, self.bits)

    def real(self, step: RecurrentStep) -> tuple[Array, ...]:
        """Return the slopes; where the cell state is limited, nothing passes back from it."""
        (i, f, g, o), before, free = step.gates, step.before, self._free(step.state)
        tanh = np.tanh(step.state)
        back = (g * i * (1 - i), before * f * (1 - f), i * (1 - g * g), f)
        return tanh * o * (1 - o), o * (1 - tanh * tanh), *(part * free for part in back)

    def integers(self, step: RecurrentStep) -> tuple[Array, ...]:
        """Return the slopes; that of the forget gate is as much coarser as the cell state is larger."""
        (i, f, g, o), free = step.gates, self._free(step.state)
        tanh = int16.tanh(step.state, self.bits)

        def up_to_a_quarter(x: Array, gate: Array) -> Array:
            return np.asarray((x * (gate * (ONE - gate) >> 15) + (1 << 20)) >> 21)

        def up_to_one(gate: Array, x: Array) -> Array:
            return np.asarray((gate * (ONE - (x * x >> 15)) + (1 << 22)) >> 23)

        back = (up_to_a_quarter(g, i), up_to_a_quarter(step.before, f), up_to_one(i, g), (f + 64) >> 7)
        to_i, to_f, to_g, share = (part * free for part in back)
        return up_to_a_quarter(tanh, o), up_to_one(o, tanh), to_i, to_f, to_g, share + SHARE_ZERO

    def _free(self, c: Array) -> Array:
        """Return whether each cell state lies within its limits."""
        most = (self.layer.cell_limit() or int16.INT16_MAX) if c.dtype.kind == "i" else self.clip or math.inf
        return np.abs(c) < most


@op
class LstmGrad(RecurrentGrad):
    """dx of an LSTM from dy, its slopes, and its weights of x and of h; in int8 in units of 2^−12 steps of dy."""

    bits: int = 3  # before the point of the cell state

    kernel = "smg_lstm_grad_g8"
    gates = 4
    slopes = SLOPES
    shares = 1

    def shape(self, *operands: Type) -> tuple[int, ...]:
        if not 0 <= self.bits < FINE:
            raise GraphError(f"LstmGrad of a cell state with {self.bits} bits before the point; give 0 to {FINE - 1}")
        return super().shape(*operands)

    @property
    def cell_bits(self) -> int:
        return self.bits

    def points(self) -> tuple[int, ...]:
        return FINE, COARSE, FINE, FINE - self.bits, COARSE

    def passed_back(self, a: Arithmetic, dh: Array, dc: Array, slopes: Array) -> PassedBack:
        o, c, i, f, g, share = slopes
        dc = a.limit(dc + a.times(dh, c, COARSE))
        kinds = ((dc, i, FINE), (dc, f, FINE - self.bits), (dc, g, COARSE), (dh, o, FINE))
        dz = a.limit(np.stack([a.times(*kind) for kind in kinds]))
        return PassedBack(dz, dz, 0, a.times(dc, share, SHARE))
