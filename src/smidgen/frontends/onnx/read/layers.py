"""ONNX's operators about to be translated, and rules for layers: weights, windows, norms, recurrence, quantization."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from smidgen import ops
from smidgen.data.files import Budget
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.channels import Constant, FileTensor, Operand, Spans
from smidgen.frontends.layout import Shape, axis_of
from smidgen.frontends.onnx.read.decode import OnnxModel, OnnxOperator
from smidgen.frontends.onnx.read.passes import SPELLED_NORM, qparams
from smidgen.frontends.sequences import Cells, Sequences, check_zero
from smidgen.ir import Array, QParams

MAX_INTEGERS = 64  # elements of a constant shape, of axes, pads, …
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}
GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}  # ONNX's places of our i, f, g, o and r, z, n
LENGTHS, STATES, PEEPHOLES = 4, (5, 6), 7  # inputs of a recurrent layer


class OnnxImport(Sequences):
    """The graph under construction and the file's tensors by name."""

    def __init__(self, model: OnnxModel, name: str, plan: Mapping[str, QParams], budget: Budget) -> None:
        super().__init__(name, plan, budget)
        self.model = model
        self.withheld: set[str] = set()  # results that are not computed
        self.chosen: dict[str, FileTensor] = {}  # classes that ArgMax chose, by the scores it chose from
        self.values: dict[str, Operand] = {n: Constant(data) for n, data in model.constants.items()}

    def operand(self, name: str) -> Operand:
        refuse(name in self.withheld, f"'{name}' is the last cell state of an LSTM; only its hidden states are read")
        chosen = "the class that ArgMax chose, and more is computed from it; end the model at ArgMax"
        refuse(name in self.chosen, f"'{name}' is {chosen}")
        refuse(name not in self.values, f"'{name}' is read before anything writes it")
        return self.values[name]


@dataclass(frozen=True, eq=False)
class OnnxCall:
    """One operator about to be translated: its inputs and attributes, each asked for by kind."""

    c: OnnxImport
    operator: OnnxOperator

    def __len__(self) -> int:
        return len(self.operator.inputs)

    def has_input(self, place: int) -> bool:
        """Return whether an optional input is present."""
        return place < len(self) and self.operator.inputs[place] != ""

    def operand(self, place: int) -> Operand:
        refuse(not self.has_input(place), f"its input {place} is missing")
        return self.c.operand(self.operator.inputs[place])

    def tensor(self, place: int) -> FileTensor:
        """Return an input as a value of the graph."""
        x = self.operand(place)
        return x if isinstance(x, FileTensor) else self.c.real(x)

    def constant(self, place: int) -> Constant:
        x = self.operand(place)
        if not isinstance(x, Constant):
            raise ImportModelError(f"its input {place}, '{self.operator.inputs[place]}', is computed, not a constant")
        return x

    def optional(self, place: int) -> Constant | None:
        return self.constant(place) if self.has_input(place) else None

    def number(self, place: int, default: float) -> float:
        """Return a constant input of one element."""
        constant = self.optional(place)
        if constant is None:
            return default
        refuse(constant.data.size != 1, f"its input {place} should be one number, is {list(constant.shape)}")
        return float(constant.data.reshape(-1)[0])

    def numbers(self, place: int) -> tuple[int, ...]:
        """Return a constant input of a few integers."""
        data: Array = self.constant(place).data
        if data.dtype.kind not in "iu" or data.size > MAX_INTEGERS:
            raise ImportModelError(f"its input {place} should be a few integers, is {data.dtype}{list(data.shape)}")
        return tuple(int(n) for n in data.ravel())

    def attribute(self, name: str, default: object, kind: Any, what: str) -> Any:
        """Return an attribute of a kind, which errors call `what`."""
        value = self.operator.attributes.get(name, default)
        refuse(not isinstance(value, kind), f"its attribute {name} should be {what}, is {value!r:.40}")
        return value

    def integer(self, name: str, default: int) -> int:
        return int(self.attribute(name, default, int, "an integer"))

    def integers(self, name: str, default: Shape = ()) -> Shape:
        value: Shape = self.attribute(name, default, tuple, "integers")
        refuse(not all(isinstance(n, int) for n in value), f"its attribute {name} should be integers, is {value!r:.40}")
        return value

    def real(self, name: str, default: float) -> float:
        value = float(self.attribute(name, default, int | float, "a finite number"))
        refuse(not np.isfinite(value), f"its attribute {name} should be a finite number, is {value}")
        return value

    def text(self, name: str, default: str) -> str:
        return str(self.attribute(name, default, str, "text"))

    def forbid(self, name: str, allowed: object) -> None:
        """Raise unless an attribute is left out or has the one value that is supported."""
        value = self.operator.attributes.get(name, allowed)
        refuse(value != allowed, f"{name} = {value!r:.40} is not supported; use {allowed!r}")

    def axis(self, shape: Shape, default: int) -> int:
        """Return the attribute `axis` as a dimension of a shape; negative ones count from the end."""
        return axis_of(self.integer("axis", default), shape)

    def axes(self, place: int, rank: int) -> Shape:
        """Return axes from an input or, in early opsets, an attribute; none where both are left out."""
        axes = self.numbers(place) if self.has_input(place) else self.integers("axes", ())
        if any(not -rank <= axis < rank for axis in axes) or len({a % rank for a in axes}) != len(axes):
            raise ImportModelError(f"axes {list(axes)} do not fit {rank} dimensions")
        return tuple(axis % rank for axis in axes)


