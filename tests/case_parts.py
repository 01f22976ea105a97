"""What cases are made of: a graph around one op, and how the commonest are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smidgen.ir import Builder, Graph, Op, QParams, Type

Q = QParams.per_tensor
X, SECOND, Y = Q(0.05, -3), Q(0.07, 90), Q(0.1, 5)  # quantizations of a case that asks for none
Rng = np.random.Generator


@dataclass(frozen=True)
class Case:
    """A graph around one op; `build` draws its constants."""

    name: str
    op: type[Op]
    build: Callable[[Rng], Graph]


def unary(name: str, op: Op, *shape: int, dtype: str = "int8", x: QParams | None = X,
          y: QParams | None = None) -> Case:  # fmt: skip
    def build(rng: Rng) -> Graph:
        g = Builder("case")
        return g.graph(g.emit(op, g.input("x", Type(shape, dtype, x)), q=y))

    return Case(name, type(op), build)


def binary(name: str, op: Op, a: tuple[int, ...], b: tuple[int, ...], *, constant: bool = False,
           qa: QParams = X, qb: QParams = SECOND, y: QParams = Y) -> Case:  # fmt: skip
    def build(rng: Rng) -> Graph:
        g = Builder("case")
        left = g.input("a", Type(a, "int8", qa))
        data = rng.integers(-128, 128, b).astype(np.int8)
        right = g.constant("b", data, qb) if constant else g.input("b", Type(b, "int8", qb))
        return g.graph(g.emit(op, left, right, q=y))

    return Case(name, type(op), build)


def twice(name: str, op: Op, *shape: int) -> Case:
    """An op whose two inputs are one value, in whose place its output may lie."""

    def build(rng: Rng) -> Graph:
        g = Builder("case")
        x = g.input("x", Type(shape, "int8", X))
        return g.graph(g.emit(op, x, x, q=Y))

    return Case(name, type(op), build)
