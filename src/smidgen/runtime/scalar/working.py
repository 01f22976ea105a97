"""Working memory of the kernels for cores without packed arithmetic, in bytes: as each lays it out in its C."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from smidgen.ir import Node
from smidgen.ops.conv import Depthwise
from smidgen.runtime.kernels.working import rows
from smidgen.runtime.scalar.working_gradients import NEEDS as GRADIENTS
from smidgen.runtime.sizes import read_sizes

SIZES = read_sizes(Path(__file__).with_name("working_scalar.h"))
TILE = SIZES["TILE"]
STRIP = 3  # words that say where a strip comes from


def _conv2d(node: Node, by_row: bool) -> int:
    """Windows as words, a filter as words or four as bytes, and sums: of more channels where windows go in pieces."""
    k, height, room = math.prod(node.ins[1].type.shape[1:]), rows(node, by_row), SIZES["WINDOW_ROOM"]
    length = _up(k, 4)
    here = min(room, SIZES["WINDOW_ROW_ROOM"] + SIZES["WINDOW_ROW_DEEPER"] * k) if height == 1 else room
    fit, tiles, kept = here // (4 * TILE * length), -(-height * node.out.type.shape[2] // TILE), SIZES["CHANNELS"]
    if fit >= min(2, tiles):
        tiles = min(fit, tiles)
    else:
        tiles, kept = min(SIZES["PIECE_TILES"], tiles), SIZES["KEPT_CHANNELS"]
        pieces = -(-k // (SIZES["PIECE_ROOM"] // (4 * TILE) // tiles))
        length = _up(-(-k // pieces), 4)
    return 4 * (tiles * TILE * (length + kept) + length)


def _depthwise(node: Node, by_row: bool) -> int:
    """Taps with their distances, sums and strips: of the whole channel where the output may take its place."""
    assert isinstance(node.op, Depthwise)
    (_, high, wide, _), op, height = node.ins[1].type.shape, node.op, rows(node, by_row)
    window, across, phases = (high - 1) * op.dilation[0] + 1, (wide - 1) * op.dilation[1], op.stride[1]
    phases = min(phases, across + 1)

    def words(columns: int, band: int) -> int:
        """Of strips for so many columns and rows of outputs."""
        return (columns + across // op.stride[1]) * phases * ((band - 1) * op.stride[0] + window)

    def need(columns: int, band: int) -> int:
        """Sums, strips, and where these come from."""
        return columns * band + words(columns, band) + STRIP * phases * ((band - 1) * op.stride[0] + window)

    columns = whole = _up(node.out.type.shape[2], TILE)
    while columns > TILE and words(columns, 1) > SIZES["STRIP_WORDS"]:
        columns = _up(columns // 2, TILE)
    band = max([1, *(r for r in range(1, height + 1) if words(columns, r) <= SIZES["STRIP_WORDS"])])
    apart = need(columns, band)
    in_place = not by_row and node.op.donor(node) is not None
    return 4 * (2 * high * wide + (max(apart, need(whole, height)) if in_place else apart))


def _up(x: int, multiple: int) -> int:
    return -(-x // multiple) * multiple


NEEDS: Mapping[str, Callable[[Node, bool], int]] = {
    "smg_conv2d_s8": _conv2d,
    **GRADIENTS,
    "smg_depthwise_s8": _depthwise,
}
