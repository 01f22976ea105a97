"""One rule per Keras layer, from its config and weights to nodes of the graph."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from smidgen import ops
from smidgen.data.files import Budget
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.blocks import TransposedConv
from smidgen.frontends.fields import Record
from smidgen.frontends.layout import resolved
from smidgen.ir import Array, Builder, Op, Value
from smidgen.ops.resize import nearest
from smidgen.ops.window import Pad, same_pad

Pair = tuple[int, int]
LARGEST = 1 << 16  # number in a layer's config: windows, strides, sizes
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


@dataclass(frozen=True, eq=False)
class LayerCall:
    """A layer of a model, applied to values."""

    builder: Builder
    budget: Budget
    name: str
    kind: str
    config: Record
    ins: tuple[Value, ...]
    weights: tuple[Array, ...]
    version: int  # of Keras

    @property
    def x(self) -> Value:
        """Return the only input."""
        refuse(len(self.ins) != 1, f"it takes {len(self.ins)} inputs instead of one")
        return self.ins[0]

    @property
    def flat(self) -> bool:
        """Return whether the layer runs over one dimension."""
        return "1D" in self.kind

    def map(self) -> Value:
        """Return the input as a map of rows and columns; one dimension is a row."""
        shape = self.x.type.shape
        if len(shape) != (3 if self.flat else 4):
            raise ImportModelError(f"it is applied to {list(shape)}, which has another number of dimensions")
        if str(self.config.values.get("data_format", "channels_last")) != "channels_last":
            raise ImportModelError("its data_format is not channels_last; convert the model to that")
        return self.emit(ops.Reshape((1, *shape)), self.x) if self.flat else self.x

    def back(self, y: Value) -> Value:
        """Return a map in the shape that the layer gives."""
        return self.emit(ops.Reshape((1, *y.type.shape[2:])), y) if self.flat and len(y.type.shape) == 4 else y

    def emit(self, op: Op, *ins: Value) -> Value:
        return self.builder.emit(op, *ins, name=self.name)

    def constant(self, stem: str, data: Array) -> Value:
        return self.builder.constant(f"{self.name}.{stem}", np.ascontiguousarray(data, np.float32))

    def array(self, index: int, *shape: int) -> Array:
        """Return a weight, which must have this shape."""
        refuse(index >= len(self.weights), f"the file holds {len(self.weights)} of its weights; save the model again")
        found = self.weights[index]
        refuse(found.shape != shape, f"its weight {index} is {list(found.shape)}, expected {list(shape)}")
        return found

    def kernel(self, index: int, *channels: int) -> Array:
        """Return the weights of a window as [rows, columns, *channels]."""
        size = self.pair("kernel_size")
        return self.array(index, *size[1 if self.flat else 0 :], *channels).reshape(*size, *channels)

    def bias(self, index: int, channels: int, times: int = 1) -> Value:
        """Return the bias, repeated so many times, or zeros if the layer has none."""
        found = self.array(index, channels) if self.flag("use_bias", True) else np.zeros(channels, np.float32)
        return self.constant("b", np.tile(found, times))

    def flag(self, key: str, default: bool) -> bool:
        found = self.config.values.get(key, default)
        if not isinstance(found, bool):
            raise ImportModelError(f"its {key} is {str(found)[:40]!r} instead of true or false")
        return found

    def number(self, key: str, default: float) -> float:
        found = self.config.values.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            raise ImportModelError(f"its {key} is {str(found)[:40]!r} instead of a number")
        return float(found)

    def size(self, key: str, default: int) -> int:
        found = self.number(key, default)
        refuse(not 1 <= found <= LARGEST or found != int(found), f"its {key} is {found:g}; 1 to {LARGEST:,} are read")
        return int(found)

    def pair(self, key: str, default: Pair = (1, 1)) -> Pair:
        """Return rows and columns from one number or two; one dimension is columns."""
        found = self.config.values.get(key)
        if found is None:
            return default
        given = (found,) if isinstance(found, int) else tuple(self.config.integers(key))
        if len(given) == 1:
            given = (1, *given) if self.flat else given * 2
        if len(given) != 2 or not all(1 <= n <= LARGEST for n in given):
            raise ImportModelError(f"its {key} is {list(given[:4])}; two numbers from 1 to {LARGEST:,} are read")
        return given[0], given[1]

    def padding(self, x: Value, size: Pair, stride: Pair, dilation: Pair = (1, 1)) -> Pad:
        kind = self.config.values.get("padding", "valid")
        if kind == "valid":
            return (0, 0, 0, 0)
        if kind == "same":
            return same_pad(x.type.shape, size, stride, dilation)
        if kind == "causal" and self.flat:
            return (0, 0, (size[1] - 1) * dilation[1], 0)
        raise ImportModelError(f"its padding is {str(kind)[:40]!r}; valid, same and causal are read")


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


def _depthwise(call: LayerCall) -> Value:
    """Read a depthwise convolution, and in a separable one the convolution of single pixels behind it."""
    x, times, separable = call.map(), call.size("depth_multiplier", 1), call.kind.startswith("Separable")
    channels = x.type.shape[3] * times
    b = call.constant("depthwise.b", np.zeros(channels)) if separable else call.bias(1, channels)
    kernel = call.kernel(0, x.type.shape[3], times)
    w = call.constant("depthwise.w", kernel.reshape(1, *kernel.shape[:2], -1))
    y = call.emit(ops.Depthwise(*_window(call, x)), x, w, b)
    if separable:
        filters = call.size("filters", 1)
        points = call.array(1, *((1,) if call.flat else (1, 1)), channels, filters).reshape(-1, filters)
        y = call.emit(ops.Conv2D(), y, call.constant("w", points.T.reshape(filters, 1, 1, -1)), call.bias(2, filters))
    return _activated(call, call.back(y))


def _transposed(call: LayerCall) -> Value:
    x = call.map()
    size, stride, filters = call.pair("kernel_size"), call.pair("strides"), call.size("filters", 1)
    padding = call.config.values.get("padding", "valid")
    if call.pair("dilation_rate") != (1, 1) or call.config.values.get("output_padding") is not None:
        raise ImportModelError("its dilation or output padding is not supported; use neither")
    refuse(padding not in ("valid", "same"), f"its padding is {str(padding)[:40]!r}; valid and same are read")
    same, more = padding == "same", [max(k - s, 0) for k, s in zip(size, stride, strict=True)]
    h, w = (n * s + (0 if same else m) for n, s, m in zip(x.type.shape[1:3], stride, more, strict=True))
    how = TransposedConv(size, stride, (more[0] // 2, more[1] // 2) if same else (0, 0), (h, w))
    kernel = call.kernel(0, filters, x.type.shape[3])
    call.budget.check("its weights by phases", 8 * kernel.size * how.phases)
    weights = call.constant("w", how.weights(kernel.transpose(2, 0, 1, 3)))
    b = call.bias(1, filters, how.phases)
    return _activated(call, call.back(how.emit(call.builder, "none", x, weights, b, None, call.name)))


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
    channels, (scaled, shifted) = _last_axis(call), (call.flag(key, True) for key in ("scale", "center"))
    scale = call.array(0, channels) if scaled else np.ones(channels, np.float32)
    shift = call.array(int(scaled), channels) if shifted else np.zeros(channels, np.float32)
    mean, variance = (call.array(scaled + shifted + i, channels) for i in (0, 1))
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + call.number("epsilon", 1e-3))
    return _scaled(call, factor, shift - mean * factor)


def _scaled(call: LayerCall, factor: Array, shift: Array) -> Value:
    return call.emit(ops.BatchNorm(), call.x, call.constant("scale", factor), call.constant("shift", shift))


def _rescaling(call: LayerCall) -> Value:
    scale, offset = (np.full(call.x.type.shape[-1], call.number(*one)) for one in (("scale", 1.0), ("offset", 0.0)))
    return _scaled(call, scale, offset)


def _normalization(call: LayerCall) -> Value:
    channels = _last_axis(call)
    given = [call.config.values.get(key) for key in ("mean", "variance")]
    if all(one is not None for one in given):
        mean, variance = (_spread(call, one, channels) for one in given)
    else:
        mean, variance = call.array(0, channels), call.array(1, channels)
    factor = 1 / np.maximum(np.sqrt(variance.astype(np.float64)), 1e-7)
    return _scaled(call, factor, -mean * factor)


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


def _reshape(call: LayerCall) -> Value:
    """Read a reshape; one to a vector is left out where the input is one."""
    x, flat = call.x, call.kind == "Flatten"
    asked = (x.type.size,) if flat else call.config.integers("target_shape")
    shape = (1, *resolved(asked, x.type.size))
    return x if flat and x.type.shape == shape else call.emit(ops.Reshape(shape), x)


def _permute(call: LayerCall) -> Value:
    order, whole = call.config.integers("dims"), list(range(1, len(call.x.type.shape)))
    refuse(sorted(order) != whole, f"it puts dimensions into the order {list(order[:8])}, which are not all there")
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
    refuse(how not in ("nearest", "bilinear"), f"its interpolation is {how!r:.42}; nearest and bilinear are read")
    if how == "nearest":
        return call.back(call.emit(ops.Pick(nearest(h, size[0]), nearest(w, size[1])), x))
    return call.back(call.emit(ops.ResizeBilinear(size, half_pixel=True), x))


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
LAYERS: Mapping[str, Callable[[LayerCall], Value]] = {
    **dict.fromkeys(ONLY_TRAINING, lambda call: call.x),
    **{
        f"{name}{count}D{suffix}": rule
        for count in (1, 2)
        for name, suffix, rule in (
            ("AveragePooling", "", _pool), ("Conv", "", _conv), ("Conv", "Transpose", _transposed),
            ("Cropping", "", _crop), ("DepthwiseConv", "", _depthwise), ("GlobalAveragePooling", "", _global_pool),
            ("GlobalMaxPooling", "", _global_pool), ("MaxPooling", "", _pool), ("SeparableConv", "", _depthwise),
            ("UpSampling", "", _enlarged), ("ZeroPadding", "", _pad),
        )
    },
    "Activation": lambda call: _activated(call, call.x), "Add": _joined, "Average": _joined,
    "BatchNormalization": _batch_norm, "Concatenate": _concatenate, "Dense": _dense,
    "ELU": lambda call: call.emit(ops.Lookup("elu", call.number("alpha", 1.0)), call.x), "Flatten": _reshape,
    # Its slope was called alpha before Keras 3.
    "LeakyReLU": lambda call: call.emit(
        ops.Lookup("leaky_relu", call.number("negative_slope", call.number("alpha", 0.3))), call.x
    ),
    "Maximum": _joined, "Multiply": _joined, "Normalization": _normalization,
    "PReLU": _prelu, "Permute": _permute, "ReLU": _relu, "Rescaling": _rescaling, "Reshape": _reshape,
    "Softmax": _softmax, "Subtract": _joined,
}  # fmt: skip
