"""The gated recurrent unit, in int8 in the arithmetic of TFLite's LSTM, and the slopes its gradient needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, QParams, Type, Value, op
from smidgen.numerics import int16
from smidgen.ops.gru_grad import SLOPES, GruGrad, int8_slopes, real_slopes
from smidgen.ops.lstm_grad import FRACTION, STORED
from smidgen.ops.recurrence import SQUARED, Recurrent, gate_multipliers, gate_sums, sigmoid


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a GRU, cell by cell: its gates, what the state gives to n, the states, and the hidden state."""

    r: Array
    z: Array
    n: Array
    kept: Array
    before: Array
    state: Array
    h: Array


@op
@dataclass(frozen=True)
class Gru(Recurrent):
    """h ← (1 − z)·n + z·h; r and z are sigmoids, n is a tanh; weights hold them in the order r, z, n.

    n is given U(r·h) by the state or, with `reset_after`, r·(U h + b₃), where b₃ is the last row of the bias.
    """

    gates: ClassVar[int] = 3
    state_step: ClassVar[float] = 2.0**-int16.FRACTION

    reset_after: bool = True

    kernel = "smg_gru_s8"

    def states(self, node: Node, x: Array, w: Array, u: Array, b: Array) -> tuple[Array, Array]:
        steps = list(self.steps(node, node.out.type, x, w, u, b))
        return np.stack([step.h for step in steps]), np.stack([step.state for step in steps])

    def steps(self, node: Node, y: Type, x: Array, w: Array, u: Array, b: Array) -> Iterator[Step]:
        """Every step of x [steps, inputs], with hidden states of the type given."""
        return _float_steps(self, x, w, u, b) if x.dtype == np.float32 else _int8_steps(self, node, y, x, w, u, b)

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        """Of x alone: the weights stay as they are."""
        if not self.reset_after:
            raise GraphError(
                f"Gru, which gives %{node.out.name}, resets its state before it is multiplied and has no gradient; "
                "train only layers behind it"
            )
        (x, w, u, b), y = node.ins, node.out.type
        slopes, factors = GruSlopes(), tuple[float, ...]()
        if y.q is not None:
            slopes, factors = GruSlopes(y.scale, y.zero), (x.type.scale / y.scale * 2.0**-FRACTION,)
        return g.emit(GruGrad(factors), dy, g.emit(slopes, x, w, u, b), w, u), None, None, None

    def params(self, node: Node) -> Params:
        multiplier, shift = numerics.quantize_single(SQUARED, over=node.out.type.scale)
        more = {"reset_after": int(self.reset_after), "gated_multiplier": multiplier, "gated_shift": shift}
        return {**super().params(node), **more}


def _float_steps(op: Gru, x: Array, w: Array, u: Array, b: Array) -> Iterator[Step]:
    h = np.zeros(w.shape[1], np.float32)
    for now in x:
        given, before = w @ now + b[:3], h
        r, z = sigmoid(given[:2] + u[:2] @ h)
        kept = u[2] @ h + b[3] if op.reset_after else u[2] @ (r * h) + b[3]
        n = np.tanh(given[2] + (r * kept if op.reset_after else kept))
        h = (1 - z) * n + z * h
        yield Step(r, z, n, kept, before, h, h)


def _int8_steps(op: Gru, node: Node, y: Type, x: Array, w: Array, u: Array, b: Array) -> Iterator[Step]:
    x_type, w_type, u_type, _ = (v.type for v in node.ins)
    from_h, one = gate_multipliers(y, u_type), 1 << int16.FRACTION
    to_y, to_gated = (numerics.quantize_single(step, over=y.scale) for step in (op.state_step, SQUARED))
    bias = np.concatenate([np.zeros_like(b[:2]), b[3:]])
    given = int16.saturate(gate_sums(x, x_type.zero, w, b[:3], gate_multipliers(x_type, w_type)))
    h, state = np.full(w.shape[1], y.zero, np.int8), np.zeros(w.shape[1], np.int64)
    for now in given:
        kept, before = gate_sums(h[None], y.zero, u, bias, from_h)[0], state
        r, z = int16.sigmoid(int16.saturate(now[:2] + kept[:2]))
        if op.reset_after:
            from_state = int16.saturate(kept[2])
            old = int16.shift_right(r * from_state, int16.FRACTION)
        else:
            gated = numerics.to_int8(numerics.multiply(r * state, *to_gated), y.zero)
            from_state = old = gate_sums(gated[None], y.zero, u, bias, from_h)[0, 2]
        n = int16.tanh(int16.saturate(now[2] + old), int16.GATE_BITS)
        state = int16.shift_right((one - z) * n + z * state, int16.FRACTION)
        h = numerics.to_int8(numerics.multiply(state, *to_y), y.zero)
        yield Step(r, z, n, from_state, before, state, h)


@op
@dataclass(frozen=True)
class GruSlopes(Op):
    """The slopes of a GRU's every step, [1, steps, 5 · cells] with the kinds of a cell together, from what it reads.

    In int8 the GRU's hidden states are in steps of `y_scale` from `y_zero`.
    """

    y_scale: float = 1.0
    y_zero: int = 0

    kernel = "smg_gru_slopes_s8"
    saved = True
    working_memory = True

    def infer(self, x: Type, w: Type, u: Type, b: Type) -> Type:
        y = Gru().infer(x, w, u, b)
        return Type((1, y.shape[1], SLOPES * y.shape[2]), x.dtype, STORED if x.dtype == "int8" else None)

    def hidden(self, node: Node) -> Type:
        """The type of the GRU's hidden states."""
        (_, steps, _), cells = node.ins[0].type.shape, node.ins[1].type.shape[1]
        q = QParams.per_tensor(self.y_scale, self.y_zero) if node.ins[0].type.dtype == "int8" else None
        return Type((1, steps, cells), node.ins[0].type.dtype, q)

    def ref(self, node: Node, x: Array, w: Array, u: Array, b: Array) -> Array:
        steps = Gru().steps(node, self.hidden(node), x[0], w, u, b)
        slopes = real_slopes if x.dtype == np.float32 else int8_slopes
        found = [slopes(s.r, s.z, s.n, s.kept, s.before) for s in steps]
        return np.stack(found).reshape(1, len(x[0]), -1).astype(x.dtype)

    def params(self, node: Node) -> Params:
        return {**Gru().params(Node(Gru(), node.ins, (Value("y", self.hidden(node)),))), "whole": 0}
