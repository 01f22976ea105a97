"""Rows and columns of a map by their places: nearest-neighbour resizing, strided slices and repeats are that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import MAX_BYTES, Array, Builder, Node, Op, Params, Type, Value, op
from smidgen.ops.checking import check_dtypes, check_map, check_shape
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
        """The shortest that says the same of a dimension of this size."""
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
    """The places nearest to `count` points spread over `size`, in float32 as TFLite finds them."""
    corners = align_corners and count > 1
    scale = np.float32(size - 1) / np.float32(count - 1) if corners else np.float32(size) / np.float32(count)
    at = (np.arange(count).astype(np.float32) + np.float32(0.5 if half_pixel else 0.0)) * scale
    found = np.floor(at.astype(np.float64) + 0.5) if align_corners else np.floor(at)
    return tuple(int(place) for place in np.clip(found, 0, size - 1))


@op
@dataclass(frozen=True)
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
@dataclass(frozen=True)
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
    """Where each place was taken to, one after another, and where its part of that list ends."""
    order = np.argsort(repeated.taken, kind="stable").astype(np.int32)
    return order, np.cumsum(np.bincount(repeated.taken, minlength=repeated.of)).astype(np.int32)
