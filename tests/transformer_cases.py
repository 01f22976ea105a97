"""Small graphs around what transformers are made of: products of two tensors, normalizations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from case_parts import Case, Q, Rng, X, Y, binary, twice, unary
from smidgen import ops
from smidgen.ir import Builder, Graph, QParams, Type


def normalize(name: str, op: ops.Normalize, *shape: int, x: QParams = X, y: QParams = Y) -> Case:
    def build(rng: Rng) -> Graph:
        g = Builder("case")
        scale = rng.integers(-32767, 32768, shape[-1]).astype(np.int16)
        shift = rng.integers(-30_000, 30_001, shape[-1]).astype(np.int32)
        parts = g.constant("scale", scale, Q(5e-5)), g.constant("shift", shift)
        return g.graph(g.emit(op, g.input("x", Type(shape, "int8", x)), *parts, q=y))

    return Case(f"normalize-{name}", ops.Normalize, build)


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


ATTENTION = tuple(_attention())
