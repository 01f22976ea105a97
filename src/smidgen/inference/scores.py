"""The scores of a model: computed in numpy, in C or on a board, and what they mean.

Scores are of classes, cells of a map, numbers, or a reconstruction of the input. In int8 their bytes are the same
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import numpy as np

from smidgen import codegen
from smidgen.data import Samples
from smidgen.errors import InputError, TargetError
from smidgen.ir import Array, Graph, Node, Type, Value, evaluate_step
from smidgen.numerics import dequantize
from smidgen.ops.endings import ending_of
from smidgen.ops.one_pass import Distance
from smidgen.pipeline import compile
from smidgen.quantization import GivenPixels, PixelChoice, settle_pixels
from smidgen.quantization.batch import Passes, run_batch
from smidgen.targets.device import Device, Target, share_out
from smidgen.threads import in_order, threads_for

Kind = Literal["classes", "cells", "numbers", "reconstruction", "distance"]
HALF = 0.5  # a probability above it is a yes
REFERENCE = "reference"
BATCH = 16  # samples at once in numpy


@dataclass(frozen=True)
class InferenceProgress:
    """Progress: samples done, of all, and what is done with them unless they are shown to the model."""

    done: int
    total: int
    doing: str = ""


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of a sample, and how far it lies from all classes where the graph measures that: 1 is the limit."""

    scores: Array
    distance: float | None = None


ProgressCallback = Callable[[InferenceProgress], None]


def where_to_run(graph: Graph, target: str | Target | None) -> str | Target:
    """Return the target given; by default this machine's C, or numpy for a model without C, one in float32."""
    if len(graph.inputs) != 1 or graph.roles is not None:
        what = "is a training step" if graph.roles else f"has {len(graph.inputs)} inputs"
        raise InputError(f"{graph.name} {what}; give a model of one input that infers, as training writes it")
    if target is not None:
        return target
    try:
        codegen.check_kernels(graph)
    except TargetError:
        return REFERENCE
    return "host"


def with_pixels(
    graph: Graph,
    images: Sequence[Array],
    labelled: Samples | None,
    given: GivenPixels,
    threads: int | None,
    on_progress: ProgressCallback,
) -> tuple[Graph, PixelChoice | None]:
    """Return the graph as pictures enter it, and how that was found; None where nothing had to be."""
    passes = Passes(
        lambda at: on_progress(InferenceProgress(at.done, at.total, at.doing)), threads_for(len(images), BATCH, threads)
    )
    pixels = settle_pixels(graph, images, labelled, given, passes)
    return (replace(graph, preprocessing=pixels.preprocessing) if pixels else graph), pixels


def scores_of(graph: Graph, inputs: Iterable[Array], target: str | Target, threads: int) -> Iterator[Scored]:
    """Yield the graph's scores for each input in turn; of a streaming network, for one stream.

    The scores are the same for any number of threads.
    """
    far = distance_of(graph)
    wanted = (graph.scores, *((far.out,) if far else ()))
    results = _in_numpy if target == REFERENCE else _in_c
    for scores, *more in results(graph, wanted, inputs, target, threads):
        yield Scored(scores, float(more[0].item()) if more else None)


def _in_c(
    graph: Graph, wanted: tuple[Value, ...], inputs: Iterable[Array], target: str | Target, threads: int
) -> Iterator[tuple[Array, ...]]:
    places = [graph.outputs.index(value) for value in wanted]

    def run(device: Device, one: Array) -> tuple[Array, ...]:
        outputs = device.run(one)
        return tuple(outputs[place] for place in places)

    ready = replace(graph, preprocessing=None)  # the inputs are preprocessed: no front end for audio is compiled
    with compile(ready, target=target).start() as device:
        yield from share_out(device, run, inputs, threads)


def _in_numpy(
    graph: Graph, wanted: tuple[Value, ...], inputs: Iterable[Array], target: str | Target, threads: int
) -> Iterator[tuple[Array, ...]]:
    """Yield outputs, computed in batches: float32 may differ from single samples in the last bits, int8 does not."""
    if graph.variables:
        state, places = graph.state, [graph.outputs.index(value) for value in wanted]
        for one in inputs:  # a stream: each run goes on from the variables that the one before left
            outputs, state = evaluate_step(graph, state, one)
            yield tuple(outputs[place] for place in places)
        return

    def run(batch: list[Array]) -> list[tuple[Array, ...]]:
        found: dict[Value, Array] = {}

        def look(value: Value, array: Array) -> None:
            if value in wanted:
                found[value] = array

        run_batch(graph, np.stack(batch), look)
        return list(zip(*(found[value] for value in wanted), strict=True))

    left = iter(inputs)
    batches = iter(lambda: list(islice(left, BATCH)), [])
    for found in in_order(run, batches, threads):
        yield from found


