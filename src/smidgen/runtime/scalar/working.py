"""Working memory of the kernels for cores without packed arithmetic, in bytes: as each lays it out in its C."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from smidgen.ir import Node
from smidgen.runtime.kernels.working import rows
from smidgen.runtime.sizes import read_sizes

SIZES = read_sizes(Path(__file__).with_name("working_scalar.h"))
TILE = SIZES["TILE"]


def _conv2d(node: Node, by_row: bool) -> int:
    """Windows as words, a filter as words or four as bytes, and sums: of more channels where windows go in pieces."""
    k, height, room = math.prod(node.ins[1].type.shape[1:]), rows(node, by_row), SIZES["WINDOW_ROOM"]
    length = _up(k, 4)
    here = min(room, SIZES["WINDOW_ROW_ROOM"] + SIZES["WINDOW_ROW_DEEPER"] * k) if height == 1 else room
    tiles, kept = min(here // (4 * TILE * length), -(-height * node.out.type.shape[2] // TILE)), SIZES["CHANNELS"]
    if not tiles:
        pieces = -(-k // (room // (4 * TILE)))
        length, tiles, kept = _up(-(-k // pieces), 4), 1, SIZES["KEPT_CHANNELS"]
    return 4 * (tiles * TILE * (length + kept) + length)


def _up(x: int, multiple: int) -> int:
    return -(-x // multiple) * multiple


NEEDS: Mapping[str, Callable[[Node, bool], int]] = {
    "smg_conv2d_s8": _conv2d,
}
