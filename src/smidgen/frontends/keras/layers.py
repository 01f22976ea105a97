"""One rule per Keras layer, from its config and weights to nodes of the graph."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.blocks import TransposedConv
from smidgen.frontends.keras.call import LayerCall, Pair
from smidgen.ir import Array, Op, Value
from smidgen.ops.resize import nearest
from smidgen.ops.window import Pad

Rule = Callable[[LayerCall], Value]
SELU = ops.Lookup("selu", 1.6732632423543772, 1.0507009873554805)
ACTIVATIONS: Mapping[str, Op | None] = {
    "linear": None, "relu": ops.Activate("relu"), "relu6": ops.Activate("relu6"), "sigmoid": ops.Lookup("sigmoid"),
    "tanh": ops.Lookup("tanh"), "softmax": ops.Softmax(1.0), "elu": ops.Lookup("elu", 1.0), "selu": SELU,
    "softplus": ops.Lookup("softplus"), "softsign": ops.Lookup("softsign"), "swish": ops.Lookup("silu"),
    "silu": ops.Lookup("silu"), "gelu": ops.Lookup("gelu"), "exponential": ops.Lookup("exp"),
    "log_softmax": ops.LogSoftmax(), "mish": ops.Lookup("mish"), "hard_sigmoid": ops.Lookup("hard_sigmoid", 1 / 6, 0.5),
    "hard_swish": ops.Lookup("hard_swish"), "hard_silu": ops.Lookup("hard_swish"),
    "leaky_relu": ops.Lookup("leaky_relu", 0.2),
}  # fmt: skip
OLD_HARD_SIGMOID = ops.Lookup("hard_sigmoid", 0.2, 0.5)  # before Keras 3


def _activated(call: LayerCall, y: Value) -> Value:
    """Apply the activation that the config gives by name, or as a layer's config."""
    activation = call.config.values.get("activation", "linear")
    if isinstance(activation, dict):
        activation = str(activation.get("class_name", activation.get("registered_name")))
        activation = {"ReLU": "relu", "Softmax": "softmax"}.get(activation, activation)
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ImportModelError(f"its activation is {str(activation)[:40]!r}; read are {', '.join(ACTIVATIONS)}")
    op = OLD_HARD_SIGMOID if activation == "hard_sigmoid" and call.version < 3 else ACTIVATIONS[activation]
    return y if op is None else call.emit(op, y)


def _relu(call: LayerCall) -> Value:
    slope, most = call.number("negative_slope", 0.0), call.config.values.get("max_value")
    if call.number("threshold", 0.0) or (slope and most is not None):
        raise ImportModelError("it has a threshold, or both a slope and a largest value; use a plain ReLU")
    if slope:
        return call.emit(ops.Lookup("leaky_relu", slope), call.x)
    if most is None or most == 6:
        return call.emit(ops.Activate("relu" if most is None else "relu6"), call.x)
    return call.emit(ops.Lookup("clip", 0.0, call.number("max_value", 0.0)), call.x)


def _leaky_relu(call: LayerCall) -> Value:
    """Read a leaky ReLU, whose slope was called alpha before Keras 3."""
    return call.emit(ops.Lookup("leaky_relu", call.number("negative_slope", call.number("alpha", 0.3))), call.x)


def _softmax(call: LayerCall) -> Value:
    _last_axis(call)
    return call.emit(ops.Softmax(1.0), call.x)


def _prelu(call: LayerCall) -> Value:
    """Read a PReLU with one slope per channel or per element."""
    shape = call.x.type.shape
    found = call.weights[0] if call.weights else np.zeros(0, np.float32)
    if found.shape != (*(1,) * (len(shape) - 2), shape[-1]) and found.shape != shape[1:]:
        raise ImportModelError(f"its slopes {list(found.shape)} are neither of channels nor of elements")
    slopes = found.reshape(-1) if found.size == shape[-1] else found.reshape(shape)
    return call.emit(ops.PRelu(), call.x, call.constant("slope", slopes))


def _window(call: LayerCall, x: Value) -> tuple[Pair, Pad, Pair]:
    """Return a convolution's stride, padding and dilation."""
    size, stride, dilation = call.pair("kernel_size"), call.pair("strides"), call.pair("dilation_rate")
    return stride, call.padding(x, size, stride, dilation), dilation


