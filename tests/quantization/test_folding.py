"""Folding: what a float graph computes is what it computed before, in fewer layers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen.ir import Array, Graph, Value, evaluate, evaluate_all
from smidgen.ops import Activate, Add, BatchNorm, Conv2D, Depthwise, Lookup, MaxPool, Mean, Mul, Pad, Reshape
from smidgen.quantization.batch import Passes, run_batch
from smidgen.quantization.folding import FOLDS, crop_kernels, equalise, fold
from tests.support.float_graphs import FloatNet, float_graphs
from tests.support.tiers import examples


def close(a: Graph, b: Graph, x: Array) -> None:
    before, after = evaluate(a, x)[0], evaluate(b, x)[0]
    assert np.abs(before - after).max() <= 1e-5 * max(1.0, float(np.abs(before).max()))


@given(float_graphs(), st.integers(0, 2**16))
@settings(max_examples=examples(60))
def test_every_pass_keeps_what_a_random_graph_computes(graph: Graph, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=graph.inputs[0].type.shape).astype(np.float32)
    for one in FOLDS:
        close(graph, one(graph), x)
    folded = fold(graph)
    close(graph, folded, x)
    assert not any(isinstance(node.op, BatchNorm) for node in folded.nodes)
    close(folded, equalise(folded, x[None], Passes()), x)


@given(float_graphs(), st.integers(0, 2**16))
@settings(max_examples=examples(30))
def test_a_batch_gives_what_its_samples_give_one_by_one(graph: Graph, seed: int) -> None:
    xs = np.random.default_rng(seed).normal(size=(3, *graph.inputs[0].type.shape)).astype(np.float32)
    got: dict[str, Array] = {}
    run_batch(graph, xs, lambda v, array: got.update({v.name: array}))
    for i, x in enumerate(xs):
        for value, array in evaluate_all(graph, {}, x).items():
            if value.name in got:
                limit = 1e-5 * max(1.0, float(np.abs(array).max()))
                assert np.abs(got[value.name][i] - array).max() <= limit, value.name


def batch_norm(n: FloatNet) -> None:
    n.x = n.norm(n.conv(n.x, 6))


def activation(n: FloatNet) -> None:
    n.x = n.g.emit(Activate("relu6"), n.conv(n.x, 6))


def padding(n: FloatNet) -> None:
    n.x = n.conv(n.g.emit(Pad((0, 1, 0, 0), (0, 1, 2, 0)), n.x), 6, pad=1)


def products_and_sums(n: FloatNet) -> None:
    scaled = n.g.emit(Mul(), n.conv(n.x, 6), n.constant(6))
    n.x = n.g.emit(Activate("relu"), n.g.emit(Add(), scaled, n.constant(1)))


def norm_before_a_layer(n: FloatNet) -> None:
    n.x = n.conv(n.norm(n.g.emit(Activate("relu"), n.conv(n.x, 6))), 4)


def idle(n: FloatNet) -> None:
    y = n.g.emit(Activate("none"), n.g.emit(Pad((0,) * 4, (0,) * 4), n.conv(n.x, 6)))
    n.x = n.g.emit(Reshape(y.type.shape), y)


@pytest.mark.parametrize(
    ("grow", "layers"),
    [(batch_norm, 1), (activation, 1), (padding, 1), (products_and_sums, 1), (norm_before_a_layer, 2), (idle, 1)],
)
def test_what_can_be_folded_leaves_no_layer_of_its_own(grow: Callable[[FloatNet], None], layers: int) -> None:
    n = FloatNet(0)
    grow(n)
    graph = n.g.graph(n.x)
    folded = fold(graph)
    assert len(folded.nodes) == layers
    assert all(isinstance(node.op, Conv2D) for node in folded.nodes)
    close(graph, folded, np.random.default_rng(1).normal(size=n.shape).astype(np.float32))


@given(st.data(), st.integers(1, 5), st.integers(1, 5), st.booleans())
@settings(max_examples=examples(150))
def test_a_kernel_cut_to_what_meets_the_map_computes_the_same(
    data: st.DataObject, rows: int, columns: int, depthwise: bool
) -> None:
    n = FloatNet(0, (1, rows, columns, 3))
    size, stride, dilation = (data.draw(st.tuples(st.integers(1, m), st.integers(1, m))) for m in (7, 3, 3))
    reach = [(k - 1) * apart for k, apart in zip(size, dilation, strict=True)]
    pad = data.draw(st.tuples(*(st.integers(r, r + 2) for r in (reach[0], 0, reach[1], 0))))
    op = Depthwise(stride, pad, dilation) if depthwise else Conv2D(stride, pad, dilation)
    w = n.constant(1, *size, 3) if depthwise else n.constant(4, *size, 3)
    graph = n.g.graph(n.g.emit(op, n.x, w, n.constant(3 if depthwise else 4)))
    (node,) = crop_kernels(graph).nodes
    x = np.random.default_rng(0).normal(size=n.shape).astype(np.float32)
    close(graph, crop_kernels(graph), x)
    assert node.out.type == graph.nodes[0].out.type
    assert np.prod(node.ins[1].type.shape[1:3]) <= np.prod(size)


def test_a_large_kernel_on_one_pixel_is_its_middle_alone() -> None:
    n = FloatNet(0, (1, 1, 1, 3))
    w = n.constant(1, 5, 5, 3)
    graph = n.g.graph(n.g.emit(Depthwise((1, 1), (2, 2, 2, 2)), n.x, w, n.constant(3)))
    (node,) = fold(graph).nodes
    assert node.op == Depthwise()
    assert np.array_equal(fold(graph).constants[node.ins[1]], graph.constants[w][:, 2:3, 2:3])


def test_a_batch_norm_behind_an_activation_becomes_a_depthwise_layer_where_padding_would_feel_it() -> None:
    n = FloatNet(0)
    y = n.norm(n.g.emit(Activate("relu"), n.conv(n.x, 6)))
    graph = n.g.graph(n.conv(y, 4, k=3, pad=1))
    assert [type(node.op) for node in fold(graph).nodes] == [Conv2D, Depthwise, Conv2D]
    close(graph, fold(graph), np.random.default_rng(1).normal(size=n.shape).astype(np.float32))


def test_what_others_read_is_not_folded_away() -> None:
    n = FloatNet(0)
    y = n.conv(n.x, 6)
    z = n.g.emit(Activate("relu"), y)
    graph = n.g.graph(n.g.emit(Add(), y, z))
    assert len(fold(graph).nodes) == 3
    close(graph, fold(graph), np.random.default_rng(1).normal(size=n.shape).astype(np.float32))


def test_equalising_brings_channels_of_a_depthwise_input_half_way_to_one_range() -> None:
    n = FloatNet(0)
    y = n.conv(n.x, 6, spread=100.0)
    y = n.depthwise(n.g.emit(Activate("relu"), y))
    graph = fold(n.g.graph(y))
    x = np.random.default_rng(1).normal(size=(4, *n.shape)).astype(np.float32)
    ranges = []
    for each in (graph, equalise(graph, x, Passes())):
        found: list[Array] = []
        run_batch(each, x, lambda v, array, found=found: found.append(array))  # type: ignore[misc]
        ranges.append(found[1].max(axis=(0, 1, 2, 3)))
    live = ranges[0] > 0
    octaves = [np.ptp(np.log2(found[live])) for found in ranges]
    assert octaves[0] > 3
    assert octaves[1] == pytest.approx(octaves[0] / 2, rel=0.01)


def gated(n: FloatNet) -> Value:
    """Channels of wide ranges, gated by what a layer makes of their means, pooled, and read by a layer."""
    y = n.g.emit(Activate("relu"), n.conv(n.x, 6, spread=100.0))
    gate = n.g.emit(Lookup("hard_sigmoid"), n.conv(n.g.emit(Mean(keep_dims=True), y), 6))
    return n.conv(n.g.emit(MaxPool((2, 2), (2, 2)), n.g.emit(Mul(), y, gate)), 4)


def squared(n: FloatNet) -> Value:
    y = n.conv(n.x, 6, spread=100.0)
    return n.conv(n.g.emit(Mul(), y, y), 4)


def gated_by_means(n: FloatNet) -> Value:
    y = n.conv(n.x, 6, spread=100.0)
    return n.conv(n.g.emit(Mul(), y, n.g.emit(Mean(keep_dims=True), y)), 4)


def added(n: FloatNet) -> Value:
    y = n.conv(n.x, 3, spread=100.0)
    return n.conv(n.g.emit(Add(), y, n.x), 4)


@pytest.mark.parametrize(("grow", "moves"), [(gated, True), (squared, False), (gated_by_means, False), (added, False)])
def test_equalising_passes_gates_and_pools_and_nothing_else(grow: Callable[[FloatNet], Value], moves: bool) -> None:
    n = FloatNet(0)
    graph = fold(n.g.graph(grow(n)))
    x = np.random.default_rng(1).normal(size=(4, *n.shape)).astype(np.float32)
    after = equalise(graph, x, Passes())
    first = graph.nodes[0].ins[1]
    assert np.array_equal(graph.constants[first], after.constants[first]) != moves
    for one in x:
        close(graph, after, one)
