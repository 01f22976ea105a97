"""Pixel conventions, and the choice between them: each is tried on the data, and a clear winner is taken.

With labels the convention wins under which they are likeliest. Without labels the one wins under which the network's
answer for a picture best predicts its choice for the mirror image, in bits: given numbers that it was not trained on, a
network chooses one class for everything, which predicts nothing, or is sure of one class here and of another there.
Confidence alone would mislead: numbers that are far too large make every network confident.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from smidgen.data import centre, pixel_encoding
from smidgen.data.samples import Samples, evenly
from smidgen.errors import InputError
from smidgen.ir import Array, Graph
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ir.rewriting import producers, readers
from smidgen.ops.softmax import Softmax
from smidgen.quantization.batch import Passes, scores_of
from smidgen.quantization.calibration import QuantizationError
from smidgen.quantization.folding import affine
from smidgen.quantization.report import scored_classes

Conventions = Mapping[str, Preprocessing]
# By the words that --pixels takes: the numbers of pixels 0 and 255, or the framework that made a convention known.
CONVENTIONS: Conventions = MappingProxyType(
    {
        "0,255": Preprocessing((0.0,), (1.0,), range=(0.0, 255.0)),
        "0,1": Preprocessing((0.0,), (1.0,)),
        "-1,1": Preprocessing(),
        "imagenet": Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "caffe": Preprocessing((103.939, 116.779, 123.68), (1.0,), "bgr", (0.0, 255.0)),
    }
)
BARE = ("0,255", "0,1", "-1,1")  # for networks that normalize by themselves
BYTES = "0,255"
LARGE = 2.0  # a mean above this is one of pixels 0 … 255
NORMALIZED = 0.9, 6.0  # the spread of normalized pixels: 1 for 0 … 1, 4.5 for ImageNet's, 5 for small deviations
BESIDE = 0.1  # of the spread: how far normalized pixels may stay away from zero
TRIED = 128  # images at most that a convention is tried on
CLEAR = 3.0  # standard errors between the winner and every other convention
LEAST = 1e-3  # a probability counts as at least this much
ENOUGH = 0.25  # bits: the least of a winner without labels


@dataclass(frozen=True)
class Tried:
    """The results of a network on the images under one convention."""

    convention: str
    preprocessing: Preprocessing
    accuracy: float | None  # with labels
    bits: float | None  # without labels: how well its answer for a picture predicts its choice for the mirror image
    confidence: float  # the mean probability of the first choice

    def __str__(self) -> str:
        if self.bits is None:
            return f"{self.convention} {self.accuracy:.1%}"
        return f"{self.convention} {self.bits:.2f} bits ({self.confidence:.0%} sure)"


@dataclass(frozen=True)
class PixelChoice:
    """The preprocessing of pixels, and how it was found."""

    preprocessing: Preprocessing
    found: str  # given, stated, layers, labels or mirrors
    convention: str | None  # its name, where it is one of the usual
    images: int = 0  # that the conventions were tried on
    tried: tuple[Tried, ...] = ()

    def __str__(self) -> str:
        named = f"pixels as {self.convention}" if self.convention else "pixels"
        return {
            "given": f"{named}, as given",
            "stated": f"{named}, as the model states",
            "layers": f"{named}, which the model's first layers normalize",
            "labels": f"{named}, the clear winner by the labels of {self.images} images: ",
            "mirrors": f"{named}, the clear winner by how well {self.images} images predict their mirror images: ",
        }[self.found] + ", ".join(map(str, self.tried))


def choose_preprocessing(
    graph: Graph, images: Sequence[Array], labelled: Samples | None, conventions: Conventions, passes: Passes
) -> PixelChoice:
    """Return what the graph states, its first layers imply, or the data show; raise QuantizationError if none is clear.

    `labelled` are images with the classes that the graph's scores are of.
    """
    if isinstance(stated := graph.preprocessing, Preprocessing):
        return PixelChoice(stated, "stated", usual_name(stated))
    usable = fitting(conventions, graph.image.type.shape[-1])
    if (name := named_by_layers(graph, usable)) is not None:
        return PixelChoice(usable[name], "layers", name)
    if scored_classes(graph) is None or graph.scores.type.size == graph.image.type.size:  # no scores to compare
        raise QuantizationError(
            f"{graph.name} does not say how pixels become numbers, and its output {list(graph.scores.type.shape)} is "
            "no list of scores to compare conventions by; give smidgen quantize --pixels, or --mean and --std"
        )
    trial = _Conventions(graph, usable, passes)
    return trial.by_mirrors(evenly(images, TRIED)) if labelled is None else trial.by_labels(labelled.spread(TRIED))


class _Conventions:
    """A network under each of some conventions."""

    def __init__(self, graph: Graph, usable: Conventions, passes: Passes) -> None:
        self.graph, self.usable, self.passes = graph, usable, passes
        made_by = producers(graph).get(graph.scores)
        self.probabilities = made_by is not None and type(made_by.op) is Softmax

    def by_labels(self, samples: Samples) -> PixelChoice:
        labels, count = np.array(samples.labels), len(samples)
        chance = float(np.bincount(labels).max() / count)
        enough = chance + CLEAR * math.sqrt(chance * (1 - chance) / count)
        tried, likely = list[Tried](), list[Array]()
        for name, usual in self.usable.items():
            p = self.run(name, usual, samples.images)
            accuracy = float(np.mean(p.argmax(axis=1) == labels))
            tried.append(Tried(name, usual, accuracy, None, float(p.max(axis=1).mean())))
            likely.append(_likelihoods(p, labels))
        best = _clear_winner(likely)
        if best is None or (tried[best].accuracy or 0.0) <= enough:
            raise self.unclear(f"the accuracy on {count} images, {chance:.1%} of them of one class,", tried)
        return PixelChoice(tried[best].preprocessing, "labels", tried[best].convention, count, tuple(tried))

    def by_mirrors(self, images: Sequence[Array]) -> PixelChoice:
        mirrored = [np.ascontiguousarray(image[:, ::-1]) for image in images]
        tried, bits = list[Tried](), list[Array]()
        for name, usual in self.usable.items():
            p, q = (self.run(name, usual, seen) for seen in (images, mirrored))
            bits.append(_predicted_bits(p, q))
            tried.append(Tried(name, usual, None, float(bits[-1].mean()), float(p.max(axis=1).mean())))
        best = _clear_winner(bits)
        if best is None or (tried[best].bits or 0.0) < ENOUGH:
            raise self.unclear(f"how well {len(images)} images without labels predict their mirror images", tried)
        return PixelChoice(tried[best].preprocessing, "mirrors", tried[best].convention, len(images), tuple(tried))

    def unclear(self, what: str, tried: Sequence[Tried]) -> QuantizationError:
        return QuantizationError(
            f"{self.graph.name} does not say how pixels become numbers, and {what} leaves no clear winner: "
            f"{', '.join(map(str, tried))}; give smidgen quantize --pixels, or --mean and --std"
        )

    def run(self, name: str, usual: Preprocessing, images: Sequence[Array]) -> Array:
        """Return the probability of each class for each image."""
        graph = replace(self.graph, preprocessing=usual)

        def run(places: slice) -> Array:
            shown = [centre(image, pixel_encoding(graph)) for image in images[places]]
            with np.errstate(all="ignore"):  # numbers the network was not made for may overflow, and lose
                return scores_of(graph, np.stack(shown)).astype(np.float64)

        parts = self.passes.each(run, len(images), f"trying pixels {name}")
        scores: Array = np.nan_to_num(np.concatenate(list(parts)), nan=0.0)
        if self.probabilities:
            return scores
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _likelihoods(p: Array, classes: Array) -> Array:
    """Return the logarithm of the probability of each image's class."""
    return np.asarray(np.log2(np.maximum(p[np.arange(len(p)), classes], LEAST)))


