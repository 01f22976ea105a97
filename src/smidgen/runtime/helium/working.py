"""Working memory of the kernels in vectors, in bytes: as each lays it out in its C."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from smidgen.ir import Node
from smidgen.ops.conv import Conv2D, ConvGradInput, ConvGradWeight, Depthwise, DepthwiseGradInput
from smidgen.ops.update import FusedStep
from smidgen.runtime.kernels import working as portable
from smidgen.runtime.sizes import read_sizes

SIZES = read_sizes(Path(__file__).with_name("working_helium.h"))
CHANNELS, COLUMNS, WORD, POINTER = 16, 4, 4, 4


def _up(x: int) -> int:
    """To a whole vector."""
    return -(-x // CHANNELS) * CHANNELS


def _conv2d(node: Node, by_row: bool) -> int:
    """Four filters, packed and with what is trained of their channels, and windows, unless each is a pixel."""
    assert isinstance(node.op, Conv2D)
    k, width = math.prod(node.ins[1].type.shape[1:]), node.out.type.shape[2]
    pixels = node.ins[1].type.shape[1:3] == (1, 1) and not any(node.op.pad)
    windows = 0 if pixels else max(min(SIZES["WINDOW_ROOM"] // k, width), 1)
    packed = COLUMNS * _up(k) if k > SIZES["UNPACKED"] else 0
    return packed + (COLUMNS + windows) * k


def _depthwise(node: Node, by_row: bool) -> int:
    """Rows' addresses, filters and rows of a block of channels: all of a row where the output may take its place."""
    assert isinstance(node.op, Depthwise)
    (_, high, wide, _), (_, _, width, _) = node.ins[1].type.shape, node.out.type.shape
    stride, dilation = node.op.stride[1], node.op.dilation
    overlap, kept = dilation[1] == 1 and stride <= wide, (high - 1) * dilation[0] + 1

    def field(pixels: int) -> int:
        return kept * CHANNELS * ((pixels - 1) * stride + wide if overlap else pixels * wide)

    tile = width
    while (by_row or node.op.donor(node) is None) and tile > 1 and field(tile) > SIZES["FIELD"]:
        tile = (tile + 1) // 2
    return high * POINTER + high * wide * CHANNELS + field(tile)


def _conv2d_grad(node: Node, by_row: bool) -> int:
    """Sums of sixteen channels and four columns of weights, for 1x1 convolutions."""
    assert isinstance(node.op, ConvGradInput)
    op, dy, w, dx = node.op, node.ins[0].type, node.ins[1].type, node.outs[0].type
    pixel = w.shape[1:3] == (1, 1) and op.stride == (1, 1) and dy.shape[1:3] == dx.shape[1:3] and op.groups == 1
    if not pixel or dx.shape[3] % 8 or dx.shape[3] > SIZES["WIDEST"]:
        return 0
    pixels = dx.shape[1] * dx.shape[2]
    part = -(-pixels // -(-pixels // SIZES["DOT_PIXELS"]))
    return part * CHANNELS * WORD + COLUMNS * _up(dy.shape[3])


def _depthwise_grad(node: Node, by_row: bool) -> int:
    """Sums, rows' addresses, filters and rows of a block of channels; or as in portable C."""
    assert isinstance(node.op, DepthwiseGradInput)
    op, (_, high, wide, _), (_, _, width, channels) = node.op, node.ins[1].type.shape, node.outs[0].type.shape
    if op.multiplier > 1 or channels % 8 or op.dilation != (1, 1) or min(op.pad[0], op.pad[2]) < 0:
        return portable.NEEDS["smg_depthwise_grad_g8"](node, by_row)
    (down, across), left = op.stride, op.pad[2]
    kept, sums = -(-high // down), min(width, SIZES["GRAD_TILE"]) * CHANNELS * WORD
    columns = (width - 1 + left) // across - left // across + -(-wide // across)
    return sums + kept * POINTER + CHANNELS * (high * wide + kept * columns)


def _weight_step(node: Node, by_row: bool) -> int:
    """Of a 1x1 convolution sums of four outputs, and columns of both maps; else as in portable C."""
    assert isinstance(node.op, FusedStep)
    grad, (x, dy) = node.op.gradient, (v.type.shape for v in node.op.parts(node.ins).sources)
    assert isinstance(grad, ConvGradWeight)
    pixel = (*grad.size, *grad.stride, grad.groups) == (1,) * 5 and x[1:3] == dy[1:3] and not any(grad.pad)
    if not pixel or max(x[3], dy[3]) > SIZES["WIDEST"]:
        return portable.NEEDS["smg_conv2d_weight_step"](node, by_row)
    positions = x[1] * x[2]
    room = min(max(SIZES["WEIGHT_ROOM"] // positions & ~3, COLUMNS), x[3] + 3 & ~3)
    return COLUMNS * (room * WORD + _up(positions)) + room * positions


NEEDS: Mapping[str, Callable[[Node, bool], int]] = {
    "smg_conv2d_s8": _conv2d,
    "smg_depthwise_s8": _depthwise,
    "smg_conv2d_grad_g8": _conv2d_grad,
    "smg_depthwise_grad_g8": _depthwise_grad,
    "smg_conv2d_weight_step": _weight_step,
}
