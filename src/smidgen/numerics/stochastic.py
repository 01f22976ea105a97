"""Counter-based random bits, and the rounding of gradients and updates with them.

Every implementation draws the same bits in any order: a word is a hash of (seed, step, stream, index).
The step_state is the one int32 state tensor behind it: [step, seed, level of gradient 0, level of gradient 1, …].
A gradient tensor is G = g · 2^e · g0 with g in int8 and e read from its level, a running maximum as log2 with
LEVEL_BITS fraction bits.
"""

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array

STEP, SEED, FIRST_LEVEL = 0, 1, 2  # places in the step state
LEVEL_BITS = 8
DECAY = 4  # of a level a step: 2^(−4/256) ≈ 0.989
DECAY_OF_NOTHING = 64  # of a level whose tensor rounded to zero everywhere
LEVEL_LIMIT = 60 << LEVEL_BITS
GOLDEN = 0x9E3779B9
MASK32 = 0xFFFFFFFF
MAX_SHIFT = 22  # beyond it a gradient is shifted down first, so that the random part fits beside it
MAX_RAISE, MOST_RAISED = 10, 1 << 20  # where a gradient is shifted up: by how much, and the largest that is


def mix(x: Array) -> Array:
    """Scatter every input bit over all output bits: a bijection of uint32."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return np.asarray(x ^ (x >> np.uint32(16)))


def _mix_one(x: int) -> int:
    return int(mix(np.array([x & MASK32], np.uint32))[0])


def stream_key(step_state: Array, stream: int) -> int:
    """Return the key of one tensor's random bits in this step."""
    return _mix_one(_mix_one(int(step_state[STEP]) + _mix_one(int(step_state[SEED]))) + stream)


def random_words(key: int, count: int) -> Array:
    """Return the first `count` 32-bit words of a stream."""
    return np.asarray(mix(np.arange(count, dtype=np.uint32) * np.uint32(GOLDEN) + np.uint32(key)))


def random_bytes(key: int, count: int) -> Array:
    """Return the first `count` bytes of a stream, four to a word, lowest first."""
    return np.asarray(random_words(key, (count + 3) // 4).astype("<u4").view(np.uint8)[:count])


def limit_level(level: int) -> int:
    """Limit a level to what levels can be, whatever a restored state held."""
    return min(max(level, -LEVEL_LIMIT), LEVEL_LIMIT)


def exponent(step_state: Array, slot: int) -> int:
    """Return the power of two of a gradient tensor in this step."""
    return exponent_of(limit_level(int(step_state[FIRST_LEVEL + slot])))


def exponent_of(level: int) -> int:
    """Return the exponent with which int8's largest magnitude just reaches the power of two above the level."""
    return ((level + (1 << LEVEL_BITS) - 1) >> LEVEL_BITS) - 7


def due(step_state: Array, every: int) -> bool:
    """Return whether this step is the last of `every`."""
    return ((int(step_state[STEP]) + 1) & MASK32) % every == 0


def level_of(maximum: float) -> int:
    """Return the level under which a tensor with this largest magnitude just fits."""
    log = np.log2(max(maximum, 2.0**-50))
    return int(np.clip(np.ceil(log * (1 << LEVEL_BITS)), -LEVEL_LIMIT, LEVEL_LIMIT))


def next_level(level: int, peak_bits: int) -> int:
    """Return the next level: up at once where the tensor was larger, slowly down where it was not."""
    level, peak_bits = limit_level(level), peak_bits & MASK32
    if peak_bits == 0:
        return limit_level(level - DECAY_OF_NOTHING)
    return limit_level(max(level - DECAY, (exponent_of(level) + peak_bits.bit_length()) << LEVEL_BITS))


def mantissas(reals: Array) -> tuple[Array, Array]:
    """Return m and e with real ≈ m · 2^(e − 31), m in [2^30, 2^31) and e limited to an int8; (0, 0) for zero."""
    fraction, exponent_ = np.frexp(np.asarray(reals, np.float64))
    m = np.minimum(np.floor(fraction * 2.0**31 + 0.5), 2.0**31 - 1)
    return m.astype(np.int32), np.clip(exponent_, -128, 127).astype(np.int8)


def shared_mantissas(reals: Array) -> tuple[Array, int]:
    """Return m and e with real ≈ m · 2^(e − 31) and one e for all; the largest m lies in [2^30, 2^31)."""
    _, exponent_ = np.frexp(np.max(reals))
    m = np.minimum(np.floor(np.ldexp(np.asarray(reals, np.float64), 31 - exponent_) + 0.5), 2.0**31 - 1)
    return m.astype(np.int32), int(exponent_)


def high_product(x: Array, multiplier: Array | int) -> Array:
    """Return round(x · multiplier / 2^31), halves up."""
    product: Array = np.asarray(x, np.int64) * np.asarray(multiplier, np.int64)
    return (product + (1 << 30)) >> 31


def lift(bound: int, what: str) -> int:
    """Return the bits by which sums up to `bound` can be raised and stay below 2^30."""
    if bound >= 1 << 31:
        raise GraphError(f"{what} adds up to {bound:,}, which does not fit 32 bits; train smaller maps")
    return max(0, 30 - bound.bit_length())


def round_gradient(v: Array, t: int, key: int) -> tuple[Array, int]:
    """Round v / 2^t at random to int8, saturated; also return the bits that occur before saturation."""
    if t < 0:
        v = np.clip(v, -MOST_RAISED, MOST_RAISED) << min(-t, MAX_RAISE)
    v = v >> min(max(t - MAX_SHIFT, 0), 31)
    t = min(max(t, 0), MAX_SHIFT)
    octets = random_bytes(key, v.size).reshape(v.shape).astype(np.int64)
    centre = (1 << t) >> 9  # of a byte's step where it is coarser than v, so that rounding has no bias
    u = (v + centre + ((octets << t) >> 8)) >> t
    peak_bits = int(np.bitwise_or.reduce((u ^ (u >> 63)).ravel()))
    return np.clip(u, -127, 127).astype(np.int8), peak_bits


def round_update(v: Array, t: Array, key: int) -> Array:
    """Round v / 2^t at random with 32 bits per element, saturated to ±2^30."""
    deep = np.clip(t - 31, 0, 31)
    raised = np.clip(v, -(1 << 30), 1 << 30) << np.clip(-t, 0, 30)
    v = np.where(t < 0, raised, v >> deep)
    t = np.clip(t, 0, 31)
    words = random_words(key, v.size).reshape(v.shape).astype(np.int64)
    return np.asarray(np.clip((v + (words >> (32 - t))) >> t, -(1 << 30), 1 << 30))
