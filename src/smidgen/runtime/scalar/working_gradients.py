"""Working memory of the gradients on cores without packed arithmetic, in bytes: as each lays it out in its C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from smidgen.ir import Node
from smidgen.ops.conv import ConvGradInput, DepthwiseGradInput
from smidgen.runtime.kernels import working as portable
from smidgen.runtime.sizes import read_sizes

SIZES = read_sizes(Path(__file__).with_name("working_gradients.h"))


def _conv2d_grad(node: Node, by_row: bool) -> int:
    """Behind a mask dot products serve: a column of weights, and pixels' gradients, in halfwords."""
    assert isinstance(node.op, ConvGradInput)
    op, dy, w, dx = node.op, node.ins[0].type, node.ins[1].type, node.outs[0].type
    plain = w.shape[1:3] == (1, 1) and op.stride == (1, 1) and dy.shape[1:3] == dx.shape[1:3] and op.groups == 1
    if not (plain and op.masked):
        return 0
    length, pixels = -(-dy.shape[3] // SIZES["MASKED_STRETCH"]) * SIZES["MASKED_STRETCH"], dy.shape[1] * dy.shape[2]
    parts = -(-pixels // max(1, min(SIZES["MASKED_WIDENED"] // length, SIZES["MASKED_PIXELS"])))
    return 2 * length * (1 + -(-pixels // parts))


def _depthwise_grad(node: Node, by_row: bool) -> int:
    """Where rows lie; a channel's weights and gradients, a word for each of a row's; or as in portable C."""
    assert isinstance(node.op, DepthwiseGradInput)
    dy, (_, high, wide, _), (_, height, width, _) = node.ins[0].type, node.ins[1].type.shape, node.outs[0].type.shape
    words, same = dy.shape[1] * (width + wide), dy.shape[1:3] == (height, width)
    if node.op.multiplier > 1 or node.op.dilation != (1, 1) or not (same or words <= SIZES["PLANE_APART"]):
        return portable.NEEDS["smg_depthwise_grad_g8"](node, by_row)
    return 4 * (3 * height + high * -(-wide // 2) + words)


NEEDS: Mapping[str, Callable[[Node, bool], int]] = {
    "smg_conv2d_grad_g8": _conv2d_grad,
    "smg_depthwise_grad_g8": _depthwise_grad,
}
