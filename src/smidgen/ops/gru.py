"""The gated recurrent unit, in int8 in the arithmetic of TFLite's LSTM, and its gradient back through time."""

from __future__ import annotations

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

SLOPES = 5  # from dh to z and to n, from dn to r, and the shares z and r
TO_Z, TO_R = 8, 6  # bits behind the point of slopes up to 1/2 and up to 2


@dataclass(frozen=True, eq=False)
class GruStep:
    """One step of a GRU, cell by cell: its gates, what the state gives to n, the states, and the hidden state."""

    r: Array
    z: Array
    n: Array
    kept: Array
    before: Array
    state: Array
    h: Array


@op
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

    def steps(self, node: Node, y: Type, x: Array, w: Array, u: Array, b: Array) -> Iterator[GruStep]:
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


def _float_steps(op: Gru, x: Array, w: Array, u: Array, b: Array) -> Iterator[GruStep]:
    h = np.zeros(w.shape[1], np.float32)
    for now in x:
        given, before = w @ now + b[:3], h
        r, z = sigmoid(given[:2] + u[:2] @ h)
        kept = u[2] @ h + b[3] if op.reset_after else u[2] @ (r * h) + b[3]
        n = np.tanh(given[2] + (r * kept if op.reset_after else kept))
        h = (1 - z) * n + z * h
        yield GruStep(r, z, n, kept, before, h, h)


def _int8_steps(op: Gru, node: Node, y: Type, x: Array, w: Array, u: Array, b: Array) -> Iterator[GruStep]:
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
        yield GruStep(r, z, n, from_state, before, state, h)


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

    def ref(self, node: Node, x: Array, w: Array, u: Array, b: Array) -> Array:
        steps = self.layer.steps(node, self.hidden(node), x[0], w, u, b)
        slopes = real_slopes if x.dtype == np.float32 else int8_slopes
        found = [slopes(s.r, s.z, s.n, s.kept, s.before) for s in steps]
        return np.stack(found).reshape(1, len(x[0]), -1).astype(x.dtype)


def real_slopes(r: Array, z: Array, n: Array, kept: Array, before: Array) -> Array:
    """All five of each cell, [cells, 5]."""
    return np.stack([(before - n) * z * (1 - z), (1 - z) * (1 - n * n), kept * r * (1 - r), z, r], axis=-1)


def int8_slopes(r: Array, z: Array, n: Array, kept: Array, before: Array) -> Array:
    """The same of numbers in Q0.15, and in Q3.12 what the state gives to n, rounded."""
    to_z = ((before - n) * (z * (ONE - z) >> 15) + (1 << 21)) >> 22
    to_n = ((ONE - z) * (ONE - (n * n >> 15)) + (1 << 22)) >> 23
    to_r = (kept * (r * (ONE - r) >> 15) + (1 << 20)) >> 21
    shares = (((gate + 64) >> 7) + SHARE_ZERO for gate in (z, r))
    slopes: Array = np.clip(np.stack([to_z, to_n, to_r, *shares], axis=-1), INT8_MIN, INT8_MAX).astype(np.int8)
    return slopes


@op
class GruGrad(RecurrentGrad):
    """dx of a GRU from dy, its slopes, and its weights of x and of h; in int8 in units of 2^−12 steps of dy."""

    kernel = "smg_gru_grad_g8"
    gates = 3
    slopes = SLOPES

    def real(self, kinds: Array) -> Array:
        points = np.array([TO_Z, COARSE, TO_R, SHARE, SHARE])
        zeros = np.array([0, 0, 0, SHARE_ZERO, SHARE_ZERO])
        real: Array = (kinds - zeros) * 2.0**-points
        return real.astype(np.float32)

    def reals(self, dy: Array, slopes: Array, w: Array, u: Array) -> Array:
        dh = np.zeros(w.shape[1], np.float32)
        found = np.zeros((1, len(dy), w.shape[2]), np.float32)
        for t in range(len(dy) - 1, -1, -1):
            to_z, to_n, to_r, z, r = slopes[t].T
            dh = dy[t] + dh
            dn = dh * to_n
            dr, dz = dn * to_r, dh * to_z
            found[0, t] = np.einsum("gc,gci->i", np.stack([dr, dz, dn]), w)
            dh = dh * z + np.einsum("gc,gci->i", np.stack([dr, dz, dn * r]), u)
        return found

    def integers(self, node: Node, dy: Array, slopes: Array, w: Array, u: Array) -> Array:
        to_x, to_h = self.scaled(node, w, u)
        dh = np.zeros(w.shape[1], np.int64)
        found = np.zeros((1, len(dy), w.shape[2]), np.int64)
        for t in range(len(dy) - 1, -1, -1):
            to_z, to_n, to_r, z, r = slopes[t].T
            dh = limited((dy[t].astype(np.int64) << FRACTION) + dh)
            dn = limited(shifted(dh * to_n, COARSE))
            dr, dz = limited(shifted(dn * to_r, TO_R)), limited(shifted(dh * to_z, TO_Z))
            kept = shifted(dn * (r - SHARE_ZERO), SHARE)
            found[0, t] = through(np.stack([dr, dz, dn]), *to_x)
            dh = limited(shifted(dh * (z - SHARE_ZERO), SHARE) + through(np.stack([dr, dz, kept]), *to_h))
        return found
