"""How pixels become numbers where no file says so: the usual conventions tried on the data, and a clear winner taken.

With labels the convention wins under which they are likeliest. Without, the one under which the network's answer for a
picture tells most of its choice for the mirror image, in bits: shown numbers that it was not trained on, a network
chooses one class for everything, which tells nothing, or is sure of one class here and of another there. Confidence
alone would mislead: numbers that are far too large make every network confident.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from smidgen.data import centre, pixel_encoding
from smidgen.data.samples import Samples, evenly
from smidgen.ir import Array, Graph, Value
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ir.rewriting import producers
from smidgen.ops.softmax import Softmax
from smidgen.quantization.batch import run_batch
from smidgen.quantization.calibration import ProgressCallback, QuantizationError, each_batch
from smidgen.quantization.conventions import Conventions, fitting, named_by_layers, usual_name
from smidgen.quantization.report import scored_classes

TRIED = 128  # images at most that a convention is tried on
CLEAR = 3.0  # standard errors between the winner and every other convention
LEAST = 1e-3  # a probability counts as at least this much
SOUND = 0.25  # bits: the least of a winner without labels


@dataclass(frozen=True)
class Tried:
    """What a network makes of the images under one convention."""

    convention: str
    preprocessing: Preprocessing
    accuracy: float | None  # where labels tell
    bits: float | None  # without labels: that its answer for a picture tells of its choice for the mirror image
    confidence: float  # the mean probability of the first choice

    def __str__(self) -> str:
        if self.bits is None:
            return f"{self.convention} {self.accuracy:.1%}"
        return f"{self.convention} {self.bits:.2f} bits ({self.confidence:.0%} sure)"


@dataclass(frozen=True)
class PixelChoice:
    """How pixels become numbers, and how that was found out."""

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
            "mirrors": f"{named}, the clear winner by what {self.images} images tell of their mirror images: ",
        }[self.found] + ", ".join(map(str, self.tried))


def choose_preprocessing(
    graph: Graph,
    images: Sequence[Array],
    labelled: Samples | None,
    conventions: Conventions,
    on_progress: ProgressCallback,
    threads: int = 1,
) -> PixelChoice:
    """What the graph states, its first layers say, or the data tell; raises QuantizationError where none is clear.

    `labelled` are images with the classes that the graph's scores are of.
    """
    if isinstance(stated := graph.preprocessing, Preprocessing):
        return PixelChoice(stated, "stated", usual_name(stated))
    usable = fitting(conventions, graph.image.type.shape[-1])
    if (name := named_by_layers(graph, usable)) is not None:
        return PixelChoice(usable[name], "layers", name)
    _check_scores(graph)
    trial = _Trial(graph, usable, on_progress, threads)
    return trial.by_mirrors(evenly(images, TRIED)) if labelled is None else trial.by_labels(labelled.spread(TRIED))


def _check_scores(graph: Graph) -> None:
    """Raise unless the first output is a list of scores, by which conventions can be compared; a copy is none."""
    if scored_classes(graph) is None or graph.scores.type.size == graph.image.type.size:
        raise QuantizationError(
            f"{graph.name} does not say how pixels become numbers, and its output {list(graph.scores.type.shape)} is "
            "no list of scores to compare conventions by; tell smidgen quantize which one by --pixels, or --mean and "
            "--std"
        )


class _Trial:
    """A network under each of some conventions."""

    def __init__(self, graph: Graph, usable: Conventions, on_progress: ProgressCallback, threads: int) -> None:
        self.graph, self.usable, self.on_progress, self.threads = graph, usable, on_progress, threads
        made_by = producers(graph).get(graph.scores)
        self.probabilities = made_by is not None and isinstance(made_by.op, Softmax)

    def by_labels(self, samples: Samples) -> PixelChoice:
        labels = np.array(samples.labels)
        count = len(labels)
        tried: list[Tried] = []
        likely: list[Array] = []
        for name, usual in self.usable.items():
            p = self.run(name, usual, samples.images)
            accuracy = float(np.mean(p.argmax(axis=1) == labels))
            tried.append(Tried(name, usual, accuracy, None, float(p.max(axis=1).mean())))
            likely.append(_likelihoods(p, labels))
        best = _clear_winner(likely)
        chance = float(np.bincount(labels).max() / count)
        enough = chance + CLEAR * math.sqrt(chance * (1 - chance) / count)
        if best is None or (tried[best].accuracy or 0.0) <= enough:
            raise self.unclear(f"the accuracy on {count} images, {chance:.1%} of them of one class,", tried)
        return PixelChoice(tried[best].preprocessing, "labels", tried[best].convention, count, tuple(tried))

    def by_mirrors(self, images: Sequence[Array]) -> PixelChoice:
        mirrored = [np.ascontiguousarray(image[:, ::-1]) for image in images]
        tried: list[Tried] = []
        told: list[Array] = []
        for name, usual in self.usable.items():
            p, q = (self.run(name, usual, seen) for seen in (images, mirrored))
            told.append(_told(p, q))
            tried.append(Tried(name, usual, None, float(told[-1].mean()), float(p.max(axis=1).mean())))
        best = _clear_winner(told)
        if best is None or (tried[best].bits or 0.0) < SOUND:
            raise self.unclear(f"what {len(images)} images without labels tell of their mirror images", tried)
        return PixelChoice(tried[best].preprocessing, "mirrors", tried[best].convention, len(images), tuple(tried))

    def unclear(self, what: str, tried: Sequence[Tried]) -> QuantizationError:
        return QuantizationError(
            f"{self.graph.name} does not say how pixels become numbers, and {what} leaves no clear winner: "
            f"{', '.join(map(str, tried))}; tell smidgen quantize which one by --pixels, or --mean and --std"
        )

    def run(self, name: str, usual: Preprocessing, images: Sequence[Array]) -> Array:
        """The probability of each class for each image."""
        graph = replace(self.graph, preprocessing=usual)

        def run(places: slice) -> Array:
            found: list[Array] = []

            def look(value: Value, array: Array) -> None:
                if value == graph.scores:
                    found.append(array.reshape(len(array), -1).astype(np.float64))

            shown = [centre(image, pixel_encoding(graph)) for image in images[places]]
            with np.errstate(all="ignore"):  # numbers the network was not made for may overflow, and lose
                run_batch(graph, np.stack(shown), look)
            return found[0]

        parts = each_batch(run, len(images), f"trying pixels {name}", self.on_progress, self.threads)
        scores = np.nan_to_num(np.concatenate(list(parts)), nan=0.0)
        return scores if self.probabilities else _softmax(scores)


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Array = powers / powers.sum(axis=1, keepdims=True)
    return probabilities


def _likelihoods(p: Array, classes: Array) -> Array:
    """The logarithm of the probability of each image's class."""
    likely: Array = np.log2(np.maximum(p[np.arange(len(p)), classes], LEAST))
    return likely


def _told(p: Array, mirrored: Array) -> Array:
    """The bits that each image's probabilities tell of the class chosen for its mirror image: 0 where all are alike."""
    chosen = mirrored.argmax(axis=1)
    usual = (p.mean(axis=0) + mirrored.mean(axis=0)) / 2
    told: Array = _likelihoods(p, chosen) - np.log2(np.maximum(usual[chosen], LEAST))
    return told


def _clear_winner(evidence: Sequence[Array]) -> int | None:
    """Which one's mean lies above every other's by some standard errors of their difference, image by image."""
    best = int(np.argmax([one.mean() for one in evidence]))
    gains = [evidence[best] - other for i, other in enumerate(evidence) if i != best]
    return best if all(gain.mean() > CLEAR * gain.std(ddof=1) / math.sqrt(len(gain)) for gain in gains) else None
