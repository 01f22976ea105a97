"""Update rules for many runs at once: every tensor has a leading dimension of runs, and no run sees another.

Each is the rule PyTorch has under its name, with weight decay added to the gradient. LARS is that of You et al. (2017),
applied to each tensor: v = 0.9·v + rate · local · (g + decay·w), w = w − v, where
local = trust · ‖w‖ / (‖g‖ + decay·‖w‖), or 1 where either norm is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

OptimizerName = Literal["sgd", "momentum", "adam", "lars"]
MOMENTUM = 0.9
BETAS, EPSILON = (0.9, 0.999), 1e-8
KEPT: dict[OptimizerName, int] = {"sgd": 0, "momentum": 1, "adam": 2, "lars": 1}  # tensors beside each that learns


def corrections(step: int) -> tuple[float, float]:
    """Adam's at a step, counted from 1: of the first moment, and the root of that of the second."""
    return 1 - BETAS[0] ** step, math.sqrt(1 - BETAS[1] ** step)


class Optimizer:
    """One rule for a few runs, and what it keeps of their tensors between steps."""

    def __init__(self, name: OptimizerName, weights: Sequence[Tensor], decay: Tensor, trust: Tensor) -> None:
        self.name = name
        self._weights = tuple(weights)
        self._decay = [_along(decay, w) for w in weights]
        self._trust = [_along(trust, w) for w in weights]
        self.kept = tuple(tuple(torch.zeros_like(w) for _ in range(KEPT[name])) for w in weights)

    def step(self, gradients: Sequence[Tensor], rates: Tensor, corrected: Tensor) -> None:
        """Move the weights in place; `rates` is that of each run, `corrected` the two numbers of `corrections`."""
        parts = zip(self._weights, gradients, self._decay, self._trust, self.kept, strict=True)
        for w, g, decay, trust, kept in parts:
            rate = _along(rates, w)
            if self.name == "lars":
                _lars(w, g, rate, decay, trust, *kept)
                continue
            g = g + decay * w
            if self.name == "momentum":
                g = kept[0].mul_(MOMENTUM).add_(g)
            elif self.name == "adam":
                g = _adam(g, corrected, *kept)
            w.sub_(rate * g)


def _along(numbers: Tensor, w: Tensor) -> Tensor:
    """One number per run, in a shape that repeats along its tensor."""
    return numbers.reshape(-1, *(1 for _ in w.shape[1:]))


def _adam(g: Tensor, corrected: Tensor, first: Tensor, second: Tensor) -> Tensor:
    first.mul_(BETAS[0]).add_(g, alpha=1 - BETAS[0])
    second.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
    return first / corrected[0] / (second.sqrt() / corrected[1] + EPSILON)


def _lars(w: Tensor, g: Tensor, rate: Tensor, decay: Tensor, trust: Tensor, velocity: Tensor) -> None:
    across = tuple(range(1, w.dim()))
    weight, gradient = (torch.linalg.vector_norm(t, dim=across, keepdim=True) for t in (w, g))
    local = torch.where((weight > 0) & (gradient > 0), trust * weight / (gradient + decay * weight), 1.0)
    velocity.mul_(MOMENTUM).add_(rate * local * (g + decay * w))
    w.sub_(velocity)
