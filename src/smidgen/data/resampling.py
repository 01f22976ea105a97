"""Samples at one rate → samples at another, in integers: every machine gives the same bytes."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from smidgen.ir import Array

LOBES = 16  # of the sinc on each side, counted at the lower of both rates
PASSED = 0.92  # of the lower rate's band: above that the filter falls
TAP_BITS = 15
MOST_PHASES = 640  # what 11,025 samples per second need for 16,000
PIECE = 2**12  # samples made at a time


def phases(rate: int, wanted: int) -> int:
    """How many filters take turns between two rates."""
    return wanted // math.gcd(rate, wanted)


def resample(samples: Array, rate: int, wanted: int) -> Array:
    """int16 samples of one rate at another: sinc under a Hann curve, the sum of its integer taps rounded."""
    if rate == wanted:
        return samples
    up, down = phases(rate, wanted), phases(wanted, rate)
    taps = _taps(up, down)
    side = taps.shape[1] // 2
    padded = np.pad(samples.astype(np.int64), side)
    made: Array = np.zeros(-(-samples.size * up // down), np.int16)
    for at in range(0, made.size, PIECE):
        place = np.arange(at, min(at + PIECE, made.size)) * down
        # Tap i of an output between inputs b and b + 1 reads b + i + 1 − side, which lies `side` further on.
        read = padded[(place // up)[:, None] + np.arange(1, 2 * side + 1)]
        sums = ((read * taps[place % up]).sum(axis=1) + (1 << (TAP_BITS - 1))) >> TAP_BITS
        made[at : at + PIECE] = np.clip(sums, -(2**15), 2**15 - 1)
    return made


@cache
def _taps(up: int, down: int) -> Array:
    """The filters, [up, taps]: each adds up to one, so that what does not change stays as it is."""
    cut = PASSED * min(1.0, up / down)
    side = math.ceil(LOBES / cut)
    away = np.arange(1 - side, side + 1) - np.arange(up)[:, None] / up
    curve = np.where(np.abs(away) < side, 0.5 + 0.5 * np.cos(np.pi * away / side), 0)
    real = np.sinc(cut * away) * curve
    taps: Array = np.rint(real / real.sum(axis=1, keepdims=True) * 2**TAP_BITS).astype(np.int64)
    largest = np.abs(taps).argmax(axis=1)
    taps[np.arange(up), largest] += 2**TAP_BITS - taps.sum(axis=1)
    return taps
