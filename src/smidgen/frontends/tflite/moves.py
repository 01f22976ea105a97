"""What moves elements and computes none, as TFLite's operators: shapes, slices, resizes, gathers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from smidgen import ops
from smidgen.frontends.tflite.flatbuffer import TfliteOptions
from smidgen.ir import Node, Op, Type, Value
from smidgen.ops.resize import nearest

if TYPE_CHECKING:
    from smidgen.frontends.tflite.writer import Lowering

RESIZE_VERSION = 3  # of resizes that align centres, or corners of the nearest
WAYS = ((False, False), (False, True), (True, False))  # with corners, with centres


def _crop(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.Crop)
    start = lowering.integers("start", np.array(node.op.start))
    size = lowering.integers("size", np.array(node.out.type.shape))
    lowering.emit("SLICE", node, lowering.place(node.ins[0]), start, size)


def _pick(lowering: Lowering, node: Node) -> None:
    """A resize to the nearest where it is one, else its rows and columns gathered."""
    op, x, y = node.op, node.ins[0].type, node.out.type
    assert isinstance(op, ops.Pick)
    sizes, wanted = x.shape[1:3], y.shape[1:3]
    every = tuple(p or tuple(range(n)) for p, n in zip((op.rows, op.columns), sizes, strict=True))
    for corners, half in WAYS:
        if every == tuple(nearest(n, m, corners, half) for n, m in zip(sizes, wanted, strict=True)):
            ins = lowering.place(node.ins[0]), lowering.integers("size", np.array(wanted))
            options = TfliteOptions(align_corners=corners, half_pixel_centers=half)
            version = RESIZE_VERSION if corners or half else 0
            lowering.emit("RESIZE_NEAREST_NEIGHBOR", node, *ins, options=options, version=version)
            return
    source = lowering.place(node.ins[0])
    for axis, places in ((1, op.rows), (2, op.columns)):
        if places:
            middle = Value(f"{node.out.name}.rows", Type((1, wanted[0], sizes[1], x.shape[3]), x.dtype, x.q))
            out = lowering.place(middle) if axis == 1 and op.columns else None
            ins = source, lowering.integers("places", np.array(places))
            lowering.emit("GATHER", node, *ins, options=TfliteOptions(axis=axis), out=out)
            source = source if out is None else out


def _bilinear(lowering: Lowering, node: Node) -> None:
    op = node.op
    assert isinstance(op, ops.ResizeBilinear)
    options = TfliteOptions(align_corners=op.align_corners, half_pixel_centers=op.half_pixel)
    ins = lowering.place(node.ins[0]), lowering.integers("size", np.array(op.size))
    version = RESIZE_VERSION if op.half_pixel else 0
    lowering.emit("RESIZE_BILINEAR", node, *ins, options=options, version=version)


def _pad(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.Pad)
    pads = lowering.integers("padding", np.array([node.op.before, node.op.after]).reshape(2, -1).T)
    lowering.emit("PAD", node, lowering.place(node.ins[0]), pads)


def _reshape(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.Reshape)
    lowering.emit("RESHAPE", node, lowering.place(node.ins[0]), lowering.integers("shape", np.array(node.op.shape)))


def _transpose(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.Transpose)
    perm = lowering.integers("permutation", np.array(node.op.perm))
    lowering.emit("TRANSPOSE", node, lowering.place(node.ins[0]), perm)


def _concat(lowering: Lowering, node: Node) -> None:
    assert isinstance(node.op, ops.Concat)
    ins = (lowering.place(value) for value in node.ins)
    lowering.emit("CONCATENATION", node, *ins, options=TfliteOptions(axis=node.op.axis))


MOVES: Mapping[type[Op], Callable[[Lowering, Node], None]] = {
    ops.Concat: _concat, ops.Pad: _pad, ops.Reshape: _reshape, ops.Transpose: _transpose,
    ops.Crop: _crop, ops.Pick: _pick, ops.ResizeBilinear: _bilinear,
}  # fmt: skip
