"""What ops take, and how much they compute: shapes that do not fit are refused, products are counted one by one."""

from __future__ import annotations

import numpy as np
import pytest

from smidgen import ops
from smidgen.errors import GraphError
from smidgen.ir import Builder, Graph, Type, infer
from smidgen.ops.conv_grad import ConvGradInput, DepthwiseGradInput
from smidgen.ops.loss import SoftmaxCrossEntropy
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
    with pytest.raises(GraphError, match="cannot use weights"):
        infer(op, (dy, Type(w, "float32")))
