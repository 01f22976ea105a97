"""Sound → features in integers, the same bytes as the C: tables by which it is done, and the steps in order.

`docs/internals/audio.md` states what each step computes and how far it is from the definition in real numbers.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from smidgen.errors import InputError
from smidgen.ir import Array, Type
from smidgen.ir.log_mel import LogMel

SAMPLE_BITS, WINDOW_BITS, TURN_BITS, WEIGHT_BITS = 15, 30, 30, 16
LOG_BITS, MIX_BITS = 15, 14
SEGMENTS = 64  # of the table of logarithms, a power of two
ROOM = 29  # bits that the sum of a window's magnitudes may have: no sum of a transform has more
# What a band's sum is scaled by: samples, window, weights, and a transform that is left twice as large.
SUM_BITS = SAMPLE_BITS + WINDOW_BITS + WEIGHT_BITS + 1


@dataclass(frozen=True, eq=False)
class LogMelTables:
    """The tables that the arithmetic looks up, laid out as in flash."""

    hann: Array  # int32 [window / 2 + 1]: the curve up to its middle, from where it falls as it rose
    turns: Array  # int32 [size / 2, 2]: cosine and sine of −2πk / size
    first: Array  # uint16 [bands]: where a band's triangle begins
    count: Array  # uint16 [bands]: how many bins it covers
    weights: Array  # uint16: the triangles' heights, band after band
    logs: Array  # uint16 [SEGMENTS + 1]: log2 of 1 to 2
    mix: Array  # int16 [coefficients, bands]: cosines of the DCT; empty without
    offset: int


@dataclass(frozen=True)
class Scaling:
    """Features become int8: times multiplier · 2^−shift, rounded, moved by zero."""

    multiplier: int
    shift: int
    zero: int


@cache
def log_mel_tables(spec: LogMel) -> LogMelTables:
    """Return the tables of a front end."""
    angles = 2 * np.pi * np.arange(spec.window // 2 + 1) / spec.window
    turns = -2 * np.pi * np.arange(spec.size // 2) / spec.size
    weights = np.minimum(_rounded(triangles(spec), WEIGHT_BITS), 2**WEIGHT_BITS - 1)
    bins = [np.flatnonzero(row) for row in weights]
    places = [(int(at[0]), int(at[-1]) + 1) if at.size else (1, 1) for at in bins]
    heights = [row[first:end] for row, (first, end) in zip(weights, places, strict=True)]
    rows, columns = np.arange(spec.coefficients)[:, None], np.arange(spec.bands)
    cosines = np.cos(np.pi * rows * (2 * columns + 1) / (2 * spec.bands))
    return LogMelTables(
        hann=_rounded(0.5 - 0.5 * np.cos(angles), WINDOW_BITS).astype(np.int32),
        turns=_rounded(np.stack((np.cos(turns), np.sin(turns)), axis=1), TURN_BITS).astype(np.int32),
        first=np.array([first for first, _ in places], np.uint16),
        count=np.array([end - first for first, end in places], np.uint16),
        weights=np.concatenate(heights).astype(np.uint16),
        logs=_rounded(np.log2(1 + np.arange(SEGMENTS + 1) / SEGMENTS), LOG_BITS).astype(np.uint16),
        mix=_rounded(cosines, MIX_BITS).astype(np.int16),
        offset=round(spec.offset * 2**SUM_BITS),
    )


def triangles(spec: LogMel) -> Array:
    """Return how much each bin of the transform counts in each band, by the definition: [bands, size / 2]."""
    ends = _mel(np.array((spec.low, spec.high)))
    edges = np.linspace(float(ends[0]), float(ends[1]), spec.bands + 2)
    mel = _mel(np.arange(spec.size // 2) * spec.rate / spec.size)
    low, middle, high = (edges[i : i + spec.bands, None] for i in range(3))
    heights: Array = np.maximum(np.minimum((mel - low) / (middle - low), (high - mel) / (high - middle)), 0)
    heights[:, 0] = 0  # what does not change is not sound
    return heights


def _mel(hertz: Array) -> Array:
    return np.asarray(1127 * np.log1p(hertz / 700))


def _rounded(numbers: Array, bits: int) -> Array:
    return np.asarray(np.rint(numbers * 2.0**bits).astype(np.int64))


def unit(spec: LogMel) -> float:
    """Return the real number that 1 in the sums of `feature_sums` stands for."""
    dct = math.sqrt(2 / spec.bands) / (1 << MIX_BITS) if spec.coefficients else 1.0
    return math.log(2) * dct / (1 << LOG_BITS)


def scaling(spec: LogMel, type: Type) -> Scaling:
    """Return how the sums of a front end become a model's int8 input."""
    factor = unit(spec) / type.scale
    fraction, exponent = math.frexp(factor)
    multiplier, shift = round(fraction * 2**16), 16 - exponent
    if not 1 <= shift <= 62:
        raise InputError(f"sound cannot be given at a scale of {type.scale:g}; quantize the model again on recordings")
    return Scaling(multiplier, shift, type.zero)


