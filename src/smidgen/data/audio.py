"""Audio files → samples at one rate, and samples → a model's input by its front end."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np

from smidgen.data.files import Budget, SampleFile
from smidgen.data.pixels import PixelEncoding
from smidgen.data.samples import DataError
from smidgen.errors import InputError
from smidgen.ir import Array, Graph
from smidgen.ir.log_mel import MFCC, RATES, YAMNET, LogMel
from smidgen.numerics.log_mel import log_mel

SUFFIXES = (".wav", ".wave")
RATE = max(RATES)  # samples per second of what is read
READ_RATES = (4_000, 192_000)
MOST_CHANNELS = 64
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE  # formats, as files number them
WORKING = 40  # bytes taken for each sample of each channel while a file is read
KNOWN = "store it as PCM of 8, 16, 24 or 32 bits"
EXAMPLE = "mfcc,window=640,hop=320,size=1024,bands=40,coefficients=0"
FRONT_ENDS: Mapping[str, LogMel] = {"mfcc": MFCC, "yamnet": YAMNET}
USUAL: Mapping[tuple[int, ...], LogMel] = {  # by the shape of a model's input
    (1, 49, 10, 1): MFCC,
    (1, 96, 64, 1): YAMNET,
    (1, 64, 96, 1): replace(YAMNET, across=True),
}
SHIFT = 0.1  # seconds at most, by which recordings are moved to learn from
LOBES = 16  # of the sinc on each side, counted at the lower of both rates
PASSED = 0.92  # of the lower rate's band: above that the filter falls
TAP_BITS = 15
MOST_PHASES = 640  # what 11,025 samples per second need for 16,000
PIECE = 2**12  # samples made at a time


def read_audio(files: Sequence[SampleFile], budget: Budget, _: int = 0) -> tuple[Array, ...]:
    """Read all files as int16 samples at RATE; counted as they are read."""
    sounds = []
    for file in files:
        sounds.append(decode_audio(file.read(), file.name, budget))
        budget.take(file.name, sounds[-1].nbytes)
    return tuple(sounds)


def decode_audio(data: bytes, name: str, budget: Budget) -> Array:
    """Return a file's bytes as int16 samples at RATE, all channels mixed to one."""
    try:
        return _decode(data, name, budget)
    except _DamagedError as error:
        raise DataError(f"{name} cannot be read as a .wav file: {error}; replace or remove it") from None


class _DamagedError(Exception):
    """The damage in a file."""


