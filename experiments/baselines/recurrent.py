"""Recurrent layers in PyTorch, with their real gradients."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from experiments.baselines.arithmetic import Arithmetic, Function, TorchRule
from smidgen import ops
from smidgen.ir import Node, Op
from smidgen.ops.recurrence import Recurrent, gate_scales


def _recurrent(node: Node, a: Arithmetic) -> Function:
    """In int8 the numpy reference's bytes, with the gradient straight through their rounding."""
    op, (x_type, w_type, u_type, b_type), y = node.op, (v.type for v in node.ins), node.out.type
    assert isinstance(op, Recurrent)
    if y.q is None:
        return lambda *xs: _real(op, *xs)
    of_x, of_h = (torch.tensor(gate_scales(t), device=a.device).reshape(-1, 1, 1) for t in (w_type, u_type))
    steps = torch.cat([x_type.scale * of_x, y.scale * of_h[-1:]])[: b_type.shape[0], :, 0]

    def run(x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
        real = _real(op, (x - x_type.zero) * x_type.scale, w * of_x, u * of_h, b.to(x.dtype) * steps) / y.scale + y.zero
        if not a.rounded:
            return real
        pairs = zip((x, w, u, b), node.ins, strict=True)
        sample, *held = (t.detach().cpu().numpy().astype(v.type.dtype) for t, v in pairs)
        made = [np.asarray(op.ref(node, sample[i : i + 1], *held)) for i in range(len(sample))]
        return torch.from_numpy(np.concatenate(made).astype(np.float32)).to(a.device) + (real - real.detach())

    return run


def _real(op: Recurrent, x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    h = c = torch.zeros(len(x), w.shape[1], dtype=x.dtype, device=x.device)
    states = []
    for now in x.unbind(1):
        if isinstance(op, ops.Lstm):
            h, c = _lstm(op, torch.einsum("ni,gci->ngc", now, w) + torch.einsum("ni,gci->ngc", h, u) + b, c)
        else:
            assert isinstance(op, ops.Gru)
            h = _gru(op, torch.einsum("ni,gci->ngc", now, w) + b[:3], h, u, b[3])
        states.append(h)
    return torch.stack(states, 1) if op.whole else h


def _lstm(op: ops.Lstm, sums: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = sums.unbind(1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    c = c.clamp(-op.clip, op.clip) if op.clip else c
    return torch.sigmoid(o) * torch.tanh(c), c


def _gru(op: ops.Gru, given: Tensor, h: Tensor, u: Tensor, bias: Tensor) -> Tensor:
    r, z = torch.sigmoid(given[:, :2] + torch.einsum("ni,gci->ngc", h, u[:2])).unbind(1)
    old = r * (h @ u[2].T + bias) if op.reset_after else (r * h) @ u[2].T + bias
    return (1 - z) * torch.tanh(given[:, 2] + old) + z * h


RECURRENT_RULES: Mapping[type[Op], TorchRule] = {ops.Gru: _recurrent, ops.Lstm: _recurrent}
