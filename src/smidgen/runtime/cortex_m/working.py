"""Working memory of the kernels in packed arithmetic, in bytes: as each lays it out in its C."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from smidgen.ir import Node
from smidgen.ops.conv import ConvGradInput, Depthwise, DepthwiseGradInput
from smidgen.runtime.kernels import working as portable
from smidgen.runtime.kernels.working import copy_bytes, rows
from smidgen.runtime.sizes import read_sizes

SIZES = read_sizes(Path(__file__).with_name("working_packed.h"))
COLUMNS, BLOCK = SIZES["COLUMNS"], SIZES["SLIDE_BLOCK"]
SIDE = 4  # of maps that have a kernel of their own


def _conv2d(node: Node, by_row: bool) -> int:
    """Windows in halfwords, a pair of filters likewise, and four windows in bytes; sums, where windows go in pieces."""
    k, deepest = math.prod(node.ins[1].type.shape[1:]), SIZES["ROOM_DEPTH"]
    room, little = SIZES["ROOM"] + SIZES["ROOM_DEEPER"] * min(k, deepest), rows(node, by_row) == 1 and k <= deepest
    if little:
        room = SIZES["ROW_ROOM"] + SIZES["ROW_ROOM_DEEPER"] * k
    piece = _up(k, 4)
    pixels = (room // piece - 8) // 2 & ~3
    if pixels >= SIZES["FEW_WINDOWS"]:
        most = ((room + (0 if little else SIZES["ROOM_MORE"])) // piece - 8) // 2
        pixels = min(most, rows(node, by_row) * node.out.type.shape[2] + 3) & ~3
        return piece * (2 * pixels + 8) + _stream(piece)
    pixels = SIZES["PIECE_PIXELS"]
    sums, element = 4 * pixels * SIZES["PIECE_CHANNELS"], 2 * pixels + 8
    pieces = -(-k // ((SIZES["PIECE_ROOM"] - sums) // element & ~3))
    piece = _up(-(-k // pieces), 4)
    alone = _up(k, 4) if node.out.type.shape[2] < 4 else 0  # a pixel's window, put together as a whole
    return max(sums + piece * element + _stream(piece), alone)


def _stream(length: int) -> int:
    """What stands between and behind the weights of a pair of filters."""
    return 4 * (9 + length // 32)


def _up(x: int, multiple: int) -> int:
    return -(-x // multiple) * multiple


@dataclass(frozen=True)
class _Slides:
    """A depthwise convolution whose filters slide over strips, `rows` output rows per call."""

    k: int
    stride: tuple[int, int]
    rows: int
    width: int  # of the output
    gathers: bool  # channels of a block may lie apart

    @property
    def single(self) -> bool:
        return self.rows == 1

    def room(self, copied: int) -> int:
        """Bytes that strips may fill."""
        tile = SIZES["SLIDE_ROW_TILE"] if self.single else SIZES["SLIDE_TILE"]
        columns, lanes = (tile - 1) * self.stride[1] + self.k, SIZES["SLIDE_LANES"]
        kept = self.k if not self.single and columns <= SIZES["SLIDE_KEPT"] // (4 * lanes) // self.k else 1
        return lanes * (4 * (self.k * self.k + kept * columns + tile) + copied)

    def bytes(self, room: int, in_place: bool) -> int:
        """What is used of the room: tiles narrow until rows enough are held; 0 where that never comes to be."""
        width, tiles = self.width, 1
        while not (band := self._band(width, room)):
            if width <= 4:
                return 0
            tiles += 1
            width = self.width // tiles + 3 & ~3
        if in_place and (band, width) != (self.rows, self.width):
            return 0
        strips = 2 * self.k if self.single else BLOCK * (((band - 1) * self.stride[0] + self.k + 1) // 2)
        gathered = 2 * self._half(width) if self.gathers else 0
        return 4 * (self._filters + strips * self._half(width) * self.stride[1] + self.k**2 + gathered)

    @property
    def _filters(self) -> int:
        phases = 1 if self.single or self.stride[0] % 2 == 0 else 2
        return BLOCK * phases * ((self.k + 1) // 2) * self.k

    def _half(self, width: int) -> int:
        """Words of a strip, for every other column where windows step over one."""
        return width + (self.k - 1) // self.stride[1]

    def _band(self, width: int, room: int) -> int:
        """Output rows whose strips are held; none where there is no room for one."""
        columns = (width - 1) * self.stride[1] + self.k
        left = room // 4 - self._filters - self.k**2 - (2 * columns if self.gathers else 0)
        strips = left // (self._half(width) * self.stride[1])
        if self.single:
            return int(strips >= 2 * self.k)
        held = 2 * (strips // BLOCK)
        return 0 if held < self.k + 1 else min(self.rows, (held - self.k) // self.stride[0] + 1)


def _depthwise(node: Node, by_row: bool) -> int:
    """Filters, strips, taps and columns put together; a copy of four channels where what slides cannot be in place."""
    assert isinstance(node.op, Depthwise)
    (_, high, wide, _), (_, _, width, channels) = node.ins[1].type.shape, node.out.type.shape
    copied = 0 if by_row else copy_bytes(node, 1)
    if high != wide or high not in (3, 5, 7) or node.op.stride[1] > 2 or width < 4 or node.op.dilation != (1, 1):
        return BLOCK * copied
    gathers = channels != node.ins[0].type.shape[3] or channels % BLOCK > 0
    slides = _Slides(high, node.op.stride, rows(node, by_row), width, gathers)
    apart = slides.bytes(slides.room(0), in_place=False)
    if slides.single and high == 3 and width % 4 == 0 and not gathers:
        apart = max(apart, _threes(node.op.stride[1], width))
    if node.ins[0].type.shape[1:3] == node.out.type.shape[1:3] == (SIDE, SIDE) and high < 7 and not gathers:
        apart = max(apart, _square(high))
    in_place = slides.bytes(slides.room(copied), in_place=True) if copied else 0
    return max(apart, in_place, BLOCK * copied)


def _square(k: int) -> int:
    """Of maps of four by four: four channels and their filters, and taps put together."""
    return 4 * BLOCK * (8 + 6 * k) + BLOCK * k * k


def _threes(stride: int, whole: int) -> int:
    """Of 3x3 windows over a single row: filters, strips for as wide a tile as fits, and taps put together."""
    width, tiles = whole, 1
    while (strips := _strips_of_threes(stride, width)) > SIZES["THREES_STRIPS"] and width > 4:
        tiles += 1
        width = whole // tiles + 3 & ~3
    return strips + 4 * (7 * BLOCK + 9)


def _strips_of_threes(stride: int, width: int) -> int:
    return 4 * BLOCK * ((width - 1) * stride + 3 + width * stride // 2 + 2)


def _conv2d_grad(node: Node, by_row: bool) -> int:
    """Where most outputs are masked, dot products serve: sums, columns of weights, and gradients in halfwords."""
    assert isinstance(node.op, ConvGradInput)
    op, dy, w, dx = node.op, node.ins[0].type, node.ins[1].type, node.outs[0].type
    plain = w.shape[1:3] == (1, 1) and op.stride == (1, 1) and dy.shape[1:3] == dx.shape[1:3] and op.groups == 1
    length, pixels = _up(dy.shape[3], SIZES["MASKED_STRETCH"]), dy.shape[1] * dy.shape[2]
    if not (plain and dx.shape[3] % COLUMNS == 0 and pixels <= SIZES["MASKED_LARGEST"]):
        return 0
    if not op.masked:
        return _grad_tiles(dy.shape[3], pixels)
    parts = -(-pixels // max(1, min(SIZES["MASKED_PIXELS"], SIZES["MASKED_WIDENED"] // length)))
    return -(-pixels // parts) * (4 * COLUMNS + 2 * length) + 2 * SIZES["MASKED_LANES"] * length


def _grad_tiles(depth: int, pixels: int) -> int:
    """Computed as a convolution: sums, weights of two columns, gradients in halfwords, and columns in bytes."""
    if pixels % 4 or depth % 4 or depth > SIZES["GRAD_DEEPEST"]:
        return 0
    part = min(pixels, SIZES["GRAD_WIDENED"] // depth & ~3)
    return 4 * COLUMNS * part + 4 * depth + _stream(depth) + 2 * part * depth + COLUMNS * depth


def _depthwise_grad(node: Node, by_row: bool) -> int:
    """Sums, filters and strips where filters slide; of eight channels weights and gradients in halfwords, spread and
    bordered with zeros; or as in portable C."""
    assert isinstance(node.op, DepthwiseGradInput)
    dy, (_, high, wide, _) = node.ins[0].type, node.ins[1].type.shape
    _, height, width, channels = node.outs[0].type.shape
    largest = SIZES["SPREAD_LARGEST" if dy.shape[1:3] == (height, width) else "SPREAD_LARGEST_APART"]
    odd = node.op.multiplier > 1 or channels % COLUMNS or node.op.dilation != (1, 1)
    if odd or wide > SIZES["SPREAD_WIDEST"] or height * width > largest:
        return portable.NEEDS["smg_depthwise_grad_g8"](node, by_row)
    if dy.shape[1:3] == (height, width) == (SIDE, SIDE) and high == wide and wide in (3, 5):
        return 4 * SIDE * SIDE * COLUMNS + _square(wide)
    slides = high == wide and wide in (3, 5, 7) and node.op.stride == (1, 1) and width >= 4
    if slides and SIZES["GRAD_LEAST"] <= height * width <= SIZES["GRAD_ELEMENTS"]:
        filters, strips = 2 * COLUMNS * ((wide + 1) // 2) * wide, (height + wide) // 2 * BLOCK * (width + wide - 1)
        return 4 * (height * width * COLUMNS + filters + strips + wide * wide)
    return 2 * COLUMNS * (high * _up(wide, 2) + dy.shape[1] * (width + wide))


NEEDS: Mapping[str, Callable[[Node, bool], int]] = {
    "smg_conv2d_s8": _conv2d,
    "smg_depthwise_s8": _depthwise,
    "smg_conv2d_grad_g8": _conv2d_grad,
    "smg_depthwise_grad_g8": _depthwise_grad,
}
