"""Words spoken by code: vowels as resonances of a throat, consonants as noise and silence, in voices that differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import smidgen as sm
from smidgen.data import Samples

FRONT_END = sm.LogMel()  # 49 frames of 10 coefficients: `mfcc` in docs/internals/audio.md
SHAPE = (49, 10, 1)
RATE = FRONT_END.rate
SECOND = FRONT_END.samples((1, *SHAPE))
VOWELS = {  # the first three formants of an adult, in Hz
    "a": (730, 1190, 2450), "e": (530, 1840, 2480), "i": (280, 2250, 2900), "o": (520, 900, 2410),
    "u": (320, 870, 2240), "m": (250, 1100, 2100), "l": (360, 1300, 2600), "r": (420, 1300, 1600),
    "w": (300, 650, 2150),
}  # fmt: skip
NOISES = {"s": 5500.0, "f": 3200.0, "t": 4200.0, "k": 1900.0}  # where each hisses, in Hz
STOPS = ("t", "k")  # a silence, then a short burst
KNOWN = ("mila", "fosu", "keto", "rami", "sutal", "wemo", "lafi", "toru", "simek", "aloko", "ukali", "fetum")
NEW = ("katu", "lamo", "lamu", "limo", "mola", "remo", "tako", "tuko")
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Voice:
    """How somebody sounds."""

    pitch: float  # Hz
    throat: float  # 1 for an adult man, more for shorter ones
    tempo: float
    breath: float  # noise in the voice
    accent: Array  # how far each vowel's formants are off, [sounds, 3]
    room: float  # noise around, of 1


def draw_voice(rng: np.random.Generator) -> Voice:
    accent = rng.normal(1, 0.05, (len(VOWELS), 3))
    throat = rng.uniform(0.95, 1.3)
    pitch = 110 * throat**2.4 * rng.uniform(0.8, 1.25)
    return Voice(pitch, throat, rng.uniform(0.75, 1.3), rng.uniform(0.02, 0.25), accent, rng.uniform(0.005, 0.05))


def say(word: str, voice: Voice, rng: np.random.Generator) -> NDArray[np.int16]:
    """A second of sound with the word in it, int16."""
    spoken = np.concatenate([_sound(letter, voice, rng) for letter in word])[: SECOND - 200]
    second: Array = rng.normal(0, voice.room * rng.uniform(0.5, 1.5), SECOND)
    first = int(rng.integers(0, SECOND - spoken.size))
    second[first : first + spoken.size] += spoken / max(np.abs(spoken).max(), 1e-9)
    return np.clip(second * rng.uniform(7_000, 20_000), -32768, 32767).astype(np.int16)


def _sound(letter: str, voice: Voice, rng: np.random.Generator) -> Array:
    long = rng.uniform(0.8, 1.25) / voice.tempo
    if letter in STOPS:
        burst = _filtered(rng.normal(size=int(0.035 * RATE)), ((NOISES[letter] * voice.throat, 900.0, 1.0),))
        return np.concatenate([np.zeros(int(0.045 * long * RATE)), _faded(burst)])
    if letter in NOISES:
        hiss = _filtered(rng.normal(size=int(0.11 * long * RATE)), ((NOISES[letter] * voice.throat, 1500.0, 1.0),))
        return 0.5 * _faded(hiss)
    t = np.arange(int((0.13 if letter in "aeiou" else 0.08) * long * RATE)) / RATE
    pitch = voice.pitch * rng.uniform(0.92, 1.08) * (1 - 0.4 * t)
    pulses = np.diff(np.floor(np.cumsum(pitch) / RATE), prepend=0.0) + rng.normal(0, voice.breath / 8, t.size)
    off = voice.accent[list(VOWELS).index(letter)] * voice.throat
    formants = tuple(
        (float(f * k * rng.normal(1, 0.03)), width, gain)
        for f, k, width, gain in zip(VOWELS[letter], off, (80.0, 110.0, 170.0), (1.0, 0.6, 0.3), strict=True)
    )
    return (1.0 if letter in "aeiou" else 0.6) * _faded(_filtered(pulses, formants))


def _filtered(sound: Array, peaks: tuple[tuple[float, float, float], ...]) -> Array:
    """Through resonances of so many Hz, so wide and so strong; as loud as any other."""
    at = np.fft.rfftfreq(sound.size, 1 / RATE)
    gain = 0.02 + sum(strong / (1 + ((at - hertz) / width) ** 2) for hertz, width, strong in peaks)
    heard: Array = np.fft.irfft(np.fft.rfft(sound) * gain, sound.size)
    return heard / max(float(np.sqrt((heard**2).mean())), 1e-9)


def _faded(sound: Array) -> Array:
    edge = np.minimum(np.arange(sound.size), np.arange(sound.size)[::-1]) / (0.012 * RATE)
    faded: Array = sound * np.minimum(edge, 1)
    return faded


def speak(words: tuple[str, ...], voices: int, each: int, rng: np.random.Generator) -> Samples:
    """Every word by so many voices, so many times each."""
    said = [
        (voice, k) for voice in (draw_voice(rng) for _ in range(voices)) for k in range(len(words)) for _ in range(each)
    ]
    return Samples(tuple(say(words[k], voice, rng) for voice, k in said), tuple(k for _, k in said))


def new_words(speakers: int, each: int, others: int, seed: int) -> sm.Data:
    """New words by a few speakers to learn from, and by others to test with, who say each twice."""
    rng = np.random.default_rng(seed)
    return sm.Data("new words", NEW, speak(NEW, speakers, each, rng), speak(NEW, others, 2, rng))
