"""The LSTM in PyTorch, with its real gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from smidgen import ops
from smidgen.ir import Node, Op
from smidgen.ops.recurrence import gate_scales
from smidgen.simulation.arithmetic import Arithmetic, Function, TorchRule


def _lstm(node: Node, a: Arithmetic) -> Function:
    """In int8 the numpy reference's bytes, with the gradient straight through their rounding."""
    op, (x_type, w_type, u_type, _), y = node.op, (v.type for v in node.ins), node.out.type
    assert isinstance(op, ops.Lstm)
    if y.q is None:
        return lambda *xs: _real(op, *xs)
    of_x, of_h = (torch.tensor(gate_scales(t), device=a.device).reshape(-1, 1, 1) for t in (w_type, u_type))

    def run(x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
        bias = b.to(x.dtype) * x_type.scale * of_x[:, :, 0]
        real = _real(op, (x - x_type.zero) * x_type.scale, w * of_x, u * of_h, bias) / y.scale + y.zero
        if not a.rounded:
            return real
        pairs = zip((x, w, u, b), node.ins, strict=True)
        sample, *held = (t.detach().cpu().numpy().astype(v.type.dtype) for t, v in pairs)
        made = [np.asarray(op.ref(node, sample[i : i + 1], *held)) for i in range(len(sample))]
        return torch.from_numpy(np.concatenate(made).astype(np.float32)).to(a.device) + (real - real.detach())

    return run


def _real(op: ops.Lstm, x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    h = c = torch.zeros(len(x), w.shape[1], dtype=x.dtype, device=x.device)
    states = []
    for now in x.unbind(1):
        i, f, g, o = (torch.einsum("ni,gci->ngc", now, w) + torch.einsum("ni,gci->ngc", h, u) + b).unbind(1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        c = c.clamp(-op.clip, op.clip) if op.clip else c
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states, 1) if op.whole else h


RECURRENT_RULES: Mapping[type[Op], TorchRule] = {ops.Lstm: _lstm}
