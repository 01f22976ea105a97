"""Kernels of any geometry give numpy's bytes with each instruction set that this machine has."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen import ops
from smidgen.codegen import PORTABLE
from smidgen.codegen.constants import LARGEST, derive
from smidgen.ir import Array, Graph, Node, Params, Type, Value, evaluate, evaluate_all
from smidgen.numerics import quantize_multiplier
from smidgen.ops.conv import ConvGradWeight, DepthwiseGradWeight
from smidgen.ops.update import FusedBiasStep, pack
from smidgen.runtime import struct, working_memory
from tests.support.case_parts import PLAIN, SATURATING, Q, Weights, binary, conv, dense, depthwise
from tests.support.native import Kernels, Map, compute, pointer, whole
from tests.support.native import Weights as Overlaid
from tests.support.tiers import examples
from tests.support.training_cases import (
    HOWS,
    conv_grad,
    conv_weights,
    depthwise_grad,
    depthwise_weights,
    fused,
    masked_overlay,
    shifts,
    step,
    step_factors,
)
from tests.support.training_inputs import (
    Shape,
    TrainingCase,
    activation,
    channel_factors,
    gradient,
    gradients,
    integers,
    plain,
)

# What the compiler is told besides: nothing, or to leave out what this machine may have. Half of AVX-512 VNNI's vectors
# compute what AVX-VNNI's do, whose code differs in the name of one instruction.
X86 = {
    "native": (),
    "half of AVX-512": ("-DSMG_NARROW",),
    "no AVX-512": ("-mno-avx512f",),
    "any processor": ("-march=x86-64",),
}
SETS: dict[str, tuple[str, ...]] = X86 if platform.machine() in ("x86_64", "AMD64") else {"native": ()}
CHANNELS = st.sampled_from([1, 3, 8, 12, 16, 17, 24, 40, 48, 64, 72, 96, 130])
SIZES = st.sampled_from([(1, 1), (1, 1), (3, 3), (5, 5), (7, 7), (2, 4), (5, 1)])
STRIDES = st.sampled_from([(1, 1), (1, 1), (2, 2), (3, 1), (2, 5)])
LOWS = st.sampled_from([-128, 5])  # zero points of outputs: nothing lies below the first
WEIGHTS = st.sampled_from([PLAIN, PLAIN, SATURATING])
DILATIONS = st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 2), (1, 3)])


@pytest.fixture(scope="session", params=SETS)
def built(request: pytest.FixtureRequest, cache: Path) -> Kernels:
    return Kernels(cache, *SETS[request.param])


@st.composite
def shapes(draw: st.DrawFn, deep: bool) -> Shape:
    """A layer; of a `deep` one each channel has its own filter."""
    size = draw(st.integers(1, 9)), draw(st.integers(1, 21)), draw(CHANNELS)
    out = size[2] if deep else draw(CHANNELS)
    return Shape(size, out, draw(SIZES), draw(STRIDES), dilation=draw(DILATIONS))


def argument(graph: Graph, node: Node, value: Value, held: dict[Value, Array]) -> object:
    """An input as a kernel takes it; weights with the trained channels that are laid over them."""
    if node.op.overlay_input is None or value is not node.ins[node.op.overlay_input]:
        return pointer(held[value])
    overlay = next((n for n in graph.nodes if value in n.outs and isinstance(n.op, ops.Overlay)), None)
    if overlay is None:
        return ctypes.pointer(Overlaid(held[value].ctypes.data))
    frozen, trained = (held[v].ctypes.data for v in overlay.ins)
    assert isinstance(overlay.op, ops.Overlay)
    channels = held.setdefault(Value("channels", value.type), np.array(overlay.op.channels, np.int16))
    return ctypes.pointer(Overlaid(frozen, trained, channels.ctypes.data, len(channels)))


def check(kernels: Kernels, case: TrainingCase, seed: int) -> None:
    """The kernel of a case's last node gives the reference's bytes."""
    graph = case.build(np.random.default_rng(seed))
    node = graph.nodes[-1]
    rng = np.random.default_rng(seed)
    values = evaluate_all(graph, graph.state, *(feed.draw(rng) for feed in case.feeds))
    replaced = {new: old for old, new in graph.updates.items()}
    held = {v: array.copy() for v, array in values.items()} | {v: array.copy() for v, array in graph.state.items()}
    held |= {v: held[replaced[v]] if v in replaced else np.zeros_like(values[v]) for v in node.outs}
    scratch = np.zeros(working_memory(node, False, PORTABLE) + 1, np.uint8)
    arguments = [None if v is None else argument(graph, node, v, held) for v in node.op.arguments(node)]
    kernels.call(node, *arguments, pointer(scratch))
    for value in node.outs:
        np.testing.assert_array_equal(held[value], values[value], err_msg=value.name)


@settings(max_examples=examples(60))
@given(
    shape=shapes(deep=False), low=LOWS, groups=st.sampled_from([1, 1, 1, 2]), even=st.booleans(), weights=WEIGHTS,
    seed=st.integers(0, 99),
)  # fmt: skip
def test_convolutions(
    built: Kernels, shape: Shape, low: int, groups: int, even: bool, weights: Weights, seed: int
) -> None:
    size, out = (*shape.size[:2], groups * shape.size[2]), groups * shape.out
    case = conv(
        "any", size, out, shape.k, shape.stride, True, shape.dilation, groups, y=Q(0.2, low), weights=weights, even=even
    )
    forward(built, case.build(np.random.default_rng(seed)), seed)


@settings(max_examples=examples(80))
@given(shape=shapes(deep=True), low=LOWS, even=st.booleans(), weights=WEIGHTS, seed=st.integers(0, 99))
def test_depthwise_convolutions(
    built: Kernels, shape: Shape, low: int, even: bool, weights: Weights, seed: int
) -> None:
    case = depthwise(
        "any", shape.size, 1, shape.k, shape.stride, True, shape.dilation, y=Q(0.2, low), weights=weights, even=even
    )
    graph = case.build(np.random.default_rng(seed))
    x, expected = forward(built, graph, seed)
    if x.shape == expected.shape:  # in the input's place
        compute(built, graph, x[0], x[0], 0, x.shape[1])
        np.testing.assert_array_equal(x, expected)


def forward(built: Kernels, graph: Graph, seed: int) -> tuple[Array, Array]:
    """A layer at once, and row by row."""
    x = np.random.default_rng(seed).integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
    (expected,) = evaluate(graph, x)
    np.testing.assert_array_equal(whole(built, graph, x), expected)
    y = np.zeros_like(expected)
    for row in range(expected.shape[1]):
        compute(built, graph, x[0], y[0], row, row + 1)
    np.testing.assert_array_equal(y, expected)
    return x, expected


@settings(max_examples=examples(40))
@given(deep=st.booleans(), data=st.data(), low=LOWS, seed=st.integers(0, 99))
def test_layers_with_trained_channels(built: Kernels, deep: bool, data: st.DataObject, low: int, seed: int) -> None:
    shape = data.draw(shapes(deep))
    channels = np.array(sorted(data.draw(st.sets(st.integers(0, shape.size[2] - 1), min_size=1))), np.int16)
    layer = depthwise if deep else conv
    arguments = (1,) if deep else (shape.out,)
    case = layer("any", shape.size, *arguments, shape.k, shape.stride, True, shape.dilation, y=Q(0.2, low))
    graph = case.build(np.random.default_rng(seed))
    node, rng = graph.nodes[0], np.random.default_rng(seed)
    mixed = graph.constants[node.ins[1]]
    frozen, trained = mixed.copy(), np.ascontiguousarray(mixed[..., channels])
    frozen[..., channels] = rng.integers(-128, 128, trained.shape)
    x = rng.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
    (expected,) = evaluate(graph, x)
    y, scratch = np.zeros_like(expected), np.zeros(working_memory(node, False, PORTABLE) + 1, np.uint8)
    weights = Overlaid(*(array.ctypes.data for array in (frozen, trained, channels)), len(channels))
    maps = Map(x.ctypes.data, x.shape[1]), Map(y.ctypes.data, y.shape[1])
    built.call(
        node, ctypes.byref(maps[0]), ctypes.byref(weights), pointer(graph.constants[node.ins[2]]),
        ctypes.byref(maps[1]), 0, y.shape[1], pointer(scratch),
    )  # fmt: skip
    np.testing.assert_array_equal(y, expected)


@settings(max_examples=examples(40))
@given(
    rows=st.integers(1, 3), c=st.integers(1, 200), n=st.integers(1, 20), weights=WEIGHTS, low=LOWS,
    seed=st.integers(0, 99),
)  # fmt: skip
def test_dense_layers(built: Kernels, rows: int, c: int, n: int, weights: Weights, low: int, seed: int) -> None:
    graph = dense("any", rows, c, n, y=Q(0.2, low), weights=weights).build(np.random.default_rng(seed))
    x = np.random.default_rng(seed).integers(-128, 128, (rows, c)).astype(np.int8)
    (expected,), y = evaluate(graph, x), np.zeros((rows, n), np.int8)
    built.call(graph.nodes[0], pointer(x), *(pointer(array) for array in graph.constants.values()), pointer(y))
    np.testing.assert_array_equal(y, expected)


@settings(max_examples=examples(40))
@given(
    size=st.integers(1, 200), scales=st.tuples(*[st.sampled_from([0.05, 0.07, 0.5, 0.001])] * 3),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_sums(built: Kernels, size: int, scales: tuple[float, float, float], seed: int) -> None:
    a, b, y = (Q(scale, zero) for scale, zero in zip(scales, (-3, 90, 5), strict=True))
    graph = binary("any", ops.Add(), (1, size), (1, size), qa=a, qb=b, y=y).build(np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    left, right = (rng.integers(-128, 128, (1, size)).astype(np.int8) for _ in range(2))
    (expected,) = evaluate(graph, left, right)
    built.call(graph.nodes[0], pointer(left), pointer(right), pointer(left), size)
    np.testing.assert_array_equal(left, expected)


@settings(max_examples=examples(80))
@given(
    deep=st.booleans(), data=st.data(), masked=st.booleans(), factors=st.sampled_from([0, 1, 2]),
    shift=st.sampled_from([-12, 0, 9, 17, 24]), seed=st.integers(0, 99),
)  # fmt: skip
def test_gradients_of_inputs(
    built: Kernels, deep: bool, data: st.DataObject, masked: bool, factors: int, shift: int, seed: int
) -> None:
    shape = data.draw(shapes(deep))
    op, dy, w = depthwise_grad(shape) if deep else conv_grad(shape)
    chosen = ((), (0.0123,), channel_factors(shape.size[2]))[factors]
    check(built, gradients("any", replace(op, masked=masked, factors=chosen), dy, w, shift=shift), seed)


@settings(max_examples=examples(40))
@given(deep=st.booleans(), data=st.data(), seed=st.integers(0, 99))
def test_gradients_through_trained_channels(built: Kernels, deep: bool, data: st.DataObject, seed: int) -> None:
    shape = data.draw(shapes(deep))
    channels = data.draw(st.sets(st.integers(0, shape.size[2] - 1), min_size=1))
    made = depthwise_grad(shape) if deep else conv_grad(shape)
    check(built, masked_overlay("any", *made, tuple(sorted(channels))), seed)


@settings(max_examples=examples(60))
@given(deep=st.booleans(), data=st.data(), how=st.sampled_from(sorted(HOWS)), seed=st.integers(0, 99))
def test_steps_of_weights(built: Kernels, deep: bool, data: st.DataObject, how: str, seed: int) -> None:
    shape = data.draw(shapes(deep))
    check(built, fused("any", DepthwiseGradWeight if deep else ConvGradWeight, shape, HOWS[how]), seed)


@settings(max_examples=examples(60))
@given(
    c=CHANNELS, rows=st.sampled_from([1, 7, 64, 600]), short=st.booleans(), how=st.sampled_from(sorted(HOWS)),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_steps_of_biases(built: Kernels, c: int, rows: int, short: bool, how: str, seed: int) -> None:
    op = FusedBiasStep(step_factors(c), 0, 0, 127 * rows, shifts=shifts(c) if short else (), gradient=ops.ChannelSum())
    b = Type((c,), "int16" if short else "int32")
    check(built, step("any", op, b, HOWS[how], (gradient(1, 1, rows, c),)), seed)


@settings(max_examples=examples(60))
@given(
    powers=st.lists(st.floats(-30, -1), min_size=1, max_size=70), shared=st.floats(-12, 12), short=st.booleans(),
    near=st.integers(-3, 3), data=st.data(), seed=st.integers(0, 99),
)  # fmt: skip
def test_factors_told_by_a_layer_step_as_those_that_are_listed(
    built: Kernels, powers: list[float], shared: float, short: bool, near: int, data: st.DataObject, seed: int
) -> None:
    """Steps so large that the last bit of some channel's factor shows; one may be the largest factor there is."""
    rng, c = np.random.default_rng(seed), len(powers)
    pairs = [quantize_multiplier(2.0**power) for power in powers]
    own = np.array([m for m, _ in pairs], np.int32), np.array([s for _, s in pairs], np.int8)
    fraction, exponent = np.frexp(2.0**shared)
    scale, missing = int(fraction * 2**31), rng.integers(-8, 8, c)
    mantissa, shift = derive(*own, scale, int(exponent))
    missing = np.where(shift > LARGEST, 0, missing)
    told: Params = {
        "multiplier": own[0], "shift": own[1], "correction": pack((missing + 8).astype(np.uint8), 4), "scale": scale,
        "exponent": int(exponent),
    }  # fmt: skip
    listed: Params = {"multiplier": (mantissa + missing).astype(np.int32), "shift": shift.astype(np.int8)}
    op = ops.BiasStep((1.0,) * c, 0, 0, 1 << 20, shifts=shifts(c) if short else ())
    graph = step("any", op, Type((c,), "int16" if short else "int32"), HOWS["8"], (integers(c, most=1 << 20),)).build(
        rng
    )
    node, sums = graph.nodes[-1], rng.integers(-(1 << 20), 1 << 20, c).astype(np.int32)
    exponent_of_none, shown = -7, data.draw(st.integers(0, c - 1))
    power = op.lift - int(shift[shown]) - exponent_of_none + near
    given_rate = np.array([rng.integers(1 << 30, 1 << 31), power], np.int64).astype(np.int32)
    step_state = np.array([seed, seed, 0], np.int32)
    found = []
    for factors in (told, listed):
        b: Array = np.zeros(c, np.int16 if short else np.int32)
        params = struct({**node.op.params(node), **factors})
        built.loaded[node.op.symbol(node)](
            ctypes.byref(params), pointer(b), None, pointer(sums), pointer(given_rate), pointer(step_state)
        )
        found.append(b)
    np.testing.assert_array_equal(found[0], found[1])


