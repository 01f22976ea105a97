"""Sums whose order is fixed: float32 products, each rounded, added one after another as the device adds them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

BLOCK = 128


def ordered_dot(a: Tensor, b: Tensor) -> Tensor:
    """Σ over dimension 1 of a · b, in float32 and in order; both are [devices, terms, …], three more dimensions."""
    shape = tuple(max(sizes) for sizes in zip(a.shape, b.shape, strict=True))
    a, b = a.expand(shape), b.expand(shape)
    if a.is_cuda:
        return _on_gpu(a, b)
    total = torch.zeros((a.shape[0], *a.shape[2:]), dtype=torch.float32)
    for k in range(a.shape[1]):
        total = total + a[:, k] * b[:, k]
    return total


def _on_gpu(a: Tensor, b: Tensor) -> Tensor:
    out = torch.empty((a.shape[0], *a.shape[2:]), dtype=torch.float32, device=a.device)
    devices, terms, _, second, third = a.shape
    each = out[0].numel()
    grid = (-(-each // BLOCK), devices)
    _kernel()[grid](
        a, b, out, terms, second, third, each, *a.stride(), *b.stride(), BLOCK=BLOCK, enable_fp_fusion=False
    )  # fmt: skip
    return out


@cache
def _kernel() -> Any:
    """Triton comes with PyTorch's builds for CUDA; nothing else needs it."""
    import triton

    from smidgen.simulation import ordered_kernel

    return triton.jit(ordered_kernel.ordered_dot_kernel)
