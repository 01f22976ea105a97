"""Long short-term memory, in int8 as TFLite's kernel computes it, and the slopes its gradient needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, QParams, Type, Value, op
from smidgen.numerics import int16
from smidgen.ops.lstm_grad import FRACTION, SLOPES, STORED, LstmGrad, int8_slopes, real_slopes
from smidgen.ops.recurrence import SQUARED, Recurrent, gate_multipliers, gate_sums, sigmoid

MOST_BITS = 6  # before the point of a cell state


@dataclass(frozen=True, eq=False)
class Step:
    """One step of an LSTM, cell by cell: its gates, its cell state and the one before, and its hidden state."""

    i: Array
    f: Array
    g: Array
    o: Array
    c: Array
    before: Array
    h: Array


@op
@dataclass(frozen=True)
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

    def steps(self, node: Node, y: Type, x: Array, w: Array, u: Array, b: Array) -> Iterator[Step]:
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


def _float_steps(op: Lstm, x: Array, w: Array, u: Array, b: Array) -> Iterator[Step]:
    h = c = np.zeros(w.shape[1], np.float32)
    for now in x:
        sums = w @ now + u @ h + b
        i, f, _, o = sigmoid(sums)
        g, before = np.tanh(sums[2]), c
        c = f * c + i * g
        c = np.clip(c, -op.clip, op.clip) if op.clip else c
        h = o * np.tanh(c)
        yield Step(i, f, g, o, c, before, h)


def _int8_steps(op: Lstm, node: Node, y: Type, x: Array, w: Array, u: Array, b: Array) -> Iterator[Step]:
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
        yield Step(i, f, g, o, c, before, h)


@op
@dataclass(frozen=True)
class LstmSlopes(Op):
    """The slopes of an LSTM's every step, [1, steps, 6 · cells] with the kinds of a cell together, from what it reads.

    In int8 the LSTM's hidden states are in steps of `y_scale` from `y_zero`.
    """

    clip: float = 0.0
    bits: int = 3
    y_scale: float = 1.0
    y_zero: int = 0

    kernel = "smg_lstm_slopes_s8"
    saved = True
    working_memory = True

    @property
    def layer(self) -> Lstm:
        """The LSTM that these are the slopes of."""
        return Lstm(True, self.clip, self.bits)

    def infer(self, x: Type, w: Type, u: Type, b: Type) -> Type:
        y = self.layer.infer(x, w, u, b)
        return Type((1, y.shape[1], SLOPES * y.shape[2]), x.dtype, STORED if x.dtype == "int8" else None)

    def hidden(self, node: Node) -> Type:
        """The type of the LSTM's hidden states."""
        (_, steps, _), cells = node.ins[0].type.shape, node.ins[1].type.shape[1]
        q = QParams.per_tensor(self.y_scale, self.y_zero) if node.ins[0].type.dtype == "int8" else None
        return Type((1, steps, cells), node.ins[0].type.dtype, q)

    def ref(self, node: Node, x: Array, w: Array, u: Array, b: Array) -> Array:
        steps = self.layer.steps(node, self.hidden(node), x[0], w, u, b)
        if x.dtype == np.float32:
            found = [real_slopes(s.i, s.f, s.g, s.o, s.c, s.before, self._free(s.c)) for s in steps]
            return np.stack(found).reshape(1, len(x[0]), -1).astype(np.float32)
        tanh = [(s, int16.tanh(s.c, self.bits)) for s in steps]
        made = [int8_slopes(s.i, s.f, s.g, s.o, t, s.before, self._free(s.c)) for s, t in tanh]
        return np.stack(made).reshape(1, len(x[0]), -1)

    def _free(self, c: Array) -> Array:
        """Whether each cell state lies within its limits."""
        most = (self.layer.cell_limit() or int16.INT16_MAX) if c.dtype.kind == "i" else self.clip or math.inf
        return np.abs(c) < most

    def params(self, node: Node) -> Params:
        y = self.hidden(node)
        return {**self.layer.params(Node(self.layer, node.ins, (Value("y", y),))), "whole": 0}
