"""Rules for TFLite's layers: convolutions, dense layers, pools and the LSTM."""

import math
from collections.abc import Mapping

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.blocks import TransposedConv
from smidgen.frontends.tflite.flatbuffer import NO_TENSOR, SAME, TANH, VALID, TfliteOperator
from smidgen.frontends.tflite.read.context import TfliteImport, TfliteRule
from smidgen.ir import QParams, Type, Value
from smidgen.numerics.int16 import FRACTION
from smidgen.ops.lstm import MOST_BITS
from smidgen.ops.window import Pad, same_pad

LSTM_INPUTS = 24  # of which the last four belong to layer normalization
W, U, PEEPHOLE, BIAS, PROJECTION, STATE, CELL, NORM = 1, 5, slice(9, 12), 12, slice(16, 18), 18, 19, slice(20, 24)
# Optional parts of the LSTM operator, by their inputs.
REFUSED = (("peephole weights", PEEPHOLE), ("a projection", PROJECTION), ("layer normalization", NORM))
HIDDEN = 4  # the intermediate whose quantization the hidden state takes


def _pad_of(operator: TfliteOperator, x: Type, size: tuple[int, int], dilation: tuple[int, int] = (1, 1)) -> Pad:
    """Return SAME or VALID padding as numbers."""
    options = operator.options
    stride = options.stride_h, options.stride_w
    if len(x.shape) != 4 or min(*stride, *dilation, *size) < 1 or options.padding not in (SAME, VALID):
        raise ImportModelError(
            f"window {size}, stride {stride}, dilation {dilation} and padding {options.padding} do not fit "
            f"{list(x.shape)}"
        )
    return same_pad(x.shape, size, stride, dilation) if options.padding == SAME else (0, 0, 0, 0)


def _bias(c: TfliteImport, index: int, x: Value, channels: int, stem: str) -> Value:
    """Return the bias, or zeros if it is left out."""
    if index != NO_TENSOR:
        return c.value(index)
    return c.builder.constant(f"{stem}.bias", np.zeros(channels, np.int32 if x.type.dtype == "int8" else np.float32))


