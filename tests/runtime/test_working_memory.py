"""Working memory is what kernels use: plans ask the target, and no formula has a word too many or too few."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smidgen import ops
from smidgen.ir import Array, Builder, Graph, Op, Type, Value
from smidgen.ops.conv import ConvGradInput, DepthwiseGradInput
from smidgen.pipeline import Program, compile
from smidgen.runtime import working_memory
from smidgen.targets.boards import BOARDS, M0PLUS, M7, resize
from smidgen.targets.firmware import BoardDevice, BoardTarget
from tests.support.case_parts import Q, Weights
from tests.support.cases import GRAPHS, RUNS, inputs, together
from tests.support.guarded_boards import PortableBoard, touched, uses, watched
from tests.support.native import declarations
from tests.support.tiers import first
from tests.support.training_cases import TRAINING_CASES, TRAINING_GRAPHS

PROTOTYPE = re.compile(r"^void (smg_\w+)\(([^;]*)\);", re.MULTILINE)
NODES = [node for graph in (*GRAPHS.values(), *TRAINING_GRAPHS.values()) for node in graph.nodes]


FORWARD = {name: graph for name, graph in GRAPHS.items() if any(node.op.working_memory for node in graph.nodes)}
TRAINING = [c for c in TRAINING_CASES if any(n.op.working_memory for n in TRAINING_GRAPHS[c.name].nodes)]
Kernels = set[tuple[str, bool]]  # by symbol, and whether it computes one row per call


def layers() -> Graph:
    """Windows of all kinds one after another: whole words and not, short and long, at borders and without."""
    g, rng = Builder("layers"), np.random.default_rng(0)
    x = g.input("x", Type((1, 40, 24, 3), "int8", Q(0.05, 7)))

    def weighted(x: Value, op: Op, shape: tuple[int, ...]) -> Value:
        w, b = Weights().draw(g, rng, shape, 3 if isinstance(op, ops.Depthwise) else 0)
        return g.emit(op, x, w, b, q=Q(0.1, 3))

    x = weighted(x, ops.Conv2D(), (6, 3, 3, 3))
    x = weighted(x, ops.Depthwise(), (1, 3, 3, 6))
    x = weighted(x, ops.Conv2D(pad=(1, 1, 1, 1)), (16, 3, 3, 6))
    x = weighted(x, ops.Depthwise(pad=(1, 1, 1, 1)), (1, 3, 3, 16))
    x = weighted(x, ops.Conv2D((2, 2), pad=(1, 1, 1, 1)), (8, 3, 3, 16))
    return g.graph(x)


def used(program: Program, runs: Sequence[tuple[Array, ...]]) -> tuple[Kernels, Kernels]:
    """The kernels that have working memory, and those that write its last word."""
    program = watched(program)
    every = uses(program)
    with program.start() as device:
        assert isinstance(device, BoardDevice)
        for run in runs:
            device.run(*run)
        written = {use.kernel for use, found in zip(every, touched(device, len(every)), strict=True) if found}
    return {use.kernel for use in every}, written


KINDS = {"packed": (BoardTarget, M7), "portable": (PortableBoard, M7), "scalar": (BoardTarget, M0PLUS)}


@pytest.mark.parametrize("kind", first(*KINDS))
def test_no_kernel_has_a_word_more_than_it_uses(cache: Path, kind: str) -> None:
    made, core = KINDS[kind]
    target = made(replace(resize(BOARDS["mps2-an500"], stack="64KB"), core=core), cache=cache)
    forward = tuple(array for graph in FORWARD.values() for array in inputs(graph, RUNS - 1))
    training = together({case.name: TRAINING_GRAPHS[case.name] for case in TRAINING})
    steps = [tuple(array for case in TRAINING for array in case.inputs(run)) for run in (0, 1)]
    found = [
        used(compile(together(FORWARD), target=replace(target, frugal=False)), [forward]),
        used(compile(layers(), target=target, streamed_input=True), [inputs(layers(), RUNS - 1)]),
        used(compile(training, target=target), steps),
    ]
    every, written = (set().union(*sets) for sets in zip(*found, strict=True))
    assert {symbol for symbol, _ in every} == {n.op.symbol(n) for n in NODES if target.working(n, False)}
    assert {("smg_conv2d_s8", True), ("smg_depthwise_s8", True)} <= every
    assert written == every


def test_ops_say_which_kernels_take_working_memory() -> None:
    prototypes = PROTOTYPE.findall(declarations())
    takes = {symbol for symbol, arguments in prototypes if "void *scratch" in arguments}
    assert takes == {node.op.symbol(node) for node in NODES if node.op.working_memory}
    for folders in (("kernels",), ("kernels", "cortex_m"), ("kernels", "scalar")):
        assert {n.op.symbol(n) for n in NODES if working_memory(n, False, folders)} <= takes


def test_a_core_without_packed_arithmetic_reserves_less_for_gradients() -> None:
    packed, plain = BoardTarget(BOARDS["cortex-m7"]), BoardTarget(BOARDS["cortex-m3"])
    for node in NODES:
        if isinstance(node.op, ConvGradInput) and not node.op.masked:
            assert plain.working(node, False) == 0
    gradients = [node for node in NODES if isinstance(node.op, ConvGradInput | DepthwiseGradInput)]
    assert sum(plain.working(n, False) for n in gradients) < sum(packed.working(n, False) for n in gradients)
