"""quantize(): every stage in order, and the recipe it follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from smidgen.callbacks import ignore
from smidgen.data import Data, Samples, as_input, pixel_encoding
from smidgen.data.inputs import kind_of
from smidgen.errors import InputError
from smidgen.ir import Array, Graph, verify
from smidgen.ir.log_mel import LogMel
from smidgen.quantization.batch import BATCH, Passes, ProgressCallback, QuantizationProgress
from smidgen.quantization.calibration import METHODS, Method, QuantizationError, calibrate, fit_cells
from smidgen.quantization.folding import equalise, fold
from smidgen.quantization.int8 import check_ops, correct_biases, input_scale, round_graph, share_scales
from smidgen.quantization.pixels import GivenPixels, PixelChoice, labels_for, settle_pixels
from smidgen.quantization.report import Accuracy, QuantizationReport, compare, scored_classes, top1
from smidgen.tables import Brief
from smidgen.threads import in_order, threads_for

CALIBRATED = 128  # images that set the ranges in `quantize_with`, at most
FEWEST = 8  # samples; a hundred are better
HELD_OUT = 5  # every fifth sample sets no range and is compared with
COMPARED = 64  # samples at most
CORRECTED = 64  # samples whose mean error is taken out


@dataclass(frozen=True)
class Recipe:
    """The method that finds ranges, and the steps taken beside rounding."""

    method: Method = "mse"
    percentile: float = 99.99
    equalise: bool = True
    correct: bool = True

    def checked(self) -> Recipe:
        """Return the recipe; raise InputError if it cannot be followed."""
        if self.method not in METHODS:
            raise InputError(f"there is no method {str(self.method)[:40]!r}; known are {', '.join(METHODS)}")
        if not 50 < self.percentile <= 100:
            raise InputError(f"a percentile of {self.percentile} leaves no range; give above 50, at most 100")
        return self


@dataclass(frozen=True, eq=False, repr=False)
class Quantized(Brief):
    """An int8 graph, and how well it follows the float graph it came from."""

    graph: Graph
    report: QuantizationReport
    pixels: PixelChoice | None  # None where the samples are no images

    def __str__(self) -> str:
        return str(self.report) if self.pixels is None else f"{self.report}\n{self.pixels}"

    def picture(self) -> str:
        """Draw the model."""
        return self.graph.picture()


def quantize(
    graph: Graph, images: Sequence[Array], recipe: Recipe | None = None, *, labelled: Samples | None = None,
    preprocessing: GivenPixels = None, tried: Samples | None = None, threads: int | None = None,
    on_progress: ProgressCallback = ignore,
) -> Quantized:  # fmt: skip
    """Return an int8 graph from a float one and samples of its input.

    `images` are uint8 [height, width, 1 or 3] of any size, or tensors of the input's shape in float32 or uint8; every
    fifth is kept apart for the report, which also gives the accuracy on `labelled` images of the graph's classes.
    Pixels become numbers by the preprocessing given, the graph's own, or the one its first layers imply; without these
    the usual conventions, or those given, are `tried` on labelled samples, by default `labelled`, or on `images`, and
    if none is clearly right a QuantizationError asks for one. All cores take part, or `threads` of them; the result is
    the same.
    """
    recipe = (recipe or Recipe()).checked()
    _check_float(graph)
    _check_labels(graph, labelled)
    _check_samples(graph, images)
    real = fold(graph)
    check_ops(real)
    passes = Passes(on_progress, threads_for(len(images), BATCH, threads))
    choice = settle_pixels(graph, images, tried or labelled, preprocessing, passes)
    front_end = graph.preprocessing if isinstance(graph.preprocessing, LogMel) else None
    real = replace(real, preprocessing=choice.preprocessing if choice else front_end)
    verify(real)
    samples = _samples(real, images, passes.threads)
    # Every fifth sample sets no range and is compared with; all do both where there are too few.
    places = np.arange(len(samples))
    apart = places % HELD_OUT == HELD_OUT - 1
    used, others = (places[~apart], places[apart]) if len(places) >= HELD_OUT * FEWEST else (places, places)
    if recipe.equalise:
        real = equalise(real, samples[used], passes)
    real = fit_cells(real, samples[used], passes)
    ranges = calibrate(real, samples[used], recipe.method, recipe.percentile, passes)
    given = input_scale(choice.preprocessing, samples.shape[-1]) if choice else None
    rounded = round_graph(real, share_scales(real, ranges, given))
    integers = _samples(rounded, images, passes.threads)
    if recipe.correct:
        on_progress(QuantizationProgress("correcting", 0, 1))
        corrected = _evenly_spaced(used, CORRECTED)
        rounded = correct_biases(real, rounded, samples[corrected], integers[corrected])
    seen = _evenly_spaced(others, COMPARED)
    found = compare(real, rounded, samples[seen], integers[seen], passes)
    known = None
    if labelled is not None:
        known = Accuracy(len(labelled), *(top1(one, labelled, passes) for one in (real, rounded)))
    counts, alike = (len(used), len(seen), len(used) < len(samples)), bool((samples == samples[:1]).all())
    report = QuantizationReport(graph.name, recipe.method, *counts, *found, known, alike)
    return Quantized(rounded, report, choice)


def quantize_with(
    data: Data, graph: Graph, on_progress: ProgressCallback, preprocessing: GivenPixels = None
) -> Quantized:
    """Quantize a float32 model, calibrated on images to learn from, judged by their labels if it has their classes."""
    samples = data.train.spread(CALIBRATED)
    labelled = labels_for(graph, data, samples)
    return quantize(graph, samples.images, labelled=labelled, preprocessing=preprocessing, on_progress=on_progress)


def is_float(graph: Graph) -> bool:
    """Return whether no value of a model is int8 yet."""
    computed = (*graph.inputs, *(v for node in graph.nodes for v in node.outs))
    return not any(v.type.dtype == "int8" for v in computed)


def _check_labels(graph: Graph, labelled: Samples | None) -> None:
    """Raise QuantizationError unless the labels, where there are any, are classes that the graph scores."""
    if labelled is None:
        return
    classes, largest = scored_classes(graph), max(labelled.labels, default=0)
    if classes is None or largest >= classes or not len(labelled):
        raise QuantizationError(
            f"{len(labelled)} images with labels up to {largest} cannot give the accuracy of {graph.name}, whose "
            f"output is {list(graph.scores.type.shape)}; give images of its classes, or none"
        )


def _evenly_spaced(places: Array, most: int) -> Array:
    """Return at most `most` of them, evenly spaced."""
    return places[:: math.ceil(len(places) / most)]


def _check_float(graph: Graph) -> None:
    """Raise QuantizationError unless the graph is a float network with one input and finite weights."""
    if not is_float(graph):
        raise QuantizationError(f"{graph.name} is int8 already; quantization takes a float32 model")
    if len(graph.inputs) != 1 or graph.inputs[0].type.dtype != "float32":
        raise QuantizationError(f"{graph.name} has {len(graph.inputs)} inputs; one of float32 can be quantized")
    if graph.state:
        raise QuantizationError(
            f"{graph.name} holds state, which learns or is carried from run to run; quantize the model it came from"
        )
    for value, data in graph.constants.items():
        if bad := int((~np.isfinite(data)).sum()):
            raise QuantizationError(
                f"%{value.name} holds {bad} of {data.size} elements that are not finite; fix the weights"
            )


def _check_samples(graph: Graph, images: Sequence[Array]) -> None:
    """Raise QuantizationError if the samples are too few, partly pictures, or show nothing."""
    if len(images) < FEWEST:
        raise QuantizationError(
            f"{len(images)} samples are too few to calibrate {graph.name} with; give at least {FEWEST}, better "
            "about 100"
        )
    count, pictures = len(images), sum(kind_of(image, graph.image.type) == "picture" for image in images)
    if pictures == count and all(image.min() == image.max() for image in images):
        raise QuantizationError(f"all {count} images show a single colour each; calibrate with real ones")
    if 0 < pictures < count:
        raise QuantizationError(f"{pictures} of {count} samples are pictures, the others tensors; give one kind")


def _samples(graph: Graph, images: Sequence[Array], threads: int) -> Array:
    """Return the samples as a graph takes them, [count, *shape]."""
    return np.stack(list(in_order(partial(as_input, encoding=pixel_encoding(graph)), images, threads)))