def _predicted_bits(p: Array, mirrored: Array) -> Array:
    """Return the bits that each image predicts of the class chosen for its mirror image: 0 if all images are alike."""
    chosen = mirrored.argmax(axis=1)
    usual = (p.mean(axis=0) + mirrored.mean(axis=0)) / 2
    return np.asarray(_likelihoods(p, chosen) - np.log2(np.maximum(usual[chosen], LEAST)))


def _clear_winner(evidence: Sequence[Array]) -> int | None:
    """Return the one whose mean is above every other's by CLEAR standard errors of the difference; else None."""
    best = int(np.argmax([one.mean() for one in evidence]))
    gains = [evidence[best] - other for i, other in enumerate(evidence) if i != best]
    return best if all(gain.mean() > CLEAR * gain.std(ddof=1) / math.sqrt(len(gain)) for gain in gains) else None


def usual_name(stated: Preprocessing) -> str | None:
    """Return the convention that a preprocessing is, its order and fit aside; None if it is none."""
    alike = (name for name, usual in CONVENTIONS.items() if replace(stated, order=usual.order, fit=usual.fit) == usual)
    return next(alike, None)


def fitting(conventions: Conventions, channels: int) -> dict[str, Preprocessing]:
    """Return the conventions that can be applied to pixels of `channels` channels."""
    found = {}
    for name, usual in conventions.items():
        try:
            usual.check(channels)
        except InputError:
            continue
        found[name] = usual
    return found


def named_by_layers(graph: Graph, conventions: Conventions) -> str | None:
    """Return the only convention whose pixels a network's first layers normalize; None if there is none.

    A Rescaling, a batch norm, a product or a sum with constants that reads the image takes pixels to numbers around
    zero, and of 0 … 255, 0 … 1 and −1 … 1 only one comes out so.
    """
    scale, shift = _first_map(graph)
    if np.all(scale == 1) and np.all(shift == 0):
        return None
    with np.errstate(all="ignore"):  # a channel that is multiplied by zero has no mean
        means = -shift / scale
    if np.all((means > LARGE) & (means < 255)):
        return BYTES if BYTES in conventions else None
    found = [name for name in BARE if name in conventions and _normalizes(conventions[name], scale, shift)]
    return found[0] if len(found) == 1 else None


def _normalizes(usual: Preprocessing, scale: Array, shift: Array) -> bool:
    low, high = np.sort(usual.numbers(len(scale))[[0, 255]] * scale + shift, axis=0)
    spread = high - low
    near = np.all((low <= BESIDE * spread) & (high >= -BESIDE * spread))
    return bool(near and np.all((spread >= NORMALIZED[0]) & (spread <= NORMALIZED[1])))


def _first_map(graph: Graph) -> tuple[Array, Array]:
    """Return scale and shift of all maps y = x · scale + shift at the beginning of a network, channel by channel."""
    read_by, value = readers(graph), graph.image
    scale, shift = np.ones(value.type.shape[-1]), np.zeros(value.type.shape[-1])
    while len(nodes := read_by.get(value, ())) == 1:
        found = affine(graph, nodes[0])
        if found is None or found.x != value or found.activation != "none":
            break
        a, b = found.scale.astype(np.float64), found.shift.astype(np.float64)
        scale, shift, value = scale * a, shift * a + b, nodes[0].out
    return scale, shift
