"""Learning in one pass: sums of integers over samples, and the closed-form head that they give in float32.

Of int8 features x = q − zero, d of them, and of C classes, the sums are n[C + 1], the samples of each class and, last,
those of classes that were forgotten by number; m[C, d], the sum of x in each class; and g[d(d + 1)/2], the sums of the
products x_i · x_j with j ≤ i over all samples, row by row. Integers know no order: sums of two devices, added up, are
those of one device that saw everything, and a sample taken out leaves what was there before it came.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np

from smidgen.ir import Array
from smidgen.numerics.float32 import F, sum_in_order

LARGEST = 255  # of |x|
SQUARE = LARGEST**2
MOST_SAMPLES = (2**31 - 1) // SQUARE  # 33,025: with one more, a sum of products might not fit 32 bits
DONE, NO_CLASS, FULL, FEWER, EMPTY, UNSOUND, GONE = range(7)  # what an operation on sums answers; SMG_SUMS_* in C
ONE = 1 << 16  # of a shrinkage and of a temperature, which have 16 bits after the point
LEAST_SHRINKAGE, MOST_SHRINKAGE = 6554, 58982  # 0.1 and 0.9
MEANS = 48  # samples a class for which its mean is half known: docs/internals/one-pass.md has the trials
NEVER = F(-(2.0**96))  # the bias of a class without samples
WIDE = F(12.5)  # 2 · 2.5²: samples of known classes rarely lie further out than 2.5 standard deviations of normal ones


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over samples: their number, their features, and the products of these."""

    n: Array  # int32[classes + 1]
    m: Array  # int32[classes, features]
    g: Array  # int32[features · (features + 1) / 2]

    @staticmethod
    def empty(classes: int, features: int) -> Sums:
        """Sums of no samples."""
        sizes = (classes + 1,), (classes, features), (triangle(features),)
        return Sums(*(np.zeros(size, np.int32) for size in sizes))

    @property
    def samples(self) -> int:
        """Return how many samples are in the sums."""
        return int(self.n.astype(np.int64).sum())

    @property
    def sound(self) -> bool:
        """Return whether samples could have given these numbers, as far as their limits show."""
        n, most = self.n.astype(np.int64), self.samples
        if (n < 0).any() or most > MOST_SAMPLES or (self.g[_diagonal(self.m.shape[1])] < 0).any():
            return False
        within = np.abs(self.m.astype(np.int64)) <= LARGEST * n[:-1, None]
        return bool(within.all() and (np.abs(self.g.astype(np.int64)) <= SQUARE * most).all())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sums):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in "nmg")

    __hash__ = None  # type: ignore[assignment]


def triangle(d: int) -> int:
    """Return the numbers in the lower triangle of a matrix, its diagonal included."""
    return d * (d + 1) // 2


def _diagonal(d: int) -> Array:
    return triangle(1) * np.cumsum(np.arange(1, d + 1)) - 1


def _wrapped(x: Array) -> Array:
    return x.astype(np.int32)


def products(x: Array) -> Array:
    """The lower triangle of x · xᵀ, row by row; of several rows of x, the sum of theirs."""
    wide = np.atleast_2d(x).astype(np.int64)
    return (wide.T @ wide)[np.tril_indices(wide.shape[1])]


def total(x: Array, labels: Array, classes: int) -> Sums:
    """Return the sums of samples, given as rows of features and their labels."""
    m = np.stack([x[labels == c].astype(np.int64).sum(axis=0) for c in range(classes)])
    n = np.append(np.bincount(labels, minlength=classes), 0)
    return Sums(_wrapped(n), _wrapped(m), _wrapped(products(x)))


def observe(sums: Sums, x: Array, label: int, sign: int) -> tuple[int, Sums]:
    """Add a sample to the sums (sign 1) or take it out (−1); where that cannot be they stay, and a code says why."""
    n, m = sums.n.astype(np.int64), sums.m.astype(np.int64)
    if not 0 <= label < len(m):
        return NO_CLASS, sums
    if sign > 0 and not 0 <= sums.samples < MOST_SAMPLES:
        return FULL, sums
    if sign < 0 and (n[label] < 1 or not 1 <= sums.samples <= MOST_SAMPLES):
        return FEWER, sums
    n[label] += sign
    m[label] += sign * x.astype(np.int64)
    after = Sums(_wrapped(n), _wrapped(m), _wrapped(sums.g + sign * products(x)))
    if sign < 0 and not _holds(after, label):
        return FEWER, sums
    return DONE, after