OnnxRule = Callable[[OnnxCall], Operand | tuple[FileTensor, ...]]


def _pads(call: OnnxCall, x: FileTensor, size: Shape, stride: Shape, dilation: Shape) -> Spans:
    """Return the padding before and after each dimension of the map, from auto_pad and pads."""
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
    """Return stride, padding and dilation of a window over the map."""
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
    refuse(call.integers("kernel_shape", size) != size, f"its kernel_shape is not that of its weights {list(w.shape)}")
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
    scaled = b if b is None or beta == 1.0 else Constant(b.data * np.float32(beta))
    if scaled is None or scaled.data.size in (1, w.shape[0]):
        return call.c.dense(x, w, scaled)
    return call.c.add(call.c.dense(x, w), Constant(scaled.data))


def _matmul(call: OnnxCall) -> FileTensor:
    """Read a dense layer where the second factor is one constant matrix, else a product of two tensors.

    An int8 constant with more than two dimensions or a zero point is not weights: our own files have them.
    """
    a, b = call.operand(0), call.operand(1)
    if not isinstance(b, Constant) or not isinstance(a, FileTensor) or math.prod(b.shape[:-2]) != 1:
        return call.c.matmul(a, b)
    if b.steps is not None and (len(b.shape) > 2 or b.zero) and len(b.scales) == 1:
        return call.c.matmul(a, b)
    if len(b.shape) < 2 or len(a.shape) < 2:
        raise ImportModelError(f"a product of {list(a.shape)} and {list(b.shape)} is not supported; use matrices")
    matrix = b if len(b.shape) == 2 else Constant(b.data.reshape(b.shape[-2:]))
    y = call.c.dense(a, matrix.transposed((1, 0)))
    return call.c.reshape(y, (1,) * max(0, len(b.shape) - len(a.shape)) + y.shape)


def _pool(call: OnnxCall) -> FileTensor:
    x, size = call.tensor(0), call.integers("kernel_shape", ())
    stride, pads, dilation = _window(call, x, size)
    if set(dilation) - {1} or any(call.operator.outputs[1:]):
        raise ImportModelError("pooling with dilation or with an output of indices is not supported; use plain pooling")
    kind = ops.MaxPool if call.operator.code == "MaxPool" else ops.AvgPool
    ceil, counts_padding = (bool(call.integer(name, 0)) for name in ("ceil_mode", "count_include_pad"))
    return call.c.pool(kind, x, size, stride, pads, ceil, counts_padding)


