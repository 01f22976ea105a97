"""Every kernel against the numpy reference, byte for byte: on the host, under sanitizers, and row by row."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen.codegen import RUNTIME
from smidgen.compiler import FLAGS, NATIVE, Compiler, cross, find_compiler, probe
from smidgen.ir import Array, Graph, QParams, evaluate
from smidgen.pipeline import compile
from smidgen.targets.host import Host
from tests.support.case_parts import Case, conv, depthwise
from tests.support.cases import CASES, GRAPHS, RUNS, inputs, together
from tests.support.graphs import int8_graphs, random_inputs
from tests.support.native import Kernels, build_sanitized, compute, pointer, whole
from tests.support.once import Once
from tests.support.tiers import examples, first

ZIG = (sys.executable, "-m", "ziglang", "cc")


@pytest.fixture(scope="session")
def recorded(host: Host, once: Once) -> list[dict[str, Array]]:
    """For each run, the host's outputs of every case."""

    def record(_: Path) -> list[dict[str, Array]]:
        with compile(together(), target=host).start() as device:
            return [dict(zip(GRAPHS, device.run(*_all_inputs(run)), strict=True)) for run in range(RUNS)]

    return once("kernels", record)


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


@pytest.mark.slow
@pytest.mark.parametrize("command", [("cc",), ZIG], ids=["cc", "zig"])
def test_every_kernel_compiles_without_a_warning(command: tuple[str, ...], tmp_path: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip("this machine has no cc")
    files = sorted((RUNTIME / "kernels").glob("*.c"))
    warnings = ("-pedantic", "-Wshadow", "-Wstrict-prototypes", "-Wconversion", "-Wsign-conversion")
    probe(command)(*warnings, f"-I{RUNTIME}", "-shared", "-o", "all.so", *files, folder=tmp_path)


def _without(*features: str) -> Compiler:
    """This machine's compiler for this machine less some instructions."""
    return cross(find_compiler().command, (*FLAGS, NATIVE, *features))


@pytest.mark.parametrize("other", first("zig", "any processor", "no AVX-512"))
def test_another_compiler_gives_the_same_bytes(other: str, cache: Path, recorded: list[dict[str, Array]]) -> None:
    if other == "zig":
        compiler = probe(ZIG)
    elif other == "any processor":
        compiler = cross(find_compiler().command, FLAGS)  # which knows no AVX2
    else:
        if platform.machine() not in ("x86_64", "AMD64"):
            pytest.skip("this machine never has AVX-512")
        compiler = _without("-mno-avx512f")  # AVX2 where there is VNNI
    with compile(together(), target=Host(compiler, cache)).start() as device:
        for run in range(RUNS):
            for (name, expected), got in zip(recorded[run].items(), device.run(*_all_inputs(run)), strict=True):
                np.testing.assert_array_equal(got, expected, err_msg=name)


@settings(max_examples=examples(25))
@given(graph=int8_graphs(beyond=True), seed=st.integers(0, 2**31))
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
    executable = build_sanitized(graph, RUNS)
    result = subprocess.run([executable, "vectors"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr[:4000]}"


def by_rows(kernels: Kernels, graph: Graph, x: Array) -> Array:
    """Row by row, the input in a ring of just enough rows, the output in a single row."""
    (node,) = graph.nodes
    params, height = node.op.params(node), x.shape[1]
    stride, pad, k, dilation = (int(params[name]) for name in ("stride_h", "pad_h", "k_h", "dilation_h"))
    reach = (k - 1) * dilation + 1
    ring = np.zeros((min(reach, height), *x.shape[2:]), np.int8)
    out = np.zeros((1, *node.out.type.shape[2:]), np.int8)
    got, held = [], 0
    for y in range(node.out.type.shape[1]):
        needed = min(y * stride - pad + reach, height)
        for r in range(held, needed):
            ring[r % len(ring)] = x[0, r]
        held = max(held, needed)
        compute(kernels, graph, ring, out, y, y + 1)
        got.append(out.copy())
    return np.stack(got, axis=1)


SPATIAL = [case for case in CASES if case.op.spatial]


@pytest.mark.parametrize("case", SPATIAL, ids=lambda case: case.name)
def test_a_ring_of_just_enough_rows_gives_the_whole_map(case: Case, kernels: Kernels) -> None:
    graph = GRAPHS[case.name]
    x = np.random.default_rng(2).integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
    np.testing.assert_array_equal(by_rows(kernels, graph, x), evaluate(graph, x)[0])


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    """Any geometry: sizes, windows, strides, padding, dilation, groups and multipliers, small enough to be quick."""
    pairs = st.tuples(st.integers(1, 5), st.integers(1, 5))
    height, width, groups = draw(st.integers(1, 12)), draw(st.integers(1, 40)), draw(st.integers(1, 3))
    channels, out = groups * draw(st.integers(1, 40)), groups * draw(st.integers(1, 20))
    k, stride, dilation = draw(pairs), draw(pairs), draw(st.sampled_from([(1, 1), (1, 1), (1, 2), (2, 1), (3, 3)]))
    zero = QParams.per_tensor(0.05, draw(st.integers(-128, 127)))
    if draw(st.booleans()):
        times = draw(st.integers(1, 3))
        return depthwise("any", (height, width, channels), times, k, stride, True, dilation, x=zero)
    return conv("any", (height, width, channels), out, k, stride, True, dilation, groups, x=zero)


@settings(max_examples=examples(150))
@given(case=convolutions(), seed=st.integers(0, 2**31))
def test_convolutions_of_any_geometry_agree_with_numpy(kernels: Kernels, case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = case.build(rng)
    x = rng.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
    (expected,) = evaluate(graph, x)
    np.testing.assert_array_equal(whole(kernels, graph, x), expected)
    np.testing.assert_array_equal(by_rows(kernels, graph, x), expected)


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
