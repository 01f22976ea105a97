"""int8 arithmetic on PyTorch's floats, with straight-through gradients for rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smidgen import numerics
from smidgen.ir import Array, Node, Type

EXACT_SUMS = (1 << 24) // (128 * 255)  # products of int8 numbers that float32 adds up without rounding

Function = Callable[..., Tensor | tuple[Tensor, ...]]
TorchRule = Callable[[Node, "Arithmetic"], Function]


class _StraightThrough(torch.autograd.Function):
    """Straight-through estimator: `y` forward; backward the gradient of `acc` is dy · `scale` where `inside` is set."""

    @staticmethod
    def forward(ctx: Any, acc: Tensor, scale: Tensor, y: Tensor, inside: Tensor) -> Tensor:
        ctx.save_for_backward(scale, inside)
        ctx.kind = acc.dtype
        return y

    @staticmethod
    def backward(ctx: Any, *dy: Tensor) -> tuple[Tensor | None, ...]:
        scale, inside = ctx.saved_tensors
        return (dy[0] * inside * scale).to(ctx.kind), None, None, None


@dataclass(frozen=True)
class Arithmetic:
    """How accumulators become outputs: rounded as the contract says, or left real; and where constants lie."""

    rounded: bool
    device: torch.device

    def limit(self, activation: str) -> Callable[[Tensor], Tensor]:
        """A float32 output, limited."""
        low, high = numerics.activation_limits(activation)
        return lambda real: real.to(torch.float32).clamp(low, high)

    def requantizer(
        self, type: Type, activation: str, factors: tuple[float, ...], exact: Callable[..., Tensor], clamps: bool = True
    ) -> Callable[..., Tensor]:
        """Accumulators → an int8 output: `exact`, or without rounding times `factors`; then the zero point and limits.

        `exact` reads the accumulators, or the parts they were made of where those are given; `clamps` says
        whether gradients stop at the limits.
        """
        lo, hi = numerics.activation_range(activation, type)
        scale = self.real(factors)

        def requantized(acc: Tensor, *parts: Tensor) -> Tensor:
            with torch.no_grad():
                y = ((exact(*(parts or (acc,))) if self.rounded else acc * scale) + type.zero).clamp_(lo, hi)
                y = y.to(torch.float32)
                if not acc.requires_grad:
                    return y
                inside = (y > lo) & (y < hi) if clamps else torch.ones_like(y, dtype=torch.bool)
            straight: Tensor = _StraightThrough.apply(acc, scale, y, inside)  # type: ignore[no-untyped-call]
            return straight

        return requantized

    def multiply(self, multiplier: Array | int, shift: Array | int) -> Callable[[Tensor], Tensor]:
        """`numerics.multiply` of the nearest whole numbers, which wrap beyond int32 as there."""
        left, right = np.maximum(shift, 0), np.maximum(np.negative(shift), 0).astype(np.int64)
        m, up, down = self._whole(multiplier), self._whole(left + 32), self._whole(right)
        half, falls = self._whole((1 << right) >> 1), self._whole(-(right > 0).astype(np.int64))

        def multiplied(x: Tensor) -> Tensor:
            wrapped = x.round().to(torch.int64).bitwise_left_shift_(up).bitwise_right_shift_(32)
            high = wrapped.mul_(m).add_(1 << 30).bitwise_right_shift_(31)
            below = (high >> 63).bitwise_and_(falls)  # halves go away from zero
            return high.add_(half).add_(below).bitwise_right_shift_(down)

        return multiplied

    def real(self, numbers: tuple[float, ...]) -> Tensor:
        """One number, or one per channel; none means 1."""
        return torch.tensor(numbers or (1.0,), dtype=torch.float64, device=self.device)

    def _whole(self, numbers: Array | int) -> Tensor:
        return torch.from_numpy(np.asarray(numbers, np.int64)).to(self.device)
