"""Working memory of the kernels in vectors, in bytes: as each lays it out in its C."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from smidgen.ir import Node
from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.runtime.sizes import read_sizes

SIZES = read_sizes(Path(__file__).with_name("working_helium.h"))
CHANNELS, VECTOR, PIXELS = SIZES["CHANNELS"], 16, 4


def _conv2d(node: Node, by_row: bool) -> int:
    """Four filters, for some of their channels may be trained, and windows, unless each is a pixel of the map."""
    assert isinstance(node.op, Conv2D)
    k, width = math.prod(node.ins[1].type.shape[1:]), node.out.type.shape[2]
    pixels = node.ins[1].type.shape[1:3] == (1, 1) and not any(node.op.pad)
    windows = 0 if pixels else max(min(SIZES["WINDOW_ROOM"] // k, width), 1)
    return (4 + windows) * k


def _depthwise(node: Node, by_row: bool) -> int:
    """Filters and strips of a block of channels; copies of its rows where the output may take the input's place."""
    assert isinstance(node.op, Depthwise)
    (_, high, wide, _), (_, _, width, _) = node.ins[1].type.shape, node.out.type.shape
    stride, dilation = node.op.stride[1], node.op.dilation
    overlap = dilation[1] == 1 and stride <= wide

    def strip(pixels: int) -> int:
        return high * ((pixels - 1) * stride + wide if overlap else pixels * wide)

    tile = PIXELS
    while tile < width and strip(tile + PIXELS) <= SIZES["STRIP"]:
        tile += PIXELS
    kept = (high - 1) * dilation[0] + 1 if not by_row and node.op.donor(node) is not None else 0
    copies = kept * node.ins[0].type.shape[2] * CHANNELS
    return CHANNELS * (-(-high * wide // VECTOR) * VECTOR + strip(tile)) + VECTOR + copies


NEEDS: Mapping[str, Callable[[Node, bool], int]] = {
    "smg_conv2d_s8": _conv2d,
    "smg_depthwise_s8": _depthwise,
}
