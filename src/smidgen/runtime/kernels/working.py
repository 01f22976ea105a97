"""Working memory of the portable kernels, in bytes: as each lays it out in its C."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from smidgen.ir import Node
from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.ops.gru import Gru
from smidgen.ops.lstm import Lstm
from smidgen.runtime.sizes import read_sizes

SIZES = read_sizes(Path(__file__).with_name("working.h"))
LANES, PIXELS = SIZES["LANES"], SIZES["PIXELS"]


def rows(node: Node, by_row: bool) -> int:
    """Output rows that one call computes."""
    return 1 if by_row else node.outs[0].type.shape[1]


def _conv2d(node: Node, by_row: bool) -> int:
    """The sums of a tile, pieces of windows, and the weights of a piece, or all where they are no longer than one."""
    assert isinstance(node.op, Conv2D)
    (_, high, wide, channels), height = node.ins[1].type.shape, rows(node, by_row)
    longest, k = SIZES["CONV_DEPTH"], high * wide * channels
    little = height == 1 and k <= longest
    pixels = -(-height * node.out.type.shape[2] // PIXELS) * PIXELS
    tile = min(SIZES["CONV_ROW_TILE"] if little else SIZES["CONV_TILE"], pixels)
    whole_rows = node.op.dilation[1] == 1 and wide * channels <= longest
    piece = (wide if whole_rows else 1) * min(channels, longest)
    weights = k if k <= longest else piece
    return 4 * LANES * tile + 4 * PIXELS * (k if little else longest) + 2 * LANES * weights


def _depthwise(node: Node, by_row: bool) -> int:
    """Weights, strips of the input, the sums of a tile, and a copy of some channels where the output may lie."""
    assert isinstance(node.op, Depthwise)
    (_, high, wide, _), (across, stride) = node.ins[1].type.shape, (node.op.dilation[1], node.op.stride[1])
    single = rows(node, by_row) == 1
    tile = min(SIZES["DEPTHWISE_ROW_TILE"] if single else SIZES["DEPTHWISE_TILE"], node.out.type.shape[2])
    tile = tile if across == 1 and stride <= wide else 1
    columns = (tile - 1) * stride + wide
    keeps = not single and node.op.dilation[0] == 1 and 4 * LANES * high * columns <= SIZES["DEPTHWISE_KEPT"]
    kept = high if keeps else 1
    copied = 0 if by_row else copy_bytes(node, LANES)
    return 4 * LANES * (high * wide + kept * columns + tile + tile % 2) + copied


def copy_bytes(node: Node, channels: int) -> int:
    """A copy of some channels of the input, where the output may take its place."""
    _, height, width, _ = node.ins[0].type.shape
    return height * width * channels if node.op.donor(node) is not None else 0


def _depthwise_grad(node: Node, by_row: bool) -> int:
    return copy_bytes(node, SIZES["COPIED"])


def _sums(axes: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Callable[[Node, bool], int]:
    """One int32 for each weight of a run that is stepped at once."""
    return lambda node, by_row: 4 * math.prod(axes(node.ins[0].type.shape))


def _recurrent(node: Node, by_row: bool) -> int:
    """A state of int16, the hidden state before the last where that alone is given, and a GRU's times its gates."""
    assert isinstance(node.op, Lstm | Gru)
    before = not node.op.whole and node.ins[0].type.shape[1] > 1
    gated = isinstance(node.op, Gru) and not node.op.reset_after
    return (2 + before + gated) * node.out.type.shape[-1]


def _slopes(node: Node, by_row: bool) -> int:
    """A state of int16 and, in turns, two hidden states."""
    return (2 + min(node.ins[0].type.shape[1], 2)) * node.ins[1].type.shape[1]


def _lstm_grad(node: Node, by_row: bool) -> int:
    """int32 gradients of a hidden state, a cell state and four gates."""
    return 4 * (2 + 4) * node.ins[2].type.shape[1]


def _gru_grad(node: Node, by_row: bool) -> int:
    """int32 gradients of a hidden state and of three gates."""
    return 4 * (1 + 3) * node.ins[2].type.shape[1]


NEEDS: Mapping[str, Callable[[Node, bool], int]] = {
    "smg_conv2d_s8": _conv2d,
    "smg_depthwise_s8": _depthwise,
    "smg_depthwise_grad_g8": _depthwise_grad,
    "smg_lstm_s8": _recurrent,
    "smg_gru_s8": _recurrent,
    "smg_lstm_slopes_s8": _slopes,
    "smg_gru_slopes_s8": _slopes,
    "smg_lstm_grad_g8": _lstm_grad,
    "smg_gru_grad_g8": _gru_grad,
    "smg_conv2d_weight_step": _sums(lambda shape: shape[1:]),  # an output channel's
    "smg_depthwise_weight_step": _sums(lambda shape: shape[3:]),  # a tap's
    "smg_dense_weight_step": _sums(lambda shape: shape[1:]),  # an output's
    "smg_bias_sum_step": _sums(lambda shape: shape),
    "smg_difference_sum_step": _sums(lambda shape: shape),
}
