"""Products of two tensors and normalizations as ONNX's operators, plain or as functions that round as we do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from smidgen import ops
from smidgen.errors import ExportError
from smidgen.ir import Node, Op, QParams, Value
from smidgen.ops.matmul import INT8_SPAN, swapped
from smidgen.ops.normalize import SHIFT_BITS, epsilon_steps

if TYPE_CHECKING:
    from smidgen.frontends.onnx.exact import ExactWriter
    from smidgen.frontends.onnx.writer import OnnxWriter


def _factor(w: OnnxWriter, node: Node, value: Value, transposed: bool) -> str:
    """Matrices as the product reads them; constants have three dimensions or more, which weights have not."""
    rank = len(value.type.shape)
    perm = (*range(rank - 2), rank - 1, rank - 2)
    if value in w.data:
        data = np.swapaxes(w.data[value], -1, -2) if transposed else w.data[value]
        name = f"{node.out.name}:{value.name}:{'turned' if transposed else 'factor'}"
        return w.dequantized(data.reshape((1,) * max(0, 3 - rank) + data.shape), value.type.q, name)
    name = w.operand(value, False)
    if not transposed:
        return name
    turned = f"{node.out.name}:{value.name}:turned"
    if turned not in w.held:
        w.held.add(turned)
        w.emit("Transpose", turned, name, perm=perm)
    return turned


def matmul_factors(w: OnnxWriter, node: Node) -> tuple[str, str]:
    op, (a, b) = node.op, node.ins
    assert isinstance(op, ops.MatMul)
    return _factor(w, node, a, op.transpose_a), _factor(w, node, b, op.transpose_b)


def finish_matmul(w: OnnxWriter, node: Node, name: str) -> None:
    """The product in its own shape, which a constant may have given one dimension more."""
    if len(node.out.type.shape) < 3 and any(v in w.data for v in node.ins):
        shape = w.constant(f"{node.out.name}:shape", np.array(node.out.type.shape, np.int64))
        name = w.emit("Reshape", f"{node.out.name}:reshaped", name, shape)
    w.result(node, name, False)


def _matmul(w: OnnxWriter, node: Node) -> None:
    finish_matmul(w, node, w.emit("MatMul", f"{node.out.name}:product", *matmul_factors(w, node)))


def exact_matmul(w: ExactWriter, node: Node) -> None:
    assert isinstance(node.op, ops.MatMul)
    depth = swapped(node.ins[0].type.shape, node.op.transpose_a)[-1]
    how = w.of_sums(node, INT8_SPAN**2 * depth, *node.op.multiplier(node))
    name = w.call(node, "MatMul", *matmul_factors(w, node), *map(w.step, node.ins), *w.scaling(node, how))
    finish_matmul(w, node, name)


def _constants(w: OnnxWriter, node: Node) -> tuple[str, str]:
    """Scales and shifts in real numbers, from integers where they are."""
    _, scale, shift = node.ins
    w.check_constant(node, scale)
    w.check_constant(node, shift)
    if scale.type.q is None:
        return w.constant(scale.name, w.data[scale]), w.constant(shift.name, w.data[shift])
    fine = QParams.per_tensor(node.out.type.scale / (1 << SHIFT_BITS))
    held = ((scale, w.data[scale].astype(np.int32), scale.type.q), (shift, w.data[shift], fine))
    first, second = (w.dequantized(data, q, f"{node.out.name}:{v.name}:held") for v, data, q in held)
    return first, second


def _map(w: OnnxWriter, node: Node) -> str:
    """The rows of a tensor as a map of one dimension, channels first."""
    x, out = node.ins[0], node.out.name
    shape = (1, x.type.size // x.type.shape[-1], x.type.shape[-1])
    flat = w.emit("Reshape", f"{out}:rows", w.operand(x, False), w.constant(f"{out}:rows_of", np.array(shape)))
    return w.emit("Transpose", f"{out}:rows_first", flat, perm=(0, 2, 1))


def _from_map(w: OnnxWriter, node: Node, name: str) -> None:
    last, out = w.emit("Transpose", f"{node.out.name}:rows_last", name, perm=(0, 2, 1)), node.out
    shape = w.constant(f"{out.name}:shape", np.array(out.type.shape, np.int64))
    w.result(node, w.emit("Reshape", f"{out.name}:reshaped", last, shape), False)


def _normalize(w: OnnxWriter, node: Node) -> None:
    op, x = node.op, node.ins[0]
    assert isinstance(op, ops.Normalize)
    name, constants = f"{node.out.name}:normalized", _constants(w, node)
    if not op.groups:
        y = w.emit("LayerNormalization", name, w.operand(x, False), *constants, axis=-1, epsilon=op.epsilon)
        w.result(node, y, False)
    elif op.groups == x.type.shape[-1]:
        _from_map(w, node, w.emit("InstanceNormalization", name, _map(w, node), *constants, epsilon=op.epsilon))
    else:
        raise ExportError(
            f"Normalize of %{node.out.name}: ONNX has groups of channels with a scale each from opset 21 on; export it "
            "with functions, not plain"
        )


def exact_normalize(w: ExactWriter, node: Node) -> None:
    op, (x, scale, shift) = node.op, node.ins
    assert isinstance(op, ops.Normalize)
    split, (multiplier, exponent) = op.split(x.type), op.multiplier(node)
    along = (-1, 1) if op.groups else (-1,)
    numbers = {
        "size": np.array(split.size), "least": np.array(epsilon_steps(x.type, split.size, op.epsilon)),
        "scales": w.data[scale].reshape(along), "shifts": w.data[shift].reshape(along),
        "multiplier": np.array(multiplier), "divisor": np.array(1 << (31 - exponent)),
    }  # fmt: skip
    rest = (w.step(x), *w.numbers(node, numbers, "int64"), w.step(node.out))
    if not op.groups:
        ins = (w.operand(x, False), *_constants(w, node), *rest)
        w.result(node, w.call(node, "LayerNormalization", *ins, axis=-1, epsilon=op.epsilon), False)
        return
    grouped = w.constant(f"{node.out.name}:grouped", np.array((1, op.groups, split.size), np.int64))
    ins = (_map(w, node), *_constants(w, node), *rest, grouped)
    _from_map(w, node, w.call(node, "GroupNormalization", *ins, num_groups=op.groups, epsilon=op.epsilon))


def _unit_norm(w: OnnxWriter, node: Node) -> None:
    x = w.operand(node.ins[0], False)
    w.result(node, w.emit("LpNormalization", f"{node.out.name}:unit", x, axis=-1, p=2), False)


def exact_unit_norm(w: ExactWriter, node: Node) -> None:
    (x,) = node.ins
    ins = w.operand(x, False), w.step(x), w.step(node.out)
    w.result(node, w.call(node, "LpNormalization", *ins, axis=-1, p=2), False)


PRODUCTS: Mapping[type[Op], Callable[[OnnxWriter, Node], None]] = {
    ops.MatMul: _matmul, ops.Normalize: _normalize, ops.UnitNorm: _unit_norm,
}  # fmt: skip
