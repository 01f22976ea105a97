"""Audio files for tests: .wav of every width, and "words" made of tones that differ every time."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from smidgen.ir import Array

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
WORDS = {"high": (1500, 2600), "low": (300, 700), "rising": (400, 2600)}  # Hz at the beginning and at the end


def wav(samples: Array, rate: int = 16_000, bits: int = 16, kind: int = PCM, extended: bool = False) -> bytes:
    """A file of numbers of −1 to 1, [samples] or [samples, channels]."""
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    if kind == FLOAT:
        data = samples.astype("<f4").tobytes()
    else:
        whole = np.clip(np.rint(samples * 2.0 ** (bits - 1)), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1).astype(np.int64)
        whole = whole + 128 if bits == 8 else whole
        data = whole.astype("<i8").reshape(-1, 1).view(np.uint8)[:, : bits // 8].tobytes()
    block = channels * bits // 8
    form = struct.pack("<HHIIHH", EXTENSIBLE if extended else kind, channels, rate, rate * block, block, bits)
    if extended:
        form += struct.pack("<HHIH", 22, bits, 0, kind) + bytes.fromhex("000000001000800000aa00389b71")
    parts = b"".join(name + struct.pack("<I", len(body)) + body for name, body in ((b"fmt ", form), (b"data", data)))
    return b"RIFF" + struct.pack("<I", 4 + len(parts)) + b"WAVE" + parts


def spoken(word: str, seed: int, rate: int = 16_000) -> Array:
    """Return two tones that glide as the word does, at some time, pitch and loudness of a second of noise."""
    rng = np.random.default_rng(seed)
    count = int(rate * rng.uniform(0.4, 1.2))
    begin, end = (f * rng.uniform(0.9, 1.1) for f in WORDS[word])
    glide = np.cumsum(np.linspace(begin, end, count)) * 2 * np.pi / rate
    loud = rng.uniform(0.1, 0.5) * np.sin(np.linspace(0, np.pi, count)) ** 2
    mixed: Array = loud * (np.sin(glide) + 0.4 * np.sin(2 * glide)) + rng.normal(0, 0.003, count)
    return mixed


def write_words(folder: Path, each: int, rate: int = 16_000) -> Path:
    """Write folders by label, with `each` recordings in every one."""
    for word in WORDS:
        (folder / word).mkdir(parents=True)
        for number in range(each):
            (folder / word / f"{number:03}.wav").write_bytes(wav(spoken(word, number, rate), rate))
    return folder