def log_mel(samples: Array, spec: LogMel, type: Type) -> Array:
    """Turn int16 samples, as many as the input is made of, into a model's input of int8, or of float32."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, spec.window)[:: spec.hop]
    sums = feature_sums(frames, spec)
    if type.dtype == "float32":
        features: Array = (sums * unit(spec)).astype(np.float32)
    else:
        by = scaling(spec, type)
        scaled = ((sums * by.multiplier + (1 << (by.shift - 1))) >> by.shift) + by.zero
        features = np.clip(scaled, -128, 127).astype(np.int8)
    return (features.T if spec.across else features).reshape(type.shape)


def feature_sums(frames: Array, spec: LogMel) -> Array:
    """Turn windows of int16 samples into features, integers that count `unit`s: [frames, features]."""
    tables = log_mel_tables(spec)
    windowed, right = _windowed(frames, tables, spec.size)
    bands = _band_sums(_magnitudes(windowed, tables.turns), tables)
    logs = _log2(bands + (tables.offset >> right), tables.logs) - ((SUM_BITS - right) << LOG_BITS)
    return np.asarray(logs @ tables.mix.T.astype(np.int64) if spec.coefficients else logs)


def _windowed(frames: Array, tables: LogMelTables, size: int) -> tuple[Array, Array]:
    """Weight windows by the Hann curve, each halved until its magnitudes add up to at most ROOM bits."""
    place = np.arange(frames.shape[1])
    weighted = frames.astype(np.int64) * tables.hann[np.minimum(place, place.size - place)]
    right = np.maximum(_bits(np.abs(weighted).sum(axis=1, keepdims=True)) - ROOM, 0)
    halved = (weighted + ((1 << right) >> 1)) >> right
    return np.pad(halved, ((0, 0), (0, size - place.size))), right


def _magnitudes(x: Array, turns: Array) -> Array:
    """Return twice the magnitudes of the Fourier transform, without its first and last bin: [frames, bins].

    Even and odd samples are transformed as the two parts of complex numbers, and then separated.
    """
    size = x.shape[1]
    re, im = _transform(x[:, 0::2], x[:, 1::2], turns)
    half, k = size // 2, np.arange(1, size // 4 + 1)
    a_re, a_im = re[:, k] + re[:, half - k], im[:, k] - im[:, half - k]
    b_re, b_im = re[:, k] - re[:, half - k], im[:, k] + im[:, half - k]
    t_re, t_im = _turned(b_im, -b_re, turns[k])
    magnitudes: Array = np.zeros((len(x), half), np.int64)
    magnitudes[:, half - k] = _root((a_re - t_re) ** 2 + (a_im - t_im) ** 2)
    magnitudes[:, k] = _root((a_re + t_re) ** 2 + (a_im + t_im) ** 2)
    return magnitudes


def _transform(re: Array, im: Array, turns: Array) -> tuple[Array, Array]:
    """Transform by radix 2, decimation in time: pairs, then fours, then eights, every product rounded."""
    count, n = re.shape
    order = _reversed_bits(n)
    re, im = re[:, order], im[:, order]
    width = 2
    while width <= n:
        re, im = (part.reshape(count, n // width, 2, width // 2) for part in (re, im))
        t_re, t_im = _turned(re[:, :, 1], im[:, :, 1], turns[:: 2 * n // width])
        re = np.stack((re[:, :, 0] + t_re, re[:, :, 0] - t_re), axis=2)
        im = np.stack((im[:, :, 0] + t_im, im[:, :, 0] - t_im), axis=2)
        width *= 2
    return re.reshape(count, n), im.reshape(count, n)


def _reversed_bits(n: int) -> Array:
    order: Array = np.zeros(1, np.int64)
    while order.size < n:
        order = np.concatenate((2 * order, 2 * order + 1))
    return order


def _turned(re: Array, im: Array, turns: Array) -> tuple[Array, Array]:
    half = 1 << (TURN_BITS - 1)
    cosine: Array = turns[:, 0].astype(np.int64)
    sine: Array = turns[:, 1].astype(np.int64)
    return (re * cosine - im * sine + half) >> TURN_BITS, (re * sine + im * cosine + half) >> TURN_BITS


def _root(power: Array) -> Array:
    """Return the square root, of the 31 or 32 upper bits: the lower bits are dropped."""
    shift = np.maximum(_bits(power) - 31, 0) // 2
    root = np.sqrt((power >> (2 * shift)).astype(np.float64)).astype(np.int64)  # exact below 2^52
    return np.asarray(root << shift)


def _band_sums(magnitudes: Array, tables: LogMelTables) -> Array:
    weights = np.split(tables.weights.astype(np.int64), np.cumsum(tables.count.astype(np.int64))[:-1])
    bins = (slice(int(at), int(at) + row.size) for at, row in zip(tables.first, weights, strict=True))
    return np.stack([magnitudes[:, at] @ row for at, row in zip(bins, weights, strict=True)], axis=1)


def _log2(x: Array, table: Array) -> Array:
    """Return log2 of positive integers, linear between the table's points."""
    top = _bits(x) - 1
    fraction = (x << (62 - top)) & (2**62 - 1)
    index = fraction >> (62 - SEGMENTS.bit_length() + 1)
    rest = (fraction >> (62 - SEGMENTS.bit_length() + 1 - 16)) & 0xFFFF
    points = table.astype(np.int64)
    return np.asarray((top << LOG_BITS) + points[index] + (((points[index + 1] - points[index]) * rest) >> 16))


def _bits(x: Array) -> Array:
    """Return how many bits a number from 0 up has."""
    bits: Array = np.zeros(x.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        above = x >> step > 0
        bits += np.where(above, step, 0)
        x = np.where(above, x >> step, x)
    return bits + (x > 0)
