"""float32 with an exp, a log and sums that give the same bits everywhere."""

import numpy as np

from smidgen.ir import Array

F = np.float32
LOG2_E, LN2_HIGH, LN2_LOW = F(1.4426950408889634), F(0.693145751953125), F(1.42860682030941723e-6)
# Taylor coefficients of e^r on |r| ≤ ln2 / 2, highest first: 1/5! … 1/2!, 1, 1.
EXP_TERMS = tuple(F(c) for c in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0))
# log(m) = 2·atanh(s), s = (m − 1) / (m + 1): coefficients of s², highest first.
LOG_TERMS = tuple(F(c) for c in (2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0))
EXP_LEAST = F(-80)  # below, e^x is taken as 0: it cannot show in a float32 sum that holds a 1


def exp_f32(x: Array) -> Array:
    """Return e^x for x ≤ 0, each operation rounded to float32."""
    limited = np.maximum(x, EXP_LEAST)
    n = np.trunc(limited * LOG2_E - F(0.5))
    r = (limited - n * LN2_HIGH) - n * LN2_LOW
    p = np.full_like(r, EXP_TERMS[0])
    for term in EXP_TERMS[1:]:
        p = p * r + term
    power = ((n.astype(np.int32) + 127) << 23).view(np.float32)
    return np.asarray(np.where(x < EXP_LEAST, F(0), p * power))


def log_f32(x: Array) -> Array:
    """Return ln x for normal x > 0, each operation rounded to float32."""
    bits = np.ascontiguousarray(x, F).view(np.int32)
    e = ((bits - 0x3F3504F3) >> 23).astype(np.int32)  # m lies in [√½, √2)
    m = (bits - (e << 23)).view(np.float32)
    s = (m - F(1)) / (m + F(1))
    s2 = s * s
    p = np.full_like(s, LOG_TERMS[0])
    for term in LOG_TERMS[1:]:
        p = p * s2 + term
    return np.asarray((e.astype(F) * LN2_LOW + s * p) + e.astype(F) * LN2_HIGH)


def sum_in_order(x: Array) -> Array:
    """Return the sum over the last axis, added one element after another."""
    return np.asarray(np.add.accumulate(x, axis=-1, dtype=F)[..., -1:])


def limit(x: Array, most: np.float32) -> Array:
    """Return x within ±most; in this order a NaN becomes the lower limit."""
    above = np.where(x > -most, x, -most)
    return np.asarray(np.where(above < most, above, most))
