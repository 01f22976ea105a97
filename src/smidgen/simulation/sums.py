"""Exact sums of products of small whole numbers in float32: matrix products, windows over maps, depthwise windows.

Maps are [devices, channels, images, rows, columns], where devices or images may be 1. A float32 sum of whole numbers
is exact in any order while it stays below 2^24; longer ones are split and added up as int64.
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from smidgen.ops.window import Window
from smidgen.simulation.layout import unflatten

EXACT = 1 << 24


def product(w: Tensor, x: Tensor, most: int) -> Tensor:
    """w [devices, outputs, terms] · x [devices, terms, positions], exactly; no product exceeds `most`."""
    terms, fit = w.shape[2], (EXACT - 1) // most
    if terms <= fit:
        return _product(w, x)
    parts = [_product(w[:, :, k : k + fit], x[:, k : k + fit]).to(torch.int64) for k in range(0, terms, fit)]
    return torch.stack(parts).sum(0)


def _product(w: Tensor, x: Tensor) -> Tensor:
    if x.shape[0] == 1:
        return unflatten(w.flatten(0, 1) @ x[0], 0, w.shape[:2])
    if w.shape[0] == 1:
        return torch.matmul(w[0], x)
    return torch.bmm(w, x)


def patches(x: Tensor, window: Window) -> Tensor:
    """Return the elements under a window: [devices, taps · channels, positions], channel by channel within a tap."""
    if window.size == (1, 1) and window.stride == (1, 1) and not any(window.pad):
        return x.flatten(2)
    seen = views(x, window)
    devices, kh, kw, channels = seen.shape[:4]
    return seen.reshape(devices, kh * kw * channels, -1)


def views(x: Tensor, window: Window) -> Tensor:
    """The same without a copy: [devices, kernel rows, kernel columns, channels, images, rows, columns]."""
    top, bottom, left, right = window.pad
    padded = F.pad(x, (left, right, top, bottom)).contiguous()
    (kh, kw), (sh, sw), (dh, dw) = window.size, window.stride, window.dilation
    devices, channels, images, height, width = padded.shape
    rows = (height - (kh - 1) * dh - 1) // sh + 1
    columns = (width - (kw - 1) * dw - 1) // sw + 1
    d, c, n, h, w = padded.stride()
    return padded.as_strided(
        (devices, kh, kw, channels, images, rows, columns), (d, dh * h, dw * w, c, n, sh * h, sw * w)
    )


def depthwise(x: Tensor, w: Tensor, window: Window) -> Tensor:
    """Convolve each channel with its filters; w is [devices, kernel rows, kernel columns, channels · multiplier]."""
    devices, channels = max(x.shape[0], w.shape[0]), x.shape[1]
    x, w = x.expand(devices, *x.shape[1:]), w.expand(devices, *w.shape[1:])
    if x.is_cuda:
        return _depthwise_on_gpu(x, w, window)
    seen = views(x, window).repeat_interleave(w.shape[3] // channels, dim=3)
    total = torch.zeros((devices, w.shape[3], *seen.shape[4:]))
    for i in range(seen.shape[1]):
        for j in range(seen.shape[2]):
            total += seen[:, i, j] * w[:, i, j, :, None, None, None]
    return total


def _depthwise_on_gpu(x: Tensor, w: Tensor, window: Window) -> Tensor:
    """PyTorch's own kernel, which adds one product after another; cuDNN might take a transform that rounds."""
    devices, channels, images, height, width = x.shape
    maps = x.permute(2, 0, 1, 3, 4).reshape(images, devices * channels, height, width)
    filters = w.permute(0, 3, 1, 2).reshape(-1, 1, *window.size)
    top, bottom, left, right = window.pad
    if (top, left) != (bottom, right) or min(window.pad) < 0:
        maps, top, left = F.pad(maps, (left, right, top, bottom)), 0, 0
    summed = torch.ops.aten._conv_depthwise2d(
        maps, filters, window.size, None, window.stride, (top, left), window.dilation
    )
    return unflatten(summed, 1, (devices, -1)).permute(1, 2, 0, 3, 4)


def scatter(columns: Tensor, window: Window, height: int, width: int) -> Tensor:
    """Add [devices, kernel rows, kernel columns, channels, images, rows, columns] back to the map they came from."""
    (top, bottom, left, right), (sh, sw), (dh, dw) = window.pad, window.stride, window.dilation
    devices, kh, kw, channels, images, rows, cols = columns.shape
    shape = (devices, channels, images, height + top + bottom, width + left + right)
    full = torch.zeros(shape, dtype=columns.dtype, device=columns.device)
    for i in range(kh):
        for j in range(kw):
            full[..., i * dh : i * dh + rows * sh : sh, j * dw : j * dw + cols * sw : sw] += columns[:, i, j]
    return full[..., top : top + height, left : left + width]


def depthwise_back(dy: Tensor, w: Tensor, window: Window, height: int, width: int) -> Tensor:
    """The gradient of a depthwise window's input: dy spread out by the stride, under the kernel turned round."""
    (top, _, left, _), (sh, sw), (dh, dw) = window.pad, window.stride, window.dilation
    kh, kw = window.size
    spread = dy
    if window.stride != (1, 1):
        shape = (*dy.shape[:3], (dy.shape[3] - 1) * sh + 1, (dy.shape[4] - 1) * sw + 1)
        spread = torch.zeros(shape, dtype=dy.dtype, device=dy.device)
        spread[..., ::sh, ::sw] = dy
    above, before = (kh - 1) * dh - top, (kw - 1) * dw - left
    below = height - spread.shape[3] - above + (kh - 1) * dh
    behind = width - spread.shape[4] - before + (kw - 1) * dw
    turned = Window(window.size, (1, 1), (above, below, before, behind), window.dilation)
    return depthwise(spread, w.flip(1, 2), turned)


def grouped_product(w: Tensor, seen: Tensor, groups: int, most: int) -> Tensor:
    """`product` where each group of outputs sees its own channels: w is [devices, outputs, taps, channels]."""
    outputs, taps, each = w.shape[1:]
    x = unflatten(seen, 1, (taps, groups, each))
    parts = [
        product(w[:, g * outputs // groups : (g + 1) * outputs // groups].flatten(2), x[:, :, g].flatten(1, 2), most)
        for g in range(groups)
    ]
    return torch.cat(parts, dim=1)


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
