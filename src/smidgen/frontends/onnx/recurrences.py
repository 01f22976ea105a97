"""Recurrent layers as ONNX's own, on real numbers: runtimes have none that rounds its gates as ours do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from smidgen import ops
from smidgen.errors import ExportError
from smidgen.ir import Array, Node, Op
from smidgen.ops.recurrence import Recurrent, gate_scales

if TYPE_CHECKING:
    from smidgen.frontends.onnx.writer import OnnxWriter

ORDERS: Mapping[type[Op], tuple[int, ...]] = {ops.Lstm: (0, 3, 1, 2), ops.Gru: (1, 0, 2)}  # ours, in ONNX's order


def _real(w: OnnxWriter, node: Node) -> tuple[Array, Array, Array]:
    """Weights and bias as the real numbers they stand for."""
    held = [w.data.get(value) for value in node.ins[1:]]
    if any(data is None for data in held):
        raise ExportError(f"the weights of %{node.out.name} are computed or an input; ONNX export needs constants")
    weights, recurrent, bias = (data.astype(np.float64) for data in held if data is not None)
    (x, w_type, u_type, _), y = (v.type for v in node.ins), node.out.type
    if x.q is None:
        return weights, recurrent, bias
    given, kept = (np.array(gate_scales(t)) for t in (w_type, u_type))
    steps = np.append(x.scale * given, y.scale * kept[-1:])[:, None]
    return weights * given[:, None, None], recurrent * kept[:, None, None], bias * steps[: len(bias)]


def _recurrent(w: OnnxWriter, node: Node) -> None:
    op, out, cells = node.op, node.out.name, node.out.type.shape[-1]
    assert isinstance(op, Recurrent)
    if isinstance(op, ops.Lstm) and op.clip:
        raise ExportError(f"Lstm of %{out} limits its cells to {op.clip}, which ONNX's does not; export it to .tflite")
    order, (weights, recurrent, bias) = list(ORDERS[type(op)]), _real(w, node)
    beside = np.zeros((op.gates, cells))
    beside[-1] = bias[-1] if len(bias) > op.gates else 0.0
    parts = {"w": weights[order], "u": recurrent[order], "b": np.concatenate([bias[: op.gates][order], beside[order]])}
    shapes = {"w": (1, op.gates * cells, -1), "u": (1, op.gates * cells, -1), "b": (1, -1)}
    held = [w.constant(f"{out}:{k}", part.reshape(shapes[k]).astype(np.float32)) for k, part in parts.items()]
    _, steps, inputs = node.ins[0].type.shape
    shape, flat = (
        w.constant(f"{out}:{what}", np.array(sizes, np.int64))
        for what, sizes in (("sequence", (steps, 1, inputs)), ("rows", node.out.type.shape))
    )
    x = w.emit("Reshape", f"{out}:x", w.operand(node.ins[0], False), shape)
    more = {} if isinstance(op, ops.Lstm) else {"linear_before_reset": int(isinstance(op, ops.Gru) and op.reset_after)}
    outs = (f"{out}:states",) if op.whole else ("", f"{out}:states")
    w.emit_all(type(op).__name__.upper(), outs, x, *held, hidden_size=cells, **more)
    w.result(node, w.emit("Reshape", f"{out}:recurrent", f"{out}:states", flat), False)


RECURRENCES: Mapping[type[Op], Callable[[OnnxWriter, Node], None]] = dict.fromkeys(ORDERS, _recurrent)
