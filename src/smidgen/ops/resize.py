"""Maps resized to the nearest element (`Pick`, which also repeats and drops rows) or bilinearly, and the gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import MAX_BYTES, Array, Builder, Node, Op, Params, Type, Value, op
from smidgen.ops.checks import check_dtypes, check_map, check_shape
from smidgen.ops.elementwise import check_quantized
from smidgen.ops.gradient import GRADIENT_MOST, GradOp

Places = tuple[int, ...]  # along one dimension of the input, one for each of the output; none where all are taken


def _check_places(what: str, places: Places, size: int) -> None:
    if len(places) > MAX_BYTES or not all(0 <= place < size for place in places):
        raise GraphError(f"{what} takes places {list(places[:8])} of {size}, which are not all there")


@dataclass(frozen=True)
class Repeated:
    """Places that repeat: of each `of` of the input, those in `taken` are taken."""

    of: int
    taken: Places

    @staticmethod
    def from_places(places: Places, size: int) -> Repeated:
        """Return the shortest pattern of places in a dimension of this size."""
        if not places:
            return Repeated(1, (0,))
        for of in (n for n in range(1, size) if size % n == 0 and len(places) % (size // n) == 0):
            count = len(places) * of // size
            first = np.array(places[:count])
            expected = (np.arange(size // of)[:, None] * of + first).ravel()
            if first.max() < of and np.array_equal(expected, places):
                return Repeated(of, places[:count])
        return Repeated(size, places)


def nearest(size: int, count: int, align_corners: bool = False, half_pixel: bool = False) -> Places:
    """Return the places nearest to `count` points spread over `size`, in float32 as TFLite finds them."""
    corners = align_corners and count > 1
    scale = np.float32(size - 1) / np.float32(count - 1) if corners else np.float32(size) / np.float32(count)
    at = (np.arange(count).astype(np.float32) + np.float32(0.5 if half_pixel else 0.0)) * scale
    found = np.floor(at.astype(np.float64) + 0.5) if align_corners else np.floor(at)
    return tuple(int(place) for place in np.clip(found, 0, size - 1))


@op
class Pick(Op):
    """y[i, j] = x[rows[i], columns[j]] of a [1, rows, columns, channels] map."""

    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()

    kernel = "smg_pick_s8"

    def infer(self, x: Type) -> Type:
        check_map("Pick", x)
        check_dtypes("Pick", ("int8", "float32"), x)
        if x.q is not None and x.q.axis is not None:
            raise GraphError(f"Pick takes tensors with one scale, its input has {len(x.q.scale)}")
        _, h, w, c = x.shape
        _check_places("Pick", self.rows, h)
        _check_places("Pick", self.columns, w)
        shape = (1, len(self.rows) or h, len(self.columns) or w, c)
        check_shape("Pick", shape)
        return Type(shape, x.dtype, x.q)

    def ref(self, node: Node, x: Array) -> Array:
        y = x[:, list(self.rows)] if self.rows else x
        return np.ascontiguousarray(y[:, :, list(self.columns)] if self.columns else y)

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        _, h, w, _ = node.ins[0].type.shape
        return (g.emit(PickGrad(rows=self.rows, columns=self.columns, map=(h, w)), dy),)

    def params(self, node: Node) -> Params:
        (_, x_h, x_w, c), (_, y_h, y_w, _) = node.ins[0].type.shape, node.out.type.shape
        rows, columns = Repeated.from_places(self.rows, x_h), Repeated.from_places(self.columns, x_w)
        return {
            "x_w": x_w, "c": c, "y_h": y_h, "y_w": y_w, "rows_of": rows.of, "rows_taken": len(rows.taken),
            "columns_of": columns.of, "columns_taken": len(columns.taken), "row": np.array(rows.taken, np.int32),
            "column": np.array(columns.taken, np.int32),
        }  # fmt: skip


@op
class PickGrad(GradOp):
    """Every element gets the gradients of all places it was taken to."""

    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()
    map: tuple[int, int] = (1, 1)  # rows and columns of the map that was picked from

    kernel = "smg_pick_grad_g8"

    def shape(self, *operands: Type) -> tuple[int, ...]:
        (dy,) = operands
        check_map("PickGrad", dy)
        _check_places("PickGrad", self.rows, self.map[0])
        _check_places("PickGrad", self.columns, self.map[1])
        if dy.shape[1:3] != (len(self.rows) or self.map[0], len(self.columns) or self.map[1]):
            raise GraphError(f"PickGrad of a map of {list(self.map)} does not fit the gradient {list(dy.shape)}")
        return (1, *self.map, dy.shape[3])

    def sums(self, node: Node, *operands: Array) -> Array:
        (dy,), kind = operands, np.int64 if self.lowered else np.float32
        for axis, places in ((1, self.rows), (2, self.columns)):
            if places:
                moved = np.moveaxis(dy, axis, 0).astype(kind)
                total: Array = np.zeros((self.map[axis - 1], *moved.shape[1:]), kind)
                np.add.at(total, list(places), moved)
                dy = np.moveaxis(total, 0, axis)
        return np.ascontiguousarray(dy.astype(kind))

    def bound(self, node: Node) -> int:
        most = 1
        for places in (self.rows, self.columns):
            most *= int(np.bincount(places).max()) if places else 1
        return GRADIENT_MOST * most

    def params(self, node: Node) -> Params:
        (_, x_h, x_w, c), y_w = node.outs[0].type.shape, node.ins[0].type.shape[2]
        rows, columns = Repeated.from_places(self.rows, x_h), Repeated.from_places(self.columns, x_w)
        (row, row_end), (column, column_end) = _inverse(rows), _inverse(columns)
        return {
            "x_h": x_h, "x_w": x_w, "c": c, "y_w": y_w, "rows_of": rows.of, "rows_taken": len(rows.taken),
            "columns_of": columns.of, "columns_taken": len(columns.taken), "row": row, "row_end": row_end,
            "column": column, "column_end": column_end, **self.rounding(node),
        }  # fmt: skip


def _inverse(repeated: Repeated) -> tuple[Array, Array]:
    """Return where each place was taken to, one after another, and where its part of that list ends."""
    order = np.argsort(repeated.taken, kind="stable").astype(np.int32)
    return order, np.cumsum(np.bincount(repeated.taken, minlength=repeated.of)).astype(np.int32)


BITS = 10  # of a place between two rows or columns, as TFLite has it
ONE = 1 << BITS
LARGEST_SIDE = 1 << 14


@dataclass(frozen=True)
class Between:
    """The points of a resized dimension: between the places `lower` and `upper`, `part` of the way."""

    lower: Array
    upper: Array
    part: Array

    def matrix(self, size: int) -> Array:
        """Return how much each point has of each place of the input, [points, size]."""
        points: Array = np.zeros((len(self.lower), size), self.part.dtype)
        whole = self.part.dtype.type(1 if self.part.dtype.kind == "f" else ONE)
        np.add.at(points, (np.arange(len(points)), self.lower), whole - self.part)
        np.add.at(points, (np.arange(len(points)), self.upper), self.part)
        return points


@dataclass(frozen=True)
class Spread:
    """A spread of `count` points over `size`: its corners on theirs, or both over the same length."""

    size: int
    count: int
    align_corners: bool
    half_pixel: bool

    @property
    def corners(self) -> bool:
        return self.align_corners and self.count > 1

    def steps(self) -> tuple[int, int]:
        """Return the distance of two points and the place of the first, in 1/1024."""
        size, count = (self.size - 1, self.count - 1) if self.corners else (self.size, self.count)
        step = (ONE * size + count // 2) // count
        return step, step // 2 - ONE // 2 if self.half_pixel else 0

    def integers(self) -> Between:
        """Return the places in steps of 1/1024, as TFLite has them for int8."""
        step, first = self.steps()
        at = np.arange(self.count, dtype=np.int64) * step + first
        lower = np.maximum(at, 0) // ONE
        return Between(lower, np.minimum((at + ONE - 1) // ONE, self.size - 1), at - lower * ONE)

    def reals(self) -> Between:
        """Return the places in float32."""
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
        return np.asarray((np.sign(total) * size).astype(np.int8))

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
    """Sum the four nearest elements, each times its two shares."""
    down, right = rows.part[:, None, None], columns.part[:, None]
    upper, lower = x[:, rows.lower], x[:, rows.upper]
    a, b = upper[:, :, columns.lower] * (one - down), lower[:, :, columns.lower] * down
    c, d = upper[:, :, columns.upper] * (one - down), lower[:, :, columns.upper] * down
    return np.asarray(a * (one - right) + b * (one - right) + c * right + d * right)


@op
class ResizeBilinearGrad(GradOp):
    """Every element gets its shares of the gradients of all points near it; lowered, a share has six bits a side."""

    map: tuple[int, int] = (1, 1)  # rows and columns of the map that was resized
    align_corners: bool = False
    half_pixel: bool = False

    kernel = "smg_resize_bilinear_grad_g8"
    SHARE_BITS: ClassVar[int] = 6
    fraction = 2 * SHARE_BITS

    def shape(self, *operands: Type) -> tuple[int, ...]:
        (dy,) = operands
        check_map("ResizeBilinearGrad", dy)
        if not all(1 <= n <= LARGEST_SIDE for n in (*self.map, *dy.shape[1:3])):
            raise GraphError(f"ResizeBilinearGrad of a map of {list(self.map)} does not fit {list(dy.shape)}")
        return (1, *self.map, dy.shape[3])

    def shares(self, dy: Type) -> tuple[Array, Array]:
        """Return what rows and columns of the gradient add to those of the map, [points, size]."""
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
        return np.asarray(np.einsum("yr,xc,nyxk->nrck", rows.astype(kind), columns.astype(kind), dy.astype(kind)))

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
        # No table is empty, as where all shares are 0: C has no empty arrays.
        filled = {name: table if table.size else np.zeros(1, np.int32) for name, table in tables.items()}
        return {"x_h": x_h, "x_w": x_w, "c": c, "y_w": y_w, **filled, **self.rounding(node)}
