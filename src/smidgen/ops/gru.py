"""The gated recurrent unit, in int8 in the arithmetic of TFLite's LSTM, and its gradient back through time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Params, Type, Value, op
from smidgen.numerics import int16
from smidgen.numerics.fixed_point import shift_right
from smidgen.ops.recurrence import (
    COARSE,
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

SLOPES = 5  # from dh to z and to n, from dn to r, and the shares z and r
TO_Z, TO_R = 8, 6  # bits behind the point of slopes up to 1/2 and up to 2


@op
class Gru(Recurrent):
    """h ← (1 − z)·n + z·h; r and z are sigmoids, n is a tanh; weights hold them in the order r, z, n.

    n is given U(r·h) by the state or, with `reset_after`, r·(U h + b₃), where b₃ is the last row of the bias.
    """

    gates: ClassVar[int] = 3
    state_step: ClassVar[float] = 2.0**-int16.FRACTION

    reset_after: bool = True

    kernel = "smg_gru_s8"

    def real_steps(self, x: Array, w: Array, u: Array, b: Array) -> Iterator[RecurrentStep]:
        h = np.zeros(w.shape[1], np.float32)
        for now in x:
            given, before = w @ now + b[:3], h
            r, z = sigmoid(given[:2] + u[:2] @ h)
            kept = u[2] @ h + b[3] if self.reset_after else u[2] @ (r * h) + b[3]
            n = np.tanh(given[2] + (r * kept if self.reset_after else kept))
            h = (1 - z) * n + z * h
            yield RecurrentStep((r, z, n, kept), before, h, h)

    def int8_steps(self, node: Node, y: Type, x: Array, w: Array, u: Array, b: Array) -> Iterator[RecurrentStep]:
        x_type, w_type, u_type, _ = (v.type for v in node.ins)
        from_h, one = gate_multipliers(y, u_type), 1 << int16.FRACTION
        to_y, to_gated = (numerics.quantize_single(step, over=y.scale) for step in (self.state_step, SQUARED))
        bias = np.concatenate([np.zeros_like(b[:2]), b[3:]])
        given = int16.saturate(gate_sums(x, x_type.zero, w, b[:3], gate_multipliers(x_type, w_type)))
        h, state = np.full(w.shape[1], y.zero, np.int8), np.zeros(w.shape[1], np.int64)
        for now in given:
            kept, before = gate_sums(h[None], y.zero, u, bias, from_h)[0], state
            r, z = int16.sigmoid(int16.saturate(now[:2] + kept[:2]))
            if self.reset_after:
                from_state = int16.saturate(kept[2])
                old = shift_right(r * from_state, int16.FRACTION)
            else:
                gated = numerics.to_int8(numerics.multiply(r * state, *to_gated), y.zero)
                from_state = old = gate_sums(gated[None], y.zero, u, bias, from_h)[0, 2]
            n = int16.tanh(int16.saturate(now[2] + old), int16.GATE_BITS)
            state = shift_right((one - z) * n + z * state, int16.FRACTION)
            h = numerics.to_int8(numerics.multiply(state, *to_y), y.zero)
            yield RecurrentStep((r, z, n, from_state), before, state, h)

    def backward(self, factors: tuple[float, ...], scale: float, zero: int) -> tuple[GruSlopes, GruGrad]:
        return GruSlopes(scale, zero), GruGrad(factors)

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        if not self.reset_after:
            raise GraphError(
                f"Gru, which gives %{node.out.name}, resets its state before it is multiplied and has no gradient; "
                "train only layers behind it"
            )
        return super().grad(g, node, dy)

    def params(self, node: Node) -> Params:
        multiplier, shift = numerics.quantize_single(SQUARED, over=node.out.type.scale)
        more = {"reset_after": int(self.reset_after), "gated_multiplier": multiplier, "gated_shift": shift}
        return {**super().params(node), **more}


@op
class GruSlopes(RecurrentSlopes):
    """The five slopes of a GRU: from dh to z and to n, from dn to r, and the shares z and r."""

    y_scale: float = 1.0
    y_zero: int = 0

    kernel = "smg_gru_slopes_s8"
    kinds = SLOPES

    @property
    def layer(self) -> Gru:
        return Gru()

    def real(self, step: RecurrentStep) -> tuple[Array, ...]:
        (r, z, n, kept), before = step.gates, step.before
        return (before - n) * z * (1 - z), (1 - z) * (1 - n * n), kept * r * (1 - r), z, r

    def integers(self, step: RecurrentStep) -> tuple[Array, ...]:
        """Return the slopes; what the state gives to n is in Q3.12."""
        (r, z, n, kept), before = step.gates, step.before
        to_z = ((before - n) * (z * (ONE - z) >> 15) + (1 << 21)) >> 22
        to_n = ((ONE - z) * (ONE - (n * n >> 15)) + (1 << 22)) >> 23
        to_r = (kept * (r * (ONE - r) >> 15) + (1 << 20)) >> 21
        return to_z, to_n, to_r, *(((gate + 64) >> 7) + SHARE_ZERO for gate in (z, r))


@op
class GruGrad(RecurrentGrad):
    """dx of a GRU from dy, its slopes, and its weights of x and of h; in int8 in units of 2^−12 steps of dy."""

    kernel = "smg_gru_grad_g8"
    gates = 3
    slopes = SLOPES
    shares = 2

    def points(self) -> tuple[int, ...]:
        return TO_Z, COARSE, TO_R

    def passed_back(self, a: Arithmetic, dh: Array, dc: Array, slopes: Array) -> PassedBack:
        to_z, to_n, to_r, z, r = slopes
        dn = a.limit(a.times(dh, to_n, COARSE))
        dr, dz = a.limit(a.times(dn, to_r, TO_R)), a.limit(a.times(dh, to_z, TO_Z))
        kept = a.times(dn, r, SHARE)
        return PassedBack(np.stack([dr, dz, dn]), np.stack([dr, dz, kept]), a.times(dh, z, SHARE), 0)
