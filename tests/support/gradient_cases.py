"""One table of small graphs for every gradient rule, and of values whose gradients must be added up.

What can be differentiated is a constant of the graph: finite differences change it, PyTorch's autograd reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from smidgen import ops
from smidgen.ir import Array, Builder, Graph, Op, QParams, Value
from smidgen.ops.window import same_pad
from tests.support.case_parts import FUNCTION_PARAMETERS

Rng = np.random.Generator
Draw = Callable[["Leaves"], Value]
CLASSES, LABEL = 4, 2


@dataclass(frozen=True)
class GradientCase:
    """A graph around one op, up to a loss; `draw` emits the op."""

    name: str
    op: type[Op]
    draw: Draw
    ends: Callable[[Leaves, Value], Value] | None = None  # in another loss than most

    def build(self, seed: int) -> tuple[Graph, tuple[Value, ...]]:
        """The graph whose output is the loss, and the values to differentiate with respect to."""
        leaves = Leaves(Builder(self.name), np.random.default_rng(seed))
        loss = (self.ends or end)(leaves, self.draw(leaves))
        return leaves.g.graph(loss), tuple(leaves.wanted)


@dataclass
class Leaves:
    """A graph in the making and the constants in it that count as variables."""

    g: Builder
    rng: Rng
    wanted: list[Value]

    def __init__(self, g: Builder, rng: Rng) -> None:
        self.g, self.rng, self.wanted = g, rng, []

    def __call__(self, *shape: int, spread: float = 1.0) -> Value:
        return self.of(self.rng.normal(0, spread, shape).astype(np.float32))

    def apart(self, *shape: int) -> Value:
        """No two elements within a tenth: what is largest stays largest under small changes."""
        order = self.rng.permutation(int(np.prod(shape))).reshape(shape)
        return self.of((order / 10 - order.size / 20 + 0.03).astype(np.float32))

    def int8(self, *shape: int, scale: float) -> Value:
        return self.of(self.rng.integers(-40, 41, shape).astype(np.int8), QParams.per_tensor(scale, 3))

    def of(self, data: Array, q: QParams | None = None) -> Value:
        self.wanted.append(self.g.constant("leaf", data, q))
        return self.wanted[-1]


def end(leaves: Leaves, y: Value) -> Value:
    """A loss that weighs every element of y differently."""
    g, size = leaves.g, y.type.size
    label = g.constant("label", np.array([LABEL], np.int32))
    if y.type.dtype == "int8":
        y = g.emit(ops.Dequantize(), y)
    w = g.constant("end.w", leaves.rng.normal(0, size**-0.5, (CLASSES, size)).astype(np.float32))
    b = g.constant("end.b", np.zeros(CLASSES, np.float32))
    logits = g.emit(ops.Dense(), g.emit(ops.Reshape((1, size)), y), w, b)
    return g.emit_all(ops.SoftmaxCrossEntropy(), logits, label)[0]


def sigmoid(leaves: Leaves, y: Value) -> Value:
    target = leaves.g.constant("target", leaves.rng.random(y.type.shape, np.float32).round(1))
    return leaves.g.emit_all(ops.SigmoidCrossEntropy(), y, target)[0]


def squares(leaves: Leaves, y: Value) -> Value:
    target = leaves.g.constant("target", leaves.rng.normal(0, 1, y.type.shape).astype(np.float32))
    return leaves.g.emit_all(ops.MeanSquaredError(), y, target)[0]


def reconstruction(leaves: Leaves, y: Value) -> Value:
    x = leaves.rng.integers(-128, 128, y.type.shape[1:]).astype(np.int8)
    return leaves.g.emit_all(ops.ReconstructionError(), y, leaves.g.constant("x", x, QParams.per_tensor(0.02, -7)))[0]


def cells(leaves: Leaves, y: Value) -> Value:
    """Some cells have no label, and no part in the mean."""
    labels = leaves.rng.permutation(y.type.size // y.type.shape[3]).reshape(y.type.shape[:3]) % (y.type.shape[3] + 1)
    return leaves.g.emit_all(ops.CellCrossEntropy(), y, leaves.g.constant("labels", labels.astype(np.uint8)))[0]


def conv(name: str, size: tuple[int, int, int], out: int, op: ops.Conv2D, k: tuple[int, int] = (3, 3)) -> GradientCase:
    def draw(v: Leaves) -> Value:
        w = v(out, *k, size[2] // op.groups, spread=0.5)
        return v.g.emit(op, v(1, *size), w, v(out, spread=0.5))

    return GradientCase(f"conv-{name}", ops.Conv2D, draw)


def depthwise(name: str, size: tuple[int, int, int], times: int, op: ops.Depthwise) -> GradientCase:
    def draw(v: Leaves) -> Value:
        c = size[2] * times
        return v.g.emit(op, v(1, *size), v(1, 3, 3, c, spread=0.5), v(c, spread=0.5))

    return GradientCase(f"depthwise-{name}", ops.Depthwise, draw)


def dense(name: str, rows: int, op: ops.Dense) -> GradientCase:
    return GradientCase(
        f"dense-{name}", ops.Dense, lambda v: v.g.emit(op, v(rows, 5), v(4, 5, spread=0.4), v(4, spread=0.4))
    )


def unary(name: str, op: Op, *shape: int) -> GradientCase:
    return GradientCase(name, type(op), lambda v: v.g.emit(op, v(*shape)))


def positive(name: str, op: Op, *shape: int) -> GradientCase:
    """A function of numbers well above zero."""
    return GradientCase(name, type(op), lambda v: v.g.emit(op, v.of(v.rng.uniform(0.5, 3, shape).astype(np.float32))))


def pool(name: str, op: Op, *shape: int) -> GradientCase:
    return GradientCase(name, type(op), lambda v: v.g.emit(op, v.apart(*shape)))


def binary(name: str, op: Op, a: tuple[int, ...], b: tuple[int, ...]) -> GradientCase:
    return GradientCase(name, type(op), lambda v: v.g.emit(op, v(*a), v(*b)))


def _weighted() -> Iterator[GradientCase]:
    yield conv("plain", (4, 5, 2), 3, ops.Conv2D(pad=(1, 1, 1, 1)))
    yield conv("strided", (5, 4, 3), 2, ops.Conv2D((2, 1), same_pad((1, 5, 4, 3), (3, 2), (2, 1))), (3, 2))
    yield conv("dilated", (6, 6, 1), 2, ops.Conv2D(dilation=(2, 1), pad=(2, 1, 0, 1)))
    yield conv("grouped", (3, 3, 4), 6, ops.Conv2D(pad=(1, 1, 1, 1), groups=2))
    yield conv("1x1-relu6", (3, 3, 4), 5, ops.Conv2D(activation="relu6"), (1, 1))
    yield depthwise("plain", (4, 4, 3), 1, ops.Depthwise(pad=(1, 1, 1, 1)))
    yield depthwise("multiplied", (4, 3, 2), 2, ops.Depthwise(pad=(1, 1, 1, 1), activation="relu"))
    yield depthwise("strided", (5, 5, 2), 1, ops.Depthwise((2, 2), (0, 1, 0, 1)))
    yield depthwise("dilated", (6, 5, 2), 1, ops.Depthwise(dilation=(2, 2), pad=(2, 2, 1, 2)))
    yield dense("one-row", 1, ops.Dense())
    yield dense("rows-relu", 3, ops.Dense("relu"))
    yield dense("rows-clamped", 2, ops.Dense("relu_n1_to_1"))


def _elementwise() -> Iterator[GradientCase]:
    whole = (1, 3, 2, 4)
    for kind in (ops.Add, ops.Mul):
        name = kind.__name__.lower()
        yield binary(name, kind(), whole, whole)
        yield binary(f"{name}-relu", kind("relu"), whole, whole)
        yield binary(f"{name}-channels", kind("relu6"), whole, (4,))
        yield binary(f"{name}-rows", kind(), whole, (1, 1, 2, 4))
        yield binary(f"{name}-one", kind(), whole, (1,))
    for name, b in (("whole", whole), ("channels", (4,)), ("one", (1,))):
        yield binary(f"maximum-{name}", ops.Maximum(), whole, b)
        yield binary(f"prelu-{name}", ops.PRelu(), whole, b)
    for activation in ("relu", "relu6", "relu_n1_to_1"):
        yield unary(f"activate-{activation}", ops.Activate(activation), 2, 9)
    for function, alpha, beta in FUNCTION_PARAMETERS:
        above = function in ("log", "power")
        yield (positive if above else unary)(f"lookup-{function}", ops.Lookup(function, alpha, beta), 1, 3, 11)
    yield positive("lookup-reciprocal", ops.Lookup("power", -1.0), 1, 9)
    yield unary("lookup-cube", ops.Lookup("power", 3.0), 1, 9)
    # Ops of int8 alone, where a step of the input is a whole number of steps of the output: rounding does nothing.
    fine = QParams.per_tensor(2.0**-9, -5)
    yield GradientCase(
        "requantize", ops.Requantize, lambda v: v.g.emit(ops.Requantize(), v.int8(1, 9, scale=2.0**-8), q=fine)
    )
    yield GradientCase("dequantize", ops.Dequantize, lambda v: v.g.emit(ops.Dequantize(), v.int8(1, 9, scale=2.0**-7)))


def _moves() -> Iterator[GradientCase]:
    yield pool("max-pool", ops.MaxPool((2, 2), (2, 2)), 1, 4, 5, 2)
    yield pool("max-pool-overlapping", ops.MaxPool((3, 3), (1, 2), (1, 1, 1, 1), "relu6"), 1, 4, 5, 2)
    yield pool("average-pool", ops.AvgPool((2, 2), (2, 2)), 1, 4, 5, 2)
    yield pool("average-pool-overlapping", ops.AvgPool((3, 2), (2, 1), (1, 1, 0, 1), "relu"), 1, 4, 5, 2)
    yield unary("mean", ops.Mean(), 1, 3, 4, 2)
    yield unary("mean-kept", ops.Mean(keep_dims=True), 1, 2, 3, 2)
    yield unary("pad", ops.Pad((0, 1, 0, 0), (0, 2, 1, 1)), 1, 2, 3, 2)
    yield unary("crop", ops.Crop((0, 1, 0, 1), (1, 3, 2, 2)), 1, 4, 3, 2)
    yield unary("pick", ops.Pick((0, 0, 2, 2, 2), (2, 0, 0)), 1, 3, 3, 2)
    yield unary("pick-rows", ops.Pick((1, 0)), 1, 3, 2, 2)
    yield unary("bilinear", ops.ResizeBilinear((4, 6)), 1, 2, 3, 2)
    yield unary("bilinear-corners", ops.ResizeBilinear((4, 5), align_corners=True), 1, 3, 3, 2)
    yield unary("bilinear-centres", ops.ResizeBilinear((6, 2), half_pixel=True), 1, 3, 4, 1)
    yield unary("reshape", ops.Reshape((1, 2, 3, 2)), 1, 12)
    yield unary("transpose", ops.Transpose((0, 3, 1, 2)), 1, 2, 3, 2)
    yield GradientCase("concat", ops.Concat, lambda v: v.g.emit(ops.Concat(2), v(1, 2, 1, 3), v(1, 2, 3, 3)))
    yield GradientCase("overlay", ops.Overlay, overlay)
    yield GradientCase("loss", ops.SoftmaxCrossEntropy, lambda v: v(1, 7))
    yield GradientCase("sigmoid", ops.SigmoidCrossEntropy, lambda v: v(1, 7, spread=3.0), sigmoid)
    yield GradientCase("squares", ops.MeanSquaredError, lambda v: v(1, 7), squares)
    yield GradientCase("reconstruction", ops.ReconstructionError, lambda v: v(1, 2, 3, 2), reconstruction)
    yield GradientCase("cells", ops.CellCrossEntropy, lambda v: v(1, 3, 4, 3, spread=2.0), cells)


def overlay(v: Leaves) -> Value:
    """Weights of which two channels learn, under the convolution that reads them."""
    frozen = v.g.constant("frozen", v.rng.normal(0, 1, (2, 1, 1, 4)).astype(np.float32))
    whole = v.g.emit(ops.Overlay((0, 3)), frozen, v(2, 1, 1, 2))
    return v.g.emit(ops.Conv2D(), v(1, 2, 2, 4), whole, v(2))


def _recurrent() -> Iterator[GradientCase]:
    for name, op in (
        ("whole", ops.Lstm()), ("last", ops.Lstm(whole=False)), ("limited", ops.Lstm(clip=0.4)),
        ("whole", ops.Gru()), ("last", ops.Gru(whole=False)),
    ):  # fmt: skip

        def draw(v: Leaves, op: ops.Lstm | ops.Gru = op) -> Value:
            shapes = (("w", (op.gates, 3, 2)), ("u", (op.gates, 3, 3)), ("b", (4, 3)))
            held = (v.g.constant(what, v.rng.normal(0, 0.8, shape).astype(np.float32)) for what, shape in shapes)
            return v.g.emit(op, v(1, 4, 2), *held)

        yield GradientCase(f"{type(op).__name__.lower()}-{name}", type(op), draw)


def normalize(name: str, op: ops.Normalize, *shape: int) -> GradientCase:
    def draw(v: Leaves) -> Value:
        scale, shift = (v.rng.normal(0.5, 1, shape[-1:]).astype(np.float32) for _ in range(2))
        return v.g.emit(op, v(*shape), v.g.constant("scale", scale), v.g.constant("shift", shift))

    return GradientCase(f"normalize-{name}", ops.Normalize, draw)


def _attention() -> Iterator[GradientCase]:
    for turned in ((False, False), (False, True), (True, False), (True, True)):
        a, b = (3, 4)[:: -1 if turned[0] else 1], (4, 2)[:: -1 if turned[1] else 1]
        yield binary(f"matmul-{turned[0]}-{turned[1]}", ops.MatMul(*turned), (1, 2, *a), (1, 2, *b))
    yield unary("softmax", ops.Softmax(), 1, 2, 5)
    yield unary("softmax-beta", ops.Softmax(0.3), 3, 4)
    yield unary("unit-norm", ops.UnitNorm(), 2, 5)
    yield unary("project", ops.Project(4, 0), 1, 7)
    yield normalize("rows", ops.Normalize(), 3, 7)
    yield normalize("groups", ops.Normalize(0.1, 2), 1, 3, 2, 4)


CASES = (*_weighted(), *_elementwise(), *_moves(), *_attention(), *_recurrent())


def residual(v: Leaves) -> Value:
    """A block and its input, added."""
    x = v(1, 3, 3, 2)
    return v.g.emit(ops.Add(), x, v.g.emit(ops.Conv2D(pad=(1, 1, 1, 1)), x, v(2, 3, 3, 2), v(2)))


def concat_and_residual(v: Leaves) -> Value:
    """Three readers: two parts of a concatenation and the sum after it."""
    x = v(1, 3, 2, 2)
    joined = v.g.emit(ops.Concat(3), x, v.g.emit(ops.Activate("relu"), x))
    return v.g.emit(ops.Add(), v.g.emit(ops.Conv2D(), joined, v(2, 1, 1, 4), v(2)), x)


def shared_weights(v: Leaves) -> Value:
    """One tensor of weights in two layers."""
    w, b = v(3, 1, 1, 3, spread=0.5), v(3, spread=0.5)
    return v.g.emit(ops.Conv2D(), v.g.emit(ops.Conv2D(), v(1, 2, 2, 3), w, b), w, b)


def twice(op: Op) -> Draw:
    def draw(v: Leaves) -> Value:
        x = v(1, 2, 3, 2)
        return v.g.emit(op, x, x)

    return draw


SEVERAL_READERS = (
    GradientCase("residual", ops.Add, residual),
    GradientCase("concat-and-residual", ops.Concat, concat_and_residual),
    GradientCase("shared-weights", ops.Conv2D, shared_weights),
    GradientCase("add-twice", ops.Add, twice(ops.Add())),
    GradientCase("mul-twice", ops.Mul, twice(ops.Mul())),
)