def _global_pool(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    refuse(len(x.shape) < 3, f"{list(x.shape)} has no map to pool over")
    if call.operator.code == "GlobalAveragePool":
        return call.c.mean(x, range(2, len(x.shape)), keep=True)
    return call.c.pool(ops.MaxPool, x, x.shape[2:], (1,) * len(x.shape[2:]), ((0, 0),) * len(x.shape[2:]))


def _batch_norm(call: OnnxCall) -> FileTensor:
    call.forbid("training_mode", 0)
    scale, shift, mean, variance = (call.constant(i).data.astype(np.float64).reshape(-1) for i in range(1, 5))
    if variance.min(initial=0) < 0 or len({a.size for a in (scale, shift, mean, variance)}) > 1:
        raise ImportModelError("its scale, shift, mean and variance differ in size, or a variance is negative")
    factor = scale / np.sqrt(variance + call.real("epsilon", 1e-5))
    return call.c.batch_norm(call.tensor(0), factor, shift - mean * factor)


def _layer_norm(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    axis = call.axis(x.shape, -1)
    refuse(any(call.operator.outputs[1:]), "its mean or deviation is read; read its first output alone")
    count, epsilon = len(x.shape) - axis, call.real("epsilon", 1e-5)
    return call.c.layer_norm(x, count, call.optional(1), call.optional(2), epsilon)


def _spelled_norm(call: OnnxCall) -> FileTensor:
    """Read (x − mean) / √(variance + ε), which several nodes of the file amount to."""
    x, rank = call.tensor(0), len(call.tensor(0).shape)
    axes = sorted(axis % rank for axis in call.integers("axes", ()) if -rank <= axis < rank)
    if axes != list(range(rank - len(axes), rank)) or not axes:
        raise ImportModelError(f"it normalizes dimensions {axes} of {list(x.shape)}; normalize the last ones")
    return call.c.layer_norm(x, len(axes), None, None, call.real("epsilon", 1e-5))


def _group_norm(call: OnnxCall) -> FileTensor:
    """Read a normalization of groups; scales and shifts are one per channel or, before opset 21, one per group."""
    x = call.tensor(0)
    refuse(len(x.shape) < 3, f"{list(x.shape)} has no map to normalize")
    channels, scale, shift = x.shape[1], call.constant(1), call.constant(2)
    groups = channels if call.operator.code == "InstanceNormalization" else call.integer("num_groups", 1)
    if groups < 1 or channels % groups or {scale.data.size, shift.data.size} - {groups, channels}:
        raise ImportModelError(f"{groups} groups and {scale.data.size} scales do not fit {list(x.shape)}")
    scales, shifts = (
        Constant(np.repeat(c.data.reshape(-1), channels // c.data.size), scales=c.scales, zero=c.zero)
        for c in (scale, shift)
    )
    return call.c.group_norm(x, groups, scales, shifts, call.real("epsilon", 1e-5))


def _unit_norm(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    call.forbid("p", 2)
    return call.c.along(ops.UnitNorm(), x, call.axis(x.shape, -1))


def _softmax(call: OnnxCall) -> FileTensor:
    x, kind = call.tensor(0), ops.Softmax if call.operator.code == "Softmax" else ops.LogSoftmax
    return call.c.along(kind(call.real("beta", 1.0)), x, call.axis(x.shape, -1))  # only our own files give beta


def _attention(call: OnnxCall) -> FileTensor:
    """Read attention of tensors split by heads, [batch, heads, length, width], with the same number of heads each."""
    q, k, v = (call.tensor(place) for place in range(3))
    if len(q.shape) != 4 or not q.shape[1] == k.shape[1] == v.shape[1]:
        raise ImportModelError(f"attention of {list(q.shape)} and {list(k.shape)} is not supported; split it by heads")
    for name in ("is_causal", "qk_matmul_output_mode", "softcap"):
        call.forbid(name, 0)
    others = set(call.operator.attributes) - {"is_causal", "qk_matmul_output_mode", "scale", "softcap"}
    if others - {"softmax_precision"}:
        raise ImportModelError(f"attention with {', '.join(sorted(others))[:80]} is not supported; spell it out")
    if any(call.has_input(place) for place in range(4, len(call))) or any(call.operator.outputs[1:]):
        raise ImportModelError("attention with a past is not supported; export the model without")
    mask = call.optional(3)
    if mask is not None and (mask.data.dtype == bool or not np.isfinite(mask.data).all()):
        raise ImportModelError("its mask is boolean or infinite, which int8 is not; leave the mask out")
    return call.c.attention(q, k, v, call.real("scale", 1 / math.sqrt(q.shape[3])), mask)


def _cell(call: OnnxCall, directions: int) -> ops.Lstm | ops.Gru:
    """Return a recurrent layer's op; raise where the layer asks for more than it computes."""
    code, listed = call.operator.code, call.attribute("activations", (), tuple, "a list")
    given = tuple(a.decode("utf-8", "replace") if isinstance(a, bytes) else a for a in listed)
    if given and given != ACTIVATIONS[code] * directions:
        raise ImportModelError(f"its activations are {', '.join(map(str, given))[:60]}; the usual ones are supported")
    for name, allowed in (("clip", None), ("input_forget", 0), ("activation_alpha", None), ("activation_beta", None)):
        call.forbid(name, allowed)
    if code == "LSTM" and call.has_input(PEEPHOLES) and call.constant(PEEPHOLES).data.any():
        raise ImportModelError("it has peepholes; use a plain LSTM")
    return ops.Lstm() if code == "LSTM" else ops.Gru(reset_after=bool(call.integer("linear_before_reset", 0)))


def _recurrent(call: OnnxCall) -> tuple[FileTensor, ...]:
    """Return Y, the hidden states of all directions, and Y_h, the last of each."""
    directions = DIRECTIONS.get(call.text("direction", "forward"), ())
    op, x, c = _cell(call, len(directions)), call.tensor(0), call.c
    c.withheld.update(call.operator.outputs[2:])
    refuse(len(x.shape) != 3, f"its input is {list(x.shape)}, not [steps, batch, inputs]")
    time = 1 if call.integer("layout", 0) else 0
    if call.has_input(LENGTHS) and set(call.numbers(LENGTHS)) != {x.shape[time]}:
        raise ImportModelError("its sequences are shorter than its input; export it for one fixed length")
    for place in STATES:
        check_zero(call.operand(place) if call.has_input(place) else None)
    w, u = (call.constant(i).data for i in (1, 2))
    b = call.constant(3).data if call.has_input(3) else np.zeros((w.shape[0], 2 * w.shape[1] if w.ndim == 3 else 0))
    if not directions or w.ndim != 3 or u.ndim != 3 or b.ndim != 2 or {len(w), len(u), len(b)} != {len(directions)}:
        raise ImportModelError(
            f"its weights {list(w.shape)} and {list(u.shape)} and bias {list(b.shape)} are not those of "
            f"{len(directions)} directions"
        )
    order, half, states, lasts = GATES[call.operator.code], b.shape[1] // 2, [], []
    for i, reverse in enumerate(directions):
        y, last = c.recurrent(x, time, Cells.stacked(op, order, w[i], u[i], b[i, :half], b[i, half:]), reverse)
        states.append(c.reshape(y, (*y.shape[: time + 1], 1, *y.shape[time + 1 :])))
        lasts.append(c.reshape(last, (1, 1, y.shape[-1])))
    both = (states, time + 1), (lasts, time)
    return tuple(parts[0] if len(parts) == 1 else c.concat(parts, axis) for parts, axis in both)


def _scale_and_zero(call: OnnxCall) -> Mapping[str, Array]:
    return {name: call.constant(i).data for i, name in enumerate(call.operator.inputs) if i and name}


def _quantize(call: OnnxCall) -> Operand:
    q = qparams(_scale_and_zero(call), call.operator)
    x = call.operand(0)
    refuse(isinstance(x, Constant), "it quantizes a constant; store the constant quantized")
    return call.c.quantized(x, q)


def _dequantize(call: OnnxCall) -> Operand:
    """Keep a computed tensor in int8 for layers that can read it so, and a constant's integers with its numbers."""
    x = call.operand(0)
    if isinstance(x, FileTensor):
        if x.value.type.q != qparams(_scale_and_zero(call), call.operator):
            raise ImportModelError("it reads int8 in another quantization than it was written in; quantize it again")
        return x
    call.forbid("block_size", 0)
    call.c.budget.take("its integers and numbers", (8 + 8 + 4) * x.data.size)
    scale = call.constant(1).data.astype(np.float64).reshape(-1)
    zero = call.constant(2).data.reshape(-1) if call.has_input(2) else np.zeros(1, x.data.dtype)
    shift = 128 if x.data.dtype == np.uint8 else 0
    steps, zeros = x.data.astype(np.int64) - shift, zero.astype(np.int64) - shift
    rank = len(x.shape)
    axis = call.integer("axis", 1) % rank if rank and scale.size > 1 else 0
    if x.data.dtype not in (np.int8, np.uint8, np.int32) or scale.size not in (1, x.shape[axis] if rank else 1):
        raise ImportModelError(f"{x.data.dtype}{list(x.shape)} with {scale.size} scales is not supported; use int8")
    if zeros.size not in (1, scale.size):
        raise ImportModelError(f"{scale.size} scales and {zeros.size} zero points do not fit; quantize it again")
    if not np.isfinite(scale).all() or scale.min(initial=1) <= 0:
        raise ImportModelError("a scale is not a positive number; quantize the model again")
    along = tuple(-1 if i == axis else 1 for i in range(rank)) if scale.size > 1 else (1,) * rank
    real = ((steps - zeros.reshape(along if zeros.size > 1 else (1,) * rank)) * scale.reshape(along)).astype(np.float32)
    if zeros.any() and zeros.size > 1:
        return Constant(real)  # our integers have one zero point for all, so these count as floats
    return Constant(real, steps, tuple(float(s) for s in scale), axis, int(zeros[0]))


RECURRENT_RULES: Mapping[str, OnnxRule] = {"GRU": _recurrent, "LSTM": _recurrent}
SPELLED_RULES: Mapping[str, OnnxRule] = {SPELLED_NORM: _spelled_norm}  # of operators that no file holds
LAYER_RULES: Mapping[str, OnnxRule] = {
    **RECURRENT_RULES, "Attention": _attention, "AveragePool": _pool, "BatchNormalization": _batch_norm, "Conv": _conv,
    "ConvTranspose": _conv_transpose, "DequantizeLinear": _dequantize, "Gemm": _gemm,
    "GlobalAveragePool": _global_pool, "GlobalMaxPool": _global_pool, "GroupNormalization": _group_norm,
    "InstanceNormalization": _group_norm, "LayerNormalization": _layer_norm, "LogSoftmax": _softmax,
    "LpNormalization": _unit_norm,
    "MatMul": _matmul, "MaxPool": _pool, "QuantizeLinear": _quantize, "Softmax": _softmax,
}  # fmt: skip
