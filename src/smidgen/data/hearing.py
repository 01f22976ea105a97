"""Recordings → a model's input by its front end, and which front end that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from smidgen.data.pixels import PixelEncoding
from smidgen.data.resampling import resample
from smidgen.data.samples import DataError
from smidgen.data.sounds import RATE
from smidgen.errors import InputError
from smidgen.ir import Array, Graph
from smidgen.ir.log_mel import MFCC, YAMNET, LogMel
from smidgen.numerics.log_mel import log_mel

FRONT_ENDS: Mapping[str, LogMel] = {"mfcc": MFCC, "yamnet": YAMNET}
USUAL: Mapping[tuple[int, ...], LogMel] = {  # by the shape of a model's input
    (1, 49, 10, 1): MFCC,
    (1, 96, 64, 1): YAMNET,
    (1, 64, 96, 1): replace(YAMNET, across=True),
}
SHIFT = 0.1  # seconds at most, by which recordings are moved to learn from


def as_sound(samples: Array, encoding: PixelEncoding, shift: int = 0) -> Array:
    """The middle of a recording, of RATE samples per second, as a model's input; zeros where it is too short.

    With a `shift`, what is seen begins so many samples later.
    """
    spec = encoding.sound
    if spec is None:
        raise DataError(
            f"a recording cannot become a model's input {list(encoding.type.shape)} as long as the model does not say "
            f"how; give --audio {' or '.join(FRONT_ENDS)}, or its settings"
        )
    return log_mel(middle(samples, spec, encoding.type.shape, shift), spec, encoding.type)


def middle(samples: Array, spec: LogMel, shape: tuple[int, ...], shift: int = 0) -> Array:
    """As many samples of a recording as an input of this shape is made of, at the front end's own rate."""
    samples, wanted = resample(samples, RATE, spec.rate), spec.samples(shape)
    first = (samples.size - wanted) // 2 + shift
    heard: Array = np.zeros(wanted, np.int16)
    begin, end = max(first, 0), min(first + wanted, samples.size)
    if begin < end:
        heard[begin - first : end - first] = samples[begin:end]
    return heard


def shifted_sound(samples: Array, encoding: PixelEncoding, rng: np.random.Generator) -> Array:
    """The same, moved by up to SHIFT as the generator says."""
    most = 0 if encoding.sound is None else round(SHIFT * encoding.sound.rate)
    return as_sound(samples, encoding, int(rng.integers(-most, most + 1)))


def with_front_end(graph: Graph, samples: Sequence[Array], audio: str | None = None) -> Graph:
    """The graph as it takes these samples: with its front end where they are sound, as it is where they are not."""
    if samples and is_sound(samples[0]):
        return hearing_graph(graph, audio)
    if audio is not None:
        raise InputError(f"--audio {audio[:40]} is for sound, which the data do not hold; leave it out")
    return graph


def is_sound(sample: Array) -> bool:
    """Whether a sample is sound: int16, one number after the other, which nothing else is."""
    return sample.dtype == np.int16 and sample.ndim == 1


def hearing_graph(graph: Graph, audio: str | None = None) -> Graph:
    """The graph with the front end that `audio` names, or the one it carries, or the usual one for its input."""
    spec = graph.preprocessing if isinstance(graph.preprocessing, LogMel) else USUAL.get(graph.image.type.shape)
    if audio is not None:
        spec = named_front_end(audio, graph.image.type.shape)
    if spec is None:
        raise InputError(
            f"the input {list(graph.image.type.shape)} of {graph.name} does not tell how sound becomes it; give "
            f"--audio with one of {', '.join(FRONT_ENDS)} and what differs, as in {EXAMPLE}"
        )
    spec.check(graph.image.type.shape)
    return replace(graph, preprocessing=spec)


EXAMPLE = "mfcc,window=640,hop=320,size=1024,bands=40,coefficients=0"


def named_front_end(text: str, shape: tuple[int, ...]) -> LogMel:
    """A front end by its name and what differs from it, separated by commas."""
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
    return replace(spec, **dict(map(_setting, changes)))


def _setting(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    kinds = {f.name: str(f.type) for f in fields(LogMel)}
    try:
        number = float(value)
        if key not in kinds or not np.isfinite(number) or (kinds[key] != "float" and number != int(number)):
            raise ValueError
    except ValueError:
        raise InputError(
            f"--audio cannot be set to {text[:40]!r}; write name=number with one of {', '.join(kinds)}"
        ) from None
    return key, {"int": int, "float": float, "bool": bool}[kinds[key]](number)
