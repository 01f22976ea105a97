"""PyTorch's recurrent layers: LSTM and GRU, stacked, forward or both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.channels import Constant, FileTensor
from smidgen.frontends.sequences import Cells, check_zero
from smidgen.ir import Array

if TYPE_CHECKING:
    from smidgen.frontends.torch.call import TorchCall

X, STATES, WEIGHTS, BIASED, LAYERS, BOTH, BATCH_FIRST = 0, 1, 2, 3, 4, 7, 8  # places of arguments


def _layers(call: TorchCall, op: ops.Lstm | ops.Gru) -> list[Cells]:
    """The weights of each layer, of both directions where it has two."""
    held = [call.values.get(item) for item in call.raw(WEIGHTS)]
    weights = [item.data for item in held if isinstance(item, Constant)]
    count = int(call.number(LAYERS, 1)) * (2 if call.raw(BOTH) else 1)
    each = 4 if call.raw(BIASED) else 2
    if len(weights) != len(held) or count < 1 or len(weights) != each * count:
        raise ImportModelError(
            f"its {len(held)} weights are not {each * count} constants, those of {count} layers; leave out proj_size"
        )
    return [_cells(op, weights[i : i + each]) for i in range(0, len(weights), each)]


def _cells(op: ops.Lstm | ops.Gru, parts: list[Array]) -> Cells:
    w, u, *biases = parts
    b, d = biases or (np.zeros(w.shape[0]),) * 2
    return Cells.stacked(op, range(op.gates), w, u, b, d)


def _recurrent(call: TorchCall, op: ops.Lstm | ops.Gru) -> tuple[FileTensor, FileTensor]:
    """The hidden states of the last layer, and the last ones of every layer."""
    given = call.raw(STATES)
    for state in given if isinstance(given, list | tuple) else [given]:
        check_zero(call.values.get(state))
    c, x, lasts = call.c, call.tensor(X), []
    time = 1 if call.raw(BATCH_FIRST) and len(x.shape) == 3 else 0
    directions = (False, True) if call.raw(BOTH) else (False,)
    layers = iter(_layers(call, op))
    for _ in range(int(call.number(LAYERS, 1))):
        made = [c.recurrent(x, time, next(layers), reverse) for reverse in directions]
        x = made[0][0] if len(made) == 1 else c.concat([y for y, _ in made], -1)
        lasts += [c.reshape(last, (1, *(1,) * (len(x.shape) - 2), last.shape[-1])) for _, last in made]
    return x, lasts[0] if len(lasts) == 1 else c.concat(lasts, 0)


RECURRENT_RULES: Mapping[str, Callable[[TorchCall], object]] = {
    "gru": lambda call: _recurrent(call, ops.Gru()),
    "lstm": lambda call: _recurrent(call, ops.Lstm()),
}
