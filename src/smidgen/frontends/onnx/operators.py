"""What each ONNX operator means: one rule per operator, from its call to a tensor of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.channels import Constant, FileTensor, Operand, Spans
from smidgen.frontends.layout import Shape
from smidgen.frontends.onnx.attention import ATTENTION_RULES
from smidgen.frontends.onnx.context import OnnxCall
from smidgen.frontends.onnx.moving import MOVING_RULES
from smidgen.frontends.onnx.quantized import dequantize, quantize
from smidgen.frontends.onnx.recurrence import RECURRENT_RULES
from smidgen.ir import Op
from smidgen.ops.functions import TABLES as TFLITE_TABLES

OnnxRule = Callable[[OnnxCall], Operand | tuple[FileTensor, ...]]


def _pads(call: OnnxCall, x: FileTensor, size: Shape, stride: Shape, dilation: Shape) -> Spans:
    """auto_pad and pads as numbers before and after each dimension of the map."""
    kind, count = call.text("auto_pad", "NOTSET"), len(size)
    if kind in ("NOTSET", "VALID"):
        pads = call.integers("pads", (0,) * 2 * count) if kind == "NOTSET" else (0,) * 2 * count
        if len(pads) != 2 * count or min(pads, default=0) < 0:
            raise ImportModelError(f"pads {list(pads)} do not fit a window of {list(size)}")
        return tuple(zip(pads[:count], pads[count:], strict=True))
    if kind not in ("SAME_UPPER", "SAME_LOWER"):
        raise ImportModelError(f"auto_pad is '{kind[:40]}'; known are NOTSET, VALID, SAME_UPPER and SAME_LOWER")
    spans = []
    for n, k, s, d in zip(x.shape[2:], size, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        spans.append((total // 2, total - total // 2) if kind == "SAME_UPPER" else (total - total // 2, total // 2))
    return tuple(spans)


def _window(call: OnnxCall, x: FileTensor, size: Shape) -> tuple[Shape, Spans, Shape]:
    """Stride, padding and dilation of a window over the map."""
    count = len(x.shape) - 2
    stride, dilation = call.integers("strides", (1,) * count), call.integers("dilations", (1,) * count)
    if not len(size) == len(stride) == len(dilation) == count or min((*size, *stride, *dilation, 1)) < 1:
        raise ImportModelError(
            f"window {list(size)}, strides {list(stride)} and dilations {list(dilation)} do not fit {list(x.shape)}"
        )
    return stride, _pads(call, x, size, stride, dilation), dilation


def _conv(call: OnnxCall) -> FileTensor:
    x, w = call.tensor(0), call.constant(1)
    size = w.shape[2:]
    if call.integers("kernel_shape", size) != size:
        raise ImportModelError(f"its kernel_shape is not that of its weights {list(w.shape)}; export the model again")
    stride, pads, dilation = _window(call, x, size)
    return call.c.conv(x, w, call.optional(2), stride, pads, dilation, call.integer("group", 1))


def _conv_transpose(call: OnnxCall) -> FileTensor:
    x, w = call.tensor(0), call.constant(1)
    count, size = len(x.shape) - 2, w.shape[2:]
    stride, extra = call.integers("strides", (1,) * count), call.integers("output_padding", (0,) * count)
    pads = call.integers("pads", (0,) * 2 * count)
    dilation = call.integers("dilations", (1,) * count)
    for name, allowed in (("auto_pad", "NOTSET"), ("output_shape", None), ("kernel_shape", size)):
        call.forbid(name, allowed)
    if not len(size) == len(stride) == len(extra) == len(pads) / 2 == count or min((*pads, *extra, *stride, 0)) < 0:
        raise ImportModelError(f"strides {list(stride)} and pads {list(pads)} do not fit weights {list(w.shape)}")
    spans = tuple(zip(pads[:count], pads[count:], strict=True))
    return call.c.conv_transpose(x, w, call.optional(2), stride, spans, extra, dilation, call.integer("group", 1))


def _gemm(call: OnnxCall) -> FileTensor:
    x, w, b = call.tensor(0), call.constant(1), call.optional(2)
    if call.integer("transA", 0):
        x = call.c.transpose(x, (1, 0))
    if not call.integer("transB", 0):
        w = w.transposed((1, 0))
    alpha, beta = call.real("alpha", 1.0), call.real("beta", 1.0)
    if alpha != 1.0:
        w = Constant(w.data * np.float32(alpha))
    if b is not None and b.data.size not in (1, w.shape[0]):
        y = call.c.dense(x, w)
        return call.c.add(y, Constant(b.data * np.float32(beta)))
    return call.c.dense(x, w, b if b is None or beta == 1.0 else Constant(b.data * np.float32(beta)))


def _batch_norm(call: OnnxCall) -> FileTensor:
    call.forbid("training_mode", 0)
    scale, shift, mean, variance = (call.constant(i).data.astype(np.float64).reshape(-1) for i in range(1, 5))
    if variance.min(initial=0) < 0 or len({a.size for a in (scale, shift, mean, variance)}) > 1:
        raise ImportModelError("its scale, shift, mean and variance differ in size, or a variance is negative")
    factor = scale / np.sqrt(variance + call.real("epsilon", 1e-5))
    return call.c.batch_norm(call.tensor(0), factor, shift - mean * factor)


def _pool(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    size = call.integers("kernel_shape", ())
    stride, pads, dilation = _window(call, x, size)
    if set(dilation) - {1} or any(call.operator.outputs[1:]):
        raise ImportModelError("pooling with dilation or with an output of indices is not supported; use plain pooling")
    kind = ops.MaxPool if call.operator.code == "MaxPool" else ops.AvgPool
    return call.c.pool(
        kind, x, size, stride, pads, bool(call.integer("ceil_mode", 0)), bool(call.integer("count_include_pad", 0))
    )


def _global_pool(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    if len(x.shape) < 3:
        raise ImportModelError(f"{list(x.shape)} has no map to pool over")
    if call.operator.code == "GlobalAveragePool":
        return call.c.mean(x, range(2, len(x.shape)), keep=True)
    return call.c.pool(ops.MaxPool, x, x.shape[2:], (1,) * len(x.shape[2:]), ((0, 0),) * len(x.shape[2:]))


def _axes(call: OnnxCall, place: int, rank: int) -> Shape:
    """Axes from an attribute or, in later opsets, an input; all where there are none."""
    axes = call.numbers(place) if call.has_input(place) else call.integers("axes", ())
    if any(not -rank <= axis < rank for axis in axes) or len({a % rank for a in axes}) != len(axes):
        raise ImportModelError(f"axes {list(axes)} do not fit {rank} dimensions")
    return tuple(axis % rank for axis in axes)


def _mean(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    axes = _axes(call, 1, len(x.shape))
    if not axes and call.integer("noop_with_empty_axes", 0):
        return x
    return call.c.mean(x, axes or range(len(x.shape)), bool(call.integer("keepdims", 1)))


def _flatten(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    axis = call.integer("axis", 1)
    if not -len(x.shape) <= axis <= len(x.shape):
        raise ImportModelError(f"axis {axis} does not fit {list(x.shape)}")
    axis = axis + len(x.shape) if axis < 0 else axis
    return call.c.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def _reshape(call: OnnxCall) -> FileTensor:
    x, asked = call.tensor(0), call.numbers(1)
    copies = not call.integer("allowzero", 0)
    if any(n < -1 for n in asked) or asked.count(-1) > 1 or (copies and 0 in asked[len(x.shape) :]):
        raise ImportModelError(f"it reshapes {list(x.shape)} to {list(asked)}, which is not a shape")
    shape = [x.shape[i] if n == 0 and copies else n for i, n in enumerate(asked)]
    if -1 in shape:
        known = math.prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = x.size // known if known else 0
    return call.c.reshape(x, tuple(shape))


def _squeeze(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    axes = _axes(call, 1, len(x.shape)) or tuple(i for i, d in enumerate(x.shape) if d == 1)
    if any(x.shape[axis] != 1 for axis in axes):
        raise ImportModelError(f"it removes dimensions {list(axes)} of {list(x.shape)}, which are not all 1")
    return call.c.reshape(x, tuple(d for i, d in enumerate(x.shape) if i not in axes))


def _unsqueeze(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    rank = len(x.shape) + len(call.numbers(1))
    axes = _axes(call, 1, rank)
    rest = iter(x.shape)
    return call.c.reshape(x, tuple(1 if i in axes else next(rest) for i in range(rank)))


def _transpose(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    return call.c.transpose(x, call.integers("perm", tuple(reversed(range(len(x.shape))))))


def _concat(call: OnnxCall) -> FileTensor:
    return call.c.concat([call.operand(i) for i in range(len(call))], call.integer("axis", 0))


def _softmax(call: OnnxCall) -> FileTensor:
    x, axis = call.tensor(0), call.integer("axis", -1)
    if not -len(x.shape) <= axis < len(x.shape):
        raise ImportModelError(f"axis {axis} does not fit {list(x.shape)}")
    return call.c.softmax(x, axis, call.real("beta", 1.0))  # which files of our own alone give


def _pad(call: OnnxCall) -> FileTensor:
    x, mode = call.tensor(0), call.text("mode", "constant")
    if mode != "constant" or call.number(2, 0.0) != 0.0:
        raise ImportModelError(f"padding by {mode[:20]} with {call.number(2, 0.0)} is not supported; pad with zeros")
    pads, rank = call.numbers(1), len(x.shape)
    axes = _axes(call, 3, rank) or tuple(range(rank))
    if len(pads) != 2 * len(axes):
        raise ImportModelError(f"pads {list(pads)} do not fit {list(x.shape)}")
    spans = dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))
    return call.c.pad(x, tuple(spans.get(i, (0, 0)) for i in range(rank)))


def _add(call: OnnxCall) -> FileTensor:
    y = call.operand(0)
    for place in range(1, len(call)):
        y = call.c.add(y, call.operand(place))
    return y if isinstance(y, FileTensor) else call.c.real(y)


def _sub(call: OnnxCall) -> FileTensor:
    a, b = call.operand(0), call.operand(1)
    return call.c.add(a, Constant(-b.data) if isinstance(b, Constant) else call.c.negative(b))


def _mul(call: OnnxCall) -> FileTensor:
    return call.c.multiply(call.operand(0), call.operand(1))


def _div(call: OnnxCall) -> FileTensor:
    divisor = call.constant(1)
    if not divisor.data.all():
        raise ImportModelError("it divides by zero")
    return call.c.multiply(call.operand(0), Constant(1 / divisor.data.astype(np.float64)))


def _pow(call: OnnxCall) -> FileTensor:
    """A constant power; the square of a number that is no table is a product."""
    x, exponent, tflite = call.tensor(0), call.number(1, 0.0), call.integer("tflite", -1)  # which our own files give
    return (
        call.c.power(x, exponent) if tflite < 0 else call.c.unary(ops.Lookup("power", exponent, tflite=tflite == 1), x)
    )


def _limits(call: OnnxCall) -> FileTensor:
    """Clip, Min and Max with a number, and Max of two tensors."""
    if call.operator.code == "Clip":
        return call.c.clip(call.tensor(0), call.number(1, -math.inf), call.number(2, math.inf))
    if len(call) != 2:
        raise ImportModelError(f"it has {len(call)} inputs; two are supported")
    numbers = [
        isinstance(operand, Constant) and operand.data.size == 1 for operand in (call.operand(0), call.operand(1))
    ]
    if call.operator.code == "Max" and not any(numbers):
        return call.c.maximum(call.operand(0), call.operand(1))
    x, other = (1, 0) if isinstance(call.operand(0), Constant) else (0, 1)
    low, high = (
        (call.number(other, 0.0), math.inf) if call.operator.code == "Max" else (-math.inf, call.number(other, 0.0))
    )
    return call.c.clip(call.tensor(x), low, high)


def _prelu(call: OnnxCall) -> FileTensor:
    """Slopes as they are; a single one of a model that is not quantized is a function of one number."""
    x, slope = call.tensor(0), call.operand(1)
    if isinstance(slope, Constant) and slope.data.size == 1 and slope.steps is None:
        return call.c.unary(ops.Lookup("leaky_relu", float(slope.data.reshape(-1)[0])), x)
    return call.c.prelu(x, slope)


def _identity(call: OnnxCall) -> Operand:
    """Operators that change nothing when a model infers."""
    if call.operator.code == "Dropout" and call.has_input(2) and bool(call.number(2, 0.0)):
        raise ImportModelError("it drops elements as in training; export the model in evaluation mode")
    return call.operand(0)


def _cast(call: OnnxCall) -> Operand:
    x = call.operand(0)
    if call.integer("to", 1) != 1:
        raise ImportModelError(f"a conversion to ONNX type {call.integer('to', 1)} is not supported; stay in float32")
    return x


def _shape(call: OnnxCall) -> Constant:
    shape, rank = call.operand(0).shape, len(call.operand(0).shape)
    start, end = call.integer("start", 0), call.integer("end", rank)
    return Constant(np.array(shape[start:end], np.int64))


def _constant(call: OnnxCall) -> Constant:
    for name, kind in (("value", np.float32), ("value_float", np.float32), ("value_int", np.int64),
                       ("value_floats", np.float32), ("value_ints", np.int64)):  # fmt: skip
        if name in call.operator.attributes:
            value = call.operator.attributes[name]
            return Constant(value if isinstance(value, np.ndarray) else np.array(value, kind))
    raise ImportModelError("it holds no numbers")


def _function(op: Callable[[OnnxCall], Op]) -> OnnxRule:
    """An operator that is a function of each element."""
    return lambda call: call.c.unary(op(call), call.tensor(0))


def _lookup(name: str, alpha: float | None = None, beta: float | None = None, second: str = "beta") -> OnnxRule:
    """A function by name, with its attributes' defaults where it has them."""
    return _function(
        lambda call: ops.Lookup(
            name,
            0.0 if alpha is None else call.real("alpha", alpha),
            0.0 if beta is None else call.real(second, beta),
            tflite=name in TFLITE_TABLES and call.integer("tflite", 0) == 1,
        )
    )


