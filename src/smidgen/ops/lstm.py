"""Long short-term memory, in int8 as TFLite's kernel computes it, and its gradient back through time.

At every step h ← o·tanh(c) and c ← f·c + i·g. In int8 the slopes of a step are six bytes of each cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Params, Type, Value, op
from smidgen.numerics import INT8_MAX, INT8_MIN, int16
from smidgen.ops.recurrence import (
    COARSE,
    FINE,
    FRACTION,
    ONE,
    SHARE,
    SHARE_ZERO,
    SQUARED,
    Recurrent,
    RecurrentGrad,
    RecurrentSlopes,
    gate_multipliers,
    gate_sums,
    limited,
    shifted,
    sigmoid,
    through,
)

MOST_BITS = 6  # before the point of a cell state
SLOPES = 6  # from dh to o and to c; from dc to i, f and g, and to the c before


@dataclass(frozen=True, eq=False)
class LstmStep:
    """One step of an LSTM, cell by cell: its gates, its cell state and the one before, and its hidden state."""

    i: Array
    f: Array
    g: Array
    o: Array
    c: Array
    before: Array
    h: Array


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

    def states(self, node: Node, x: Array, w: Array, u: Array, b: Array) -> tuple[Array, Array]:
        steps = list(self.steps(node, node.out.type, x, w, u, b))
        return np.stack([step.h for step in steps]), np.stack([step.c for step in steps])

    def steps(self, node: Node, y: Type, x: Array, w: Array, u: Array, b: Array) -> Iterator[LstmStep]:
        """Every step of x [steps, inputs], with hidden states of the type given."""
        return _float_steps(self, x, w, u, b) if x.dtype == np.float32 else _int8_steps(self, node, y, x, w, u, b)

    def cell_limit(self) -> int:
        """The limit of the cell state in its own steps; 0 for none."""
        return int(min(float(np.float32(self.clip)) * 2.0 ** (int16.FRACTION - self.bits), int16.INT16_MAX))

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        """Of x alone: the weights stay as they are."""
        (x, w, u, b), y = node.ins, node.out.type
        slopes, factors = LstmSlopes(self.clip, self.bits), tuple[float, ...]()
        if y.q is not None:
            slopes = LstmSlopes(self.clip, self.bits, y.scale, y.zero)
            factors = (x.type.scale / y.scale * 2.0**-FRACTION,)
        kept = g.emit(slopes, x, w, u, b)
        return g.emit(LstmGrad(factors, bits=self.bits), dy, kept, w, u), None, None, None

    def params(self, node: Node) -> Params:
        return {**super().params(node), "bits": self.bits, "limit": self.cell_limit()}


def _float_steps(op: Lstm, x: Array, w: Array, u: Array, b: Array) -> Iterator[LstmStep]:
    h = c = np.zeros(w.shape[1], np.float32)
    for now in x:
        sums = w @ now + u @ h + b
        i, f, _, o = sigmoid(sums)
        g, before = np.tanh(sums[2]), c
        c = f * c + i * g
        c = np.clip(c, -op.clip, op.clip) if op.clip else c
        h = o * np.tanh(c)
        yield LstmStep(i, f, g, o, c, before, h)


def _int8_steps(op: Lstm, node: Node, y: Type, x: Array, w: Array, u: Array, b: Array) -> Iterator[LstmStep]:
    x_type, w_type, u_type, _ = (v.type for v in node.ins)
    limit, last = op.cell_limit(), numerics.quantize_single(op.state_step, over=y.scale)
    from_h = gate_multipliers(y, u_type)
    given = int16.saturate(gate_sums(x, x_type.zero, w, b, gate_multipliers(x_type, w_type)))
    h, c = np.full(w.shape[1], y.zero, np.int8), np.zeros(w.shape[1], np.int64)
    for now in given:
        sums = int16.saturate(now + gate_sums(h[None], y.zero, u, 0, from_h)[0])
        i, f, o = (int16.sigmoid(sums[gate]) for gate in (0, 1, 3))
        g, before = int16.tanh(sums[2], int16.GATE_BITS), c
        c = int16.shift_right(f * c, int16.FRACTION) + int16.shift_right(i * g, int16.FRACTION + op.bits)
        c = np.clip(int16.saturate(c), -limit, limit) if limit else int16.saturate(c)
        h = numerics.to_int8(numerics.multiply(o * int16.tanh(c, op.bits), *last), y.zero)
        yield LstmStep(i, f, g, o, c, before, h)


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

    def ref(self, node: Node, x: Array, w: Array, u: Array, b: Array) -> Array:
        steps = self.layer.steps(node, self.hidden(node), x[0], w, u, b)
        if x.dtype == np.float32:
            found = [real_slopes(s.i, s.f, s.g, s.o, s.c, s.before, self._free(s.c)) for s in steps]
            return np.stack(found).reshape(1, len(x[0]), -1).astype(np.float32)
        tanh = [(s, int16.tanh(s.c, self.bits)) for s in steps]
        made = [int8_slopes(s.i, s.f, s.g, s.o, t, s.before, self._free(s.c)) for s, t in tanh]
        return np.stack(made).reshape(1, len(x[0]), -1)

    def _free(self, c: Array) -> Array:
        """Return whether each cell state lies within its limits."""
        most = (self.layer.cell_limit() or int16.INT16_MAX) if c.dtype.kind == "i" else self.clip or math.inf
        return np.abs(c) < most


def real_slopes(i: Array, f: Array, g: Array, o: Array, c: Array, before: Array, free: Array) -> Array:
    """All six of each cell, [cells, 6]; where the cell state is limited, nothing passes back from it."""
    tanh = np.tanh(c)
    back = (g * i * (1 - i), before * f * (1 - f), i * (1 - g * g), f)
    return np.stack([tanh * o * (1 - o), o * (1 - tanh * tanh), *(part * free for part in back)], axis=-1)


def int8_slopes(i: Array, f: Array, g: Array, o: Array, tanh: Array, before: Array, free: Array) -> Array:
    """The same of gates in Q0.15, rounded; that of the forget gate is as much coarser as the cell state is larger."""

    def up_to_a_quarter(x: Array, gate: Array) -> Array:
        slope: Array = (x * (gate * (ONE - gate) >> 15) + (1 << 20)) >> 21
        return slope

    def up_to_one(gate: Array, x: Array) -> Array:
        slope: Array = (gate * (ONE - (x * x >> 15)) + (1 << 22)) >> 23
        return slope

    back = (up_to_a_quarter(g, i), up_to_a_quarter(before, f), up_to_one(i, g), (f + 64) >> 7)
    kinds = [up_to_a_quarter(tanh, o), up_to_one(o, tanh), *(part * free for part in back)]
    kinds[-1] = kinds[-1] + SHARE_ZERO
    slopes: Array = np.clip(np.stack(kinds, axis=-1), INT8_MIN, INT8_MAX).astype(np.int8)
    return slopes


@op
class LstmGrad(RecurrentGrad):
    """dx of an LSTM from dy, its slopes, and its weights of x and of h; in int8 in units of 2^−12 steps of dy."""

    bits: int = 3  # before the point of the cell state

    kernel = "smg_lstm_grad_g8"
    gates = 4
    slopes = SLOPES

    def shape(self, *operands: Type) -> tuple[int, ...]:
        if not 0 <= self.bits < FINE:
            raise GraphError(f"LstmGrad of a cell state with {self.bits} bits before the point; give 0 to {FINE - 1}")
        return super().shape(*operands)

    @property
    def cell_bits(self) -> int:
        return self.bits

    def real(self, kinds: Array) -> Array:
        points = np.array([FINE, COARSE, FINE, FINE - self.bits, COARSE, SHARE])
        real: Array = (kinds - np.array([0] * (SLOPES - 1) + [SHARE_ZERO])) * 2.0**-points
        return real.astype(np.float32)

    def reals(self, dy: Array, slopes: Array, w: Array, u: Array) -> Array:
        dh = dc = np.zeros(w.shape[1], np.float32)
        found = np.zeros((1, len(dy), w.shape[2]), np.float32)
        for t in range(len(dy) - 1, -1, -1):
            o, c, i, f, g, share = slopes[t].T
            dh = dy[t] + dh
            dc = dc + dh * c
            dz = np.stack([dc * i, dc * f, dc * g, dh * o])
            dc = dc * share
            found[0, t], dh = (np.einsum("gc,gci->i", dz, weights) for weights in (w, u))
        return found

    def integers(self, node: Node, dy: Array, slopes: Array, w: Array, u: Array) -> Array:
        to_x, to_h = self.scaled(node, w, u)
        dh = dc = np.zeros(w.shape[1], np.int64)
        found = np.zeros((1, len(dy), w.shape[2]), np.int64)
        for t in range(len(dy) - 1, -1, -1):
            o, c, i, f, g, share = slopes[t].T
            dh = limited((dy[t].astype(np.int64) << FRACTION) + dh)
            dc = limited(dc + shifted(dh * c, COARSE))
            kinds = ((dc * i, FINE), (dc * f, FINE - self.bits), (dc * g, COARSE), (dh * o, FINE))
            dz = limited(np.stack([shifted(product, bits) for product, bits in kinds]))
            dc = shifted(dc * (share - SHARE_ZERO), SHARE)
            found[0, t], dh = through(dz, *to_x), through(dz, *to_h)
        return found
