"""Audio for tests: signals of every kind, networks that take audio, the front end's definition in real numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from smidgen import ops
from smidgen.ir import Array, Builder, Graph, QParams, Type
from smidgen.ir.log_mel import MFCC, YAMNET, LogMel
from smidgen.numerics.log_mel import triangles

ACROSS = replace(YAMNET, across=True)
# A window of an odd length, the smallest transform, more bands than it can separate.
SMALL = LogMel(rate=8_000, window=45, hop=45, size=64, bands=20, low=0.0, high=4000.0, offset=1.0, coefficients=0)
LARGE = LogMel(window=4096, hop=1000, size=4096, bands=100, low=50.0, high=8000.0, offset=1e-9, coefficients=100)
CASES = {  # front end, shape and scale of the input it fills
    "mfcc": (MFCC, (1, 49, 10, 1), QParams.per_tensor(0.5847029, 83)),
    "yamnet": (YAMNET, (1, 96, 64, 1), QParams.per_tensor(0.05, 20)),
    "across": (ACROSS, (1, 64, 96, 1), QParams.per_tensor(0.05, 20)),
    "small": (SMALL, (1, 100), QParams.per_tensor(0.04, 0)),
    "large": (LARGE, (1, 3, 100, 1), QParams.per_tensor(1.0, 70)),
}


def listener(case: str = "mfcc") -> Graph:
    """Return a network that takes audio: one dense layer over its features."""
    spec, shape, q = CASES[case]
    g = Builder("listener", spec)
    x = g.input("x", Type(shape, "int8", q))
    rng = np.random.default_rng(1)
    size = math.prod(shape)
    flat = g.emit(ops.Reshape((1, size)), x) if len(shape) > 2 else x
    w = g.constant("w", rng.integers(-127, 128, (4, size)).astype(np.int8), QParams.per_tensor(0.01))
    b = g.constant("b", np.zeros(4, np.int32))
    return g.graph(g.emit(ops.Dense(), flat, w, b, q=QParams.per_tensor(2.0)))


def signals(count: int) -> dict[str, Array]:
    """Sound of every kind: loud, quiet, none, steady, sudden, speech-like."""
    rng, t = np.random.default_rng(0), np.arange(count) / 16_000
    vowel = sum(np.sin(2 * np.pi * 120 * k * t) / (1 + abs(k - 6)) for k in range(1, 25))
    made = {
        "noise": rng.integers(-32768, 32768, count),
        "hum": rng.integers(-3, 4, count),
        "silence": np.zeros(count),
        "tone": 30_000 * np.sin(2 * np.pi * 440 * t),
        "high tone": 32_767 * np.sin(2 * np.pi * 3951.3 * t),
        "square": np.where(np.arange(count) // 40 % 2, 32767, -32768),
        "clicks": np.where(np.arange(count) % 977 == 5, -32768, 0),
        "faint clicks": np.where(np.arange(count) % 977 == 5, 1, 0),
        "constant": np.full(count, -32768),
        "alternating": np.where(np.arange(count) % 2, 32767, -32768),
        "vowel": 4000 * vowel * np.sin(np.pi * t / t[-1]) ** 2 + rng.normal(0, 30, count),
    }
    return {name: np.rint(x).astype(np.int16) for name, x in made.items()}


@st.composite
def sounds(draw: st.DrawFn, count: int) -> Array:
    """Random sound: noise of any strength, tones, clicks and silence after each other, clipped where too loud."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng, t = np.random.default_rng(seed), np.arange(count)
    loud = 2.0 ** draw(st.floats(-1, 17))
    mixed = rng.normal(0, loud, count) * draw(st.sampled_from((0, 0.01, 1)))
    for _ in range(draw(st.integers(0, 3))):
        mixed = mixed + loud * np.sin(t * rng.uniform(0, np.pi) + rng.uniform(0, 6))
    mixed[rng.integers(0, count, draw(st.integers(0, 20)))] = 2 * loud
    begin, end = sorted(rng.integers(0, count, 2))
    if draw(st.booleans()):
        mixed[begin:end] = 0
    return np.rint(np.clip(mixed, -32768, 32767)).astype(np.int16)


FLOOR = 2.0**-24  # of the sum of a window's samples; less is lost in the transform's rounding


def definition(samples: Array, spec: LogMel) -> Array:
    """The features in real numbers, by the words of LogMel: [frames, features]."""
    return np.log(_bands(_windows(samples, spec), spec)) @ _mix(spec).T


def slack(samples: Array, spec: LogMel) -> Array:
    """How far features may be off because bands hold little of what a loud window holds: [frames, features]."""
    windows = _windows(samples, spec)
    lost = FLOOR * np.abs(windows).sum(axis=1, keepdims=True) * triangles(spec).sum(axis=1)
    off: Array = np.log1p(lost / _bands(windows, spec)) @ np.abs(_mix(spec)).T
    return off


def _windows(samples: Array, spec: LogMel) -> Array:
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(spec.window) / spec.window)
    return np.lib.stride_tricks.sliding_window_view(samples / 32768, spec.window)[:: spec.hop] * hann


def _bands(windows: Array, spec: LogMel) -> Array:
    return np.abs(np.fft.rfft(windows, spec.size))[:, :-1] @ triangles(spec).T + spec.offset


def _mix(spec: LogMel) -> Array:
    """Bands as they are, or as their DCT."""
    k, n = np.arange(spec.coefficients)[:, None], np.arange(spec.bands)
    cosines = math.sqrt(2 / spec.bands) * np.cos(np.pi * k * (n + 0.5) / spec.bands)
    return cosines if spec.coefficients else np.eye(spec.bands)