def _gelu(call: OnnxCall) -> Op:
    name = "gelu_tanh" if call.text("approximate", "none") == "tanh" else "gelu"
    return ops.Lookup(name, tflite=call.integer("tflite", 0) == 1)


def _swish(call: OnnxCall) -> FileTensor:
    x, alpha = call.tensor(0), call.real("alpha", 1.0)
    if alpha == 1:
        return call.c.unary(ops.Lookup("silu"), x)
    scaled = call.c.multiply(x, Constant(np.array(alpha, np.float32)))
    return call.c.multiply(x, call.c.unary(ops.Lookup("sigmoid"), scaled))


OPERATOR_RULES: Mapping[str, OnnxRule] = {
    **ATTENTION_RULES, **MOVING_RULES, **RECURRENT_RULES,
    "Abs": _lookup("abs"), "Add": _add, "AveragePool": _pool, "BatchNormalization": _batch_norm, "Cast": _cast,
    "Celu": _lookup("celu", 1.0), "Clip": _limits, "Concat": _concat, "Constant": _constant, "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DequantizeLinear": dequantize, "Div": _div, "Dropout": _identity, "Elu": _lookup("elu", 1.0),
    "Erf": _lookup("erf"), "Exp": _lookup("exp"), "Flatten": _flatten, "Gelu": _function(_gelu), "Gemm": _gemm,
    "GlobalAveragePool": _global_pool, "GlobalMaxPool": _global_pool,
    "HardSigmoid": _lookup("hard_sigmoid", 0.2, 0.5), "HardSwish": _lookup("hard_swish"), "Identity": _identity,
    "LeakyRelu": _lookup("leaky_relu", 0.01), "Log": _lookup("log"), "Max": _limits, "MaxPool": _pool, "Min": _limits,
    "Mish": _lookup("mish"), "Mul": _mul, "Neg": lambda call: call.c.negative(call.tensor(0)), "PRelu": _prelu,
    "Pad": _pad, "Pow": _pow, "QuantizeLinear": quantize, "Reciprocal": lambda call: call.c.power(call.tensor(0), -1.0),
    "ReduceMean": _mean,
    "Relu": _function(lambda call: ops.Activate("relu")), "Reshape": _reshape,
    "Selu": _lookup("selu", 1.67326319217681884765625, 1.05070102214813232421875, "gamma"), "Shape": _shape,
    "Sigmoid": _lookup("sigmoid"), "Softmax": _softmax, "Sqrt": lambda call: call.c.power(call.tensor(0), 0.5),
    "Softplus": _lookup("softplus"),
    "Softsign": _lookup("softsign"), "Squeeze": _squeeze, "Sub": _sub, "Sum": _add, "Swish": _swish,
    "Tanh": _lookup("tanh"), "Transpose": _transpose, "Unsqueeze": _unsqueeze,
}  # fmt: skip
