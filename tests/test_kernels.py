"""Every kernel against the numpy reference, byte for byte: on the host, under sanitizers, and row by row."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import CASES, GRAPHS, RUNS, Case, inputs, together
from graphs import int8_graphs, random_inputs
from native import Kernels, Map, argument, build_sanitized, pointer
from smidgen.ir import Array, Graph, evaluate
from smidgen.pipeline import compile
from smidgen.targets.host import Host

GUARD = 64  # bytes after working memory that must stay as they are


@pytest.fixture(scope="session")
def recorded(host: Host) -> list[dict[str, Array]]:
    """For each run, what the host gives for every case."""
    with compile(together(), target=host).start() as device:
        return [dict(zip(GRAPHS, device.run(*_all_inputs(run)), strict=True)) for run in range(RUNS)]


def _all_inputs(run: int) -> tuple[Array, ...]:
    return tuple(array for graph in GRAPHS.values() for array in inputs(graph, run))


def test_case_names_are_unique() -> None:
    assert len(GRAPHS) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_host_agrees_with_numpy(case: Case, recorded: list[dict[str, Array]]) -> None:
    graph = GRAPHS[case.name]
    for run in range(RUNS):
        (expected,) = evaluate(graph, *inputs(graph, run))
        np.testing.assert_array_equal(recorded[run][case.name], expected)


@settings(max_examples=25, deadline=None)
@given(graph=int8_graphs(), seed=st.integers(0, 2**31))
def test_random_graphs_on_the_host_agree_with_numpy(host: Host, graph: Graph, seed: int) -> None:
    arrays = random_inputs(graph, np.random.default_rng(seed))
    with compile(graph, target=host).start() as device:
        for expected, got in zip(evaluate(graph, *arrays), device.run(*arrays), strict=True):
            np.testing.assert_array_equal(got, expected)


def test_no_kernel_trips_a_sanitizer(tmp_path: Path) -> None:
    graph = together()
    with (tmp_path / "vectors").open("wb") as vectors:
        for run in range(RUNS):
            arrays = _all_inputs(run)
            vectors.writelines(np.ascontiguousarray(array).tobytes() for array in (*arrays, *evaluate(graph, *arrays)))
    executable = build_sanitized(tmp_path, graph, RUNS)
    result = subprocess.run([executable, "vectors"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr[:4000]}"


SPATIAL = [case for case in CASES if case.op.spatial]


@pytest.mark.parametrize("case", SPATIAL, ids=lambda case: case.name)
def test_a_ring_of_just_enough_rows_gives_the_whole_map(case: Case, kernels: Kernels) -> None:
    graph = GRAPHS[case.name]
    (node,) = graph.nodes
    x_type, y_type, params = node.ins[0].type, node.out.type, node.op.params(node)
    x = np.random.default_rng(2).integers(-128, 128, x_type.shape).astype(np.int8)
    stride, pad, k, dilation = (int(params[name]) for name in ("stride_h", "pad_h", "k_h", "dilation_h"))
    reach = (k - 1) * dilation + 1
    rows = min(reach, x_type.shape[1])
    ring, out = np.zeros((rows, *x_type.shape[2:]), np.int8), np.zeros(y_type.shape[2:], np.int8)
    size = node.op.scratch(node)
    scratch = np.full(size + GUARD, 0x5A, np.uint8)
    constants = [argument(node, v, graph.constants[v]) for v in node.ins[1:]]
    working = [pointer(scratch)] if size else []
    got, held = [], 0
    for y in range(y_type.shape[1]):
        needed = min(y * stride - pad + reach, x_type.shape[1])
        for r in range(held, needed):
            ring[r % rows] = x[0, r]
        held = max(held, needed)
        kernels.call(node, Map(ring.ctypes.data, rows), *constants, Map(out.ctypes.data, 1), y, y + 1, *working)
        got.append(out.copy())
    (expected,) = evaluate(graph, x)
    np.testing.assert_array_equal(np.stack(got)[None], expected)
    assert (scratch[size:] == 0x5A).all(), "the kernel wrote past its working memory"


# Those whose second operand, if any, repeats within a row.
ELEMENTWISE = [case for case in CASES if case.op.elementwise and not case.name.endswith("-rows")]


@pytest.mark.parametrize("case", ELEMENTWISE, ids=lambda case: case.name)
def test_elementwise_kernels_run_row_by_row_and_in_place(case: Case, kernels: Kernels) -> None:
    graph = GRAPHS[case.name]
    (node,) = graph.nodes
    arrays = inputs(graph, RUNS - 1)
    (expected,) = evaluate(graph, *arrays)
    row = node.out.type.shape[-1]
    ins = [array.copy().reshape(-1, min(row, array.size)) for array in (*arrays, *graph.constants.values())]
    ins = [ins[0]] * 2 if len(node.ins) == 2 and len(ins) == 1 else ins
    out = ins[0] if node.op.inplace == 0 else np.zeros(expected.shape, expected.dtype).reshape(-1, row)
    for r in range(len(out)):
        kernels.call(node, *(pointer(array[r % len(array)]) for array in ins), pointer(out[r]), row)
    np.testing.assert_array_equal(out.reshape(expected.shape), expected)
