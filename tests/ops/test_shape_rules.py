"""What ops take, and how much they compute: what does not fit is refused, products are counted and added exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from smidgen import ops
from smidgen.errors import GraphError
from smidgen.ir import Builder, Graph, QParams, Type, evaluate, infer
from smidgen.numerics import multiply, quantize_multiplier
from smidgen.ops.conv import ConvGradInput, DepthwiseGradInput
from smidgen.ops.losses import SoftmaxCrossEntropy
from smidgen.training.autodiff import differentiate


def gradients() -> Graph:
    """A layer of each kind, and the gradients of all they read."""
    g = Builder("gradients")
    x = g.input("x", Type((1, 6, 5, 4), "float32"))
    held = {"c": (6, 3, 2, 2), "d": (1, 2, 2, 12), "e": (3, 12)}
    w = {name: g.constant(name, np.ones(shape, np.float32)) for name, shape in held.items()}
    b = {size: g.constant(f"b{size}", np.zeros(size, np.float32)) for size in (6, 12, 3)}
    y = g.emit(ops.Conv2D((2, 1), groups=2), x, w["c"], b[6])
    y = g.emit(ops.Depthwise(), y, w["d"], b[12])
    logits = g.emit(ops.Dense(), g.emit(ops.Mean(), y), w["e"], b[3])
    loss, _ = g.emit_all(SoftmaxCrossEntropy(), logits, g.input("label", Type((1,), "int32")))
    return differentiate(g.graph(loss, logits), loss, (x, *w.values())).graph


def test_a_layer_and_its_gradients_count_each_of_their_products() -> None:
    counted = set()
    for node in gradients().nodes:
        if macs := node.op.macs(node):
            counted.add(type(node.op).__name__)
            ones = (np.ones(v.type.shape, np.float32) for v in node.ins[:2])  # so that each product is one
            zeros = (np.zeros(v.type.shape, np.float32) for v in node.ins[2:])
            assert macs == np.sum(node.op.ref(node, *ones, *zeros)), node.op
    layers = {"Conv", "Depthwise", "Dense"}
    grads = {f"{layer}Grad{what}" for layer in layers for what in ("Input", "Weight")}
    assert counted == {"Conv2D", "Depthwise", "Dense"} | grads


@pytest.mark.parametrize(
    ("op", "w"),
    [
        (ConvGradInput(size=(4, 4)), (5, 1, 1, 3)),
        (ConvGradInput(size=(4, 4), groups=0), (6, 1, 1, 3)),
        (ConvGradInput(size=(4, 4), groups=4), (6, 1, 1, 3)),
        (DepthwiseGradInput(size=(4, 4)), (1, 1, 1, 5)),
        (DepthwiseGradInput(size=(4, 4), multiplier=0), (1, 1, 1, 6)),
        (DepthwiseGradInput(size=(4, 4), multiplier=4), (1, 1, 1, 6)),
    ],
)
def test_weights_that_do_not_fit_a_gradient_are_refused(op: ConvGradInput | DepthwiseGradInput, w: tuple[int]) -> None:
    dy = Type((1, 4, 4, 6), "float32")
    fitting = (6, 1, 1, 3) if isinstance(op, ConvGradInput) else (1, 1, 1, 6)
    (dx,) = infer(type(op)(size=(4, 4)), (dy, Type(fitting, "float32")))
    assert dx.shape == (1, 4, 4, fitting[3])
    with pytest.raises(GraphError, match="cannot use weights"):
        infer(op, (dy, Type(w, "float32")))


Q = QParams.per_tensor(0.1)
X, B = Type((1, 4, 4, 3), "int8", Q), Type((2,), "int32")


@pytest.mark.parametrize(
    ("x", "q", "b", "sentence"),
    [
        (X, replace(Q, zero=1), B, "weights with zero point 0"),
        (X, QParams.per_channel(np.ones(3), 3), B, "scales along axis 0, got 3"),
        (X, None, B, "needs quantized input and weights"),
        (replace(X, q=None), Q, B, "needs quantized input and weights"),
        (replace(X, q=QParams.per_channel(np.ones(3), 3)), Q, B, "an input with one scale, it has 3"),
        (X, Q, replace(B, dtype="float32"), r"a bias of int32\[2\], got float32\[2\]"),
        (X, Q, Type((3,), "int32"), r"a bias of int32\[2\], got int32\[3\]"),
        (replace(X, dtype="int32", q=None), Q, B, "not int32 with int8 weights"),
    ],
)
def test_a_layer_of_other_types_is_refused(x: Type, q: QParams | None, b: Type, sentence: str) -> None:
    good = QParams.per_channel(np.ones(2), 0)
    assert infer(ops.Conv2D(), (X, Type((2, 1, 1, 3), "int8", good), B)) == (Type((1, 4, 4, 2), "int8"),)
    with pytest.raises(GraphError, match=sentence):
        infer(ops.Conv2D(), (x, Type((2, 1, 1, 3), "int8", q), b))


def test_sums_beyond_24_bits_lose_none_of_them() -> None:
    n = 1025
    total = 255 * 127 * n  # odd and above 2^24: no float32
    scale, one = QParams.per_tensor(2.0**-9), QParams.per_tensor(1.0)
    rounded = multiply(np.arange(total - 2**18, total), *quantize_multiplier(2.0**-18))
    edge = total - 2**18 + int(np.flatnonzero(np.diff(rounded))[0])  # one more rounds up
    g = Builder("sums")
    x = g.input("x", Type((1, 1, 1, n), "int8", replace(scale, zero=-128)))
    w = g.constant("w", np.full((2, 1, 1, n), 127, np.int8), scale)
    b = g.constant("b", np.array([edge, edge + 1], np.int32) - total)
    graph = g.graph(g.emit(ops.Conv2D(), x, w, b, q=one))
    (y,) = evaluate(graph, np.full((1, 1, 1, n), 127, np.int8))
    assert y.ravel().tolist() == multiply(np.array([edge, edge + 1]), *quantize_multiplier(2.0**-18)).tolist()
    assert y[..., 0] != y[..., 1]
