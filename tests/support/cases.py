"""One table of small graphs for every op, on which kernels, targets and passes must agree with `evaluate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from smidgen import ops
from smidgen.ir import Array, Graph, Node, Type, Value
from smidgen.numerics import ACTIVATIONS
from smidgen.ops.functions import TABLES as TFLITE_TABLES
from tests.support.case_parts import (
    FUNCTION_PARAMETERS,
    SATURATING,
    Case,
    Q,
    Rng,
    Weights,
    X,
    binary,
    concat,
    conv,
    dense,
    depthwise,
    normalize,
    twice,
    unary,
)
from tests.support.recurrent_cases import DRAWN


def _convs() -> Iterator[Case]:
    for c in (1, 3, 5, 8, 16, 17, 40):
        yield conv(f"1x1-{c}", (5, 7, c), 17, k=(1, 1))
        yield conv(f"3x3-{c}", (6, 5, c), 9)
    for n in (1, 2, 3, 4, 5, 7, 8, 33):
        yield conv(f"1x1-to-{n}", (3, 3, 24), n, k=(1, 1))
    for k in ((5, 5), (7, 7), (1, 3), (10, 4)):
        yield conv(f"{k[0]}x{k[1]}", (11, 9, 3), 6, k=k, y=Q(1.0, -20))
    yield conv("stem", (16, 16, 3), 16, stride=(2, 2), x=Q(0.0078, 0), y=Q(0.0235, -128))
    yield conv("strides", (9, 8, 4), 6, stride=(2, 3))
    yield conv("1x1-stride", (7, 7, 12), 10, k=(1, 1), stride=(2, 2))
    yield conv("valid", (6, 7, 4), 5, same=False)
    yield conv("window-is-the-map", (4, 4, 6), 5, k=(4, 4), same=False)
    yield conv("dilation", (9, 11, 4), 6, dilation=(2, 3))
    yield conv("dilation-beyond-the-map", (3, 3, 4), 6, dilation=(4, 4))
    yield conv("1x1-dilation", (4, 9, 6), 6, k=(1, 1), dilation=(2, 2))
    yield conv("strides-beyond-the-window", (9, 17, 6), 6, stride=(4, 5))
    yield conv("groups", (5, 5, 12), 8, groups=4)
    yield conv("groups-of-one", (5, 5, 6), 6, groups=6)
    yield conv("groups-1x1-dilated-strided", (9, 9, 10), 15, groups=5, stride=(2, 2), dilation=(2, 2))
    yield conv("long", (2, 2, 300), 5)
    yield conv("longest", (2, 2, 640), 5)  # of a single pixel, whose window is put together as a whole
    yield conv("one-pixel", (1, 1, 20), 13, k=(1, 1))
    for activation in ACTIVATIONS:
        yield conv(activation, (4, 4, 8), 9, activation=activation, y=Q(0.05, -100))
    for zero in (-128, 127):
        yield conv(f"zero{zero}", (4, 5, 9), 7, x=Q(0.05, zero), y=Q(0.3, -zero - 1))
    yield conv("wraps", (4, 4, 9), 7, weights=SATURATING)
    yield conv("wraps-at-the-ends", (4, 4, 16), 8, k=(1, 1), x=Q(0.05, 127), weights=SATURATING)
    yield conv("large-multipliers", (4, 4, 9), 7, y=Q(1e-5))
    yield conv("largest-multipliers", (4, 4, 2), 7, y=Q(2e-12), weights=Weights(bias=4))
    yield conv("tiny-multipliers", (4, 4, 9), 7, y=Q(1e5), weights=Weights(bias=2**31 - 1))
    yield conv("vanishing-multipliers", (4, 4, 9), 7, y=Q(1e12))
    yield conv("one-scale", (4, 4, 9), 7, weights=Weights(shared=True))


def _pixels() -> Iterator[Case]:
    """Convolutions of one pixel, or of a narrow map, as streaming audio has them."""
    for out in (1, 4, 7, 12):
        yield conv(f"pixel-{out}", (1, 1, 20), out, k=(1, 1))
    yield conv("pixel-odd", (1, 1, 7), 9, k=(1, 1))
    yield conv("column", (5, 1, 12), 10, k=(5, 1), stride=(3, 1), same=False)
    yield conv("columns-bordered", (6, 3, 8), 6, k=(3, 3))
    yield conv("columns-grouped", (4, 3, 8), 8, groups=2)
    yield conv("pixel-floor", (1, 1, 16), 8, k=(1, 1), y=Q(0.3, -128), activation="relu")
    yield conv("pixel-wraps", (1, 1, 16), 8, k=(1, 1), weights=SATURATING)
    yield conv("pixel-large-multipliers", (1, 1, 16), 8, k=(1, 1), y=Q(1e-5))
    yield conv("pixel-deep", (3, 3, 32), 21, same=False)


def _depthwises() -> Iterator[Case]:
    for c in (1, 3, 5, 8, 16, 17, 31, 32, 40, 48, 96, 100):
        yield depthwise(f"3x3-{c}", (6, 5, c))
    for k in ((1, 1), (5, 5), (7, 7), (1, 3), (2, 4)):
        yield depthwise(f"{k[0]}x{k[1]}", (9, 11, 18), k=k)
        yield depthwise(f"{k[0]}x{k[1]}-stride", (9, 11, 34), k=k, stride=(2, 2))
    yield depthwise("strides", (9, 8, 12), stride=(3, 2))
    yield depthwise("valid", (6, 7, 12), same=False)
    yield depthwise("narrow", (5, 1, 20), k=(5, 5))
    yield depthwise("window-larger-than-the-map", (3, 2, 20), k=(7, 7))
    yield depthwise("dilation", (9, 11, 20), dilation=(2, 3))
    yield depthwise("dilation-beyond-the-map", (3, 3, 20), dilation=(4, 4))
    yield depthwise("1x1-dilation", (4, 9, 20), k=(1, 1), dilation=(2, 2))
    yield depthwise("strides-beyond-the-window", (9, 17, 20), stride=(4, 5))
    for times in (2, 3, 8):
        yield depthwise(f"times-{times}", (5, 6, 7), times=times)
    yield depthwise("times-of-one-channel", (6, 6, 1), times=24, stride=(2, 2))
    yield depthwise("times-dilated", (7, 6, 5), times=2, dilation=(2, 2))
    for activation in ACTIVATIONS:
        yield depthwise(activation, (4, 4, 17), activation=activation, y=Q(0.03, -100))
    for zero in (-128, 127):
        yield depthwise(f"zero{zero}", (4, 5, 20), x=Q(0.05, zero), y=Q(0.3, -zero - 1))
    yield depthwise("wraps", (4, 4, 20), weights=SATURATING)
    yield depthwise("wraps-at-the-ends", (4, 4, 20), x=Q(0.05, 127), weights=SATURATING)
    yield depthwise("large-multipliers", (4, 4, 20), y=Q(1e-5))
    yield depthwise("tiny-multipliers", (4, 4, 20), y=Q(1e5), weights=Weights(bias=2**31 - 1))
    # Streaming audio: one column of time, or one row of it.
    yield depthwise("29x1", (29, 1, 22), k=(29, 1), same=False)
    yield depthwise("29x1-wraps", (29, 1, 20), k=(29, 1), same=False, weights=SATURATING)
    yield depthwise("13x1-floor", (17, 1, 24), k=(13, 1), same=False, y=Q(0.3, -128))
    yield depthwise("1x3-causal", (1, 24, 32), k=(1, 3), dilation=(1, 2))
    yield depthwise("5x1-large-multipliers", (5, 1, 12), k=(5, 1), same=False, y=Q(1e-5))


def _denses() -> Iterator[Case]:
    for c in (1, 3, 17, 64, 100):
        yield dense(f"{c}", 1, c, 10)
    for n in (1, 2, 3, 4, 5):
        yield dense(f"to-{n}", 1, 40, n)
    for rows in (2, 7, 8, 9, 17):
        yield dense(f"rows-{rows}", rows, 12, 5)
    for activation in ACTIVATIONS:
        yield dense(activation, 1, 32, 9, activation=activation, y=Q(0.05, -100))
    yield dense("one-scale", 2, 30, 7, weights=Weights(shared=True))
    yield dense("wraps", 2, 30, 7, weights=SATURATING)
    yield dense("tiny-multipliers", 2, 30, 7, y=Q(1e5), weights=Weights(bias=2**31 - 1))
    yield dense("sums-that-fill-32-bits", 1, 70_000, 2, weights=Weights(largest=1000), y=Q(100.0))


def _elementwises() -> Iterator[Case]:
    for name, op in (("add", ops.Add), ("mul", ops.Mul)):
        for size in (1, 15, 32, 33, 100):
            yield binary(f"{name}-{size}", op(), (1, size), (1, size))
        yield binary(f"{name}-channels", op(), (1, 4, 5, 7), (7,))
        yield binary(f"{name}-many-channels", op(), (1, 2, 3, 70), (1, 1, 1, 70))
        yield binary(f"{name}-scalar", op(), (1, 4, 5, 7), (1,))
        yield binary(f"{name}-rows", op(), (1, 4, 5, 7), (5, 7), constant=True)
        yield twice(f"{name}-itself", op(), 1, 5, 5, 3)
        for activation in ACTIVATIONS:
            yield binary(f"{name}-{activation}", op(activation), (1, 3, 3, 6), (1, 3, 3, 6), y=Q(0.02, -50))
        yield binary(f"{name}-uneven", op(), (2, 50), (2, 50), qa=Q(10.0, -128), qb=Q(1e-4, 127))
        yield binary(f"{name}-large-multipliers", op(), (2, 50), (2, 50), y=Q(1e-6))
        yield binary(f"{name}-tiny-multipliers", op(), (2, 50), (2, 50), y=Q(1e6))
    for name, b in (("whole", (1, 4, 5, 7)), ("channels", (7,)), ("scalar", (1,)), ("rows", (5, 7))):
        yield binary(f"maximum-{name}", ops.Maximum(), (1, 4, 5, 7), b, constant=name == "rows", qb=X, y=X)
        yield binary(
            f"prelu-{name}", ops.PRelu(), (1, 4, 5, 7), b, constant=name == "rows", qb=Q(0.02, 5), y=Q(0.03, -9)
        )
    yield binary("prelu-large-multipliers", ops.PRelu(), (2, 50), (2, 50), y=Q(1e-3))
    yield twice("maximum-itself", ops.Maximum(), 1, 5, 5, 3)
    for activation in ACTIVATIONS:
        yield unary(f"activate-{activation}", ops.Activate(activation), 1, 3, 4, 9, y=Q(0.03, -20))
    for function, alpha, beta in FUNCTION_PARAMETERS:
        yield unary(f"lookup-{function}", ops.Lookup(function, alpha, beta), 1, 3, 4, 9, y=Q(0.03, -20))
        yield unary(f"slope-{function}", ops.Lookup(function, alpha, beta, slope=True), 2, 77, y=Q(0.02, 10))
    for function in TFLITE_TABLES:
        alpha = {"elu": 1.0, "leaky_relu": 0.3, "power": -0.5}.get(function, 0.0)
        yield unary(f"tflite-{function}", ops.Lookup(function, alpha, tflite=True), 1, 3, 4, 9, y=Q(0.03, -20))
    yield unary("lookup-one", ops.Lookup("tanh"), 1, x=Q(1e4, 127), y=Q(1e-6, 3))
    for y in (Q(0.05, -3), Q(0.02, 100), Q(1.0), Q(1e-6, 3), Q(1e6)):
        yield unary(f"requantize-{y.one:.0e}", ops.Requantize(), 2, 33, y=y)
    for y in (Q(0.05, -3), Q(1.0, 127), Q(1e-6, 3), Q(1e6, -128), Q(0.25)):
        yield unary(f"quantize-{y.one:.0e}", ops.Quantize(), 3, 41, dtype="float32", x=None, y=y)
    for x in (Q(0.05, -3), Q(1e-30, 127), Q(1e30, -128), Q(1 / 3)):
        yield unary(f"dequantize-{x.one:.0e}", ops.Dequantize(), 3, 41, x=x)


def _pools() -> Iterator[Case]:
    for name, op in (("max", ops.MaxPool), ("avg", ops.AvgPool)):
        for c in (1, 5, 32, 33, 70):
            yield unary(f"{name}-{c}", op(), 1, 6, 7, c)
        yield unary(f"{name}-3x3-overlapping", op((3, 3), (1, 1), (1, 1, 1, 1)), 1, 5, 6, 7)
        yield unary(f"{name}-uneven", op((3, 2), (2, 3), (1, 2, 0, 1)), 1, 8, 9, 7, x=Q(0.05, 127))
        yield unary(f"{name}-whole", op((5, 6), (1, 1)), 1, 5, 6, 40, x=Q(0.05, -128))
        for activation in ACTIVATIONS:
            yield unary(f"{name}-{activation}", op(activation=activation), 1, 4, 4, 6, x=Q(0.03, -20))
    for c in (1, 7, 64, 65, 100):
        yield unary(f"mean-{c}", ops.Mean(), 1, 4, 3, c, y=Q(0.05, -3))
    yield unary("mean-keep", ops.Mean(keep_dims=True), 1, 5, 5, 9, y=Q(0.04, 10))
    yield unary("mean-one-pixel", ops.Mean(), 1, 1, 1, 9, y=Q(0.02, 10))
    yield unary("mean-large-multiplier", ops.Mean(), 1, 7, 3, 9, y=Q(1e-6))
    yield unary("mean-tiny-multiplier", ops.Mean(), 1, 7, 3, 9, x=Q(0.05, 127), y=Q(1e7))


def _shapes() -> Iterator[Case]:
    yield unary("pad-map", ops.Pad((0, 1, 2, 0), (0, 2, 1, 0)), 1, 3, 4, 5)
    yield unary("pad-channels", ops.Pad((0, 0, 0, 3), (0, 0, 0, 2)), 1, 3, 4, 5)
    yield unary("pad-everything", ops.Pad((1, 1, 1, 1), (2, 2, 2, 2)), 2, 3, 2, 3, x=Q(0.05, 127))
    yield unary("pad-vector", ops.Pad((2,), (3,)), 6)
    yield unary("pad-nothing", ops.Pad((0, 0), (0, 0)), 2, 6)
    yield unary("crop-map", ops.Crop((0, 1, 2, 0), (1, 4, 5, 6)), 1, 6, 5, 6)
    yield unary("crop-channels", ops.Crop((0, 0, 0, 3), (1, 3, 4, 8)), 1, 3, 4, 9)
    yield unary("crop-vector", ops.Crop((2,), (7,)), 9)
    yield unary("pick-twice-as-large", ops.Pick((0, 0, 1, 1, 2, 2), (0, 0, 1, 1)), 1, 3, 2, 7)
    for name, how in (("", (False, False)), ("-corners", (True, False)), ("-centres", (False, True))):
        yield unary(f"bilinear{name}", ops.ResizeBilinear((7, 10), *how), 1, 3, 4, 5)
        yield unary(f"bilinear-smaller{name}", ops.ResizeBilinear((1, 3), *how), 1, 5, 8, 130)
    yield unary("pick-rows", ops.Pick((3, 1)), 1, 4, 5, 3)
    yield unary("pick-columns", ops.Pick((), (4, 0, 0, 2, 1, 1, 1)), 1, 3, 5, 130)
    for shape in ((60,), (1, 60), (5, 2, 6)):
        yield unary(f"reshape-{len(shape)}", ops.Reshape(shape), 1, 3, 4, 5)
    for perm in ((0, 3, 1, 2), (3, 2, 1, 0), (0, 1, 2, 3)):
        yield unary(f"transpose-{''.join(map(str, perm))}", ops.Transpose(perm), 2, 3, 4, 5)
    yield unary("transpose-matrix", ops.Transpose((1, 0)), 4, 7)
    for axis in range(4):
        sizes = (1, 3, 2)
        yield concat(f"axis-{axis}", axis, *((*(2, 3, 4, 5)[:axis], n, *(2, 3, 4, 5)[axis + 1 :]) for n in sizes))
    yield concat("one", 0, (7,))
    for name, kind in (("softmax", ops.Softmax), ("log-softmax", ops.LogSoftmax)):
        for c in (1, 2, 10, 1000):
            yield unary(f"{name}-{c}", kind(), 1, c)
        yield unary(f"{name}-rows", kind(), 3, 4, 5)
        for x in (Q(1e-6), Q(0.5, 12), Q(3.0, -128), Q(1e9)):
            yield unary(f"{name}-scale-{x.one:.0e}", kind(), 4, 11, x=x)
        yield unary(f"{name}-beta", kind(beta=0.3), 4, 11)
        yield unary(f"{name}-most", kind(), 1, 4095)


def _recurrent() -> Iterator[Case]:
    for name, drawn in DRAWN.items():
        yield Case(name, type(drawn.op), drawn.build)


def _attention() -> Iterator[Case]:
    for turned in ((False, False), (False, True), (True, False), (True, True)):
        a, b = (6, 5)[:: -1 if turned[0] else 1], (5, 7)[:: -1 if turned[1] else 1]
        yield binary(f"matmul-{turned[0]}-{turned[1]}", ops.MatMul(*turned), (1, 3, *a), (1, 3, *b), y=Q(0.3, 5))
    yield binary("matmul-wide", ops.MatMul(), (4, 30), (30, 131), qb=Q(0.07, 127), y=Q(1.0))
    yield binary("matmul-deep", ops.MatMul(transpose_b=True), (2, 3, 300), (2, 9, 300), constant=True, y=Q(2.0))
    yield binary("matmul-large-multiplier", ops.MatMul(), (3, 4), (4, 5), y=Q(1e-6))
    yield binary("matmul-tiny-multiplier", ops.MatMul(), (3, 4), (4, 5), y=Q(1e6))
    yield twice("matmul-itself", ops.MatMul(transpose_b=True), 1, 5, 5, 3)
    for c in (1, 19, 1000):
        yield unary(f"unit-norm-{c}", ops.UnitNorm(), 3, c, x=Q(0.05, 127 if c == 1000 else -3))
    yield normalize("rows", ops.Normalize(), 5, 19)
    yield normalize("row", ops.Normalize(1e-12), 1, 300, x=Q(1e-4, 127), y=Q(1e-3))
    yield normalize("one", ops.Normalize(), 3, 1, y=Q(10.0))
    yield normalize("map", ops.Normalize(groups=3), 1, 4, 5, 12)
    yield normalize("channels", ops.Normalize(0.1, 7), 1, 3, 4, 7, x=Q(3.0, -128))
    yield normalize("whole", ops.Normalize(groups=1), 1, 9, 9, 5)


def _projections() -> Iterator[Case]:
    """Widths that are a power of two, or above one, of every word of signs; sums that saturate, and that are whole."""
    for d, count, shift in ((1, 1, 0), (24, 7, 3), (32, 32, 5), (160, 96, 4), (257, 192, 9), (1280, 130, 20)):
        yield unary(f"project-{d}-{count}-{shift}", ops.Project(count, shift), 1, d, x=Q(0.05, -3 if d % 2 else 127))


CASES: tuple[Case, ...] = (
    *_convs(), *_pixels(), *_depthwises(), *_denses(), *_elementwises(), *_pools(), *_shapes(), *_recurrent(),
    *_attention(), *_projections(),
)  # fmt: skip


GRAPHS = {case.name: case.build(np.random.default_rng(index)) for index, case in enumerate(CASES)}


def together(graphs: Mapping[str, Graph] = GRAPHS) -> Graph:
    """All cases as one graph, their inputs and outputs in order: one program to build instead of hundreds."""
    parts = [_renamed(graph, f"c{index}") for index, graph in enumerate(graphs.values())]
    return Graph(
        tuple(v for part in parts for v in part.inputs),
        tuple(v for part in parts for v in part.outputs),
        tuple(node for part in parts for node in part.nodes),
        {v: data for part in parts for v, data in part.constants.items()},
        "cases",
        {v: data for part in parts for v, data in part.state.items()},
        {old: new for part in parts for old, new in part.updates.items()},
    )


def _renamed(graph: Graph, prefix: str) -> Graph:
    def new(value: Value) -> Value:
        return Value(f"{prefix}.{value.name}", value.type)

    def all_new(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(new(value) for value in values)

    nodes = tuple(Node(node.op, all_new(node.ins), all_new(node.outs)) for node in graph.nodes)
    constants = {new(value): data for value, data in graph.constants.items()}
    state = {new(value): data for value, data in graph.state.items()}
    updates = {new(old): new(after) for old, after in graph.updates.items()}
    return Graph(all_new(graph.inputs), all_new(graph.outputs), nodes, constants, graph.name, state, updates)


RUNS = 5


def inputs(graph: Graph, run: int) -> tuple[Array, ...]:
    """Return the inputs of one of RUNS runs of a graph: the extremes first, then two draws."""
    rng = np.random.default_rng(run)
    draws = (partial(_filled, -128), partial(_filled, 127), partial(_ends, rng), partial(_random, rng))
    draw = draws[min(run, len(draws) - 1)]
    return tuple(draw(value.type) for value in graph.inputs)


def _filled(value: int, type: Type) -> Array:
    return np.full(type.shape, value, type.dtype)


def _ends(rng: Rng, type: Type) -> Array:
    """Each element one of two extremes; for floats halves too, which rounding must send away from zero."""
    choices = [-128, 127] if type.dtype == "int8" else [-3e38, 3e38, 0.5, -0.5, 2.5, -2.5, 0.125, -0.125, 0.0]
    return rng.choice(np.array(choices, type.dtype), type.shape)


def _random(rng: Rng, type: Type) -> Array:
    if type.dtype == "int8":
        return rng.integers(-128, 128, type.shape, np.int8)
    return rng.normal(0, 3, type.shape).astype(type.dtype)
