"""What attention is made of, in PyTorch: products of two computed tensors, softmax, normalization."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.baselines.arithmetic import Arithmetic, Function, TorchRule
from smidgen import ops
from smidgen.ir import Node, Op
from smidgen.ops.elementwise import ratio
from smidgen.ops.normalize import SHIFT_BITS
from smidgen.ops.softmax import SHARES
from smidgen.ops.unit_norm import LEAST_LENGTH


def _exact(node: Node, a: Arithmetic, *xs: Tensor) -> Tensor:
    """The numpy reference's steps above the zero point, one sample after another."""
    shape = node.ins[0].type.shape
    first, *others = (x.detach().cpu().numpy().astype(v.type.dtype) for x, v in zip(xs, node.ins, strict=True))
    made = [np.asarray(node.op.ref(node, each, *others)) for each in first.reshape(-1, *shape)]
    steps = np.concatenate([m.reshape(1, *shape) for m in made]).reshape(xs[0].shape).astype(np.float64)
    return torch.from_numpy(steps - node.out.type.zero).to(a.device)


def _matmul(node: Node, a: Arithmetic) -> Function:
    op, (left, right), y = node.op, (v.type for v in node.ins), node.out.type
    assert isinstance(op, ops.MatMul)

    def product(p: Tensor, q: Tensor) -> Tensor:
        return (p.mT if op.transpose_a else p) @ (q.mT if op.transpose_b else q)

    if y.dtype == "float32":
        return product
    finish = a.requantizer(y, "none", ratio(left, right, over=y), a.multiply(*op.multiplier(node)))
    return lambda p, q: finish(product((p - left.zero).double(), (q - right.zero).double()))


def _softmax(node: Node, a: Arithmetic) -> Function:
    op, x, y = node.op, node.ins[0].type, node.out.type
    assert isinstance(op, ops.Softmax)
    if y.dtype == "float32":
        return lambda q: F.softmax(q * op.beta, dim=-1)
    scale = x.scale * op.beta
    finish = a.requantizer(y, "none", (scale,), lambda steps: _exact(node, a, steps), clamps=False)

    def run(steps: Tensor) -> Tensor:
        if not a.rounded:
            return F.softmax(steps.double() * scale, dim=-1).mul(SHARES).add(y.zero).to(torch.float32)
        shares, wide = _exact(node, a, steps), steps.double()
        return finish(shares * (wide - (shares * wide).sum(dim=-1, keepdim=True) / SHARES), steps)

    return run


def _normalize(node: Node, a: Arithmetic) -> Function:
    op, x, y = node.op, node.ins[0].type, node.out.type
    assert isinstance(op, ops.Normalize)
    split, epsilon = op.split(x), op.epsilon if x.q is None else op.epsilon / x.scale**2

    def normalized(q: Tensor) -> Tensor:
        apart = q.reshape(-1, split.positions, split.groups, split.width)
        variance, mean = torch.var_mean(apart, dim=(1, 3), keepdim=True, correction=0)
        return ((apart - mean) * (variance + epsilon).rsqrt()).reshape(q.shape)

    if y.dtype == "float32":
        return lambda q, scale, shift: normalized(q) * scale + shift
    steps = node.ins[1].type.scale / y.scale
    finish = a.requantizer(y, "none", (steps,), lambda *parts: _exact(node, a, *parts))

    def run(q: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        moved = shift.double() / (2**SHIFT_BITS * steps)
        return finish(normalized(q.double()) * scale.double() + moved, q, scale, shift)

    return run


def _unit_norm(node: Node, a: Arithmetic) -> Function:
    x, y = node.ins[0].type, node.out.type
    if y.dtype == "float32":
        return lambda q: F.normalize(q, dim=-1, eps=LEAST_LENGTH)
    finish = a.requantizer(y, "none", (1 / y.scale,), lambda q: _exact(node, a, q))
    return lambda q: finish(F.normalize((q - x.zero).double(), dim=-1, eps=1.0), q)


ATTENTION_RULES: Mapping[type[Op], TorchRule] = {
    ops.MatMul: _matmul, ops.Normalize: _normalize, ops.Softmax: _softmax, ops.UnitNorm: _unit_norm,
}  # fmt: skip
