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
from smidgen.ir import Array, Graph, Op, Type, Value, evaluate_step
from smidgen.ir.rewriting import producers
from smidgen.numerics import dequantize
from smidgen.ops.elementwise import Dequantize, Quantize, Requantize
from smidgen.ops.lookup import Lookup
from smidgen.ops.shape import Reshape
from smidgen.ops.softmax import Softmax
from smidgen.pipeline import compile
from smidgen.quantization import GivenPixels, PixelChoice, settle_pixels
from smidgen.quantization.batch import Passes, run_batch
from smidgen.targets.device import Target, share_out
from smidgen.threads import in_order, threads_for

Kind = Literal["classes", "cells", "numbers", "reconstruction"]
Ending = Literal["softmax", "sigmoid"]
HALF = 0.5  # a probability above it is a yes
KEEPS: tuple[type[Op], ...] = (Dequantize, Quantize, Requantize, Reshape)  # these change no number but by rounding
REFERENCE = "reference"
BATCH = 16  # samples at once in numpy


@dataclass(frozen=True)
class InferenceProgress:
    """Progress: samples done, of all, and what is done with them unless they are shown to the model."""

    done: int
    total: int
    doing: str = ""


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


def scores_of(graph: Graph, inputs: Iterable[Array], target: str | Target, threads: int) -> Iterator[Array]:
    """Yield the graph's scores for each input in turn; of a streaming network, for one stream.

    The scores are the same for any number of threads.
    """
    if target == REFERENCE:
        yield from _in_numpy(graph, inputs, threads)
        return
    place = graph.outputs.index(graph.scores)
    ready = replace(graph, preprocessing=None)  # the inputs are preprocessed: no front end for audio is compiled
    with compile(ready, target=target).start() as device:
        yield from share_out(device, lambda device, one: device.run(one)[place], inputs, threads)


def _in_numpy(graph: Graph, inputs: Iterable[Array], threads: int) -> Iterator[Array]:
    """Yield the scores, computed in batches: float32 may differ from single samples in the last bits, int8 does not."""
    if graph.variables:
        state, place = graph.state, graph.outputs.index(graph.scores)
        for one in inputs:  # a stream: each run goes on from the variables that the one before left
            outputs, state = evaluate_step(graph, state, one)
            yield outputs[place]
        return

    def run(batch: list[Array]) -> list[Array]:
        found: list[Array] = []

        def look(value: Value, array: Array) -> None:
            if value == graph.scores:
                found[:] = list(array)

        run_batch(graph, np.stack(batch), look)
        return found

    left = iter(inputs)
    batches = iter(lambda: list(islice(left, BATCH)), [])
    for found in in_order(run, batches, threads):
        yield from found


def kind_of(graph: Graph) -> Kind:
    """Return what the scores mean, according to their shape and to how the graph ends.

    Scores of the input's shape are a reconstruction, a map of them is cells. One score is a number unless the graph
    names two classes or ends in a sigmoid; several are classes.
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
    return "classes"


def ending_of(graph: Graph) -> Ending | None:
    """Return the function at the end of the graph that makes the scores probabilities, if any."""
    made, value = producers(graph), graph.scores
    while value in made:
        node = made[value]
        if type(node.op) is Softmax:  # logarithms of its results are scores like any others
            return "softmax"
        if isinstance(node.op, Lookup) and node.op.function == "sigmoid" and not node.op.slope:
            return "sigmoid"
        if not isinstance(node.op, KEEPS):
            return None
        value = node.ins[0]
    return None


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


def chosen(graph: Graph, scores: Array) -> Array:
    """Return the class of each list of scores: the largest, the first of those that are as large."""
    if scores.shape[-1] > 1:
        return np.asarray(scores.argmax(axis=-1))
    return np.asarray((probabilities(graph, scores)[..., 1] > HALF).astype(np.int64))


def reconstruction_error(model: Graph, scores: Array, given: Array) -> float:
    """Return the mean squared difference between a model's output and its input, in the numbers they stand for."""
    difference = real(scores, model.scores.type) - real(given, model.image.type)
    return float(np.square(difference).mean())
