"""A model on sample after sample: in numpy, in C on this machine, or on a board; the bytes of int8 are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from smidgen import codegen
from smidgen.errors import InputError, TargetError
from smidgen.ir import Array, Graph, Value, evaluate_step
from smidgen.pipeline import compile
from smidgen.quantization.batch import run_batch
from smidgen.targets.device import Target, share_out
from smidgen.threads import in_order

REFERENCE = "reference"
BATCH = 16  # samples at once in numpy


@dataclass(frozen=True)
class InferenceProgress:
    """How many samples of how many are done."""

    done: int
    total: int


ProgressCallback = Callable[[InferenceProgress], None]


def where_to_run(graph: Graph, target: str | Target | None) -> str | Target:
    """The target given; without one this machine's C, or numpy for a model that has no C: one in float32."""
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


def target_name(target: str | Target) -> str:
    return target if isinstance(target, str) else target.name


def scores_of(graph: Graph, inputs: Iterable[Array], target: str | Target, threads: int) -> Iterator[Array]:
    """The graph's scores for each input in turn, as the graph gives them; of a streaming network, one stream.

    Where so many threads can share the inputs out, they do; the scores are the same.
    """
    if target == REFERENCE:
        yield from _in_numpy(graph, inputs, threads)
        return
    place = graph.outputs.index(graph.scores)
    ready = replace(graph, preprocessing=None)  # the inputs are: no front end for sound is compiled
    with compile(ready, target=target).start() as device:
        yield from share_out(device, lambda device, one: device.run(one)[place], inputs, threads)


def _in_numpy(graph: Graph, inputs: Iterable[Array], threads: int) -> Iterator[Array]:
    """A few at a time: float32 may differ from one at a time in the last bits, int8 does not."""
    if graph.variables:
        yield from _in_turn(graph, inputs)
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


def _in_turn(graph: Graph, inputs: Iterable[Array]) -> Iterator[Array]:
    """A stream: each run goes on from the variables that the one before left."""
    state, place = graph.state, graph.outputs.index(graph.scores)
    for one in inputs:
        outputs, state = evaluate_step(graph, state, one)
        yield outputs[place]
