"""What only moves elements, as ONNX's operators: on real numbers, in the order in which they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from smidgen import ops
from smidgen.ir import Array, Node, Op

if TYPE_CHECKING:
    from smidgen.frontends.onnx.writer import OnnxWriter

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # from channels last to first, and back
PLACES = (0, 2, 3, 1)  # where each dimension of a channels-last map is in a channels-first one


def _integers(w: OnnxWriter, node: Node, numbers: Array, what: str = "numbers") -> str:
    return w.constant(f"{node.out.name}:{what}", np.asarray(numbers, np.int64).reshape(-1))


def _pad(w: OnnxWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Pad)
    first, numbers = w.first(node.ins[0]), np.array([node.op.before, node.op.after], np.int64)
    pads = _integers(w, node, numbers[:, list(FIRST)] if first else numbers)
    w.result(node, w.emit("Pad", f"{node.out.name}:padded", w.operand(node.ins[0], first), pads), first)


def _crop(w: OnnxWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Crop)
    (x,), first = node.ins, w.first(node.ins[0])
    order = FIRST if first else tuple(range(len(x.type.shape)))
    ends = (
        _integers(w, node, np.array([span[i] for i in order]), what)
        for what, span in (("start", node.op.start), ("stop", node.op.stop))
    )
    w.result(node, w.emit("Slice", f"{node.out.name}:part", w.operand(x, first), *ends), first)


def _pick(w: OnnxWriter, node: Node) -> None:
    """A resize to the nearest where it is one, else its rows and columns gathered."""
    op, (x,), out = node.op, node.ins, node.out.name
    assert isinstance(op, ops.Pick)
    first, (sizes, wanted) = w.first(x), (v.type.shape[1:3] for v in (x, node.out))
    every = tuple(tuple(p) or tuple(range(n)) for p, n in zip((op.rows, op.columns), sizes, strict=True))
    if first and every == tuple(
        tuple(i // (m // n) for i in range(m)) for n, m in zip(sizes, wanted, strict=True) if m % n == 0
    ):
        scales = w.constant(f"{out}:scales", np.array([1, 1, *np.divide(wanted, sizes)], np.float32))
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        w.result(node, w.emit("Resize", f"{out}:resized", w.operand(x, first), "", scales, **how), first)
        return
    name = w.operand(x, first)
    for axis, places, what in ((1, op.rows, "rows"), (2, op.columns, "columns")):
        if places:
            along = _integers(w, node, np.array(places), what)
            name = w.emit("Gather", f"{out}:picked_{what}", name, along, axis=PLACES[axis] if first else axis)
    w.result(node, name, first)


def bilinear_inputs(w: OnnxWriter, node: Node) -> tuple[tuple[str, ...], dict[str, object]]:
    """What a linear Resize reads, and its attributes."""
    op, (x,) = node.op, node.ins
    assert isinstance(op, ops.ResizeBilinear)
    kind = "align_corners" if op.align_corners else "half_pixel" if op.half_pixel else "asymmetric"
    sizes = _integers(w, node, np.array([1, x.type.shape[3], *op.size]), "sizes")
    return (w.operand(x, True), "", "", sizes), {"mode": "linear", "coordinate_transformation_mode": kind}


def _bilinear(w: OnnxWriter, node: Node) -> None:
    ins, how = bilinear_inputs(w, node)
    w.result(node, w.emit("Resize", f"{node.out.name}:resized", *ins, **how), True)


def _reshape(w: OnnxWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Reshape)
    shape = _integers(w, node, np.array(node.op.shape))
    w.result(node, w.emit("Reshape", f"{node.out.name}:shaped", w.operand(node.ins[0], False), shape), False)


def _transpose(w: OnnxWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Transpose)
    name = w.emit("Transpose", f"{node.out.name}:moved", w.operand(node.ins[0], False), perm=node.op.perm)
    w.result(node, name, False)


def _concat(w: OnnxWriter, node: Node) -> None:
    assert isinstance(node.op, ops.Concat)
    first = len(node.out.type.shape) == 4 and any(w.first(v) for v in node.ins)
    axis = PLACES[node.op.axis] if first else node.op.axis
    name = w.emit("Concat", f"{node.out.name}:joined", *(w.operand(v, first) for v in node.ins), axis=axis)
    w.result(node, name, first)


MOVES: Mapping[type[Op], Callable[[OnnxWriter, Node], None]] = {
    ops.Concat: _concat, ops.Crop: _crop, ops.Pad: _pad, ops.Pick: _pick, ops.Reshape: _reshape,
    ops.ResizeBilinear: _bilinear, ops.Transpose: _transpose,
}  # fmt: skip
