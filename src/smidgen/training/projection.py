"""The projection that a new head reads instead of all features, and the noise by which it is scaled."""

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from smidgen.errors import InputError
from smidgen.ir import Array, Graph, Type, Value, evaluate
from smidgen.ir.rewriting import prune
from smidgen.ir.text import fingerprint
from smidgen.numerics.projection import fitting_shift
from smidgen.ops.project import Project
from smidgen.training.head import ending_of

NOISE = 4  # samples


def smooth_noise(type_: Type, seed: int) -> tuple[Array, ...]:
    """Return samples of noise that is coarse along the rows, with finer noise in it."""
    rng = np.random.default_rng(seed)
    coarse = [rng.integers(-100, 101, (*type_.shape[:-1], 1)) for _ in range(NOISE)]
    return tuple(np.clip(c + rng.integers(-27, 28, type_.shape), -128, 127).astype(type_.dtype) for c in coarse)


def projection(graph: Graph, flat: Value, count: int) -> Project:
    """Return the projection of a model's features, made [1, features], to so many numbers.

    Noise scales it, not the user's samples: programs of one model have the same projection, so that their sums add up.
    """
    features = flat.type.shape[1]
    if count >= features:
        raise InputError(f"{graph.name} has {features} features; project them to fewer, not to {count}")
    front = prune(replace(graph, outputs=(ending_of(graph).features,), classes=(), roles=None))
    return Project(count, _shift(_Front(fingerprint(front), front)))


@dataclass(frozen=True)
class _Front:
    """A network up to its features, known by its fingerprint."""

    digest: str
    graph: Graph = field(compare=False)


@lru_cache(maxsize=64)
def _shift(front: _Front) -> int:
    """Return how often sums of a network's features are halved."""
    graph, features = front.graph, front.graph.outputs[0].type
    samples = zip(*(smooth_noise(v.type, 0) for v in graph.inputs), strict=True)
    maps = [evaluate(graph, *inputs)[0].astype(np.int64) - features.zero for inputs in samples]
    pooled = len(features.shape) == 4 and features.shape[1] * features.shape[2] > 1
    rows = [one.mean(axis=(1, 2)) if pooled else one.reshape(1, -1) for one in maps]
    return fitting_shift(np.concatenate(rows))
