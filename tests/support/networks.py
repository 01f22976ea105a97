"""Small random int8 networks that end in a classifier: every op a gradient can pass through, wired in several ways."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from smidgen.ir import Array, Builder, Graph, Node, Op, QParams, Type, Value, infer
from smidgen.ops import (
    Activate,
    Add,
    AvgPool,
    Concat,
    Conv2D,
    Dense,
    Depthwise,
    Lookup,
    Maximum,
    MaxPool,
    Mean,
    Mul,
    Pad,
    Requantize,
    Reshape,
    Transpose,
)
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme

SIZE, CHANNELS, CLASSES = 8, 6, 5
DEAD_SCALE, DEAD_BIAS = 1e-9, -(2**31)  # of a channel that training of the backbone switched off


class Drawn:
    """A network under construction, beside a sample image that gives each value's range."""

    def __init__(self, seed: int, dead: int = 0, shared: bool = False, size: int = SIZE) -> None:
        self.rng = np.random.default_rng(seed)
        self.g = Builder(f"net{seed}")
        self.dead = dead  # channels of each convolution that are switched off
        self.shared = shared  # whether all channels of a layer have one scale
        image = self.rng.integers(-128, 128, (1, size, size, 3)).astype(np.int8)
        self.x = self.g.input("image", Type(image.shape, "int8", QParams.per_tensor(2 / 255, 0)))
        self.data: dict[Value, Array] = {self.x: image}

    def emit(self, op: Op, *ins: Value, q: QParams | None = None) -> Value:
        value = self.g.emit(op, *ins, q=q)
        self.data[value] = self._run(Node(op, ins, (value,)))
        return value

    def fit(self, op: Op, *ins: Value, signed: bool = True) -> Value:
        """Emit a node in a quantization that leaves a few of its values beyond the limits."""
        (type_,) = infer(op, tuple(v.type for v in ins))
        zero, most = (0, 90) if signed else (-128, 180)
        for power in range(40):
            q = QParams.per_tensor(64 * 0.7**power, zero)
            y = self._run(Node(op, ins, (Value("y", replace(type_, q=q)),))).astype(float) - zero
            if np.quantile(np.abs(y), 0.9) > most:
                break
        return self.emit(op, *ins, q=q)

    def _run(self, node: Node) -> Array:
        arrays = (self.data[v] if v in self.data else self.g.data(v) for v in node.ins)
        return np.asarray(node.op.ref(node, *arrays))

    def weights(self, shape: tuple[int, ...], axis: int) -> tuple[Value, Value]:
        scales = self.rng.uniform(0.002, 0.02, shape[axis])
        w = self.rng.integers(-127, 128, shape).astype(np.int8)
        b = self.rng.integers(-300, 301, shape[axis]).astype(np.int32)
        scales[: self.dead], b[: self.dead] = DEAD_SCALE, DEAD_BIAS
        q = QParams.per_tensor(scales[-1]) if self.shared else QParams.per_channel(scales, axis)
        return self.g.constant("w", w, q), self.g.constant("b", b)

    def conv(self, x: Value, out: int, k: int = 1, groups: int = 1, stride: int = 1, activation: str = "none") -> Value:
        w, b = self.weights((out, k, k, x.type.shape[3] // groups), 0)
        op = Conv2D((stride, stride), (k // 2,) * 4, (1, 1), groups, activation)
        return self.fit(op, x, w, b, signed=activation == "none")

    def depthwise(self, x: Value, times: int = 1, activation: str = "none") -> Value:
        w, b = self.weights((1, 3, 3, x.type.shape[3] * times), 3)
        return self.fit(Depthwise(pad=(1, 1, 1, 1), activation=activation), x, w, b, signed=activation == "none")

    def gate(self, x: Value) -> Value:
        """A constant that repeats along a map."""
        data = self.rng.integers(-128, 128, x.type.shape[-1:]).astype(np.int8)
        return self.g.constant("gate", data, QParams.per_tensor(0.01, 7))

    def end(self, x: Value) -> Graph:
        """Mean and classifier."""
        mean = self.fit(Mean(), x)
        return self.g.graph(self.fit(Dense(), mean, *self.weights((CLASSES, mean.type.shape[1]), 0)))


def inverted_residual(seed: int, dead: int = 0) -> Graph:
    """The backbones' block: expand, depthwise, project, add; twice."""
    n = Drawn(seed, dead)
    x = n.conv(n.x, CHANNELS, 3, stride=2, activation="relu6")
    for _ in range(2):
        y = n.depthwise(n.conv(x, 2 * CHANNELS, activation="relu6"), activation="relu6")
        x = n.fit(Add(), x, n.conv(y, CHANNELS))
    return n.end(n.conv(x, 2 * CHANNELS))


def branches(seed: int) -> Graph:
    """Values with three readers, concatenation, one value twice in a product and a sum, a map gated by its mean."""
    n = Drawn(seed)
    x = n.conv(n.x, CHANNELS, 3, activation="relu")
    a = n.conv(x, CHANNELS, 3, groups=2)
    b = n.emit(Requantize(), n.depthwise(x), q=a.type.q)
    joined = n.emit(Concat(3), a, b, a)
    y = n.fit(Add(), n.conv(joined, CHANNELS), x)
    y = n.fit(Mul(), y, y)
    y = n.fit(Mul(), y, n.conv(n.fit(Mean(keep_dims=True), y), CHANNELS))
    return n.end(n.conv(n.fit(Add(), y, y), CHANNELS))


def pools_and_moves(seed: int) -> Graph:
    """Pools that overlap and are padded, pads, transposes, gates, a maximum, and activations of their own."""
    n = Drawn(seed)
    x = n.emit(MaxPool((3, 3), (2, 2), (1, 1, 1, 1)), n.conv(n.x, CHANNELS, 3))
    x = n.fit(Mul(), x, n.gate(x))
    x = n.emit(Transpose((0, 2, 1, 3)), n.emit(Pad((0, 1, 0, 0), (0, 0, 1, 0)), x))
    x = n.emit(AvgPool((2, 2), (1, 1), (0, 1, 0, 1)), n.depthwise(x, times=2))
    x = n.emit(Maximum(), x, n.emit(Requantize(), n.depthwise(x), q=x.type.q))
    x = n.fit(Activate("relu6"), x, signed=False)
    x = n.emit(MaxPool((2, 2), (2, 2), activation="relu"), n.fit(Add("relu_n1_to_1"), x, n.gate(x)))
    y = n.emit(AvgPool((2, 2), (1, 1), activation="relu6"), n.conv(x, CHANNELS))
    return n.end(n.conv(n.emit(Reshape((1, 1, y.type.size // CHANNELS, CHANNELS)), y), CHANNELS))


def gates(seed: int) -> Graph:
    """Tables of functions, a map gated channel by channel by what was squeezed out of it, averages over padding."""
    n = Drawn(seed)
    x = n.fit(Lookup("hard_swish"), n.conv(n.x, CHANNELS, 3, stride=2))
    squeezed = n.conv(n.fit(Mean(keep_dims=True), x), CHANNELS // 2, activation="relu")
    gate = n.fit(Lookup("hard_sigmoid", 1 / 6, 0.5), n.conv(squeezed, CHANNELS))
    x = n.fit(Lookup("silu"), n.depthwise(n.fit(Mul(), x, gate)))
    padded = n.emit(Pad((0, 1, 1, 0), (0, 1, 1, 0)), n.fit(Lookup("leaky_relu", 0.1), x))
    return n.end(n.fit(Lookup("tanh"), n.conv(n.emit(AvgPool((3, 3), (2, 2)), padded), 2 * CHANNELS)))


def one_scale(seed: int) -> Graph:
    """Every layer's weights with one scale for all channels, as most quantizers write them by default."""
    n = Drawn(seed, shared=True)
    x = n.conv(n.x, CHANNELS, 3, stride=2, activation="relu6")
    y = n.depthwise(n.conv(x, 2 * CHANNELS, groups=2), times=2, activation="relu6")
    return n.end(n.fit(Add(), x, n.conv(n.depthwise(y), CHANNELS)))


def one_scale_hidden(seed: int) -> Graph:
    """The same of a depthwise layer before two dense ones, which learn as a whole."""
    n = Drawn(seed, shared=True)
    x = n.depthwise(n.conv(n.x, CHANNELS, 3, stride=2, activation="relu6"))
    flat = n.emit(Reshape((1, x.type.size)), x)
    hidden = n.fit(Dense("relu"), flat, *n.weights((2 * CHANNELS, x.type.size), 0), signed=False)
    return n.g.graph(n.fit(Dense(), hidden, *n.weights((CLASSES, 2 * CHANNELS), 0)))


NETWORKS = (inverted_residual, branches, pools_and_moves, gates, one_scale)


def single_layer(seed: int) -> Graph:
    """A dense layer alone: the features of its head are the image."""
    rng = np.random.default_rng(seed)
    g = Builder("single")
    x = g.input("image", Type((1, 24), "int8", QParams.per_tensor(0.05, -3)))
    w = g.constant("w", rng.integers(-127, 128, (3, 24)).astype(np.int8), QParams.per_channel([0.01] * 3, 0))
    b = g.constant("b", np.zeros(3, np.int32))
    return g.graph(g.emit(Dense(), x, w, b, q=QParams.per_tensor(0.1, 0), name="y"))


def partly(graph: Graph) -> Scheme:
    """A share of some layers, depthwise ones too, all of others, none of the first."""
    numbered = layers(graph)
    count = len(numbered)
    shares = (Fraction(1, 2), Fraction(1, 3), Fraction(1), Fraction(0))
    weights = [
        (i, Fraction(1) if isinstance(node.op, Dense) else shares[i % 4])
        for i, node in enumerate(numbered)
        if i and i % 4 < 3
    ]
    return Scheme("partly", count - 1, tuple(weights), "random")


def samples(graph: Graph, count: int, seed: int = 0) -> list[tuple[Array, int]]:
    """Images and labels for a network."""
    rng = np.random.default_rng(seed)
    shape = graph.inputs[0].type.shape
    return [(rng.integers(-128, 128, shape).astype(np.int8), int(rng.integers(0, CLASSES))) for _ in range(count)]
