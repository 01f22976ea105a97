"""Bilinear resizing of maps, and its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, Type, Value, op
from smidgen.ops.checking import check_map, check_shape
from smidgen.ops.elementwise import check_quantized
from smidgen.ops.gradient import GRADIENT_MOST, GradOp

BITS = 10  # of a place between two rows or columns, as TFLite has it
ONE = 1 << BITS
LARGEST_SIDE = 1 << 14


@dataclass(frozen=True)
class Between:
    """Where the points of a resized dimension lie: between the places `lower` and `upper`, `part` of the way."""

    lower: Array
    upper: Array
    part: Array

    def matrix(self, size: int) -> Array:
        """How much each point has of each place of the input, [points, size]."""
        points: Array = np.zeros((len(self.lower), size), self.part.dtype)
        whole = self.part.dtype.type(1 if self.part.dtype.kind == "f" else ONE)
        np.add.at(points, (np.arange(len(points)), self.lower), whole - self.part)
        np.add.at(points, (np.arange(len(points)), self.upper), self.part)
        return points


@dataclass(frozen=True)
class Spread:
    """How `count` points are spread over `size`: its corners on theirs, or both over the same length."""

    size: int
    count: int
    align_corners: bool
    half_pixel: bool

    @property
    def corners(self) -> bool:
        return self.align_corners and self.count > 1

    def steps(self) -> tuple[int, int]:
        """The distance of two points and the place of the first, in 1/1024."""
        size, count = (self.size - 1, self.count - 1) if self.corners else (self.size, self.count)
        step = (ONE * size + count // 2) // count
        return step, step // 2 - ONE // 2 if self.half_pixel else 0

    def integers(self) -> Between:
        """Places in steps of 1/1024, as TFLite has them for int8."""
        step, first = self.steps()
        at = np.arange(self.count, dtype=np.int64) * step + first
        lower = np.maximum(at, 0) // ONE
        return Between(lower, np.minimum((at + ONE - 1) // ONE, self.size - 1), at - lower * ONE)

    def reals(self) -> Between:
        """Places in float32."""
        size, count = (self.size - 1, self.count - 1) if self.corners else (self.size, self.count)
        scale, half = np.float32(size) / np.float32(count), np.float32(0.5)
        at = np.arange(self.count).astype(np.float32)
        at = (at + half) * scale - half if self.half_pixel else at * scale
        lower = np.maximum(np.floor(at), 0).astype(np.int64)
        upper = np.minimum(np.ceil(at), self.size - 1).astype(np.int64)
        return Between(lower, upper, at - lower.astype(np.float32))


def _spreads(x: tuple[int, ...], y: tuple[int, ...], corners: bool, half: bool) -> tuple[Spread, Spread]:
    rows, columns = (Spread(n, m, corners, half) for n, m in zip(x, y, strict=True))
    return rows, columns


@op
@dataclass(frozen=True)
class ResizeBilinear(Op):
    """A map of `size` rows and columns, each element between the four nearest; the quantization stays."""

    size: tuple[int, int]
    align_corners: bool = False
    half_pixel: bool = False

    kernel = "smg_resize_bilinear_s8"

    def infer(self, x: Type) -> Type:
        check_quantized("ResizeBilinear", x)
        check_map("ResizeBilinear", x)
        if len(self.size) != 2 or not all(1 <= n <= LARGEST_SIDE for n in (*self.size, *x.shape[1:3])):
            raise GraphError(f"ResizeBilinear of {list(x.shape)} to {list(self.size)}: sides are 1 to {LARGEST_SIDE}")
        if self.align_corners and self.half_pixel:
            raise GraphError("ResizeBilinear aligns corners or centres, not both")
        check_shape("ResizeBilinear", (1, *self.size, x.shape[3]))
        return Type((1, *self.size, x.shape[3]), x.dtype, x.q)

    def spreads(self, x: Type) -> tuple[Spread, Spread]:
        return _spreads(x.shape[1:3], self.size, self.align_corners, self.half_pixel)

    def ref(self, node: Node, x: Array) -> Array:
        rows, columns = self.spreads(node.ins[0].type)
        if x.dtype == np.float32:
            return _blend(x, rows.reals(), columns.reals(), np.float32(1))
        total = _blend(x.astype(np.int64), rows.integers(), columns.integers(), np.int64(ONE))
        size = (np.abs(total) + (1 << (2 * BITS - 1))) >> (2 * BITS)
        made: Array = (np.sign(total) * size).astype(np.int8)
        return made

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        _, h, w, _ = node.ins[0].type.shape
        op = ResizeBilinearGrad(map=(h, w), align_corners=self.align_corners, half_pixel=self.half_pixel)
        return (g.emit(op, dy),)

    def params(self, node: Node) -> Params:
        (_, x_h, x_w, c), (_, y_h, y_w, _) = node.ins[0].type.shape, node.out.type.shape
        (row_step, row_first), (column_step, column_first) = (s.steps() for s in self.spreads(node.ins[0].type))
        return {
            "x_h": x_h, "x_w": x_w, "c": c, "y_h": y_h, "y_w": y_w, "row_step": row_step, "row_first": row_first,
            "column_step": column_step, "column_first": column_first,
        }  # fmt: skip


def _blend(x: Array, rows: Between, columns: Between, one: np.generic) -> Array:
    """Sums of the four nearest elements, each times its two shares."""
    down, right = rows.part[:, None, None], columns.part[:, None]
    upper, lower = x[:, rows.lower], x[:, rows.upper]
    a, b = upper[:, :, columns.lower] * (one - down), lower[:, :, columns.lower] * down
    c, d = upper[:, :, columns.upper] * (one - down), lower[:, :, columns.upper] * down
    total: Array = a * (one - right) + b * (one - right) + c * right + d * right
    return total


@op
@dataclass(frozen=True)
class ResizeBilinearGrad(GradOp):
    """Every element gets its shares of the gradients of all points near it; lowered, a share has six bits a side."""

    map: tuple[int, int] = (1, 1)  # rows and columns of the map that was resized
    align_corners: bool = False
    half_pixel: bool = False

    kernel = "smg_resize_bilinear_grad_g8"
    SHARE_BITS: ClassVar[int] = 6

    def shape(self, *operands: Type) -> tuple[int, ...]:
        (dy,) = operands
        check_map("ResizeBilinearGrad", dy)
        if not all(1 <= n <= LARGEST_SIDE for n in (*self.map, *dy.shape[1:3])):
            raise GraphError(f"ResizeBilinearGrad of a map of {list(self.map)} does not fit {list(dy.shape)}")
        return (1, *self.map, dy.shape[3])

    def shares(self, dy: Type) -> tuple[Array, Array]:
        """What rows and columns of the gradient give to those of the map, [points, size]."""
        spreads = _spreads(self.map, dy.shape[1:3], self.align_corners, self.half_pixel)
        if not self.lowered:
            rows, columns = (s.reals().matrix(s.size) for s in spreads)
            return rows, columns
        down = BITS - self.SHARE_BITS
        rows, columns = ((s.integers().matrix(s.size) + (1 << (down - 1))) >> down for s in spreads)
        return rows, columns

    def sums(self, node: Node, *operands: Array) -> Array:
        (dy,), (rows, columns) = operands, self.shares(node.ins[0].type)
        kind = np.int64 if self.lowered else np.float32
        total: Array = np.einsum("yr,xc,nyxk->nrck", rows.astype(kind), columns.astype(kind), dy.astype(kind))
        return total

    def multipliers(self) -> tuple[Array, int]:
        multiplier, shift = super().multipliers()
        return multiplier, shift - 2 * self.SHARE_BITS

    def bound(self, node: Node) -> int:
        rows, columns = self.shares(node.ins[0].type)
        return max(1, GRADIENT_MOST * int(np.abs(rows).sum(axis=0).max()) * int(np.abs(columns).sum(axis=0).max()))

    def params(self, node: Node) -> Params:
        (_, x_h, x_w, c), y_w = node.outs[0].type.shape, node.ins[0].type.shape[2]
        tables = {}
        for name, shares in zip(("row", "column"), self.shares(node.ins[0].type), strict=True):
            place, point = np.nonzero(shares.T)
            tables[name] = point.astype(np.int32)
            tables[f"{name}_share"] = shares[point, place].astype(np.int32)
            tables[f"{name}_end"] = np.cumsum(np.bincount(place, minlength=shares.shape[1])).astype(np.int32)
        return {"x_h": x_h, "x_w": x_w, "c": c, "y_w": y_w, **_padded(tables), **self.rounding(node)}


def _padded(tables: dict[str, Array]) -> dict[str, Array]:
    """No table is empty, as where all shares are 0: C has no empty arrays."""
    return {name: table if table.size else np.zeros(1, np.int32) for name, table in tables.items()}