def _holds(sums: Sums, label: int) -> bool:
    """Return whether what is left of a class, and of all products, is within what so many samples can give."""
    row, g = sums.m[label].astype(np.int64), sums.g.astype(np.int64)
    few = (np.abs(row) <= LARGEST * int(sums.n[label])).all() and (np.abs(g) <= SQUARE * sums.samples).all()
    return bool(few and (g[_diagonal(row.size)] >= 0).all())


def merge(sums: Sums, other: Sums, sign: int = 1) -> tuple[int, Sums]:
    """Add what another device saw, or take it out (−1); where that cannot be they stay, and a code says why."""
    if not (sums.sound and other.sound):
        return UNSOUND, sums
    if sign > 0 and sums.samples + other.samples > MOST_SAMPLES:
        return FULL, sums
    pairs = ((getattr(sums, name).astype(np.int64), getattr(other, name)) for name in "nmg")
    after = Sums(*(_wrapped(a + sign * b) for a, b in pairs))
    return (DONE, after) if sign > 0 or after.sound else (FEWER, sums)


def forget_class(sums: Sums, label: int) -> tuple[int, Sums]:
    """Take a class out by its number alone: its samples' spread about their mean, rounded, stays in the products."""
    if not sums.sound:
        return UNSOUND, sums
    if not 0 <= label < len(sums.m):
        return NO_CLASS, sums
    if not sums.n[label]:
        return FEWER, sums
    centre, rest = centres(sums.m[label], int(sums.n[label]))
    n, m = sums.n.copy(), sums.m.copy()
    n[-1] += n[label]
    n[label], m[label] = 0, 0
    taken = np.outer(centre, sums.m[label].astype(np.int64)) + np.outer(rest, centre)
    return DONE, Sums(n, m, _wrapped(sums.g - taken[np.tril_indices(m.shape[1])]))


def centres(m: Array, n: int) -> tuple[Array, Array]:
    """The means of n samples with these sums, rounded to integers, halves up; and what is left of the sums."""
    wide = m.astype(np.int64)
    centre = (2 * wide + n) // (2 * n)
    return centre, wide - n * centre


