"""The device's integer arithmetic on PyTorch tensors, a lane for each device; `numerics` says what each function is.

Every function here is element by element or a maximum, and takes tensors alone, so that one compiled kernel serves all
layers. Maps are [devices, channels, positions], weights [devices, outputs, taps, channels]; numbers of int8 stand in
float32, which holds them, less their zero point.
"""

import torch
from torch import Tensor

from smidgen.numerics import stochastic
from smidgen.ops.elementwise import ADD_SHIFT

GOLDEN = stochastic.GOLDEN - (1 << 32)  # as int32
LARGEST_STEP = 1 << 30
WORD = stochastic.MASK32


def mix(x: Tensor) -> Tensor:
    """`stochastic.mix` of int32."""
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * 0x7FEB352D
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * (0x846CA68B - (1 << 32))
    return x ^ ((x >> 16) & 0xFFFF)


def keys(step: Tensor, seed: Tensor, streams: Tensor) -> Tensor:
    """`stochastic.stream_key`: step and seed are [devices, 1], streams and the result [devices, streams]; int32."""
    return mix(mix(step + mix(seed)) + streams)


def words(key: Tensor, index: Tensor) -> Tensor:
    """The words at these places of a stream, from 0 to 2^32 − 1 in int64."""
    return mix(index * GOLDEN + key).to(torch.int64) & WORD


def scaled(x: Tensor, multiplier: Tensor, shift: Tensor) -> Tensor:
    """`numerics.multiply` of int64."""
    left, right = shift.clamp(min=0), (-shift).clamp(min=0)
    wrapped = (x << (left + 32)) >> 32
    high = (wrapped * multiplier + (1 << 30)) >> 31
    below = (high >> 63) & -(right > 0).to(torch.int64)  # halves go away from zero
    return (high + ((torch.ones_like(right) << right) >> 1) + below) >> right


def requantized(sums: Tensor, bias: Tensor, multiplier: Tensor, shift: Tensor, limits: Tensor) -> Tensor:
    """Sums [devices, channels, positions] → an output, its zero point taken off; all else is one per channel."""
    acc = sums.to(torch.int64) + bias.unsqueeze(2)
    real = scaled(acc, multiplier.unsqueeze(1), shift.unsqueeze(1))
    return real.clamp(limits[0], limits[1]).to(torch.float32)


def rescaled(x: Tensor, multiplier: Tensor, shift: Tensor, limits: Tensor) -> Tensor:
    """Whole numbers, held in float, → an output, its zero point taken off."""
    return scaled(x.to(torch.int64), multiplier, shift).clamp(limits[0], limits[1]).to(torch.float32)


def added(a: Tensor, b: Tensor, multipliers: Tensor, shifts: Tensor, limits: Tensor) -> Tensor:
    """`ops.Add`; the three multipliers and shifts are those of a, of b and of the sum."""
    left = scaled(a.to(torch.int64) << ADD_SHIFT, multipliers[0], shifts[0])
    right = scaled(b.to(torch.int64) << ADD_SHIFT, multipliers[1], shifts[1])
    return scaled(left + right, multipliers[2], shifts[2]).clamp(limits[0], limits[1]).to(torch.float32)


def rounded(
    sums: Tensor, y: Tensor, limits: Tensor, multiplier: Tensor, t: Tensor, key: Tensor
) -> tuple[Tensor, Tensor]:
    """Sums of gradients → int8 gradients, and the largest magnitude before saturation of each device and channel.

    They are nothing where y lies on or beyond its limits. `multiplier` is one number or one per channel, and holds the
    lift; t and key are one per device.
    """
    v = (sums.to(torch.int64) * multiplier.unsqueeze(1) + (1 << 30)) >> 31
    return _at_random(torch.where((y > limits[0]) & (y < limits[1]), v, 0), t, key)


