"""What each gradient op sums up, for all devices at once; `running` rounds the sums.

A function here takes the op's operands and gives the sums as [devices, channels, positions].
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from smidgen.ir import Node, Op
from smidgen.ops.conv import ConvGradInput, DepthwiseGradInput
from smidgen.ops.dense import DenseGradInput
from smidgen.ops.elementwise import MulGrad
from smidgen.ops.gradient import GRADIENT_MOST, GradOp, RequantizeGrad
from smidgen.ops.pool import MeanGrad
from smidgen.simulation import sums
from smidgen.simulation.forward import FORWARD, WEIGHT_MOST, Function, rule
from smidgen.simulation.layout import Setting, from_lanes, to_lanes, unflatten
from smidgen.simulation.ordered import ordered_dot

SumRule = Callable[[Node, Setting], Callable[..., Tensor]]
BACKWARD: dict[type[Op], SumRule] = {}


def sums_by_reference(node: Node, s: Setting) -> Callable[..., Tensor]:
    """Any other gradient op's sums are those of its numpy reference, device by device."""
    op = node.op
    assert isinstance(op, GradOp)
    s.by_reference.append(type(op).__name__)

    def run(*xs: Tensor) -> Tensor:
        devices = max(x.shape[0] for x in xs)
        arrays = [from_lanes(x, v.type) for x, v in zip(xs, node.ins, strict=False)]
        shapes = [v.type.shape for v in node.ins]
        made = [
            op.sums(node, *(a[min(d, len(a) - 1)].reshape(shape) for a, shape in zip(arrays, shapes, strict=False)))
            for d in range(devices)
        ]
        return torch.cat([to_lanes(one, node.outs[0].type) for one in made]).to(s.device).flatten(2)

    return run


@rule(RequantizeGrad, into=BACKWARD)
def _requantize(node: Node, s: Setting) -> Callable[..., Tensor]:
    return lambda dy: dy.flatten(2)


@rule(MeanGrad, into=BACKWARD)
def _mean(node: Node, s: Setting) -> Callable[..., Tensor]:
    _, height, width, _ = node.outs[0].type.shape
    return lambda dy: dy.reshape(*dy.shape[:2], 1).expand(-1, -1, height * width)


@rule(MulGrad, into=BACKWARD)
def _mul(node: Node, s: Setting) -> Callable[..., Tensor]:
    return lambda dy, b: (dy * b).flatten(2)


@rule(ConvGradInput, into=BACKWARD)
def _conv(node: Node, s: Setting) -> Callable[..., Tensor]:
    op, w_type, dx = node.op, node.ins[1].type, node.outs[0].type
    assert isinstance(op, ConvGradInput)
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
def _depthwise(node: Node, s: Setting) -> Callable[..., Tensor]:
    op, w_type, dx = node.op, node.ins[1].type, node.outs[0].type
    assert isinstance(op, DepthwiseGradInput)
    window = op.window(w_type)

    def run(dy: Tensor, w: Tensor) -> Tensor:
        taps = w.reshape(w.shape[0], *w_type.shape[1:])
        made = sums.depthwise_back(dy, taps, window, *dx.shape[1:3])
        return unflatten(made, 1, (-1, op.multiplier)).sum(2).flatten(2) if op.multiplier > 1 else made.flatten(2)

    return run


@rule(DenseGradInput, into=BACKWARD)
def _dense(node: Node, s: Setting) -> Callable[..., Tensor]:
    return lambda dy, w: sums.product(w.flatten(2).transpose(1, 2), dy, GRADIENT_MOST * WEIGHT_MOST)


@rule(DenseGradInput, into=FORWARD)
def _dense_in_float(node: Node, s: Setting) -> Function:
    """Through a float32 head: the sum runs over the outputs in order."""

    def run(dy: Tensor, w: Tensor) -> Tensor:
        total = ordered_dot(dy[..., None, None], w.flatten(2)[..., None, None])
        return total.flatten(2)

    return run