@settings(max_examples=examples(20))
@given(c=CHANNELS, rows=st.integers(1, 700), value=st.sampled_from([-127, 3, 127]))
def test_sums_over_many_rows_have_room(built: Kernels, c: int, rows: int, value: int) -> None:
    dy: Array = np.full((1, 1, rows, c), value, np.int8)
    dy[0, 0, :, c // 2] = -value
    sums: Array = np.zeros(c, np.int32)
    built.loaded["smg_channel_sum_g8"](ctypes.byref(struct({"n": rows, "c": c})), pointer(dy), pointer(sums))
    np.testing.assert_array_equal(sums, dy.sum(axis=(0, 1, 2), dtype=np.int32))


@settings(max_examples=examples(60))
@given(deep=st.booleans(), large=st.booleans(), data=st.data(), seed=st.integers(0, 99))
def test_gradients_of_weights(built: Kernels, deep: bool, large: bool, data: st.DataObject, seed: int) -> None:
    shape = data.draw(shapes(deep))
    if large:
        shape = replace(shape, size=(data.draw(st.integers(17, 40)), data.draw(st.integers(20, 60)), shape.size[2]))
    op, x, dy = depthwise_weights(shape) if deep else conv_weights(shape)
    check(built, plain("any", op, x, dy), seed)


@settings(max_examples=examples(40))
@given(size=st.integers(1, 200), limited=st.sampled_from(["none", "relu6"]), seed=st.integers(0, 99))
def test_masks(built: Kernels, size: int, limited: str, seed: int) -> None:
    check(built, plain("any", ops.Mask(limited), activation(1, size, zero=-100)), seed)
