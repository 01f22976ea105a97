"""Channels drawn anew each epoch: a chain of courses of one epoch, each of which begins where the last one ended.

A channel that leaves is rounded to int8 and kept among the frozen weights; biases, the head, the exponents and
the fractions of layers that learn whole go on as they were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from experiments.paper.runs import Run
from smidgen.ir import Array, Graph
from smidgen.learning import Course, learned_graph
from smidgen.ops.state import Overlay
from smidgen.pipeline import Program
from smidgen.targets.device import held

ORDERS = 1000  # epochs that one order's seeds are kept apart by


def epoch_course(run: Run, epoch: int) -> Course:
    """The course of one epoch: images as no other epoch shows them, a rate that stays."""
    return Course(1, epoch_rate(run, epoch), schedule="constant", seed=ORDERS * (run.order + 1) + epoch)


def epoch_rate(run: Run, epoch: int) -> float:
    """The cosine's rate in the middle of an epoch."""
    return run.step_rate * (1 + math.cos(math.pi * (epoch + 0.5) / run.epochs)) / 2


def epoch_seed(run: Run, epoch: int) -> int:
    """Of an epoch's channels."""
    return run.seed + ORDERS * epoch


def carried_on(program: Program, state: Mapping[str, Array]) -> Program:
    """The program, begun in the state that another epoch left, but for the channels that are new."""
    assert program.training is not None
    fresh = _drawn(program.training.forward)

    def begun(graph: Graph) -> Graph:
        kept = {
            v: array if v.name.removesuffix(".fraction") in fresh else held(state, v, graph.name)
            for v, array in graph.state.items()
        }
        return replace(graph, state=kept)

    training = replace(program.training, step=begun(program.training.step), forward=begun(program.training.forward))
    return replace(program, graph=begun(program.graph), training=training)


def _drawn(forward: Graph) -> set[str]:
    """The names of the tensors that are some channels of a layer."""
    return {node.ins[1].name for node in forward.nodes if isinstance(node.op, Overlay)}


def next_graph(program: Program, state: Mapping[str, Array]) -> Graph:
    """The network an epoch leaves behind, its channels rounded to int8."""
    assert program.training is not None
    return learned_graph(program.training, state)
