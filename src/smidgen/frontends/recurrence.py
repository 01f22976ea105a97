"""Recurrent layers of channels-first files: sequences as rows, one or both directions, from a state of zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.channels import Constant, FileTensor
from smidgen.frontends.layers import Layers
from smidgen.frontends.layout import TensorLayout
from smidgen.ir import Array


@dataclass(frozen=True, eq=False)
class Cells:
    """A layer's op and weights, as the op takes them: [gates, cells, …] each."""

    op: ops.Lstm | ops.Gru
    w: Array
    u: Array
    b: Array

    @staticmethod
    def stacked(op: ops.Lstm | ops.Gru, order: Sequence[int], w: Array, u: Array, b: Array, d: Array) -> Cells:
        """From a file's matrices [gates · cells, …] and its biases beside x and beside h; `order` finds our gates."""
        cells = w.shape[0] // op.gates if w.ndim == 2 else 0
        shapes = (op.gates * cells, cells), (op.gates * cells,)
        if not cells or (u.shape, b.shape, d.shape) != (shapes[0], *shapes[1:] * 2):
            raise ImportModelError(
                f"its weights {list(w.shape)} and {list(u.shape)} with biases {list(b.shape)} and {list(d.shape)} do "
                f"not fit {op.gates} gates; projections are not supported"
            )
        w, u, b, d = (
            np.stack([part.reshape(op.gates, cells, -1)[gate] for gate in order]).astype(np.float32)
            for part in (w, u, b, d)
        )
        b, d = b[:, :, 0], d[:, :, 0]
        whole = b + d if isinstance(op, ops.Lstm) else np.concatenate([b[:2] + d[:2], b[2:], d[2:]])
        return Cells(op, w, u, whole)


def recur(c: Layers, x: FileTensor, time: int, cells: Cells, reverse: bool = False) -> tuple[FileTensor, FileTensor]:
    """Every hidden state along x's dimension of time, and the last one computed; x is a batch of one."""
    x = c.real(x)
    steps, inputs = x.shape[time], x.shape[-1]
    if len(x.shape) not in (2, 3) or steps * inputs != x.size:
        raise ImportModelError(f"its input is {list(x.shape)}; one sequence of [steps, inputs] is supported, no batch")
    if cells.w.shape[2] != inputs:
        raise ImportModelError(f"its weights are for {cells.w.shape[2]} inputs, {list(x.shape)} has {inputs}")
    x = _reversed(c, x, time) if reverse else x
    x = c.arranged(x, x.layout.order(tuple(range(len(x.shape)))))
    held = (c.constant(role, data) for role, data in (("w", cells.w), ("u", cells.u), ("b", cells.b)))
    value = c.emit(cells.op, c.view(x.value, (1, steps, inputs)), *held)
    y = FileTensor(value, TensorLayout.of((*x.shape[:-1], cells.w.shape[1])))
    last = c.take(y, {time: [steps - 1]})
    return (_reversed(c, y, time) if reverse else y), last


def _reversed(c: Layers, x: FileTensor, time: int) -> FileTensor:
    return c.take(x, {time: range(x.shape[time] - 1, -1, -1)})


def check_zero(state: object) -> None:
    """Raise unless a state to begin with is left out or a constant of zeros."""
    if state is not None and not (isinstance(state, Constant) and not state.data.any()):
        raise ImportModelError("it begins with a state that is computed or not zero; begin with zeros, or give none")
