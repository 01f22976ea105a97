"""Small graphs around recurrent layers: few and many cells and steps, states that saturate, limits, all scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from smidgen import ops
from smidgen.ir import Builder, Graph, Op, QParams, Type, Value

Q = QParams.per_tensor
Rng = np.random.Generator
Layer = ops.Lstm | ops.Gru
HIDDEN = Q(1 / 128, -1)  # of a hidden state, which lies between −1 and 1


def gate_weights(g: Builder, rng: Rng, name: str, shape: tuple[int, ...], scale: float) -> Value:
    """int8 weights [gates, cells, columns] with a scale for each gate."""
    scales = scale * 2.0 ** rng.uniform(-1, 1, shape[0])
    return g.constant(name, rng.integers(-127, 128, shape, np.int8), QParams.per_channel(scales, 0))


def recurrent(
    g: Builder, rng: Rng, x: Value, cells: int, op: Layer, scale: float = 0.01, bias: int = 3000, y: QParams = HIDDEN
) -> Value:
    """A layer of random weights that reads x [1, steps, inputs]."""
    return g.emit(op, x, *constants(g, rng, x, cells, op, scale, bias), q=y)


def constants(
    g: Builder, rng: Rng, x: Value, cells: int, op: Layer, scale: float, bias: int
) -> tuple[Value, Value, Value]:
    """The weights of x and of the hidden state, and the bias."""
    w = gate_weights(g, rng, g.fresh("w"), (op.gates, cells, x.type.shape[2]), scale)
    u = gate_weights(g, rng, g.fresh("u"), (op.gates, cells, cells), scale)
    b = g.constant(g.fresh("b"), rng.integers(-bias, bias + 1, (4, cells)).astype(np.int32))
    return w, u, b


@dataclass(frozen=True)
class Drawn:
    """A recurrent layer of random weights over a sequence."""

    op: Layer
    steps: int
    inputs: int
    cells: int
    scale: float = 0.01
    bias: int = 3000
    y: QParams = HIDDEN

    def beside(self, op: Op) -> Callable[[Builder, Rng, tuple[Value, ...]], tuple[Value, ...]]:
        """Emits an op that reads what the layer reads."""

        def emit(g: Builder, rng: Rng, x: tuple[Value, ...]) -> tuple[Value, ...]:
            return g.emit_all(op, x[0], *constants(g, rng, x[0], self.cells, self.op, self.scale, self.bias))

        return emit

    def build(self, rng: Rng) -> Graph:
        g = Builder("case")
        x = g.input("x", Type((1, self.steps, self.inputs), "int8", Q(0.05, -3)))
        return g.graph(recurrent(g, rng, x, self.cells, self.op, self.scale, self.bias, self.y))


def _drawn() -> Iterator[tuple[str, Drawn]]:
    for kind, op, last in (
        ("lstm", ops.Lstm(), ops.Lstm(whole=False)),
        ("gru", ops.Gru(), ops.Gru(whole=False)),
        ("gru-before", ops.Gru(reset_after=False), ops.Gru(whole=False, reset_after=False)),
    ):
        for sizes in ((1, 1, 1), (2, 3, 4), (5, 7, 10), (9, 20, 3), (3, 33, 17)):
            yield f"{kind}-{'-'.join(map(str, sizes))}", Drawn(op, *sizes)
        for steps in (1, 2, 5):
            yield f"{kind}-last-of-{steps}", Drawn(last, steps, 6, 5)
        yield f"{kind}-saturates", Drawn(op, 12, 8, 5, 0.5, 2**31 - 1, Q(1 / 300, 100))
        yield f"{kind}-tiny-multipliers", Drawn(op, 4, 8, 5, 1e-9, y=Q(10.0, -128))
        yield f"{kind}-large-multipliers", Drawn(op, 4, 8, 5, 1e3, 2**31 - 1, Q(1e-6, 127))
    for bits in range(7):
        yield f"lstm-bits-{bits}", Drawn(ops.Lstm(bits=bits), 6, 8, 5, 0.1 if bits == 0 else 0.01)
    yield "lstm-limited", Drawn(ops.Lstm(clip=0.5), 12, 8, 5, 0.02)


DRAWN: Mapping[str, Drawn] = dict(_drawn())