def distance_of(graph: Graph) -> Node | None:
    """Return the node that gives how far a sample lies from all classes, where the graph has that as an output."""
    return next((node for node in graph.nodes if isinstance(node.op, Distance) and node.out in graph.outputs), None)


def usual_class(graph: Graph) -> int | None:
    """Return the class that a graph knows alone of two, and measures distances from; None for other graphs."""
    far = distance_of(graph)
    counts = graph.constants.get(far.ins[0], np.zeros(1)) if far else np.zeros(1)
    seen = np.flatnonzero(counts[:-1] > 0)
    return int(seen[0]) if seen.size == 1 and graph.scores.type.size == 2 else None


def kind_of(graph: Graph) -> Kind:
    """Return what the scores mean, according to their shape and to how the graph ends.

    Scores of the input's shape are a reconstruction, a map of them is cells. One score is a number unless the graph
    names two classes or ends in a sigmoid; several are classes, but of one class alone the distance is what is asked.
    """
    shape = graph.scores.type.shape
    if shape == graph.image.type.shape and graph.scores.type.size > 1:
        return "reconstruction"
    if len(shape) == 4 and shape[1] * shape[2] > 1:
        return "cells"
    if graph.scores.type.size != (shape[-1] if shape else 1):
        raise InputError(f"%{graph.scores.name}, the output of {graph.name}, is {list(shape)}: no list and no map")
    if graph.scores.type.size == 1 and len(graph.classes) < 2 and ending_of(graph) is None:
        return "numbers"
    return "classes" if usual_class(graph) is None else "distance"


def real(array: Array, type_: Type) -> Array:
    """Return the numbers that a tensor's integers stand for, as float64."""
    if type_.q is not None and type_.dtype == "int8":
        array = dequantize(array, type_.q)
    numbers: Array = array.astype(np.float64)
    return numbers


def class_count(graph: Graph) -> int:
    """Return the number of classes; a single score decides between two."""
    shape = graph.scores.type.shape
    return max(shape[-1] if shape else 1, 2)


def names_of(graph: Graph) -> tuple[str, ...]:
    """Return the classes by name, by number where the model does not name them."""
    return graph.classes if len(graph.classes) == class_count(graph) else tuple(map(str, range(class_count(graph))))


def probabilities(graph: Graph, scores: Array) -> Array:
    """Return each class's probability along the last axis; applies softmax or sigmoid only if the graph does not."""
    numbers, ending = real(scores, graph.scores.type), ending_of(graph)
    if (numbers.shape[-1] if numbers.ndim else 1) == 1:
        yes = numbers if ending == "sigmoid" else 1 / (1 + np.exp(-np.clip(numbers, -700, 700)))
        return np.concatenate([1 - yes, yes], axis=-1)
    if ending is not None:
        return numbers
    raised = np.exp(numbers - numbers.max(axis=-1, keepdims=True))
    shares: Array = raised / raised.sum(axis=-1, keepdims=True)
    return shares


def yes_above(graph: Graph) -> float:
    """Return the number above which a score that decides alone means yes."""
    return HALF if ending_of(graph) == "sigmoid" else 0.0


def chosen(graph: Graph, scores: Array) -> Array:
    """Return the class of each list of scores: the largest, the first of those that are as large."""
    if scores.shape[-1] > 1:
        return np.asarray(scores.argmax(axis=-1))
    return np.asarray((probabilities(graph, scores)[..., 1] > HALF).astype(np.int64))


def chosen_by(graph: Graph, scored: Scored) -> int:
    """Return the class of a sample; where the graph knows one of two alone, the other is what lies too far from it."""
    usual = usual_class(graph)
    if usual is None or scored.distance is None:
        return int(chosen(graph, scored.scores.reshape(-1)))
    return usual if scored.distance <= 1 else 1 - usual


def reconstruction_error(model: Graph, scores: Array, given: Array) -> float:
    """Return the mean squared difference between a model's output and its input, in the numbers they stand for."""
    difference = real(scores, model.scores.type) - real(given, model.image.type)
    return float(np.square(difference).mean())


def area_under_curve(normal: Array, others: Array) -> float:
    """Return how often one of the others is larger than one of the normal numbers, ties counted as half."""
    ordered = np.sort(normal)
    below = np.searchsorted(ordered, others, "left") + np.searchsorted(ordered, others, "right")
    return float(below.mean() / 2 / len(normal))
