"""TFLite's TRANSPOSE_CONV as a convolution for each phase of its output."""

from __future__ import annotations

import numpy as np

from smidgen.errors import ImportModelError
from smidgen.frontends.blocks import TransposedConv
from smidgen.frontends.tflite.arguments import NO_TENSOR, activation_of, inputs_of
from smidgen.frontends.tflite.context import TfliteImport
from smidgen.frontends.tflite.flatbuffer import SAME, VALID, TfliteOperator
from smidgen.ir import Value


def transpose_conv(c: TfliteImport, operator: TfliteOperator) -> Value:
    """The file says how large the output is; SAME cuts off as a convolution of that output would pad."""
    sizes, wi, xi, bi = inputs_of(operator, 3, 4)
    x, w, shape, options = c.value(xi), c.type(wi), c.integers(sizes), operator.options
    if len(shape) != 4 or len(w.shape) != 4 or len(x.type.shape) != 4 or w.shape[3] != x.type.shape[3]:
        raise ImportModelError(f"input {list(x.type.shape)}, weights {list(w.shape)} and output {list(shape)} differ")
    if options.padding not in (SAME, VALID) or min(options.stride_h, options.stride_w, *shape) < 1:
        raise ImportModelError(f"padding {options.padding} or a stride below 1 is not possible; convert it again")
    stride, kernel, output = (options.stride_h, options.stride_w), (w.shape[1], w.shape[2]), (shape[1], shape[2])
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
    q = c.q(operator.outputs[0])
    return how.emit(c.builder, activation_of(operator), x, weights, biases, q, name)
