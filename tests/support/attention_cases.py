"""Cases of the gradients of attention: products of two computed tensors, softmax, normalization."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from smidgen import ops
from smidgen.ir import Array, Builder, Op, QParams, Type
from smidgen.ops.matmul import MatMulGrad
from smidgen.ops.normalize import NormalizeGrad
from smidgen.ops.softmax import OUTPUT, SoftmaxGrad
from smidgen.ops.unit_norm import UnitNormGrad
from tests.support.training_inputs import SHIFTS, Feed, TrainingCase, activation, every_way, gradient, gradients

Gradient = TypeVar("Gradient", SoftmaxGrad, UnitNormGrad)


def shares(*shape: int) -> Feed:
    """Return a feed of softmax outputs, sometimes of arbitrary bytes."""

    def draw(rng: np.random.Generator) -> Array:
        drawn = rng.integers(-128, 128, shape).astype(np.int8)
        real = rng.dirichlet(np.ones(shape[-1]), shape[:-1])
        return drawn if rng.random() < 0.3 else np.clip(np.rint(256 * real) - 128, -128, 127).astype(np.int8)

    return Feed(Type(shape, "int8", OUTPUT), draw)


def scales(channels: int) -> Feed:
    def draw(rng: np.random.Generator) -> Array:
        most = int(rng.choice([100, 32767]))
        return rng.integers(-most, most + 1, channels).astype(np.int16)

    return Feed(Type((channels,), "int16", QParams.per_tensor(1e-4)), draw)


def normalize_grad(x: Feed, op: ops.Normalize) -> NormalizeGrad:
    """The gradient as the op emits it: with as many bits after the point as there is room for."""
    g = Builder("drawn")
    source = g.input("x", x.type)
    scale = g.constant("scale", np.ones(x.type.shape[-1], np.int16), QParams.per_tensor(1e-4))
    y = g.emit(op, source, scale, g.constant("shift", np.zeros(x.type.shape[-1], np.int32)), q=QParams.per_tensor(0.1))
    dy = g.input("dy", Type(x.type.shape, "float32"))
    (node,) = g.graph(y).nodes
    dx, _, _ = node.op.grad(g, node, dy)
    assert dx is not None
    made = g.graph(dx).nodes[-1].op
    assert isinstance(made, NormalizeGrad)
    return replace(made, factors=())


NORMALIZED: dict[str, tuple[tuple[int, ...], ops.Normalize]] = {
    "rows": ((5, 19), ops.Normalize()),
    "row": ((1, 300), ops.Normalize(1e-12)),
    "one": ((3, 1), ops.Normalize()),
    "map": ((1, 4, 5, 12), ops.Normalize(1e-5, 3)),
    "channels": ((1, 3, 4, 7), ops.Normalize(0.1, 7)),
    "wide": ((1, 2, 2, 140), ops.Normalize(1e-3, 1)),
}


def _attention() -> Iterator[TrainingCase]:
    for first in (True, False):
        for turn in (False, True):
            for turn_other in (False, True):
                dy = (9, 7) if first != turn else (7, 9)
                other = (7, 11) if first != turn_other else (11, 7)
                op = MatMulGrad(first=first, turn=turn, turn_other=turn_other)
                name = f"matmul-grad-{'first' if first else 'last'}-{turn}-{turn_other}"
                yield gradients(name, op, gradient(1, 3, *dy), activation(1, 3, *other, zero=-128))
    yield from every_way("matmul-grad", MatMulGrad(), gradient(2, 6, 10), activation(2, 10, 13, zero=127))
    yield from every_way("matmul-grad-wide", MatMulGrad(turn_other=True), gradient(3, 5), activation(150, 5))
    for c in (1, 5, 17, 130, 1000):
        yield gradients(f"softmax-grad-{c}", softmax_grad(c), gradient(2, 3, c), shares(2, 3, c))
    yield from every_way("softmax-grad", softmax_grad(21), gradient(4, 21), shares(4, 21))
    for name, (shape, normalize) in NORMALIZED.items():
        x = activation(*shape)
        made = normalize_grad(x, normalize)
        yield gradients(f"normalize-grad-{name}", made, gradient(*shape), x, scales(shape[-1]))
    for c in (1, 19, 300):
        x, made_unit = activation(3, c), unit_grad(c)
        yield gradients(f"unit-norm-grad-{c}", made_unit, gradient(3, c), x)
    yield from every_way("unit-norm-grad", unit_grad(21), gradient(4, 21), activation(4, 21))
    x = activation(4, 21)
    yield from every_way("normalize-grad", normalize_grad(x, ops.Normalize()), gradient(4, 21), x, scales(21))
    for shift in SHIFTS:
        yield gradients(f"matmul-grad-by-{shift}", MatMulGrad(), gradient(6, 10), activation(10, 13), shift=shift)


def emitted(op: Op, kind: type[Gradient], c: int) -> Gradient:
    """The gradient of rows of c as the op emits it."""
    g = Builder("drawn")
    y = g.emit(op, g.input("x", Type((1, c), "int8", QParams.per_tensor(0.1))))
    (node,) = g.graph(y).nodes
    (dx,) = node.op.grad(g, node, g.input("dy", Type((1, c), "float32")))
    assert dx is not None
    made = g.graph(dx).nodes[-1].op
    assert isinstance(made, kind)
    return made


def softmax_grad(c: int) -> SoftmaxGrad:
    return emitted(ops.Softmax(), SoftmaxGrad, c)


def unit_grad(c: int) -> UnitNormGrad:
    return emitted(ops.UnitNorm(), UnitNormGrad, c)


ATTENTION_CASES = tuple(_attention())
