"""The float32 end of the network: loss, its gradient and the rate, operation by operation as on the device.

Nothing here is compiled or fused: each product and sum is rounded to float32 by itself.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from smidgen import ops
from smidgen.ir import Node
from smidgen.numerics import float32
from smidgen.ops.losses import LOGIT_LIMIT as LARGEST_LOGIT
from smidgen.ops.rules import LARGEST_RATE, LEAST_RATE
from smidgen.simulation.forward import FORWARD, Function, rule
from smidgen.simulation.layout import Setting
from smidgen.simulation.ordered import ordered_dot

LOG2_E, LN2_HIGH, LN2_LOW = (float(x) for x in (float32.LOG2_E, float32.LN2_HIGH, float32.LN2_LOW))
EXP_LEAST, LOGIT_LIMIT = float(float32.EXP_LEAST), float(LARGEST_LOGIT)
EXP_TERMS, LOG_TERMS = (tuple(float(t) for t in terms) for terms in (float32.EXP_TERMS, float32.LOG_TERMS))
HALF_ROOT = 0x3F3504F3  # √½ as bits


def exp_f32(x: Tensor) -> Tensor:
    """`numerics.float32.exp_f32`."""
    limited = x.clamp(min=EXP_LEAST)
    n = (limited * LOG2_E - 0.5).trunc()
    r = (limited - n * LN2_HIGH) - n * LN2_LOW
    p = torch.full_like(r, EXP_TERMS[0])
    for term in EXP_TERMS[1:]:
        p = p * r + term
    power = ((n.to(torch.int32) + 127) << 23).view(torch.float32)
    return torch.where(x < EXP_LEAST, 0.0, p * power)


def log_f32(x: Tensor) -> Tensor:
    """`numerics.float32.log_f32`."""
    bits = x.contiguous().view(torch.int32)
    e = (bits - HALF_ROOT) >> 23
    m = (bits - (e << 23)).view(torch.float32)
    s = (m - 1.0) / (m + 1.0)
    s2 = s * s
    p = torch.full_like(s, LOG_TERMS[0])
    for term in LOG_TERMS[1:]:
        p = p * s2 + term
    whole = e.to(torch.float32)
    return (whole * LN2_LOW + s * p) + whole * LN2_HIGH


@rule(ops.SoftmaxCrossEntropy, into=FORWARD)
def _cross_entropy(node: Node, s: Setting) -> Function:
    def run(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        above = torch.where(logits > -LOGIT_LIMIT, logits, -LOGIT_LIMIT)
        limited = torch.where(above < LOGIT_LIMIT, above, LOGIT_LIMIT)
        shifted = limited - limited.amax(1, keepdim=True)
        exps = exp_f32(shifted)
        ones = torch.ones((1, 1, 1, 1, 1), device=exps.device)
        total = ordered_dot(exps[..., None, None], ones).flatten(2)
        chosen = shifted.index_select(1, label).flatten(1)
        return log_f32(total[:, 0]) - chosen, exps / total

    return run


@rule(ops.CrossEntropyGrad, into=FORWARD)
def _cross_entropy_grad(node: Node, s: Setting) -> Function:
    classes = torch.arange(node.out.type.shape[1], device=s.device).unsqueeze(1)
    return lambda probabilities, label: probabilities - (classes == label).to(torch.float32)


@rule(ops.MaxAbs, into=FORWARD)
def _max_abs(node: Node, s: Setting) -> Function:
    return lambda x: torch.where(x.isnan(), 0.0, x.abs()).amax(dim=(1, 2)).unsqueeze(1)


@rule(ops.Rate, into=FORWARD)
def _rate(node: Node, s: Setting) -> Function:
    def run(learning_rate: Tensor, unit: Tensor) -> Tensor:
        bits = (learning_rate * unit).view(torch.int32).to(torch.int64)
        exponent = bits >> 23
        used = (exponent >= LEAST_RATE) & (exponent <= LARGEST_RATE)
        pair = torch.cat((((bits & 0x7FFFFF) | 0x800000) << 7, exponent - 126), dim=1)
        return torch.where(used, pair, 0)

    return run


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent in float32, within its normal numbers."""
    return ((exponent + 127) << 23).to(torch.int32).view(torch.float32)


def from_float(node: Node, dy: Tensor, unit: Tensor, exponent: Tensor) -> Tensor:
    """What `ops.FromFloat` rounds, in whole numbers: dy [devices, channels, …] in units of `unit` [devices, 1]."""
    op = node.op
    assert isinstance(op, ops.FromFloat)
    inverse = torch.where(unit > op.TINY, 1.0 / unit, 0.0)
    factor = (inverse * float(np.float32(op.scale))).unsqueeze(2)
    scaled = dy.flatten(2) * factor * power_of_two(op.BITS - exponent.to(torch.int64)).reshape(-1, 1, 1)
    limit = 2.0**29
    above = torch.where(scaled > -limit, scaled, -limit)
    return torch.where(above < limit, above, limit).floor().to(torch.int64)