def shrinkage(d: int, freedom: int) -> int:
    """√(d / (d + freedom)) in 1/65,536, between 0.1 and 0.9; 1 without any degree of freedom."""
    if freedom < 1:
        return ONE
    root = isqrt((d << 32) // (d + freedom))
    return min(max(root, LEAST_SHRINKAGE), MOST_SHRINKAGE)


def temperature(shrunk: int, samples: int, classes: int) -> int:
    """Return what scores are multiplied by, in 1/65,536: k / (k + 48) with k samples a class, at most 1 − shrinkage.

    Means of few samples lie too far apart, and a covariance that had to be shrunk knows few directions.
    """
    by_means = samples * ONE // (samples + MEANS * classes)
    return by_means if shrunk == ONE else min(by_means, ONE - shrunk)


def solve(sums: Sums, scale: float, w: Array, b: Array) -> tuple[int, Array, Array]:
    """The head, weights [classes, features] and biases, of features that count `scale` each; w and b where it fails."""
    n, m, d = sums.n.astype(np.int64), sums.m.astype(np.int64), sums.m.shape[1]
    present = np.flatnonzero(n[:-1] > 0)
    if not sums.sound:
        return UNSOUND, w, b
    if not present.size:
        return EMPTY, w, b
    scatter, divisor, shrunk = _covariance(sums, present)
    if not _factor(scatter):
        return UNSOUND, w, b
    seen = int(n[:-1].sum())
    middle = m.sum(axis=0).astype(F) / F(seen)
    away = m[present].astype(F) / n[present].astype(F)[:, None] - middle
    rows = _substitute(scatter, away.copy())
    sharp = F(divisor) * (F(temperature(shrunk, seen, present.size)) * F(2.0**-16))
    weights, biases = np.zeros((len(m), d), F), np.full(len(m), NEVER)
    weights[present] = rows * (sharp / F(scale))
    biases[present] = -(sum_in_order(rows * (middle + F(0.5) * away))[:, 0] * sharp)
    return DONE, weights, biases


def limit(sums: Sums) -> np.float32:
    """Return the squared distance from its class's mean within which a sample of a known class lies; 0: not known.

    It is tr Σ · (1 + 2.5 · √(2 · tr Σ² / (tr Σ)² · (1 + 1/ν))), Σ the covariance within classes, of ν + C samples.
    """
    n, m, d = sums.n.astype(np.int64), sums.m.astype(np.int64), sums.m.shape[1]
    present = np.flatnonzero(n[:-1] > 0)
    freedom = sums.samples - present.size
    scatter = _scatter(sums, [(m[c], int(n[c])) for c in present])
    trace = sum_in_order(np.diagonal(scatter)[None])[0, 0]
    if freedom < 1 or not trace > 0:
        return F(0)
    twice = np.where(np.arange(d)[:, None] == np.arange(d), F(1), F(2)) * (scatter * scatter)
    once = F(1) / F(freedom)
    share = sum_in_order(twice[np.tril_indices(d)])[0] / (trace * trace) - once  # less what chance adds to it
    share = min(max(share, F(1) / F(d)), F(1))  # from all directions alike to a single one
    root = isqrt(int(WIDE * share * (F(1) + once) * F(2.0**32)))
    return F(trace / F(freedom)) * (F(1) + F(root) * F(2.0**-16))


def distance(n: Array, m: Array, x: Array, most: np.float32) -> np.float32:
    """Return the squared distance of features to the nearest class's mean, over the limit; 0: that is not known."""
    present = np.flatnonzero(n[:-1] > 0)
    if not (most > 0 and present.size):
        return F(0)
    seen = n[present].astype(F)
    away = _wrapped(n[present, None].astype(np.int64) * x.astype(np.int64) - m[present]).astype(F)
    # Of a mean of n samples, a sample that it was not made of lies (n + 1) / n as far as of the true one.
    shares: Array = sum_in_order(away * away)[:, 0] / (seen * (seen + F(1)) * most)
    return F(shares.min())


def _covariance(sums: Sums, present: Array) -> tuple[Array, int, int]:
    """The scatter within classes, shrunk towards a multiple of the identity; its divisor, and by how much."""
    n, m, d = sums.n.astype(np.int64), sums.m.astype(np.int64), sums.m.shape[1]
    scatter = _scatter(sums, [(m[c], int(n[c])) for c in present])
    trace = sum_in_order(np.diagonal(scatter)[None])[0, 0]
    divisor = sums.samples - present.size
    shrunk = shrinkage(d, divisor)
    if not trace > 0:  # one sample a class, or all alike: the spread of everything, the same in all directions
        whole = _scatter(sums, [(m.sum(axis=0), int(n[:-1].sum()))])
        trace, scatter = sum_in_order(np.diagonal(whole)[None])[0, 0], np.zeros_like(scatter)
        divisor, shrunk = (sums.samples, ONE) if trace > 0 else (1, ONE)
        trace = trace if trace > 0 else F(d)
    part = F(shrunk) * F(2.0**-16)
    scatter = scatter * (F(1) - part)
    scatter[np.diag_indices(d)] += part * (trace / F(d))
    return scatter, divisor, shrunk


def _scatter(sums: Sums, groups: list[tuple[Array, int]]) -> Array:
    """The products about the mean of each group, given by its sums of x and its samples: [d, d], the lower half valid.

    About rounded means they are integers, exactly; float32 begins with what the rounding left, r · rᵀ / n of a group.
    """
    d = sums.m.shape[1]
    whole = np.zeros((d, d), np.int64)
    whole[np.tril_indices(d)] = sums.g
    about = [(*centres(m, n), m, n) for m, n in groups]
    for centre, rest, m, _ in about:
        whole -= np.outer(centre, m) + np.outer(rest, centre)
    scatter: Array = whole.astype(np.int32).astype(F)
    for _, rest, _, n in about:
        scatter -= np.outer(rest.astype(F), rest.astype(F) / F(n))
    return scatter


def _factor(s: Array) -> bool:
    """Factor a matrix in place into L · D · Lᵀ, with 1 / D on its diagonal; False where a pivot is not above 0."""
    for k in range(len(s)):
        if not s[k, k] > 0:
            return False
        s[k, k] = F(1) / s[k, k]
        column = s[k + 1 :, k].copy()
        s[k + 1 :, k] = column * s[k, k]
        s[k + 1 :, k + 1 :] -= np.outer(column, s[k + 1 :, k])
    return True


def _substitute(factor: Array, z: Array) -> Array:
    """Solve L · D · Lᵀ · y = z for each row of z, in place."""
    d = len(factor)
    for k in range(d - 1):
        z[:, k + 1 :] -= z[:, k, None] * factor[k + 1 :, k]
    z *= np.diagonal(factor)
    for i in range(d - 1, 0, -1):
        z[:, :i] -= z[:, i, None] * factor[i, :i]
    return z
