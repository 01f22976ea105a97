"""Speak words with espeak-ng: recordings by label to learn from, and others by speakers who are not heard there.

    apt-get install espeak-ng
    python tools/speak.py -o words

Each word is said by every speaker of a list in several accents, speeds and pitches. A recording is as loud as another,
lies under a little noise, as any microphone's does, and is the same on every run.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WORDS = ("close", "coffee", "garden", "kitchen", "lamp", "morning", "music", "open", "warmer", "window")
SPEAKERS = {"train": ("m1", "m3", "m4", "m7", "f1", "f2", "f4"), "test": ("m2", "m5", "f3", "f5")}
ACCENTS = ("en-us", "en-gb", "en-gb-scotland")
SPEEDS, PITCHES = (140, 180), (40, 60)  # words per minute, espeak-ng's own scale
LOUD, NOISE = 26_000, 20.0  # the largest sample, and the noise's deviation


@dataclass(frozen=True)
class Speech:
    """One way to say a word."""

    accent: str
    speaker: str
    speed: int
    pitch: int

    def say(self, word: str) -> bytes:
        """A .wav file of it."""
        voice = ["-v", f"{self.accent}+{self.speaker}", "-s", str(self.speed), "-p", str(self.pitch)]
        return subprocess.run(["espeak-ng", *voice, "--stdout", word], check=True, capture_output=True).stdout

    def __str__(self) -> str:
        return f"{self.accent}-{self.speaker}-{self.speed}-{self.pitch}"


def speeches(part: str) -> Iterator[Speech]:
    """Every way in which words are said to learn from, or to test with."""
    for accent, speaker, speed, pitch in product(ACCENTS, SPEAKERS[part], SPEEDS, PITCHES):
        yield Speech(accent, speaker, speed, pitch)


def recorded(spoken: bytes, rng: np.random.Generator) -> bytes:
    """The file as if a microphone had heard it."""
    with wave.open(io.BytesIO(spoken)) as file:
        rate, data = file.getframerate(), file.readframes(file.getnframes())
    samples = np.frombuffer(data, "<i2").astype(np.float64)
    loud: NDArray[np.float64] = samples * (LOUD / max(np.abs(samples).max(), 1)) + rng.normal(0, NOISE, samples.size)
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(np.rint(np.clip(loud, -32768, 32767)).astype("<i2").tobytes())
    return made.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder for train/ and test/")
    parser.add_argument("--words", default=",".join(WORDS), help="what is said, separated by commas")
    given = parser.parse_args()
    if shutil.which("espeak-ng") is None:
        sys.exit("espeak-ng is not installed; apt-get install espeak-ng brings it")
    for part in SPEAKERS:
        for number, word in enumerate(given.words.split(",")):
            folder = given.output / part / word
            folder.mkdir(parents=True, exist_ok=True)
            for place, speech in enumerate(speeches(part)):
                rng = np.random.default_rng((number, place))
                (folder / f"{speech}.wav").write_bytes(recorded(speech.say(word), rng))


if __name__ == "__main__":
    main()