def _conv(c: TfliteImport, operator: TfliteOperator) -> Value:
    xi, wi, bi = operator.reads(2, 3)
    x = c.value(xi)
    w = c.weights(wi, x)
    shapes = x.type.shape, w.type.shape
    refuse({*map(len, shapes)} != {4}, f"input {list(shapes[0])} and weights {list(shapes[1])} need four dimensions")
    options, depthwise = operator.options, operator.code == "DEPTHWISE_CONV_2D"
    dilation = options.dilation_h_factor, options.dilation_w_factor
    pad = _pad_of(operator, x.type, (w.type.shape[1], w.type.shape[2]), dilation)
    stride, activation = (options.stride_h, options.stride_w), operator.activation
    b = _bias(c, bi, x, w.type.shape[3 if depthwise else 0], w.name)
    if depthwise:
        return c.emit(operator, ops.Depthwise(stride, pad, dilation, activation), x, w, b)
    groups = max(x.type.shape[3] // w.type.shape[3], 1)
    return c.emit(operator, ops.Conv2D(stride, pad, dilation, groups, activation), x, w, b)


def _transpose_conv(c: TfliteImport, operator: TfliteOperator) -> Value:
    """Read a transposed convolution as one convolution per phase of its output, whose size the file states."""
    sizes, wi, xi, bi = operator.reads(3, 4)
    x, w, shape, options = c.value(xi), c.type(wi), c.integers(sizes), operator.options
    if len(shape) != 4 or len(w.shape) != 4 or len(x.type.shape) != 4 or w.shape[3] != x.type.shape[3]:
        raise ImportModelError(f"input {list(x.type.shape)}, weights {list(w.shape)} and output {list(shape)} differ")
    if options.padding not in (SAME, VALID) or min(options.stride_h, options.stride_w, *shape) < 1:
        raise ImportModelError(f"padding {options.padding} or a stride below 1 is not possible")
    stride, kernel, output = (options.stride_h, options.stride_w), (w.shape[1], w.shape[2]), (shape[1], shape[2])
    # SAME cuts off as much as a convolution of the output would pad.
    total = [max((-(-n // s) - 1) * s + k - n, 0) for n, s, k in zip(output, stride, kernel, strict=True)]
    cut = (total[0] // 2, total[1] // 2) if options.padding == SAME else (0, 0)
    how = TransposedConv(kernel, stride, cut, output)
    data, name = c.data(wi), c.name(operator.outputs[0])
    kind = np.int32 if x.type.dtype == "int8" else np.float32
    c.budget.check("its weights by phases", 4 * data.nbytes * how.phases)
    bias = np.zeros(w.shape[0], kind) if bi == NO_TENSOR else c.data(bi)
    if bias.shape != (w.shape[0],) or bias.dtype != kind:
        raise ImportModelError(f"a bias of {bias.dtype}{list(bias.shape)} does not fit {w.shape[0]} channels")
    weights = c.builder.constant(f"{name}.w", how.weights(data), None if w.q is None else how.scales(w.q))
    biases = c.builder.constant(f"{name}.b", np.tile(bias, how.phases))
    return how.emit(c.builder, operator.activation, x, weights, biases, c.q(operator.outputs[0]), name)


def _dense(c: TfliteImport, operator: TfliteOperator) -> Value:
    xi, wi, bi = operator.reads(2, 3)
    x, options = c.value(xi), operator.options
    w = c.weights(wi, x)
    if options.weights_format != 0 or len(w.type.shape) != 2 or x.type.size % w.type.shape[1]:
        raise ImportModelError(
            f"input {list(x.type.shape)} and weights {list(w.type.shape)} in format {options.weights_format} "
            "are not a matrix product; convert the model with plain [out, in] weights"
        )
    units, columns = w.type.shape
    rows = x.type.size // columns
    flat = c.reshaped(x, (rows, columns), "rows")
    b = _bias(c, bi, x, units, w.name)
    shape = (*x.type.shape[:-1], units) if options.keep_num_dims else (rows, units)
    if not c.is_open(operator.outputs[0]):
        shape = c.type(operator.outputs[0]).shape
    return c.emit_shaped(operator, shape, ops.Dense(operator.activation), flat, w, b)


def _pool(c: TfliteImport, operator: TfliteOperator) -> Value:
    (index,) = operator.reads(1, 1)
    options = operator.options
    size, stride = (options.filter_height, options.filter_width), (options.stride_h, options.stride_w)
    op = ops.MaxPool if operator.code == "MAX_POOL_2D" else ops.AvgPool
    if index in c.pads and op is ops.MaxPool and options.padding == VALID:
        x, before, after = c.pads[index]
        pad = before[1], after[1], before[2], after[2]
    else:
        x = c.value(index)
        pad = _pad_of(operator, x.type, size)
    return c.emit(operator, op(size, stride, pad, operator.activation), x)


def _lstm(c: TfliteImport, operator: TfliteOperator) -> Value:
    """Read UNIDIRECTIONAL_SEQUENCE_LSTM on a batch of one, from a state of zero: a plain LSTM, as Keras has it."""
    inputs, options = operator.reads(20, LSTM_INPUTS), operator.options
    present = [what for what, places in REFUSED if any(index != NO_TENSOR for index in inputs[places])]
    refuse(present, f"it has {' and '.join(present)}; convert a plain LSTM, as Keras has it")
    lacking = NO_TENSOR in inputs[W : W + 8] or NO_TENSOR in inputs[BIAS : BIAS + 4]
    refuse(lacking, "it lacks a gate or a bias; convert a plain LSTM, as Keras has it")
    if options.fused_activation_function != TANH or options.diagonal_recurrent_tensors:
        raise ImportModelError("its activation is not tanh, or its weights are diagonals; convert a plain LSTM")
    x = c.value(inputs[0])
    batch, steps = (x.type.shape[1], x.type.shape[0]) if options.time_major else x.type.shape[:2]
    if len(x.type.shape) != 3 or batch != 1:
        raise ImportModelError(f"its input is {list(x.type.shape)}; one sequence of [steps, inputs] is supported")
    name = c.name(operator.outputs[0])
    sequence = c.reshaped(x, (1, steps, x.type.shape[2]), "sequence")
    w, u = (_gates(c, inputs[first : first + 4], x, f"{name}.{role}") for first, role in ((W, "w"), (U, "u")))
    b = c.builder.constant(f"{name}.b", np.stack([c.data(index) for index in inputs[BIAS : BIAS + 4]]))
    op = ops.Lstm(clip=float(options.cell_clip), bits=_cell_bits(c, inputs, operator, x))
    y = c.builder.emit(op, sequence, w, u, b, q=c.q(operator.outputs[0]), name=name)
    if y.type.dtype == "int8":
        op.params(c.builder.last)
    declared = c.type(operator.outputs[0]).shape
    return y if declared == y.type.shape else c.builder.emit(ops.Reshape(declared), y)


def _gates(c: TfliteImport, indices: tuple[int, ...], x: Value, name: str) -> Value:
    """Return the four gates' weights as one constant, with one scale per gate."""
    if x.type.dtype == "float32":
        c.widened.update(index for index in indices if c.tensor(index).dtype == "int8")
        return c.builder.constant(name, np.stack([c.real(index) for index in indices]))
    held, qs = [c.data(index) for index in indices], [c.q(index) for index in indices]
    shapes = [list(part.shape) for part in held]
    refuse(shapes.count(shapes[0]) < len(shapes), f"its gates' weights are {', '.join(map(str, shapes))}, not alike")
    if any(q is None or len(q.scale) != 1 or q.zero != 0 for q in qs):
        raise ImportModelError("its weights should be int8 with one scale per gate, from zero")
    return c.builder.constant(name, np.stack(held), QParams.per_channel([q.one for q in qs if q is not None], 0))


def _cell_bits(c: TfliteImport, inputs: tuple[int, ...], operator: TfliteOperator, x: Value) -> int:
    """Return the integer bits of the cell state, after checking that the kernel takes every scale."""
    if x.type.dtype != "int8":
        return ops.Lstm().bits
    cell = c.tensor(inputs[CELL])
    scale = cell.scales[0] if len(cell.scales) == 1 else 0.0
    exponent = round(math.log2(scale)) if scale > 0 and math.isfinite(scale) else 0
    if cell.dtype != "int16" or scale != 2.0**exponent or not 0 <= FRACTION + exponent <= MOST_BITS:
        read = "int16 in steps of 2^-15 … 2^-9"
        raise ImportModelError(f"its cell state is {cell.dtype} in steps of {scale:.3g}; {read} is read")
    refuse(len(operator.intermediates) <= HIDDEN, "it does not say how its hidden state is rounded")
    wanted = c.q(operator.outputs[0])
    if any(c.q(index) != wanted for index in (inputs[STATE], operator.intermediates[HIDDEN])):
        raise ImportModelError("its hidden state and its output have different scales")
    return FRACTION + exponent


LAYER_RULES: Mapping[str, TfliteRule] = {
    "AVERAGE_POOL_2D": _pool, "CONV_2D": _conv, "DEPTHWISE_CONV_2D": _conv, "FULLY_CONNECTED": _dense,
    "MAX_POOL_2D": _pool, "TRANSPOSE_CONV": _transpose_conv, "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
}  # fmt: skip
