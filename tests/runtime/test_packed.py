"""Kernels in packed arithmetic give the portable ones' bytes on the emulated board, and numpy's, in their memory."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen import codegen, ops
from smidgen.ir import Array, Builder, Graph, Op, QParams, Type, evaluate
from smidgen.ops.conv import DepthwiseGradInput
from smidgen.ops.window import same_pad
from smidgen.pipeline import Program, compile
from smidgen.targets.boards import BOARDS, resize
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.toolchain import TOOLCHAINS, Toolchain, find
from smidgen.training import Options
from tests.support.case_parts import Q, Weights
from tests.support.cases import GRAPHS, RUNS, inputs, together
from tests.support.guarded_boards import PortableBoard, watched
from tests.support.loss_tasks import compare
from tests.support.networks import CLASSES, Drawn, samples
from tests.support.tiers import examples, first
from tests.support.tools import need_compiler, needs

Run = dict[str, tuple[Array, ...]]  # a graph's inputs, by its name


@pytest.fixture(scope="session")
def m7(cache: Path) -> BoardTarget:
    return BoardTarget(resize(BOARDS["mps2-an500"], stack="64KB"), cache=cache)  # with room for all cases at once


@pytest.fixture(scope="session")
def portable(m7: BoardTarget) -> BoardTarget:
    """The same board, but the portable kernels."""
    return PortableBoard(m7.board, cache=m7.cache)


def agrees(graphs: Mapping[str, Graph], runs: list[Run], program: Program) -> None:
    """The program of all graphs together gives what numpy gives for each."""
    with watched(program).start() as board:
        for run in runs:
            found = board.run(*(array for name in graphs for array in run[name]))
            for (name, graph), got in zip(graphs.items(), found, strict=True):
                np.testing.assert_array_equal(got, evaluate(graph, *run[name])[0], err_msg=name)


CASE_RUNS: list[Run] = [{name: inputs(graph, run) for name, graph in GRAPHS.items()} for run in range(RUNS)]


@pytest.mark.parametrize("frugal", first(True, False), ids=["rows", "maps"])
def test_every_case_in_packed_arithmetic_agrees_with_numpy(m7: BoardTarget, frugal: bool) -> None:
    agrees(GRAPHS, CASE_RUNS, compile(together(), target=replace(m7, frugal=frugal)))


@pytest.mark.slow
def test_every_case_in_portable_c_agrees_with_numpy_on_the_board(portable: BoardTarget) -> None:
    program = compile(together(), target=portable)
    assert {path.parent.name for path in program.sources.runtime} == {"runtime", "kernels"}
    agrees(GRAPHS, CASE_RUNS[-2:], program)


@pytest.mark.slow
@needs("arm-none-eabi-gcc")
def test_gcc_builds_kernels_in_packed_arithmetic_of_the_same_bytes(m7: BoardTarget) -> None:
    agrees(GRAPHS, CASE_RUNS[-2:], compile(together(), target=replace(m7, toolchain="gcc")))


@pytest.mark.slow
@needs("qemu-system-arm")
def test_qemu_which_faults_on_unaligned_pairs_of_words_agrees_with_numpy(m7: BoardTarget, tmp_path: Path) -> None:
    program = compile(together(), target=m7)
    firmware = m7.build(program.graph, program.sources)
    run = CASE_RUNS[-1]
    request = b"r" + b"".join(array.tobytes() for name in GRAPHS for array in run[name])
    (tmp_path / "requests").write_bytes(request)
    command = ["qemu-system-arm", "-M", "mps2-an500", "-cpu", "cortex-m7", "-nographic", "-monitor", "none"]
    command += ["-serial", "none", "-semihosting", "-kernel", str(firmware)]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=True)
    expected = b"".join(evaluate(graph, *run[name])[0].tobytes() for name, graph in GRAPHS.items())
    assert (tmp_path / "answers").read_bytes() == expected


WARNINGS = ("-pedantic", "-Wshadow", "-Wstrict-prototypes", "-Wconversion", "-Wno-sign-conversion")


@pytest.mark.slow
@pytest.mark.parametrize("kind", TOOLCHAINS)
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m7", "cortex-m33"])
def test_every_packed_kernel_compiles_without_a_warning(kind: Toolchain, core: str, tmp_path: Path) -> None:
    need_compiler(kind)
    includes = (f"-I{codegen.RUNTIME / folder}" for folder in ("", "kernels", "cortex_m"))
    files = sorted(filter(codegen.is_source, (codegen.RUNTIME / "cortex_m").iterdir()))
    find(kind, BOARDS[core].core)(*WARNINGS, *includes, "-c", *files, folder=tmp_path)


@st.composite
def layers(draw: st.DrawFn) -> Graph:
    """A convolution of any geometry behind a rescaled image, whose place a depthwise one may take; some channels of
    its weights may be trained, and its multipliers large, small or nothing."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    deep, groups = draw(st.booleans()), draw(st.sampled_from([1, 1, 1, 2, 3]))
    height, width, channels = (
        draw(st.sampled_from([*range(1, 10), 30])),
        draw(st.one_of(st.integers(1, 3), st.integers(1, 20))),
        groups * draw(st.integers(1, 40 // groups)),
    )
    odd = st.sampled_from(
        [(3, 3), (5, 5), (7, 7), (1, 1), (2, 3), (3, 1), (29, 1), (8, 1), (1, 3)]
        if deep
        else [(1, 1), (1, 1), (3, 3), (2, 5), (5, 1)]
    )
    k, stride = draw(odd), draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (2, 1), (1, 2), (3, 3)]))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 2)]))
    pad = same_pad((1, height, width, channels), k, stride, dilation)
    zero, y = draw(st.integers(-128, 127)), draw(st.sampled_from([0.1, 0.1, 3.0, 1e-3, 1e5, 1e-6, 1e12]))
    weights = Weights(draw(st.sampled_from([127, 1000])), draw(st.sampled_from([3000, 2**31 - 1])))
    g = Builder("layer")
    x = g.emit(ops.Requantize(), g.input("x", Type((1, height, width, channels), "int8", Q(0.04, 3))), q=Q(0.05, zero))
    op: Op = ops.Depthwise(stride, pad, dilation, draw(st.sampled_from(["none", "relu6"])))
    shape = (1, *k, channels * draw(st.sampled_from([1, 1, 1, 2])))
    if not deep:
        op = ops.Conv2D(stride, pad, dilation, groups, draw(st.sampled_from(["none", "relu6"])))
        shape = (groups * draw(st.integers(1, 20)), *k, channels // groups)
    w, b = weights.draw(g, rng, shape, 3 if deep else 0)
    chosen = tuple(np.flatnonzero(rng.random(shape[3]) < draw(st.sampled_from([0, 0, 0.3, 1]))).tolist())
    if chosen:
        trained = rng.integers(-128, 128, (*shape[:3], len(chosen))).astype(np.int8)
        overlay = ops.Overlay(chosen)
        w = g.emit(overlay, w, g.constant("trained", trained, overlay.kept(w.type)))
    return g.graph(g.emit(op, x, w, b, q=Q(y, draw(st.integers(-128, 127)))))


@settings(max_examples=examples(8, quick=1))
@given(graphs=st.lists(layers(), min_size=30, max_size=30), frugal=st.booleans(), seed=st.integers(0, 2**31))
def test_layers_of_any_geometry_agree_with_numpy(m7: BoardTarget, graphs: list[Graph], frugal: bool, seed: int) -> None:
    named = {f"{i} {graph.nodes[-1]}": graph for i, graph in enumerate(graphs)}
    runs = [{name: inputs(graph, run) for name, graph in named.items()} for run in (2, 3 + seed)]
    agrees(named, runs, compile(together(named), target=replace(m7, frugal=frugal)))


@st.composite
def rows_of_threes(draw: st.DrawFn) -> Graph:
    """A depthwise layer of 3x3 with a single row of outputs, most often one that has a kernel of its own."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    stride, height = draw(st.sampled_from([1, 2])), draw(st.integers(1, 3))
    width = draw(st.sampled_from([4, 8, 12, 20, 52, 68, 100, 6, 9])) * stride
    channels, pad_w = 4 * draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 1, 0]))
    above = draw(st.integers(0, 1))
    pad = (above, max(0, 3 - above - height), pad_w, 3 - stride - pad_w)
    y = draw(st.sampled_from([0.1, 0.1, 0.02, 1e5]))
    weights = Weights(draw(st.sampled_from([127, 1000])), draw(st.sampled_from([3000, 2**31 - 1])))
    g = Builder("threes")
    x = g.input("x", Type((1, height, width, channels), "int8", Q(0.05, draw(st.integers(-128, 127)))))
    w, b = weights.draw(g, rng, (1, 3, 3, channels), 3)
    chosen = tuple(np.flatnonzero(rng.random(channels) < draw(st.sampled_from([0, 0, 0.3]))).tolist())
    if chosen:
        trained = rng.integers(-128, 128, (1, 3, 3, len(chosen))).astype(np.int8)
        overlay = ops.Overlay(chosen)
        w = g.emit(overlay, w, g.constant("trained", trained, overlay.kept(w.type)))
    op = ops.Depthwise((3, stride), pad, (1, 1), draw(st.sampled_from(["none", "relu6"])))
    return g.graph(g.emit(op, x, w, b, q=Q(y, draw(st.sampled_from([-128, -128, 5])))))


@settings(max_examples=examples(6, quick=1))
@given(graphs=st.lists(rows_of_threes(), min_size=30, max_size=30), seed=st.integers(0, 2**31))
def test_single_rows_of_three_by_three_agree_with_numpy(m7: BoardTarget, graphs: list[Graph], seed: int) -> None:
    assert all(graph.outputs[0].type.shape[1] == 1 for graph in graphs)
    named = {f"{i} {graph.nodes[-1]}": graph for i, graph in enumerate(graphs)}
    runs = [{name: inputs(graph, run) for name, graph in named.items()} for run in (2, 3 + seed)]
    agrees(named, runs, compile(together(named), target=m7))


@st.composite
def short_windows(draw: st.DrawFn) -> Graph:
    """A convolution of few input channels and many outputs, whose weights may be raised; with scales of powers of two,
    many of its sums lie half between two steps, and biases may leave no room."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k, n, even = draw(st.sampled_from([4, 8, 8, 16, 32, 36, 7])), draw(st.integers(1, 9)), draw(st.booleans())
    powers = rng.integers(-13, 0, n) if even else rng.uniform(-13, 0, n)
    size = (1, draw(st.integers(1, 3)), draw(st.integers(28, 80)), k)
    limit = draw(st.sampled_from([3, 3000, 2**21 - 1, 2**21, 2**23, 2**31 - 1]))
    g = Builder("short")
    x = g.input("x", Type(size, "int8", Q(1.0, draw(st.integers(-128, 127)))))
    weights = rng.integers(-128, 128, (n, 1, 1, k)).astype(np.int8)
    w = g.constant("w", weights, QParams.per_channel(2.0**powers, 0))
    b = g.constant("b", rng.choice([-limit, -limit // 2, 0, limit // 3, limit], n).astype(np.int32))
    return g.graph(g.emit(ops.Conv2D(), x, w, b, q=Q(1.0, draw(st.sampled_from([-128, -128, -128, -127, 9])))))


@settings(max_examples=examples(6, quick=1))
@given(graphs=st.lists(short_windows(), min_size=30, max_size=30), seed=st.integers(0, 2**31))
def test_short_windows_round_alike_whether_their_weights_are_raised_or_not(
    m7: BoardTarget, graphs: list[Graph], seed: int
) -> None:
    named = {f"{i} {graph.nodes[-1]}": graph for i, graph in enumerate(graphs)}
    runs = [{name: inputs(graph, run) for name, graph in named.items()} for run in (2, 3 + seed)]
    agrees(named, runs, compile(together(named), target=m7))


@st.composite
def dense_layers(draw: st.DrawFn) -> Graph:
    """A fully connected layer; with scales of powers of two, many of its sums lie half between two steps."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, k, n = draw(st.integers(1, 3)), draw(st.integers(1, 70)), draw(st.integers(1, 13))
    power, even = draw(st.integers(-12, 12)), draw(st.booleans())
    scales = np.full(n, 2.0**-6) if even else 2.0 ** rng.uniform(-20, 8, n)
    g = Builder("dense")
    x = g.input("x", Type((rows, k), "int8", Q(2.0**-4 if even else 0.037, draw(st.integers(-128, 127)))))
    w = g.constant("w", rng.integers(-128, 128, (n, k)).astype(np.int8), QParams.per_channel(scales, 0))
    limit = draw(st.sampled_from([3, 3000, 2**31 - 1]))
    b = g.constant("b", rng.integers(-limit, limit, n, endpoint=True).astype(np.int32))
    return g.graph(g.emit(ops.Dense(), x, w, b, q=Q(2.0**power * (1 if even else 1.37), draw(st.integers(-128, 127)))))


@settings(max_examples=examples(6, quick=1))
@given(graphs=st.lists(dense_layers(), min_size=40, max_size=40), seed=st.integers(0, 2**31))
def test_fully_connected_layers_round_as_a_double_does(m7: BoardTarget, graphs: list[Graph], seed: int) -> None:
    named = {f"{i}": graph for i, graph in enumerate(graphs)}
    runs = [{name: inputs(graph, run) for name, graph in named.items()} for run in (2, 3 + seed)]
    agrees(named, runs, compile(together(named), target=m7))


def test_a_depthwise_layer_takes_its_inputs_place(m7: BoardTarget) -> None:
    def graph(k: int, height: int, width: int, channels: int) -> Graph:
        g = Builder("placed")
        x = g.emit(ops.Requantize(), g.input("x", Type((1, height, width, channels), "int8", Q(0.04))), q=Q(0.05, 7))
        w, b = Weights().draw(g, np.random.default_rng(k), (1, k, k, channels), 3)
        return g.graph(g.emit(ops.Depthwise((1, 1), (k // 2,) * 4), x, w, b, q=Q(0.1)))

    shapes = [(3, 16, 16, 24), (5, 9, 13, 21), (7, 8, 8, 16), (7, 1, 100, 9), (3, 2, 3, 5), (7, 70, 5, 17)]
    graphs = {str(shape): graph(*shape) for shape in shapes}
    program = compile(together(graphs), target=replace(m7, frugal=False))
    offsets = program.plan.values()
    for node in program.graph.nodes:
        if isinstance(node.op, ops.Depthwise):
            assert offsets[node.ins[0]] == offsets[node.out]
    agrees(graphs, [{name: inputs(g, run) for name, g in graphs.items()} for run in (2, 3)], program)


@pytest.mark.parametrize("size", [4, 6, 8, 12, 17])
def test_gradients_of_a_depthwise_layer_take_the_place_of_those_they_come_from(m7: BoardTarget, size: int) -> None:
    n = Drawn(size, size=size)
    x = n.conv(n.x, 16, 3, activation="relu6")
    for _ in range(2):
        x = n.conv(n.depthwise(x, activation="relu6"), 16, activation="relu6")
    program = compile(n.end(x), "bias:5", m7, options=Options(CLASSES))
    places, nodes = program.plan.values(), [v for v in program.graph.nodes if isinstance(v.op, DepthwiseGradInput)]
    assert [places[node.ins[0]] for node in nodes] == [places[node.outs[0]] for node in nodes]
    with watched(program).start() as board:
        compare(program, board, [(image, label) for image, label in samples(program.graph, 3)], 0.01)
