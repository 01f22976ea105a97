"""A projection of features to fewer numbers, without a table: rows of Hadamard's matrix, with random signs.

Every output is the sum of all features, each with a sign. Feature c takes a random sign that is fixed for good; output
i adds up with the signs of row r of Hadamard's matrix, −1 where r and c have an odd number of bits in common. Rows are
orthogonal where features are as many as the matrix is wide, and nearly so otherwise. Sums are whole, halved `shift`
times with halves away from zero, and saturate at int8.
"""

import numpy as np

from smidgen.ir import Array
from smidgen.numerics import stochastic
from smidgen.numerics.fixed_point import shift_right
from smidgen.numerics.int8 import to_int8

KEY = 1  # of the stream of random signs, of which each word has
WORD = 32
AIM = 32  # a quarter of int8's range: outputs four times their average still fit
MOST_SHIFT = 20  # sums of 4,096 features of magnitude 255 have 20 bits


def width(d: int) -> int:
    """Return the least power of two that is not below d."""
    return 1 << (d - 1).bit_length()


def rows(d: int, count: int) -> Array:
    """Return the rows of Hadamard's matrix that the outputs take: an odd stride meets each of them once."""
    return np.asarray((np.arange(count, dtype=np.uint64) * np.uint64(stochastic.GOLDEN)) % np.uint64(width(d)))


def signs(d: int) -> Array:
    """Return the random sign of each feature: the bits of a stream's words, lowest first, where −1 is a 1."""
    words = stochastic.random_words(KEY, -(-d // WORD)).astype("<u4")
    bits = np.unpackbits(words.view(np.uint8), bitorder="little", count=d)
    return 1 - 2 * bits.astype(np.int64)


def matrix(d: int, count: int) -> Array:
    """Return the projection as signs [count, d]."""
    common = rows(d, count).astype(np.int64)[:, None] & np.arange(d)
    odd = np.zeros_like(common)
    for bit in range(width(d).bit_length()):
        odd ^= (common >> bit) & 1
    return np.asarray((1 - 2 * odd) * signs(d))


def project(x: Array, count: int, shift: int) -> Array:
    """Return rows of features, their zero point taken off, as rows of `count` numbers in int8."""
    sums = x.astype(np.int64) @ matrix(x.shape[1], count).T
    return to_int8(shift_right(sums, shift), 0)


def fitting_shift(x: Array) -> int:
    """Return the shift under which outputs for features like these rows are as large as AIM at most, on average.

    The mean square of an output over all choices of signs is the sum of the features' squares.
    """
    squares = float((x.astype(np.float64) ** 2).sum(axis=1).mean())
    return next(shift for shift in range(MOST_SHIFT + 1) if squares <= float(AIM << shift) ** 2)
