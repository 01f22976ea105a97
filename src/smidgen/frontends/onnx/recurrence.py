"""ONNX's recurrent layers: LSTM and GRU, forward, reverse or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.channels import FileTensor
from smidgen.frontends.onnx.context import OnnxCall
from smidgen.frontends.sequences import Cells, check_zero

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}
ORDERS = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}  # where ONNX has our i, f, g, o and r, z, n
LENGTHS, STATES, PEEPHOLES = 4, (5, 6), 7


def _op(call: OnnxCall) -> ops.Lstm | ops.Gru:
    """The op, once nothing is asked of it that it does not do."""
    code, directions = call.operator.code, DIRECTIONS.get(call.text("direction", "forward"), ())
    given = tuple(a.decode("utf-8", "replace") if isinstance(a, bytes) else a for a in call.listed("activations"))
    if given and given != ACTIVATIONS[code] * len(directions):
        raise ImportModelError(f"its activations are {', '.join(map(str, given))[:60]}; the usual ones are supported")
    for name, allowed in (("clip", None), ("input_forget", 0), ("activation_alpha", None), ("activation_beta", None)):
        call.forbid(name, allowed)
    if code == "LSTM" and call.has_input(PEEPHOLES) and call.constant(PEEPHOLES).data.any():
        raise ImportModelError("it has peepholes; use a plain LSTM")
    return ops.Lstm() if code == "LSTM" else ops.Gru(reset_after=bool(call.integer("linear_before_reset", 0)))


def recurrent(call: OnnxCall) -> tuple[FileTensor, ...]:
    """Y, the hidden states of all directions, and Y_h, the last of each."""
    op, x, c = _op(call), call.tensor(0), call.c
    c.withheld.update(call.operator.outputs[2:])
    if len(x.shape) != 3:
        raise ImportModelError(f"its input is {list(x.shape)}, not [steps, batch, inputs]")
    first = bool(call.integer("layout", 0))
    time = 1 if first else 0
    if call.has_input(LENGTHS) and set(call.numbers(LENGTHS)) != {x.shape[time]}:
        raise ImportModelError("its sequences are shorter than its input; export it for one fixed length")
    for place in STATES:
        check_zero(call.operand(place) if call.has_input(place) else None)
    directions = DIRECTIONS.get(call.text("direction", "forward"), ())
    w, u = (call.constant(i).data for i in (1, 2))
    b = call.constant(3).data if call.has_input(3) else np.zeros((w.shape[0], 2 * w.shape[1] if w.ndim == 3 else 0))
    if not directions or w.ndim != 3 or u.ndim != 3 or b.ndim != 2 or {len(w), len(u), len(b)} != {len(directions)}:
        raise ImportModelError(
            f"its weights {list(w.shape)} and {list(u.shape)} and bias {list(b.shape)} are not those of "
            f"{len(directions)} directions"
        )
    order, half, states, lasts = ORDERS[call.operator.code], b.shape[1] // 2, [], []
    for i, reverse in enumerate(directions):
        y, last = c.recurrent(x, time, Cells.stacked(op, order, w[i], u[i], b[i, :half], b[i, half:]), reverse)
        cells = y.shape[-1]
        axis = 2 if first else 1
        states.append(c.reshape(y, (*y.shape[:axis], 1, *y.shape[axis:])))
        lasts.append(c.reshape(last, (1, 1, cells)))
    return tuple(
        parts[0] if len(parts) == 1 else c.concat(parts, axis)
        for parts, axis in ((states, 2 if first else 1), (lasts, 1 if first else 0))
    )


RECURRENT_RULES: Mapping[str, Callable[[OnnxCall], tuple[FileTensor, ...]]] = {"GRU": recurrent, "LSTM": recurrent}
