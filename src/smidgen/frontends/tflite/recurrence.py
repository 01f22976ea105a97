"""TFLite's LSTM over a sequence: four gates' weights in tensors of their own become those of one op."""

from __future__ import annotations

import math

import numpy as np
import tflite

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.tflite.arguments import NO_TENSOR, inputs_of
from smidgen.frontends.tflite.context import TfliteImport
from smidgen.frontends.tflite.flatbuffer import TfliteOperator
from smidgen.ir import QParams, Value
from smidgen.numerics.int16 import FRACTION
from smidgen.ops.lstm import MOST_BITS

TANH = tflite.ActivationFunctionType.TANH
INPUTS = 24  # of which the last four belong to layer normalization
W, U, PEEPHOLE, BIAS, PROJECTION, STATE, CELL, NORM = 1, 5, slice(9, 12), 12, slice(16, 18), 18, 19, slice(20, 24)
# What the operator may have besides, by its inputs.
REFUSED = (("peephole weights", PEEPHOLE), ("a projection", PROJECTION), ("layer normalization", NORM))
HIDDEN = 4  # among the intermediates: what the hidden state is rounded to


def sequence_lstm(c: TfliteImport, operator: TfliteOperator) -> Value:
    """UNIDIRECTIONAL_SEQUENCE_LSTM of a batch of one, from a state of zero."""
    inputs = inputs_of(operator, 20, INPUTS)
    _check_kind(operator, inputs)
    x = c.value(inputs[0])
    batch, steps = (x.type.shape[1], x.type.shape[0]) if operator.options.time_major else x.type.shape[:2]
    if len(x.type.shape) != 3 or batch != 1:
        raise ImportModelError(f"its input is {list(x.type.shape)}; one sequence of [steps, inputs] is supported")
    name, shape = c.name(operator.outputs[0]), (1, steps, x.type.shape[2])
    sequence = x if x.type.shape == shape else c.builder.emit(ops.Reshape(shape), x, name=f"{x.name}.sequence")
    w, u = (_stacked(c, inputs[first : first + 4], x, f"{name}.{role}") for first, role in ((W, "w"), (U, "u")))
    bias = np.stack([c.data(index) for index in inputs[BIAS : BIAS + 4]])
    b = c.builder.constant(f"{name}.b", bias)
    op = ops.Lstm(clip=float(operator.options.cell_clip), bits=_cell_bits(c, inputs, operator, x))
    first = c.builder.emit(op, sequence, w, u, b, q=c.q(operator.outputs[0]), name=name)
    if first.type.dtype == "int8":
        op.params(c.builder.last)
    declared = c.type(operator.outputs[0]).shape
    return first if declared == first.type.shape else c.builder.emit(ops.Reshape(declared), first)


def _check_kind(operator: TfliteOperator, inputs: tuple[int, ...]) -> None:
    """Raise where the layer is of a kind other than Keras' LSTM."""
    options = operator.options
    present = [what for what, places in REFUSED if any(index != NO_TENSOR for index in inputs[places])]
    if present:
        raise ImportModelError(f"it has {' and '.join(present)}; convert a plain LSTM, as Keras has it")
    if NO_TENSOR in inputs[W : W + 8] or NO_TENSOR in inputs[BIAS : BIAS + 4]:
        raise ImportModelError("it lacks a gate or a bias; convert a plain LSTM, as Keras has it")
    if options.fused_activation_function != TANH or options.diagonal_recurrent_tensors:
        raise ImportModelError("its activation is not tanh, or its weights are diagonals; convert a plain LSTM")


def _stacked(c: TfliteImport, indices: tuple[int, ...], x: Value, name: str) -> Value:
    """The four gates' weights as one constant with a scale for each."""
    if x.type.dtype == "float32":
        c.widened.update(index for index in indices if c.tensor(index).dtype == "int8")
        return c.builder.constant(name, np.stack([c.real(index) for index in indices]))
    held, qs = [c.data(index) for index in indices], [c.q(index) for index in indices]
    if any(part.shape != held[0].shape for part in held):
        raise ImportModelError(f"its gates' weights are {', '.join(str(list(part.shape)) for part in held)}, not alike")
    if any(q is None or len(q.scale) != 1 or q.zero != 0 for q in qs):
        raise ImportModelError("its weights should be int8 with one scale per gate, from zero; convert the model again")
    return c.builder.constant(name, np.stack(held), QParams.per_channel([q.one for q in qs if q is not None], 0))


def _cell_bits(c: TfliteImport, inputs: tuple[int, ...], operator: TfliteOperator, x: Value) -> int:
    """The bits before the point of the cell state, once every scale is as the kernel takes them."""
    if x.type.dtype != "int8":
        return ops.Lstm().bits
    cell = c.tensor(inputs[CELL])
    scale = cell.scales[0] if len(cell.scales) == 1 else 0.0
    exponent = round(math.log2(scale)) if scale > 0 and math.isfinite(scale) else 0
    if cell.dtype != "int16" or scale != 2.0**exponent or not 0 <= FRACTION + exponent <= MOST_BITS:
        raise ImportModelError(
            f"its cell state is {cell.dtype} in steps of {scale:.3g}; int16 in steps of 2^-15 … 2^-9 is supported"
        )
    if len(operator.intermediates) <= HIDDEN:
        raise ImportModelError("it does not say how its hidden state is rounded; convert the model again")
    hidden = operator.intermediates[HIDDEN]
    wanted = c.q(operator.outputs[0])
    if any(c.q(index) != wanted for index in (inputs[STATE], hidden)):
        raise ImportModelError("its hidden state and its output have different scales; convert the model again")
    return FRACTION + exponent
