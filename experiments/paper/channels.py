"""Which channels learn: a run's scheme, with the channels of the largest squared gradients named where they decide."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import numpy as np

from experiments.paper.runs import Run
from smidgen.data import Data, centre, pixel_encoding
from smidgen.ir import Array, Graph, Type
from smidgen.training import Options, build_training
from smidgen.training.head import layers
from smidgen.training.published import PUBLISHED
from smidgen.training.scheme import Scheme, load_scheme, resolve
from smidgen.training.weights import with_drawn_head

SHARE = Fraction(1, 4)
IMAGES = 64  # whose squared gradients are added up
_LAST = re.compile(r"(?:last|bias|quarter):([0-9]+)")
_SPELLED = re.compile(r"([0-9]+)((?: [0-9]+:[0-9]+(?:/[0-9]+)?)*)")


def scheme_of(run: Run, graph: Graph, data: Data) -> Scheme:
    """The scheme of a run; of rotating channels it has those of the first epoch."""
    scheme = named(run.scheme, graph)
    match run.channels:
        case "gradient":
            return by_gradient(scheme, graph, data, run.seed)
        case "rotating":
            return replace(scheme, channels="random")
        case ranking:
            return replace(scheme, channels=ranking)


def named(text: str, graph: Graph) -> Scheme:
    """Besides the schemes `load_scheme` knows, `quarter:K`, a quarter of each of the last K layers, and spelled ones.

    A scheme is spelled as the number of biases and `layer:share` of each layer whose weights learn.
    """
    if found := _SPELLED.fullmatch(text):
        pairs = (one.split(":") for one in found[2].split())
        scheme = Scheme(text, int(found[1]), tuple((int(layer), Fraction(share)) for layer, share in pairs))
        resolve(scheme, graph)
        return scheme
    word, _, number = text.partition(":")
    if word != "quarter":
        return load_scheme(text, graph)
    count = len(layers(graph))
    return Scheme(text, int(number), tuple((i, SHARE) for i in range(count - int(number), count)))


def spelled(scheme: Scheme) -> str:
    """A scheme of shares as `named` reads it."""
    return " ".join([str(scheme.biases), *(f"{layer}:{share}" for layer, share in scheme.weights)])


def depth(run: Run) -> int | None:
    """How many of the last layers learn anything, told by the scheme's name; None for all of them."""
    if found := _LAST.fullmatch(run.scheme) or _SPELLED.fullmatch(run.scheme):
        return int(found[1])
    known = {name: biases for n in PUBLISHED if n.name == run.network for name, (biases, _) in n.schemes.items()}
    return 0 if run.scheme == "head" else known.get(run.scheme)


def by_gradient(scheme: Scheme, graph: Graph, data: Data, seed: int) -> Scheme:
    """The scheme with as many channels of each layer, but those whose weights have the largest squared gradients."""
    found = squared_gradients(scheme, graph, data, seed)
    counts = {t.layer: len(t.channels) for t in resolve(scheme, graph, seed)}
    chosen = (
        (layer, tuple(sorted(int(c) for c in np.argsort(-found[layer], kind="stable")[: counts[layer]])))
        for layer, _ in scheme.weights
    )
    return replace(scheme, weights=tuple(chosen))


def squared_gradients(scheme: Scheme, graph: Graph, data: Data, seed: int) -> dict[int, Array]:
    """For each layer whose weights learn, each input channel's squared gradient in real units, over some images."""
    from experiments.baselines import Simulator

    whole = replace(scheme, weights=tuple((layer, Fraction(1)) for layer, _ in scheme.weights))
    training = build_training(graph, whole, Options(len(data.classes), seed=seed, head="new"))
    wanted = [t for t in training.trained if t.channels]
    by_name = {v.name: v for v in training.forward.state}
    weights = tuple(by_name[t.node.ins[1].name] for t in wanted)
    simulator = Simulator(with_drawn_head(training.reference.loss_graph(), seed))
    sums = {t.layer: np.zeros(t.node.ins[1].type.shape[-1]) for t in wanted}
    some, encoding = data.train.spread(IMAGES), pixel_encoding(graph)
    for image, label in zip(some.images, some.labels, strict=True):
        found = simulator.gradients(weights, centre(image, encoding), np.array([label], np.int32))
        for t, w, gradient in zip(wanted, weights, found, strict=True):
            real = gradient / _steps(w.type)
            sums[t.layer] += (real.astype(np.float64) ** 2).reshape(-1, real.shape[-1]).sum(axis=0)
    return sums


def _steps(w: Type) -> Array:
    """A weight's scales in a shape that repeats along it."""
    assert w.q is not None
    along = [-1 if i == w.q.axis else 1 for i in range(len(w.shape))]
    return np.array(w.q.scale).reshape([1] if w.q.axis is None else along)