def _at_random(v: Tensor, t: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """`stochastic.round_gradient`; elements are counted position by position."""
    _, channels, positions = v.shape
    t, key = t.to(torch.int64).reshape(-1, 1, 1), key.reshape(-1, 1, 1)
    most = stochastic.MOST_RAISED
    raised = v.clamp(-most, most) << (-t).clamp(0, stochastic.MAX_RAISE)
    v = torch.where(t < 0, raised, v >> (t - stochastic.MAX_SHIFT).clamp(0, 31))
    t = t.clamp(0, stochastic.MAX_SHIFT)
    at = torch.arange(positions, device=v.device, dtype=torch.int32) * channels
    index = at + torch.arange(channels, device=v.device, dtype=torch.int32).unsqueeze(1)
    octets = (words(key, index >> 2) >> ((index & 3) * 8)) & 255
    centre = (torch.ones_like(t) << t) >> 9
    u = (v + centre + ((octets << t) >> 8)) >> t
    peak = (u ^ (u >> 63)).amax(2)
    return u.clamp(-127, 127).to(torch.float32), peak


def aligned(a: Tensor, b: Tensor, by_a: Tensor, by_b: Tensor) -> Tensor:
    """The sum of two gradients, each shifted by so many bits per device: as `ops.SumGrads` adds them."""
    return _shifted(a, by_a) + _shifted(b, by_b)


def _shifted(g: Tensor, by: Tensor) -> Tensor:
    by = by.to(torch.int64).reshape(-1, 1, 1)
    whole = g.to(torch.int64)
    return torch.where(by >= 0, whole << by.clamp(0, 31), whole >> (-by).clamp(0, 31))


def delta(
    sums: Tensor, lift: Tensor, multiplier: Tensor, shift: Tensor, rate: Tensor, t: Tensor, key: Tensor, rank: Tensor,
    kept: Tensor,
) -> Tensor:  # fmt: skip
    """`ops.Step.delta` of sums [devices, outputs, taps, channels].

    `multiplier` and `shift` have one number per channel that has a factor; rate, t and key are one per device. A device
    keeps `kept` of the channels, and `rank` tells the place of each among them.
    """
    mantissa = (multiplier * rate.to(torch.int64).reshape(-1, 1, 1, 1) + (1 << 30)) >> 31
    v = ((sums.to(torch.int64) << lift) * mantissa + (1 << 30)) >> 31
    t = t.to(torch.int64).reshape(-1, 1, 1, 1) - shift
    raised = v.clamp(-LARGEST_STEP, LARGEST_STEP) << (-t).clamp(0, 30)
    v = torch.where(t < 0, raised, v >> (t - 31).clamp(0, 31))
    t = t.clamp(0, 31)
    drawn = words(key.reshape(-1, 1, 1, 1), _places(sums, rank, kept))
    return ((v + (drawn >> (32 - t))) >> t).clamp(-LARGEST_STEP, LARGEST_STEP)


def _places(sums: Tensor, rank: Tensor, kept: Tensor) -> Tensor:
    """The place of each element in the tensor as its device keeps it."""
    _, outputs, taps, _ = sums.shape
    rows = torch.arange(outputs * taps, device=sums.device, dtype=torch.int32).reshape(1, outputs, taps, 1)
    return rows * kept.reshape(-1, 1, 1, 1) + rank.reshape(rank.shape[0], 1, 1, -1)


def ruled(
    buffer: Tensor, step: Tensor, due: Tensor, decay: Tensor, limit: Tensor, down: Tensor, key: Tensor, rank: Tensor,
    kept: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`ops.Step.follow_rule` with integers: what moves the tensor now, and the buffer after it."""
    drawn = words(key.reshape(-1, 1, 1, 1), _places(step, rank, kept))
    due = due.reshape(-1, 1, 1, 1)
    full = (buffer.to(torch.int64) + step).clamp(-limit, limit)
    stays = (full * decay + (drawn >> 16)) >> 16
    moves = torch.where(due, full, 0)
    after = torch.where(due, stays, full)
    return (moves + (drawn & ((torch.ones_like(down) << down) - 1))) >> down, after.to(buffer.dtype)


def moved_weight(w: Tensor, fraction: Tensor, step: Tensor, bits: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """`ops.WeightStep`: the int8 part and its fraction of `bits` bits after a step, where a device learns them."""
    half = (torch.ones_like(bits) << bits) >> 1
    whole = (w.to(torch.int64) << bits) + fraction.to(torch.int64) - half
    limit = 127 << bits
    after = torch.minimum(torch.maximum(whole - step, -limit), limit) + half
    kept = torch.where(active, (after >> bits).to(torch.float32), w)
    rest = torch.where(active, after & ((torch.ones_like(bits) << bits) - 1), fraction.to(torch.int64))
    return kept, rest.to(fraction.dtype)


def moved_bias(b: Tensor, step: Tensor, active: Tensor, limit: Tensor) -> Tensor:
    """`ops.BiasStep`: biases, or differences to them, after a step, where a device learns them."""
    after = (b.to(torch.int64) - step).clamp(-limit, limit)
    return torch.where(active, after.to(b.dtype), b)


def exponents(levels: Tensor) -> Tensor:
    """`stochastic.exponent` of each level."""
    limited = levels.clamp(-stochastic.LEVEL_LIMIT, stochastic.LEVEL_LIMIT)
    return ((limited + (1 << stochastic.LEVEL_BITS) - 1) >> stochastic.LEVEL_BITS) - 7


def next_levels(levels: Tensor, peaks: Tensor) -> Tensor:
    """`stochastic.next_level`; a peak is the largest magnitude a tensor showed."""
    limit = stochastic.LEVEL_LIMIT
    level = levels.clamp(-limit, limit)
    bits = torch.frexp(peaks.to(torch.float64)).exponent.to(levels.dtype)
    risen = (exponents(level) + bits) << stochastic.LEVEL_BITS
    fallen = torch.where(peaks == 0, level - stochastic.DECAY_OF_NOTHING, level - stochastic.DECAY)
    return torch.where(peaks == 0, fallen, torch.maximum(fallen, risen)).clamp(-limit, limit)


def windowed(seen: Tensor, dy: Tensor) -> Tensor:
    """The sums of a depthwise weight's gradient: `seen` as `sums.views` gives it, dy as [devices, channels, …]."""
    return (seen * dy[:, None, None]).sum(dim=(4, 5, 6))


COMPILED = (
    windowed, requantized, rescaled, added, rounded, aligned, delta, ruled, moved_weight, moved_bias,
)  # fmt: skip
