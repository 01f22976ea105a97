"""Recurrent layers as TFLite's operators: one op's weights become those of four gates, its state two variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from smidgen import ops
from smidgen.errors import ExportError
from smidgen.frontends.tflite.arguments import NO_TENSOR
from smidgen.frontends.tflite.flatbuffer import TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.frontends.tflite.recurrence import TANH
from smidgen.ir import Node, Op, QParams, Type, Value
from smidgen.numerics.int16 import FRACTION
from smidgen.ops.recurrence import gate_scales

if TYPE_CHECKING:
    from smidgen.frontends.tflite.writer import Lowering

ABSENT = (NO_TENSOR,) * 4
GATES = ("input", "forget", "cell", "output")


def _lstm(lowering: Lowering, node: Node) -> None:
    op, x, y = node.op, node.ins[0], node.out.type
    assert isinstance(op, ops.Lstm)
    steps, cells = x.type.shape[1], y.shape[-1]
    weights, recurrent = (_gates(lowering, value) for value in node.ins[1:3])
    hidden, cell = (
        lowering.append(TfliteTensor(f"{node.out.name}.{role}", (1, cells), *kind, variable=True))
        for role, kind in (("hidden", _hidden(y)), ("cell", _cell(op, y)))
    )
    ins = (
        lowering.place(x), *weights, *recurrent, *ABSENT[:3], *_biases(lowering, node), *ABSENT[:2], hidden, cell,
        *ABSENT,
    )  # fmt: skip
    options = TfliteOptions(fused_activation_function=TANH, cell_clip=op.clip)
    between = _between(lowering, node) if y.dtype == "int8" else ()
    states = lowering.place(node.out)
    if not op.whole:
        states = lowering.temporary(f"{node.out.name}.states", Type((1, steps, cells), y.dtype, y.q))
    lowering.operators.append(
        TfliteOperator("UNIDIRECTIONAL_SEQUENCE_LSTM", ins, (states,), options, intermediates=between)
    )
    if not op.whole:
        last = lowering.temporary(f"{node.out.name}.last", Type((1, 1, cells), y.dtype, y.q))
        part = {"start": (0, steps - 1, 0), "size": (1, 1, cells)}
        start, size = (lowering.integers(what, np.array(numbers)) for what, numbers in part.items())
        version = 2 if y.dtype == "int8" else 1
        lowering.operators.append(TfliteOperator("SLICE", (states, start, size), (last,), version=version))
        lowering.emit("RESHAPE", node, last, lowering.integers("shape", np.array(y.shape)))


def _hidden(y: Type) -> tuple[str, tuple[float, ...], tuple[int, ...]]:
    """The type of the hidden state: the output's."""
    return (y.dtype, y.q.scale, (y.q.zero,)) if y.q is not None else (y.dtype, (), ())


def _cell(op: ops.Lstm, y: Type) -> tuple[str, tuple[float, ...], tuple[int, ...]]:
    return ("int16", (2.0 ** (op.bits - FRACTION),), (0,)) if y.q is not None else ("float32", (), ())


def _gates(lowering: Lowering, value: Value) -> list[int]:
    """One tensor for each gate's weights."""
    if value not in lowering.data:
        raise ExportError(f"the weights %{value.name} are computed or an input; TFLite needs constants")
    scales = gate_scales(value.type) if value.type.q is not None else (None,) * len(GATES)
    return [
        lowering.held(f"{value.name}.{gate}", part, None if scale is None else QParams.per_tensor(scale))
        for gate, part, scale in zip(GATES, lowering.data[value], scales, strict=True)
    ]


def _biases(lowering: Lowering, node: Node) -> list[int]:
    """One tensor for each gate's bias, in steps of its sums of x."""
    x, w, _, b = node.ins
    if b not in lowering.data:
        raise ExportError(f"the bias %{b.name} is computed or an input; TFLite needs constants")
    if x.type.q is None:
        return [lowering.held(f"{b.name}.{gate}", part) for gate, part in zip(GATES, lowering.data[b], strict=True)]
    return [
        lowering.held(f"{b.name}.{gate}", part, QParams.per_tensor(x.type.scale * scale))
        for gate, part, scale in zip(GATES, lowering.data[b], gate_scales(w.type), strict=True)
    ]


def _between(lowering: Lowering, node: Node) -> tuple[int, ...]:
    """What the kernel asks of results on the way: nothing of the gates, the quantization of the hidden state."""
    gates = (TfliteTensor(f"{node.out.name}.{gate}", (0,), "float32") for gate in GATES)
    hidden = TfliteTensor(f"{node.out.name}.rounded", (0,), *_hidden(node.out.type))
    return tuple(lowering.append(tensor) for tensor in (*gates, hidden))


RECURRENCES: Mapping[type[Op], Callable[[Lowering, Node], None]] = {ops.Lstm: _lstm}
