"""The gradient of a GRU's input, back through time, from slopes that the forward pass keeps.

At every step, with n = tanh(… + r·k) and h ← (1 − z)·n + z·h, the slopes are what dh is multiplied by on its way to z
and to n, and dn on its way to r; with them go the shares of dh and dn that z and r let pass to the state before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen.ir import Array, Node, op
from smidgen.numerics import INT8_MAX, INT8_MIN
from smidgen.ops.lstm_grad import COARSE, FRACTION, ONE, SHARE, SHARE_ZERO, RecurrentGrad, limited, shifted, through

SLOPES = 5  # from dh to z and to n, from dn to r, and the shares z and r
TO_Z, TO_R = 8, 6  # bits behind the point of slopes up to 1/2 and up to 2


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
@dataclass(frozen=True)
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