def _conv(call: LayerCall) -> Value:
    x, groups, filters = call.map(), call.size("groups", 1), call.size("filters", 1)
    channels = x.type.shape[3]
    refuse(channels % groups, f"its {channels} channels are not divided by {groups} groups")
    w = call.constant("w", call.kernel(0, channels // groups, filters).transpose(3, 0, 1, 2))
    y = call.emit(ops.Conv2D(*_window(call, x), groups), x, w, call.bias(1, filters))
    return _activated(call, call.back(y))


def _depthwise(call: LayerCall, x: Value, bias: Value) -> Value:
    """Emit the depthwise convolution of a layer, whose kernel is its first weight."""
    kernel = call.kernel(0, x.type.shape[3], call.size("depth_multiplier", 1))
    w = call.constant("depthwise.w", kernel.reshape(1, *kernel.shape[:2], -1))
    return call.emit(ops.Depthwise(*_window(call, x)), x, w, bias)


def _depthwise_conv(call: LayerCall) -> Value:
    x = call.map()
    bias = call.bias(1, x.type.shape[3] * call.size("depth_multiplier", 1))
    return _activated(call, call.back(_depthwise(call, x, bias)))


def _separable_conv(call: LayerCall) -> Value:
    x, filters = call.map(), call.size("filters", 1)
    channels = x.type.shape[3] * call.size("depth_multiplier", 1)
    y = _depthwise(call, x, call.constant("depthwise.b", np.zeros(channels, np.float32)))
    w = call.array(1, *((1,) if call.flat else (1, 1)), channels, filters).reshape(-1, filters)
    y = call.emit(ops.Conv2D(), y, call.constant("w", w.T.reshape(filters, 1, 1, -1)), call.bias(2, filters))
    return _activated(call, call.back(y))


def _transposed(call: LayerCall) -> Value:
    x = call.map()
    size, stride, filters = call.pair("kernel_size"), call.pair("strides"), call.size("filters", 1)
    padding = call.config.values.get("padding", "valid")
    if call.pair("dilation_rate") != (1, 1) or call.config.values.get("output_padding") is not None:
        raise ImportModelError("its dilation or output padding is not supported; use neither")
    refuse(padding not in ("valid", "same"), f"its padding is {str(padding)[:40]!r}; valid and same are read")
    same = padding == "same"
    more = [0 if same else max(k - s, 0) for k, s in zip(size, stride, strict=True)]
    output = [n * s + m for n, s, m in zip(x.type.shape[1:3], stride, more, strict=True)]
    cut = [max(k - s, 0) // 2 if same else 0 for k, s in zip(size, stride, strict=True)]
    how = TransposedConv(size, stride, (cut[0], cut[1]), (output[0], output[1]))
    kernel = call.kernel(0, filters, x.type.shape[3])
    call.budget.check("its weights by phases", 8 * kernel.size * how.phases)
    w = call.constant("w", how.weights(kernel.transpose(2, 0, 1, 3)))
    b = call.constant("b", np.tile(call.biases(1, filters), how.phases))
    y = how.emit(call.builder, "none", x, w, b, None, call.name)
    return _activated(call, call.back(y))


def _dense(call: LayerCall) -> Value:
    x, units = call.x, call.size("units", 1)
    shape, features = x.type.shape, x.type.shape[-1]
    rows = (x.type.size // features, features)
    flat = x if shape == rows else call.emit(ops.Reshape(rows), x)
    w = call.constant("w", call.array(0, features, units).T)
    y = call.emit(ops.Dense(), flat, w, call.bias(1, units))
    if shape != rows:
        y = call.emit(ops.Reshape((*shape[:-1], units)), y)
    return _activated(call, y)


def _last_axis(call: LayerCall) -> int:
    axis, rank = call.config.values.get("axis", -1), len(call.x.type.shape)
    axis = axis[0] if isinstance(axis, list) and len(axis) == 1 else axis
    refuse(axis not in (-1, rank - 1), f"it runs along dimension {str(axis)[:40]}; the last is read: permute before it")
    return int(call.x.type.shape[-1])


def _batch_norm(call: LayerCall) -> Value:
    channels, at = _last_axis(call), 0
    scale, shift = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    if call.flag("scale", True):
        scale, at = call.array(at, channels), at + 1
    if call.flag("center", True):
        shift, at = call.array(at, channels), at + 1
    mean, variance = call.array(at, channels), call.array(at + 1, channels)
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + call.number("epsilon", 1e-3))
    return _scaled(call, call.x, factor, shift - mean * factor)


def _scaled(call: LayerCall, x: Value, factor: Array, shift: Array) -> Value:
    return call.emit(ops.BatchNorm(), x, call.constant("scale", factor), call.constant("shift", shift))


def _rescaling(call: LayerCall) -> Value:
    channels = call.x.type.shape[-1]
    scale, offset = call.number("scale", 1.0), call.number("offset", 0.0)
    return _scaled(call, call.x, np.full(channels, scale), np.full(channels, offset))


def _normalization(call: LayerCall) -> Value:
    channels = _last_axis(call)
    given = [call.config.values.get(key) for key in ("mean", "variance")]
    if all(one is not None for one in given):
        mean, variance = (_spread(call, one, channels) for one in given)
    else:
        mean, variance = call.array(0, channels), call.array(1, channels)
    factor = 1 / np.maximum(np.sqrt(variance.astype(np.float64)), 1e-7)
    return _scaled(call, call.x, factor, -mean * factor)


def _spread(call: LayerCall, given: object, channels: int) -> Array:
    """Return numbers of a config, one per channel or one for all."""
    try:
        return np.broadcast_to(np.array(given, np.float32).reshape(-1), (channels,))
    except (ValueError, TypeError):
        raise ImportModelError(f"its numbers {str(given)[:40]} do not fit {channels} channels") from None


def _pool(call: LayerCall) -> Value:
    x = call.map()
    size = call.pair("pool_size", (1, 2) if call.flat else (2, 2))
    stride = call.pair("strides", size)
    op = ops.MaxPool if call.kind.startswith("Max") else ops.AvgPool
    return call.back(call.emit(op(size, stride, call.padding(x, size, stride)), x))


def _global_pool(call: LayerCall) -> Value:
    x = call.map()
    if "Average" in call.kind:
        y = call.emit(ops.Mean(), x)
    else:
        whole = (x.type.shape[1], x.type.shape[2])
        y = call.emit(ops.Reshape((1, x.type.shape[3])), call.emit(ops.MaxPool(whole, whole), x))
    ones = (1,) if call.flat else (1, 1)
    return call.emit(ops.Reshape((1, *ones, y.type.shape[1])), y) if call.flag("keepdims", False) else y


def _flatten(call: LayerCall) -> Value:
    shape = (1, call.x.type.size)
    return call.x if call.x.type.shape == shape else call.emit(ops.Reshape(shape), call.x)


def _reshape(call: LayerCall) -> Value:
    asked, size = call.config.integers("target_shape"), call.x.type.size
    known = math.prod(d for d in asked if d != -1)
    if asked.count(-1) > 1 or known < 1 or size % known:
        raise ImportModelError(f"it reshapes {size:,} elements to {list(asked[:8])}, which do not fit")
    return call.emit(ops.Reshape((1, *(size // known if d == -1 else d for d in asked))), call.x)


def _permute(call: LayerCall) -> Value:
    order = call.config.integers("dims")
    if sorted(order) != list(range(1, len(call.x.type.shape))):
        raise ImportModelError(f"it puts dimensions into the order {list(order[:8])}, which are not all there")
    return call.emit(ops.Transpose((0, *order)), call.x)


def _sides(call: LayerCall, key: str) -> tuple[Pair, Pair]:
    """Return the sizes before and after, of rows and of columns."""
    found = call.config.entry(key)
    given = [found, found] if isinstance(found, int) and not call.flat else found
    given = [0, given] if call.flat else given
    pairs = [[n, n] if isinstance(n, int) else n for n in given] if isinstance(given, list) else []
    whole = len(pairs) == 2 and all(isinstance(p, list) and len(p) == 2 for p in pairs)
    if not whole or not all(isinstance(n, int) and 0 <= n <= 1 << 16 for p in pairs for n in p):
        raise ImportModelError(f"its {key} is {str(found)[:40]}, which does not say rows and columns")
    return (pairs[0][0], pairs[0][1]), (pairs[1][0], pairs[1][1])


def _pad(call: LayerCall) -> Value:
    x, (rows, columns) = call.map(), _sides(call, "padding")
    return call.back(call.emit(ops.Pad((0, rows[0], columns[0], 0), (0, rows[1], columns[1], 0)), x))


def _crop(call: LayerCall) -> Value:
    x, (rows, columns) = call.map(), _sides(call, "cropping")
    _, h, w, c = x.type.shape
    return call.back(call.emit(ops.Crop((0, rows[0], columns[0], 0), (1, h - rows[1], w - columns[1], c)), x))


def _enlarged(call: LayerCall) -> Value:
    x, times = call.map(), call.pair("size", (1, 2) if call.flat else (2, 2))
    _, h, w, _ = x.type.shape
    size, how = (h * times[0], w * times[1]), call.config.values.get("interpolation", "nearest")
    if how == "nearest":
        op: ops.Pick | ops.ResizeBilinear = ops.Pick(nearest(h, size[0]), nearest(w, size[1]))
    elif how == "bilinear":
        op = ops.ResizeBilinear(size, half_pixel=True)
    else:
        raise ImportModelError(f"its interpolation is {str(how)[:40]!r}; nearest and bilinear are read")
    return call.back(call.emit(op, x))


def _joined(call: LayerCall) -> Value:
    """Join several maps by sums, products or maxima, one after the other; a difference is of two."""
    refuse(len(call.ins) < 2, f"it joins {len(call.ins)} inputs; two or more are read")
    made = {"Multiply": ops.Mul(), "Maximum": ops.Maximum()}.get(call.kind, ops.Add())
    ins = call.ins
    if call.kind == "Subtract":
        refuse(len(ins) != 2, f"it takes {len(ins)} inputs instead of two")
        ins = ins[0], call.emit(ops.Mul(), ins[1], call.constant("minus", np.array([-1.0])))
    first, *others = sorted(ins, key=lambda v: -v.type.size)
    for other in others:
        first = call.emit(made, first, other)
    if call.kind == "Average":
        first = call.emit(ops.Mul(), first, call.constant("share", np.array([1 / len(call.ins)])))
    return first


def _concatenate(call: LayerCall) -> Value:
    rank = len(call.ins[0].type.shape) if call.ins else 0
    axis = int(call.number("axis", -1))
    refuse(not -rank <= axis < rank or not call.ins, f"it joins {len(call.ins)} inputs along dimension {axis}")
    return call.emit(ops.Concat(axis % rank), *call.ins)


ONLY_TRAINING = (
    "ActivityRegularization", "AlphaDropout", "Dropout", "GaussianDropout", "GaussianNoise", "RandomBrightness",
    "RandomContrast", "RandomFlip", "RandomRotation", "RandomTranslation", "RandomZoom", "SpatialDropout1D",
    "SpatialDropout2D",
)  # fmt: skip
LAYERS: Mapping[str, Rule] = {
    **dict.fromkeys(ONLY_TRAINING, lambda call: call.x),
    **{
        f"{name}{count}D{suffix}": rule
        for count in (1, 2)
        for name, suffix, rule in (
            ("AveragePooling", "", _pool), ("Conv", "", _conv), ("Conv", "Transpose", _transposed),
            ("Cropping", "", _crop), ("DepthwiseConv", "", _depthwise_conv), ("GlobalAveragePooling", "", _global_pool),
            ("GlobalMaxPooling", "", _global_pool), ("MaxPooling", "", _pool), ("SeparableConv", "", _separable_conv),
            ("UpSampling", "", _enlarged), ("ZeroPadding", "", _pad),
        )
    },
    "Activation": lambda call: _activated(call, call.x), "Add": _joined, "Average": _joined,
    "BatchNormalization": _batch_norm, "Concatenate": _concatenate, "Dense": _dense,
    "ELU": lambda call: call.emit(ops.Lookup("elu", call.number("alpha", 1.0)), call.x), "Flatten": _flatten,
    "LeakyReLU": _leaky_relu, "Maximum": _joined, "Multiply": _joined, "Normalization": _normalization,
    "PReLU": _prelu, "Permute": _permute, "ReLU": _relu, "Rescaling": _rescaling, "Reshape": _reshape,
    "Softmax": _softmax, "Subtract": _joined,
}  # fmt: skip
