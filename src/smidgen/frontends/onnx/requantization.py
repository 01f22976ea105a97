"""TFLite's two roundings as one in double, for graphs that have no shifts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen import numerics
from smidgen.errors import ExportError
from smidgen.ir import Array
from smidgen.numerics import INT32_MAX

STEPS = np.arange(-255, 257)  # int8 numbers from any zero point, and one more
NEAR = np.arange(-2, 3)  # sums around the first of which a step is the result
BITS = 8  # of a number that int8 tells from others
PLACES = 52  # of double after its first
SURE = -12  # shifts from which on all products of that size fit double, a tie added
# By how much double may have to give way: units in the last place of a factor, and of what a tie is.
TRIES = tuple((places, part) for places in (0, 1, -1, 2, -2, 3, -3) for part in (1, 0.25, 0))


@dataclass(frozen=True, eq=False)
class Rounding:
    """n → the whole number nearest to n · factor + half · sign(n) + tie, as `numerics.multiply` within int8.

    Its first rounding, halves up, is to multiples of 2^shift, which are 2 · half; the tie is half of the least that a
    product is from between two of them, unless it is there. Left shifts that wrap are not in it.
    """

    factor: Array
    half: Array
    tie: Array

    def parts(self, of: str = "") -> dict[str, Array]:
        """By the names they have in functions."""
        return {f"{of}factor": self.factor, f"{of}half": self.half, f"{of}tie": self.tie}

    def of(self, n: Array) -> Array:
        product = n * self.factor
        whole: Array = np.rint(product + np.sign(product) * self.half + self.tie).astype(np.int64)
        return whole


def rounding(multiplier: Array | int, shift: Array | int, lift: int = 0) -> Rounding:
    """Of numbers shifted left by `lift` beforehand, where double holds their products."""
    whole, exponent = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    factor = np.ldexp(whole.astype(np.float64), exponent - 31 + lift)
    half = np.where(exponent < 0, np.ldexp(1.0, exponent - 1), 0.0)
    tie = np.ldexp((whole & -whole).astype(np.float64), exponent - 32 + lift)
    least = np.ldexp(1.0, np.minimum(BITS, 31 + exponent) - PLACES)  # what double can add to the largest product
    most = np.ldexp(0.25, np.minimum(exponent, 0))
    return Rounding(factor, half, np.clip(tie, least, most))


def rounding_of_sums(multiplier: Array | int, shift: Array | int, where: str) -> Rounding:
    """Of any int32 numbers: where double is too narrow, factor and tie give way by a bit or so."""
    result = rounding(multiplier, shift)
    whole, exponent, factor, tie = (np.array(a) for a in (multiplier, shift, result.factor, result.tie))
    for place in np.flatnonzero(exponent < SURE):
        one = Rounding(*(array.flat[place] for array in (factor, result.half, tie)))
        found = _nearest_equivalent(one, int(whole.flat[place]), int(exponent.flat[place]))
        if found is None:
            raise ExportError(
                f"{where}: double precision cannot reproduce its rounding; calibrate it again, or export it plain"
            )
        factor.flat[place], tie.flat[place] = found.factor, found.tie
    return Rounding(factor, result.half, tie)


def _nearest_equivalent(one: Rounding, multiplier: int, shift: int) -> Rounding | None:
    """One near by that gives each step from the same sum on as `numerics.multiply`; both ways results only rise."""
    if multiplier == 0:
        return one
    first = np.ceil((STEPS - 0.5 - np.where(STEPS > 0, one.half, -one.half)) / one.factor)
    sums = np.clip(first[:, None] + NEAR, -INT32_MAX, INT32_MAX)
    want = numerics.multiply(sums.astype(np.int64), multiplier, shift)
    for places, part in TRIES:
        tried = Rounding(one.factor + places * np.spacing(one.factor), one.half, one.tie * part)
        if np.array_equal(tried.of(sums), want):
            return tried
    return None
