"""Sound files → samples: .wav of any usual rate, mixed down and brought to one rate, within a budget of memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np

from smidgen.data.budget import Budget
from smidgen.data.resampling import MOST_PHASES, phases, resample
from smidgen.data.samples import DataError
from smidgen.data.trees import SampleFile
from smidgen.ir import Array
from smidgen.ir.log_mel import RATES

SUFFIXES = (".wav", ".wave")
RATE = max(RATES)  # samples per second of what is read
READ_RATES = (4_000, 192_000)
MOST_CHANNELS = 64
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE  # formats, as files number them
WORKING = 40  # bytes taken for each sample of each channel while a file is read
KNOWN = "store it as PCM of 8, 16, 24 or 32 bits"


def read_sounds(files: Sequence[SampleFile], budget: Budget, _: int = 0) -> tuple[Array, ...]:
    """All files as int16 samples at RATE; counted as they are read."""
    sounds = []
    for file in files:
        sounds.append(decode_sound(file.read(), file.name, budget))
        budget.take(file.name, sounds[-1].nbytes)
    return tuple(sounds)


def decode_sound(data: bytes, name: str, budget: Budget) -> Array:
    """A file's bytes as int16 samples at RATE, all channels mixed to one."""
    try:
        return _decode(data, name, budget)
    except _DamagedError as error:
        raise DataError(f"{name} cannot be read as a .wav file: {error}; replace or remove it") from None


class _DamagedError(Exception):
    """What is wrong with a file."""


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
    samples = np.clip(_narrowed(mixed, bits), -(2**15), 2**15 - 1).astype(np.int16)
    return resample(samples, rate, RATE)


def _parts(data: bytes) -> tuple[bytes, bytes]:
    """The format and the samples; a part that claims more than the file holds ends with it, as where it was streamed.

    Parts follow each other, each with its name and size, padded to an even number of bytes.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise _DamagedError("it does not begin as one")
    found = dict(_walk(data))
    for name, what in ((b"fmt ", "format"), (b"data", "samples")):
        if name not in found:
            raise _DamagedError(f"it has no part for its {what}")
    return found[b"fmt "], found[b"data"]


def _walk(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 12
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        yield name, data[at + 8 : at + 8 + size]
        if name == b"data":
            return
        at += 8 + size + size % 2


def _format(form: bytes) -> tuple[int, int, int, int]:
    """The kind of numbers, channels, rate and bits."""
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
    """Samples as int64 of so many bits; floats of −1 to 1 as those of 32 bits."""
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


def _narrowed(numbers: Array, bits: int) -> Array:
    """Numbers of so many bits as those of 16, rounded."""
    if bits <= 16:
        return numbers << (16 - bits)
    half = 1 << (bits - 17)
    return (numbers + half) >> (bits - 16)