def _decode(data: bytes, name: str, budget: Budget) -> Array:
    form, body = _parts(data)
    kind, channels, rate, bits = _format(form)
    width = channels * bits // 8
    count = len(body) // width
    if not count:
        raise _DamagedError("it holds no samples")
    if not READ_RATES[0] <= rate <= READ_RATES[1] or phases(rate, RATE) > MOST_PHASES:
        raise _DamagedError(f"its rate is {rate:,} samples per second, of which no simple share makes {RATE:,}")
    made = -(-count * RATE // rate)
    budget.check(f"{name}, {count:,} samples of {channels} channels,", WORKING * (count * channels + made))
    numbers = _numbers(body[: count * width], kind, bits).reshape(count, channels)
    mixed = (2 * numbers.sum(axis=1) + channels) // (2 * channels)
    rounded = mixed << (16 - bits) if bits <= 16 else (mixed + (1 << (bits - 17))) >> (bits - 16)  # to 16 bits
    return resample(np.clip(rounded, -(2**15), 2**15 - 1).astype(np.int16), rate, RATE)


def _parts(data: bytes) -> tuple[bytes, bytes]:
    """Return the format and the samples; a chunk that claims more than the file holds, as in a stream, ends with it.

    Chunks follow each other, each with its name and size, padded to an even number of bytes.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise _DamagedError("it does not begin as one")
    found: dict[bytes, bytes] = {}
    at = 12
    while at + 8 <= len(data) and b"data" not in found:
        name, size = struct.unpack_from("<4sI", data, at)
        found[name] = data[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
    for name, what in ((b"fmt ", "format"), (b"data", "samples")):
        if name not in found:
            raise _DamagedError(f"it has no part for its {what}")
    return found[b"fmt "], found[b"data"]


def _format(form: bytes) -> tuple[int, int, int, int]:
    """Return the kind of numbers, channels, rate and bits."""
    if len(form) < 16:
        raise _DamagedError(f"its format takes 16 bytes, it has {len(form)}")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", form)
    if kind == EXTENSIBLE and len(form) >= 26:
        (kind,) = struct.unpack_from("<H", form, 24)
    if not 1 <= channels <= MOST_CHANNELS:
        raise _DamagedError(f"it has {channels} channels, 1 to {MOST_CHANNELS} are read")
    if (kind, bits) not in ((PCM, 8), (PCM, 16), (PCM, 24), (PCM, 32), (FLOAT, 32)):
        raise _DamagedError(f"its format is {kind} with {bits} bits; {KNOWN}")
    return kind, channels, rate, bits


def _numbers(body: bytes, kind: int, bits: int) -> Array:
    """Return samples as int64 of `bits` bits; floats of −1 to 1 become 32 bits."""
    if kind == FLOAT:
        real = np.frombuffer(body, "<f4").astype(np.float64)
        if not np.isfinite(real).all():
            raise _DamagedError("it holds numbers that are not finite")
        return np.rint(np.clip(real, -1, 1) * (2**31 - 1)).astype(np.int64)
    if bits == 8:
        return np.frombuffer(body, np.uint8).astype(np.int64) - 128
    if bits == 24:
        octets = np.frombuffer(body, np.uint8).reshape(-1, 3).astype(np.int64)
        whole = octets[:, 0] | octets[:, 1] << 8 | octets[:, 2] << 16
        return whole - ((whole & 0x800000) << 1)
    return np.frombuffer(body, f"<i{bits // 8}").astype(np.int64)


def phases(rate: int, wanted: int) -> int:
    """Return how many filters take turns between two rates."""
    return wanted // math.gcd(rate, wanted)


def resample(samples: Array, rate: int, wanted: int) -> Array:
    """Resample int16 samples by a sinc under a Hann window, the sum of its integer taps rounded.

    In integers every machine gives the same bytes.
    """
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
    """Return the filters, [up, taps]; each adds up to one, so that a constant stays constant."""
    cut = PASSED * min(1.0, up / down)
    side = math.ceil(LOBES / cut)
    away = np.arange(1 - side, side + 1) - np.arange(up)[:, None] / up
    curve = np.where(np.abs(away) < side, 0.5 + 0.5 * np.cos(np.pi * away / side), 0)
    real = np.sinc(cut * away) * curve
    taps: Array = np.rint(real / real.sum(axis=1, keepdims=True) * 2**TAP_BITS).astype(np.int64)
    largest = np.abs(taps).argmax(axis=1)
    taps[np.arange(up), largest] += 2**TAP_BITS - taps.sum(axis=1)
    return taps


def audio_input(samples: Array, encoding: PixelEncoding, shift: int = 0) -> Array:
    """Return the middle of a recording at RATE, or `shift` samples later, as a model's input; zeros pad a short one."""
    spec = encoding.audio
    if spec is None:
        raise DataError(
            f"the model has no audio front end for its input {list(encoding.type.shape)}; give --audio "
            f"{' or '.join(FRONT_ENDS)}, or its settings"
        )
    return log_mel(middle(samples, spec, encoding.type.shape, shift), spec, encoding.type)


def middle(samples: Array, spec: LogMel, shape: tuple[int, ...], shift: int = 0) -> Array:
    """Return as many samples of a recording as an input of this shape needs, at the front end's rate."""
    samples, wanted = resample(samples, RATE, spec.rate), spec.samples(shape)
    first = (samples.size - wanted) // 2 + shift
    kept: Array = np.zeros(wanted, np.int16)
    begin, end = max(first, 0), min(first + wanted, samples.size)
    if begin < end:
        kept[begin - first : end - first] = samples[begin:end]
    return kept


def shifted_audio(samples: Array, encoding: PixelEncoding, rng: np.random.Generator) -> Array:
    """Return the middle of a recording as a model's input, moved by a random time of up to SHIFT."""
    most = 0 if encoding.audio is None else round(SHIFT * encoding.audio.rate)
    return audio_input(samples, encoding, int(rng.integers(-most, most + 1)))


def with_front_end(graph: Graph, samples: Sequence[Array], audio: str | None = None) -> Graph:
    """Return the graph with its audio front end if the samples are audio, else unchanged."""
    if samples and is_audio(samples[0]):
        return with_audio_front_end(graph, audio)
    if audio is not None:
        raise InputError(f"--audio {audio[:40]} is for audio, but the data hold none; leave it out")
    return graph


def is_audio(sample: Array) -> bool:
    """Return whether a sample is audio: int16 in one dimension, which nothing else is."""
    return sample.dtype == np.int16 and sample.ndim == 1


def with_audio_front_end(graph: Graph, audio: str | None = None) -> Graph:
    """Return the graph with the front end that `audio` names, the one it carries, or the usual one for its input."""
    spec = graph.preprocessing if isinstance(graph.preprocessing, LogMel) else USUAL.get(graph.image.type.shape)
    if audio is not None:
        spec = named_front_end(audio, graph.image.type.shape)
    if spec is None:
        raise InputError(
            f"no audio front end is usual for the input {list(graph.image.type.shape)} of {graph.name}; give --audio "
            f"with one of {', '.join(FRONT_ENDS)} and what differs, as in {EXAMPLE}"
        )
    spec.check(graph.image.type.shape)
    return replace(graph, preprocessing=spec)


def named_front_end(text: str, shape: tuple[int, ...]) -> LogMel:
    """Return a front end by its name and what differs from it, separated by commas."""
    name, *changes = text.split(",")
    if name not in FRONT_ENDS:
        raise InputError(
            f"--audio {text[:40]} begins with no front end that is known; give {', '.join(FRONT_ENDS)}, and what "
            f"differs, as in {EXAMPLE}"
        )
    spec = FRONT_ENDS[name]
    usual = USUAL.get(shape)
    if usual is not None and replace(usual, across=False) == spec and not changes:
        return usual
    kinds, settings = {name: type(value) for name, value in asdict(spec).items()}, dict[str, Any]()
    for change in changes:
        key, _, value = change.partition("=")
        try:
            number = float(value)
            if key not in kinds or not np.isfinite(number) or (kinds[key] is not float and number != int(number)):
                raise ValueError
        except ValueError:
            raise InputError(
                f"--audio cannot be set to {change[:40]!r}; write name=number with one of {', '.join(kinds)}"
            ) from None
        settings[key] = kinds[key](number)
    return replace(spec, **settings)
