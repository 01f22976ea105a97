"""Small graphs around recurrent layers: few and many cells and steps, states that saturate, limits, all scales."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smidgen import ops
from smidgen.ir import Builder, Graph, QParams, Type, Value

Q = QParams.per_tensor
Rng = np.random.Generator
HIDDEN = Q(1 / 128, -1)  # of a hidden state, which lies between −1 and 1


def gate_weights(g: Builder, rng: Rng, name: str, shape: tuple[int, ...], scale: float) -> Value:
    """int8 weights [gates, cells, columns] with a scale for each gate."""
    scales = scale * 2.0 ** rng.uniform(-1, 1, shape[0])
    return g.constant(name, rng.integers(-127, 128, shape, np.int8), QParams.per_channel(scales, 0))


def lstm(
    g: Builder, rng: Rng, x: Value, cells: int, op: ops.Lstm, scale: float = 0.01, bias: int = 3000, y: QParams = HIDDEN
) -> Value:
    """An LSTM of random weights that reads x [steps, inputs]."""
    w = gate_weights(g, rng, g.fresh("w"), (4, cells, x.type.shape[1]), scale)
    u = gate_weights(g, rng, g.fresh("u"), (4, cells, cells), scale)
    b = g.constant(g.fresh("b"), rng.integers(-bias, bias + 1, (4, cells)).astype(np.int32))
    return g.emit(op, x, w, u, b, q=y)


def _lstm_graph(
    steps: int, inputs: int, cells: int, op: ops.Lstm, scale: float, bias: int, y: QParams, rng: Rng
) -> Graph:
    g = Builder("case")
    x = g.input("x", Type((steps, inputs), "int8", Q(0.05, -3)))
    return g.graph(lstm(g, rng, x, cells, op, scale, bias, y))


def lstm_graphs() -> Iterator[tuple[str, tuple[int, int, int, ops.Lstm, float, int, QParams]]]:
    """Names, and what `_lstm_graph` takes besides random numbers."""
    plain = ops.Lstm()
    for steps, inputs, cells in ((1, 1, 1), (2, 3, 4), (5, 7, 10), (9, 20, 3), (3, 33, 17)):
        yield f"{steps}x{inputs}-{cells}", (steps, inputs, cells, plain, 0.01, 3000, HIDDEN)
    for steps in (1, 2, 5):
        yield f"last-of-{steps}", (steps, 6, 5, ops.Lstm(whole=False), 0.01, 3000, HIDDEN)
    for bits in range(7):
        yield f"bits-{bits}", (6, 8, 5, ops.Lstm(bits=bits), 0.01, 3000, HIDDEN)
    yield "limited", (12, 8, 5, ops.Lstm(clip=0.5), 0.02, 3000, HIDDEN)
    yield "saturates", (12, 8, 5, ops.Lstm(bits=0), 0.5, 2**31 - 1, Q(1 / 300, 100))
    yield "tiny-multipliers", (4, 8, 5, plain, 1e-9, 3000, Q(10.0, -128))
    yield "large-multipliers", (4, 8, 5, plain, 1e3, 2**31 - 1, Q(1e-6, 127))


LSTM_GRAPHS = {f"lstm-{name}": given for name, given in lstm_graphs()}


def build_lstm(name: str, rng: Rng) -> Graph:
    """The graph of this name."""
    return _lstm_graph(*LSTM_GRAPHS[name], rng)
