"""Kernels in WebAssembly, with vectors and without, against the numpy reference, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from smidgen.ir import Array, Graph, evaluate, evaluate_step
from smidgen.ops.conv import ConvGradWeight, DepthwiseGradWeight
from smidgen.pipeline import compile
from smidgen.targets.wasm import Wasm
from tests.support.case_parts import PLAIN, SATURATING, Case, Q, conv, depthwise
from tests.support.cases import CASES, GRAPHS, inputs, together
from tests.support.cases import RUNS as FORWARD_RUNS
from tests.support.graphs import int8_graphs, random_inputs
from tests.support.tiers import examples, first, some
from tests.support.training_cases import (
    HOWS,
    TRAINING_CASES,
    TRAINING_GRAPHS,
    conv_grad,
    depthwise_grad,
    fused,
    masked_overlay,
)
from tests.support.training_inputs import RUNS, Shape, TrainingCase, channel_factors, gradients, mixed
from tests.support.wasm import wasm_target

CHANNELS = (1, 3, 8, 12, 16, 17, 24, 40, 48, 64, 72, 96, 130)
SIZES = ((1, 1), (1, 1), (3, 3), (5, 5), (7, 7), (2, 4), (5, 1))
STRIDES = ((1, 1), (1, 1), (2, 2), (3, 1), (2, 5))
DILATIONS = ((1, 1), (1, 1), (1, 1), (2, 2), (1, 3))
TOGETHER = 6  # random graphs that one module runs


@pytest.fixture(scope="session", params=[True, False], ids=["simd", "portable"])
def wasm(request: pytest.FixtureRequest, cache: Path) -> Wasm:
    return wasm_target(cache, simd=request.param)


def differing(wasm: Wasm, graphs: Mapping[str, Graph], fed: Sequence[Mapping[str, tuple[Array, ...]]]) -> list[str]:
    """Runs of graphs, all in one module, that do not give numpy's bytes; state goes on from run to run."""
    states, found = {name: dict(graph.state) for name, graph in graphs.items()}, []
    with compile(together(graphs), target=wasm).start() as device:
        for run, given_arrays in enumerate(fed):
            outs = list(device.run(*(array for name in graphs for array in given_arrays[name])))
            for name, graph in graphs.items():
                wanted, states[name] = evaluate_step(graph, states[name], *given_arrays[name])
                got = [outs.pop(0) for _ in wanted]
                if any(a.tobytes() != b.tobytes() for a, b in zip(wanted, got, strict=True)):
                    found.append(f"{name}, run {run}")
    return found


@pytest.mark.sampled
def test_every_case_gives_numpys_bytes(wasm: Wasm) -> None:
    graphs = {case.name: GRAPHS[case.name] for case in some(CASES, 6)}
    fed = [{name: inputs(graph, run) for name, graph in graphs.items()} for run in range(FORWARD_RUNS)]
    assert differing(wasm, graphs, fed) == []


@pytest.mark.sampled
def test_every_case_trains_as_numpy_does(wasm: Wasm) -> None:
    for batch in mixed(some(TRAINING_CASES, 8)):
        assert differing_cases(wasm, batch, {case.name: TRAINING_GRAPHS[case.name] for case in batch}) == []


def differing_cases(wasm: Wasm, cases: Sequence[TrainingCase], graphs: Mapping[str, Graph]) -> list[str]:
    return differing(wasm, graphs, [{case.name: case.inputs(run) for case in cases} for run in range(RUNS)])


def drawn_shape(rng: np.random.Generator, deep: bool) -> Shape:
    """A layer of any geometry; of a `deep` one each channel has its own filter."""

    def one(choices: Sequence[tuple[int, int]]) -> tuple[int, int]:
        return choices[int(rng.integers(len(choices)))]

    size = int(rng.integers(1, 10)), int(rng.integers(1, 22)), int(rng.choice(CHANNELS))
    out = size[2] if deep else int(rng.choice(CHANNELS))
    return Shape(size, out, one(SIZES), one(STRIDES), dilation=one(DILATIONS))


def drawn_layer(rng: np.random.Generator, number: int) -> Case:
    deep, low, even = bool(rng.integers(2)), int(rng.choice([-128, 5])), bool(rng.integers(2))
    weights, shape = (PLAIN, PLAIN, SATURATING)[int(rng.integers(3))], drawn_shape(rng, deep)
    more = (shape.k, shape.stride, True, shape.dilation)
    if deep:
        return depthwise(f"{number}", shape.size, 1, *more, y=Q(0.2, low), weights=weights, even=even)
    groups = int(rng.choice([1, 1, 1, 2]))
    size = (*shape.size[:2], groups * shape.size[2])
    return conv(f"{number}", size, groups * shape.out, *more, groups, y=Q(0.2, low), weights=weights, even=even)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", first(0, 1, 2, 3))
def test_layers_of_any_geometry_give_numpys_bytes(wasm: Wasm, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cases = some([drawn_layer(rng, number) for number in range(60)], 3)
    graphs = {case.name: case.build(np.random.default_rng(seed)) for case in cases}
    fed = [{name: random_inputs(graph, rng) for name, graph in graphs.items()} for _ in range(2)]
    assert differing(wasm, graphs, fed) == []


def drawn_gradients(rng: np.random.Generator, number: int) -> Iterator[TrainingCase]:
    """Gradients of a layer of any geometry, and steps of its weights."""
    deep, masked, shift = bool(rng.integers(2)), bool(rng.integers(2)), int(rng.choice([-12, 0, 9, 17, 24]))
    shape, how = drawn_shape(rng, deep), HOWS[sorted(HOWS)[int(rng.integers(len(HOWS)))]]
    op, dy, w = depthwise_grad(shape) if deep else conv_grad(shape)
    factors = ((), (0.0123,), channel_factors(shape.size[2]))[int(rng.integers(3))]
    yield gradients(f"grad{number}", replace(op, masked=masked, factors=factors), dy, w, shift=shift)
    yield masked_overlay(f"overlay{number}", op, dy, w, tuple(range(shape.size[2] // 2, shape.size[2], 2)))
    yield fused(f"step{number}", DepthwiseGradWeight if deep else ConvGradWeight, shape, how)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", first(0, 1, 2, 3))
def test_gradients_of_any_geometry_give_numpys_bytes(wasm: Wasm, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cases = [case for number in some(range(30), 4) for case in drawn_gradients(rng, number)]
    assert differing_cases(wasm, cases, {case.name: case.build(rng) for case in cases}) == []


@settings(max_examples=examples(50, quick=1), phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(graphs=st.lists(int8_graphs(beyond=True), min_size=TOGETHER, max_size=TOGETHER), seed=st.integers(0, 2**31))
def test_random_graphs_give_numpys_bytes(wasm: Wasm, graphs: list[Graph], seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [random_inputs(graph, rng) for graph in graphs]
    wanted = [array for graph, own in zip(graphs, arrays, strict=True) for array in evaluate(graph, *own)]
    with compile(together({str(i): graph for i, graph in enumerate(graphs)}), target=wasm).start() as device:
        for a, b in zip(wanted, device.run(*(array for own in arrays for array in own)), strict=True):
            np.testing.assert_array_equal(a, b)
