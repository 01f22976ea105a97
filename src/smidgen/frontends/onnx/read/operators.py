"""Rules for ONNX's operators: one each, from its call to a tensor of the graph."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.blocks import sliced
from smidgen.frontends.channels import Constant, FileTensor, Operand
from smidgen.frontends.layout import axis_of, resolved
from smidgen.frontends.onnx.read.layers import LAYER_RULES, OnnxCall, OnnxRule
from smidgen.ir import Array, Op
from smidgen.ops.functions import TABLES as TFLITE_TABLES

LARGEST_SIDE = 1 << 14  # of a tensor that is resized or repeated
# Whether corners or centres are aligned.
BILINEAR: Mapping[str, tuple[bool, bool]] = {
    "align_corners": (True, False), "asymmetric": (False, False), "half_pixel": (False, True),
    "pytorch_half_pixel": (False, True),
}  # fmt: skip
ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda at: np.ceil(at - np.float32(0.5)),
    "round_prefer_ceil": lambda at: np.floor(at + np.float32(0.5)), "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip


def _resized(call: OnnxCall, x: FileTensor) -> dict[int, tuple[int, float]]:
    """Return the new size and the factor of each dimension that a Resize changes."""
    axes = tuple(axis_of(a, x.shape) for a in call.integers("axes", tuple(range(len(x.shape)))))
    call.forbid("keep_aspect_ratio_policy", "stretch")
    if call.has_input(3):
        sizes = call.numbers(3)
        scales = [n / x.shape[a] for n, a in zip(sizes, axes, strict=False)]
    else:
        scales = [float(f) for f in call.constant(2).data.astype(np.float32).reshape(-1)]
        sizes = tuple(int(np.floor(x.shape[a] * f)) for f, a in zip(scales, axes, strict=False))
    if not len(sizes) == len(scales) == len(axes) or not all(0 < n <= LARGEST_SIDE for n in sizes):
        raise ImportModelError(f"it resizes {list(x.shape)} to {list(sizes)[:8]}; give positive sizes")
    changes = zip(axes, sizes, scales, strict=True)
    return {axis: (n, scale) for axis, n, scale in changes if n != x.shape[axis] or scale != 1}


def _positions(call: OnnxCall, size: int, count: int, scale: float) -> Array:
    """Return where the points of a resized dimension are in the original one, in float32."""
    kind, points = call.text("coordinate_transformation_mode", "half_pixel"), np.arange(count).astype(np.float32)
    single, half = np.float32(scale), np.float32(0.5)
    if kind == "asymmetric":
        return np.asarray(points / single)
    if kind == "align_corners":
        return np.asarray(points * np.float32(size - 1) / np.float32(max(count - 1, 1)))
    if kind == "pytorch_half_pixel" and count == 1:
        return np.zeros_like(points)
    if kind in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        offset = np.float32(size / 2 * (1 - count / (scale * size)) if kind == "half_pixel_symmetric" else 0)
        return np.asarray(offset + (points + half) / single - half)
    raise ImportModelError(f"coordinate_transformation_mode '{kind[:40]}' is not supported; use half_pixel")


def _resize(call: OnnxCall) -> FileTensor:
    x, mode = call.tensor(0), call.text("mode", "nearest")
    if mode == "linear":
        return _bilinear(call, x)
    rounding = ROUNDINGS.get(call.text("nearest_mode", "round_prefer_floor"))
    if mode != "nearest" or rounding is None:
        raise ImportModelError(f"resizing by {mode[:20]} is not supported; resize to the nearest, or linearly")
    places = {}
    for axis, (n, scale) in _resized(call, x).items():
        found = rounding(_positions(call, x.shape[axis], n, scale))
        places[axis] = np.clip(found, 0, x.shape[axis] - 1).astype(int).tolist()
    return call.c.take(x, places)


def _bilinear(call: OnnxCall, x: FileTensor) -> FileTensor:
    kind = call.text("coordinate_transformation_mode", "half_pixel")
    refuse(kind not in BILINEAR, f"coordinate_transformation_mode '{kind[:40]}' is not supported; use half_pixel")
    for name in ("antialias", "exclude_outside"):
        call.forbid(name, 0)
    changed, rank = _resized(call, x), len(x.shape)
    sizes = tuple(changed.get(i, (n, 1.0))[0] for i, n in enumerate(x.shape))
    if rank not in (3, 4) or {0, 1} & set(changed):
        raise ImportModelError(f"it resizes {list(x.shape)} to {list(sizes)}; only rows and columns are resized")
    if not call.has_input(3) and any(n != x.shape[i] * f for i, (n, f) in changed.items()):
        raise ImportModelError(f"it resizes {list(x.shape)} by factors that give no whole sizes; give sizes")
    if kind == "pytorch_half_pixel" and any(n == 1 for n, _ in changed.values()):
        raise ImportModelError("it resizes to one row or column by pytorch_half_pixel; use half_pixel")
    return call.c.bilinear(x, sizes[2:], *BILINEAR[kind])


def _slice(call: OnnxCall) -> FileTensor:
    x, starts, ends = call.tensor(0), call.numbers(1), call.numbers(2)
    axes = call.numbers(3) if call.has_input(3) else tuple(range(len(starts)))
    steps = call.numbers(4) if call.has_input(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ImportModelError(f"it has {len(starts)} starts and {len(ends)} ends for {len(axes)} axes")
    places = {}
    for start, end, axis, step in zip(starts, ends, (axis_of(a, x.shape) for a in axes), steps, strict=True):
        size = x.shape[axis]
        stop = None if step < 0 and end < -size else end  # below the first element: Python spells it None
        places[axis] = sliced(size, start, stop, step)
    return call.c.take(x, places)


def _split(call: OnnxCall) -> tuple[FileTensor, ...]:
    x, count = call.tensor(0), len(call.operator.outputs)
    axis = call.axis(x.shape, 0)
    if call.has_input(1):
        return call.c.split(x, axis, call.numbers(1))
    each = -(-x.shape[axis] // count)
    return call.c.split(x, axis, (*(each,) * (count - 1), x.shape[axis] - each * (count - 1)))


def _tile(call: OnnxCall) -> FileTensor:
    x, times = call.tensor(0), call.numbers(1)
    if len(times) != len(x.shape) or not all(0 < n <= LARGEST_SIDE for n in times):
        raise ImportModelError(f"it repeats {list(x.shape)} {list(times)[:8]} times")
    return call.c.repeat(x, times)


def _gather(call: OnnxCall) -> FileTensor:
    """Take elements at constant places along one dimension, which a scalar place removes."""
    x, found = call.tensor(0), call.constant(1).data
    axis = call.axis(x.shape, 0)
    if found.ndim > 1 or found.dtype.kind != "i" or found.size > LARGEST_SIDE:
        raise ImportModelError(f"it gathers by {found.dtype}{list(found.shape)}; gather by a list of places")
    return call.c.select(x, axis, [int(n) for n in found.ravel()], keep=found.ndim > 0)


def _arg_max(call: OnnxCall) -> tuple[()]:
    """Read the choice of a class, which ends a model: the scores are the output, and the largest is the class."""
    x = call.tensor(0)
    axis = call.axis(x.shape, 0)
    call.forbid("select_last_index", 0)
    others = tuple(i for i in range(len(x.shape)) if i != axis)
    call.c.chosen[call.c.output] = call.c.transpose(x, (*others, axis))
    return ()


def _mean(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    axes = call.axes(1, len(x.shape))
    if not axes and call.integer("noop_with_empty_axes", 0):
        return x
    return call.c.mean(x, axes or range(len(x.shape)), bool(call.integer("keepdims", 1)))


def _flatten(call: OnnxCall) -> FileTensor:
    x, axis = call.tensor(0), call.integer("axis", 1)
    axis = axis if axis == len(x.shape) else axis_of(axis, x.shape)
    return call.c.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def _reshape(call: OnnxCall) -> FileTensor:
    x, asked = call.tensor(0), call.numbers(1)
    copies = not call.integer("allowzero", 0)
    refuse(copies and 0 in asked[len(x.shape) :], f"it reshapes {list(x.shape)} to {list(asked)}, which is not a shape")
    shape = tuple(x.shape[i] if n == 0 and copies else n for i, n in enumerate(asked))
    return call.c.reshape(x, resolved(shape, x.size))


def _squeeze(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    axes = call.axes(1, len(x.shape)) or tuple(i for i, d in enumerate(x.shape) if d == 1)
    if any(x.shape[axis] != 1 for axis in axes):
        raise ImportModelError(f"it removes dimensions {list(axes)} of {list(x.shape)}, which are not all 1")
    return call.c.reshape(x, tuple(d for i, d in enumerate(x.shape) if i not in axes))


def _unsqueeze(call: OnnxCall) -> FileTensor:
    x = call.tensor(0)
    rank = len(x.shape) + len(call.numbers(1))
    axes, rest = call.axes(1, rank), iter(x.shape)
    return call.c.reshape(x, tuple(1 if i in axes else next(rest) for i in range(rank)))


def _pad(call: OnnxCall) -> FileTensor:
    x, mode = call.tensor(0), call.text("mode", "constant")
    fill, pads, rank = call.number(2, 0.0), call.numbers(1), len(x.shape)
    refuse(mode != "constant" or fill, f"padding by {mode[:20]} with {fill} is not supported; pad with zeros")
    axes = call.axes(3, rank) or tuple(range(rank))
    refuse(len(pads) != 2 * len(axes), f"pads {list(pads)} do not fit {list(x.shape)}")
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


def _div(call: OnnxCall) -> FileTensor:
    divisor = call.constant(1)
    refuse(not divisor.data.all(), "it divides by zero")
    return call.c.multiply(call.operand(0), Constant(1 / divisor.data.astype(np.float64)))


def _pow(call: OnnxCall) -> FileTensor:
    """Read a constant power; a square that is not a table is a product."""
    x, exponent, tflite = call.tensor(0), call.number(1, 0.0), call.integer("tflite", -1)  # only our own files have it
    if tflite < 0:
        return call.c.power(x, exponent)
    return call.c.unary(ops.Lookup("power", exponent, tflite=tflite == 1), x)


def _extreme(call: OnnxCall) -> FileTensor:
    """Read Min and Max with a number, and Max of two tensors."""
    refuse(len(call) != 2, f"it has {len(call)} inputs; two are supported")
    a, b, largest = call.operand(0), call.operand(1), call.operator.code == "Max"
    if largest and not any(isinstance(operand, Constant) and operand.data.size == 1 for operand in (a, b)):
        return call.c.pair(ops.Maximum(), a, b)
    x, other = (1, 0) if isinstance(a, Constant) else (0, 1)
    limit = call.number(other, 0.0)
    return call.c.clip(call.tensor(x), *((limit, math.inf) if largest else (-math.inf, limit)))


def _prelu(call: OnnxCall) -> FileTensor:
    """Read slopes as a tensor, or a single one of a float model as a function of one number."""
    x, slope = call.tensor(0), call.operand(1)
    if isinstance(slope, Constant) and slope.data.size == 1 and slope.steps is None:
        return call.c.unary(ops.Lookup("leaky_relu", float(slope.data.reshape(-1)[0])), x)
    return call.c.pair(ops.PRelu(), x, slope)


def _identity(call: OnnxCall) -> Operand:
    """Read an operator that changes nothing when a model infers."""
    if call.operator.code == "Dropout" and call.has_input(2) and bool(call.number(2, 0.0)):
        raise ImportModelError("it drops elements as in training; export the model in evaluation mode")
    if call.operator.code == "Cast" and call.integer("to", 1) != 1:
        raise ImportModelError(f"a conversion to ONNX type {call.integer('to', 1)} is not supported; stay in float32")
    return call.operand(0)


def _shape(call: OnnxCall) -> Constant:
    shape = call.operand(0).shape
    return Constant(np.array(shape[call.integer("start", 0) : call.integer("end", len(shape))], np.int64))


def _constant(call: OnnxCall) -> Constant:
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        if name in call.operator.attributes:
            value, kind = call.operator.attributes[name], np.int64 if "int" in name else np.float32
            return Constant(value if isinstance(value, np.ndarray) else np.array(value, kind))
    raise ImportModelError("it holds no numbers")


def _function(op: Callable[[OnnxCall], Op]) -> OnnxRule:
    """Return the rule of a function of each element."""
    return lambda call: call.c.unary(op(call), call.tensor(0))


def _lookup(name: str, alpha: float | None = None, beta: float | None = None, second: str = "beta") -> OnnxRule:
    """Return the rule of a function by name, with the defaults of its attributes where it has any."""

    def op(call: OnnxCall) -> Op:
        one, two = (0.0 if n is None else call.real(key, n) for key, n in (("alpha", alpha), (second, beta)))
        return ops.Lookup(name, one, two, tflite=name in TFLITE_TABLES and call.integer("tflite", 0) == 1)

    return _function(op)


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
    **LAYER_RULES,
    "Abs": _lookup("abs"), "Add": _add, "ArgMax": _arg_max, "Cast": _identity, "Celu": _lookup("celu", 1.0),
    "Clip": lambda call: call.c.clip(call.tensor(0), call.number(1, -math.inf), call.number(2, math.inf)),
    "Concat": lambda call: call.c.concat([call.operand(i) for i in range(len(call))], call.integer("axis", 0)),
    "Constant": _constant, "Div": _div, "Dropout": _identity, "Elu": _lookup("elu", 1.0),
    "Erf": _lookup("erf"), "Exp": _lookup("exp"), "Flatten": _flatten, "Gather": _gather, "Gelu": _function(_gelu),
    "HardSigmoid": _lookup("hard_sigmoid", 0.2, 0.5), "HardSwish": _lookup("hard_swish"), "Identity": _identity,
    "LeakyRelu": _lookup("leaky_relu", 0.01), "Log": _lookup("log"), "Max": _extreme, "Min": _extreme,
    "Mish": _lookup("mish"), "Mul": lambda call: call.c.multiply(call.operand(0), call.operand(1)),
    "Neg": lambda call: call.c.negative(call.tensor(0)), "PRelu": _prelu, "Pad": _pad, "Pow": _pow,
    "Reciprocal": lambda call: call.c.power(call.tensor(0), -1.0), "ReduceMean": _mean,
    "Relu": _function(lambda call: ops.Activate("relu")), "Reshape": _reshape, "Resize": _resize,
    "Selu": _lookup("selu", 1.67326319217681884765625, 1.05070102214813232421875, "gamma"), "Shape": _shape,
    "Sigmoid": _lookup("sigmoid"), "Slice": _slice, "Softplus": _lookup("softplus"), "Softsign": _lookup("softsign"),
    "Split": _split, "Sqrt": lambda call: call.c.power(call.tensor(0), 0.5), "Squeeze": _squeeze, "Sub": _sub,
    "Sum": _add, "Swish": _swish, "Tanh": _lookup("tanh"), "Tile": _tile,
    "Transpose": lambda call: call.c.transpose(
        x := call.tensor(0), call.integers("perm", tuple(reversed(range(len(x.shape)))))
    ),
    "Unsqueeze": _unsqueeze,
}  # fmt: skip
