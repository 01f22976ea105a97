"""The backward pass for all devices at once: the float32 loss and its gradient, and the sums of each gradient op.

A function in BACKWARD takes a gradient op's operands and returns the sums as [devices, channels, positions], which
`running` rounds. In the float32 part nothing is compiled or fused: each product and sum is rounded by itself, as on the
device.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smidgen import ops
from smidgen.ir import Node, Op
from smidgen.numerics import float32
from smidgen.ops.conv import ConvGradInput, DepthwiseGradInput
from smidgen.ops.dense import DenseGradInput
from smidgen.ops.elementwise import MulGrad
from smidgen.ops.gradient import GRADIENT_MOST, RequantizeGrad
from smidgen.ops.losses import LOGIT_LIMIT as LARGEST_LOGIT
from smidgen.ops.pool import MeanGrad
from smidgen.ops.rules import LARGEST_RATE, LEAST_RATE
from smidgen.simulation import sums
from smidgen.simulation.forward import FORWARD, WEIGHT_MOST, Function, in_numpy, rule
from smidgen.simulation.layout import Setting, unflatten
from smidgen.simulation.sums import ordered_dot

SumRule = Callable[[Any, Node, Setting], Callable[..., Tensor]]
BACKWARD: dict[type[Op], SumRule] = {}
LOG2_E, LN2_HIGH, LN2_LOW = (float(x) for x in (float32.LOG2_E, float32.LN2_HIGH, float32.LN2_LOW))
EXP_LEAST, LOGIT_LIMIT = float(float32.EXP_LEAST), float(LARGEST_LOGIT)
EXP_TERMS, LOG_TERMS = (tuple(float(t) for t in terms) for terms in (float32.EXP_TERMS, float32.LOG_TERMS))
HALF_ROOT = 0x3F3504F3  # √½ as bits


def sums_by_reference(op: Any, node: Node, s: Setting) -> Callable[..., Tensor]:
    """Any other gradient op's sums are those of its numpy reference."""
    s.by_reference.append(type(op).__name__)
    run = in_numpy(partial(op.sums, node), node.ins[: op.operands], node.outs[:1], s.device)
    return lambda *xs: run(*xs)[0].flatten(2)


BACKWARD[RequantizeGrad] = lambda op, node, s: lambda dy: dy.flatten(2)
BACKWARD[MulGrad] = lambda op, node, s: lambda dy, b: (dy * b).flatten(2)


@rule(MeanGrad, into=BACKWARD)
def _mean(op: Op, node: Node, s: Setting) -> Callable[..., Tensor]:
    _, height, width, _ = node.outs[0].type.shape
    return lambda dy: dy.reshape(*dy.shape[:2], 1).expand(-1, -1, height * width)


@rule(ConvGradInput, into=BACKWARD)
def _conv(op: ConvGradInput, node: Node, s: Setting) -> Callable[..., Tensor]:
    w_type, dx = node.ins[1].type, node.outs[0].type
    window, most = op.window(w_type), GRADIENT_MOST * WEIGHT_MOST
    plain = window.size == (1, 1) and window.stride == (1, 1) and not any(window.pad)
    long = op.bound(node) >= sums.EXACT

    def run(dy: Tensor, w: Tensor) -> Tensor:
        flat, each = dy.flatten(2), w.shape[1] // op.groups
        parts = [
            sums.product(
                w[:, g * each : (g + 1) * each].flatten(2).transpose(1, 2), flat[:, g * each : (g + 1) * each], most
            )
            for g in range(op.groups)
        ]
        if plain:
            return parts[0] if op.groups == 1 else torch.cat(parts, dim=1)
        columns = [p.to(torch.int64) if long else p for p in parts]
        shaped = [unflatten(unflatten(c, 1, (*window.size, -1)), 4, dy.shape[2:]) for c in columns]
        return sums.scatter(torch.cat(shaped, dim=3), window, *dx.shape[1:3]).flatten(2)

    return run


@rule(DepthwiseGradInput, into=BACKWARD)
def _depthwise(op: DepthwiseGradInput, node: Node, s: Setting) -> Callable[..., Tensor]:
    w_type, dx = node.ins[1].type, node.outs[0].type
    window = op.window(w_type)

    def run(dy: Tensor, w: Tensor) -> Tensor:
        taps = w.reshape(w.shape[0], *w_type.shape[1:])
        made = sums.depthwise_back(dy, taps, window, *dx.shape[1:3])
        return unflatten(made, 1, (-1, op.multiplier)).sum(2).flatten(2) if op.multiplier > 1 else made.flatten(2)

    return run


@rule(DenseGradInput, into=BACKWARD)
def _dense(op: Op, node: Node, s: Setting) -> Callable[..., Tensor]:
    return lambda dy, w: sums.product(w.flatten(2).transpose(1, 2), dy, GRADIENT_MOST * WEIGHT_MOST)


@rule(DenseGradInput, into=FORWARD)
def _dense_in_float(op: Op, node: Node, s: Setting) -> Function:
    """Through a float32 head: the sum runs over the outputs in order."""

    def run(dy: Tensor, w: Tensor) -> Tensor:
        total = ordered_dot(dy[..., None, None], w.flatten(2)[..., None, None])
        return total.flatten(2)

    return run


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
def _cross_entropy(op: Op, node: Node, s: Setting) -> Function:
    def run(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        above = torch.where(logits > -LOGIT_LIMIT, logits, -LOGIT_LIMIT)
        limited = torch.where(above < LOGIT_LIMIT, above, LOGIT_LIMIT)
        shifted = limited - limited.amax(1, keepdim=True)
        exps = exp_f32(shifted)
        ones = torch.ones((1, 1, 1, 1, 1), device=exps.device)
        total = ordered_dot(exps[..., None, None], ones).flatten(2)
        chosen = shifted.gather(1, label.reshape(-1, 1, 1).expand(len(shifted), 1, 1)).flatten(1)
        return log_f32(total[:, 0]) - chosen, exps / total

    return run


@rule(ops.CrossEntropyGrad, into=FORWARD)
def _cross_entropy_grad(op: Op, node: Node, s: Setting) -> Function:
    classes = torch.arange(node.out.type.shape[1], device=s.device).unsqueeze(1)
    return lambda probabilities, label: probabilities - (classes == label.reshape(-1, 1, 1)).to(torch.float32)


@rule(ops.MaxAbs, into=FORWARD)
def _max_abs(op: Op, node: Node, s: Setting) -> Function:
    return lambda x: torch.where(x.isnan(), 0.0, x.abs()).amax(dim=(1, 2)).unsqueeze(1)


@rule(ops.Rate, into=FORWARD)
def _rate(op: Op, node: Node, s: Setting) -> Function:
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
    """Return what `ops.FromFloat` rounds, as whole numbers: dy [devices, channels, …] in `unit` [devices, 1]."""
    op = node.op
    assert isinstance(op, ops.FromFloat)
    inverse = torch.where(unit > op.TINY, 1.0 / unit, 0.0)
    factor = (inverse * float(np.float32(op.scale))).unsqueeze(2)
    scaled = dy.flatten(2) * factor * power_of_two(op.BITS - exponent.to(torch.int64)).reshape(-1, 1, 1)
    limit = 2.0**29
    above = torch.where(scaled > -limit, scaled, -limit)
    return torch.where(above < limit, above, limit).floor().to(torch.int64)
