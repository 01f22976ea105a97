"""New heads that start from random weights, so that the first step already has gradients for the layers before them."""

from __future__ import annotations

from dataclasses import replace

from smidgen import codegen
from smidgen.pipeline import Program
from smidgen.training import Training
from smidgen.training.weights import with_drawn_head


def drawn_training(training: Training, seed: int = 0) -> Training:
    """Return what learns with random weights in its new head, float32 or int8; a kept head stays."""
    if training.head.start != "new":
        return training
    reference = replace(training.reference, graph=with_drawn_head(training.reference.graph, seed))
    step, forward = (with_drawn_head(graph, seed) for graph in (training.step, training.forward))
    return replace(training, step=step, forward=forward, reference=reference)


def drawn_program(program: Program, seed: int = 0) -> Program:
    """Return a program with random weights in its new head, its C written again; a kept head stays."""
    assert program.training is not None
    if program.training.head.start != "new":
        return program
    graph = with_drawn_head(program.graph, seed)
    sources = codegen.generate(graph, program.plan, schedule=program.schedule, folders=program.target.folders)
    sources = replace(sources, replay_bytes=program.sources.replay_bytes)
    return replace(program, graph=graph, sources=sources, training=drawn_training(program.training, seed))
