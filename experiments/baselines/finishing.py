"""Sums → int8 numbers in float32, in a few passes over memory.

It rounds where the integer arithmetic does: the sum, its product with the multiplier, and that shifted down. float32
holds these numbers to 24 bits, so that an activation differs from the exact one by a step where a product lies within
its rounding error of a half: about one in 100,000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.baselines.arithmetic import Arithmetic
from smidgen import numerics
from smidgen.ir import Array, Type

AWAY = 1 + 2.0**-22  # carries a half away from zero, where round() would take it to the even number
Finisher = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class _Finish:
    """How sums become outputs: `scale` without rounding, or by a multiplier, 2^31 being one, and a shift down."""

    rounded: bool
    scale: Tensor  # ∂y/∂sum
    product: tuple[Tensor, Tensor] | None  # what the multiplier and the shift multiply by; None: the scale alone
    half: Tensor
    zero: int
    limits: tuple[int, int]
    clamps: bool  # whether gradients stop at the limits

    def run(self, sums: Tensor) -> Tensor:
        if self.product is not None:
            multiplier, down = self.product
            y = torch.addcmul(self.half, sums.round(), multiplier).floor_().mul_(down).round_()
        else:
            y = sums * self.scale
            if self.rounded:
                y.mul_(AWAY).round_()
        return y.add_(self.zero).clamp_(*self.limits)


class _StraightThrough(torch.autograd.Function):
    """Straight-through estimator: the gradient passes rounding unchanged, and limits strictly inside them."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor, finish: _Finish) -> Tensor:
        y = finish.run(sums)
        ctx.finish = finish
        ctx.save_for_backward(*((y,) if finish.clamps else ()))
        return y

    @staticmethod
    def backward(ctx: Any, *dy: Tensor) -> tuple[Tensor | None, ...]:
        dx = dy[0] * ctx.finish.scale
        if ctx.finish.clamps:
            ((y,), (low, high)) = ctx.saved_tensors, ctx.finish.limits
            dx.mul_((y > low).logical_and_(y < high))
        return dx, None


def finisher(
    type: Type,
    activation: str,
    scales: tuple[float, ...],
    arithmetic: Arithmetic,
    multiplied: tuple[Array | int, Array | int] | None = None,
    clamps: bool = True,
) -> Finisher:
    """Sums → outputs of a type: times `scales`, none meaning 1, where nothing is rounded or `multiplied` is not given.

    `multiplied` is a multiplier and a shift, or one of each per channel.
    """
    if type.dtype == "float32":
        low, high = numerics.activation_limits(activation)
        return lambda sums: sums if activation == "none" else sums.clamp(low, high)
    product = None
    if arithmetic.rounded and multiplied is not None:
        multiplier, shift = (np.asarray(part, np.float64) for part in multiplied)
        factors = multiplier * 2.0 ** (np.maximum(shift, 0) - 31), AWAY * 2.0 ** np.minimum(shift, 0)
        product = (_tensor(factors[0], arithmetic), _tensor(factors[1], arithmetic))
    limits = numerics.activation_range(activation, type)
    scale = _tensor(np.array(scales or 1.0), arithmetic)
    finish = _Finish(arithmetic.rounded, scale, product, torch.full_like(scale[:1], 0.5), type.zero, limits, clamps)

    def finished(sums: Tensor) -> Tensor:
        y: Tensor = _StraightThrough.apply(sums, finish)  # type: ignore[no-untyped-call]
        return y

    return finished


def _tensor(numbers: Array, arithmetic: Arithmetic) -> Tensor:
    return torch.from_numpy(np.atleast_1d(numbers).astype(np.float32)).to(arithmetic.device)
