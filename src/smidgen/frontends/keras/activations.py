"""Keras' activations: by name, as layers of their own, and as it changed them between its versions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.keras.calls import Call
from smidgen.ir import Op, Value

SELU = ops.Lookup("selu", 1.6732632423543772, 1.0507009873554805)
ACTIVATIONS: Mapping[str, Op | None] = {
    "linear": None, "relu": ops.Activate("relu"), "relu6": ops.Activate("relu6"), "sigmoid": ops.Lookup("sigmoid"),
    "tanh": ops.Lookup("tanh"), "softmax": ops.Softmax(1.0), "elu": ops.Lookup("elu", 1.0), "selu": SELU,
    "softplus": ops.Lookup("softplus"), "softsign": ops.Lookup("softsign"), "swish": ops.Lookup("silu"),
    "silu": ops.Lookup("silu"), "gelu": ops.Lookup("gelu"), "exponential": ops.Lookup("exp"),
    "mish": ops.Lookup("mish"), "hard_sigmoid": ops.Lookup("hard_sigmoid", 1 / 6, 0.5),
    "hard_swish": ops.Lookup("hard_swish"), "hard_silu": ops.Lookup("hard_swish"),
    "leaky_relu": ops.Lookup("leaky_relu", 0.2),
}  # fmt: skip
OLD_HARD_SIGMOID = ops.Lookup("hard_sigmoid", 0.2, 0.5)  # before Keras 3


def activate(call: Call, x: Value, activation: object) -> Value:
    """An activation by its name, or by its layer's config."""
    if isinstance(activation, dict):
        activation = str(activation.get("class_name", activation.get("registered_name")))
        activation = {"ReLU": "relu", "Softmax": "softmax"}.get(activation, activation)
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ImportModelError(f"its activation is {str(activation)[:40]!r}; read are {known}")
    op = ACTIVATIONS[activation]
    if activation == "hard_sigmoid" and call.version < 3:
        op = OLD_HARD_SIGMOID
    return x if op is None else call.emit(op, x)


def relu(call: Call) -> Value:
    slope, most = call.number("negative_slope", 0.0), call.config.values.get("max_value")
    if call.number("threshold", 0.0) or (slope and most is not None):
        raise ImportModelError("it has a threshold, or both a slope and a largest value; use a plain ReLU")
    if slope:
        return call.emit(ops.Lookup("leaky_relu", slope), call.x)
    if most is None or most == 6:
        return call.emit(ops.Activate("relu" if most is None else "relu6"), call.x)
    return call.emit(ops.Lookup("clip", 0.0, call.number("max_value", 0.0)), call.x)


def leaky(call: Call) -> Value:
    """Its slope was called alpha before Keras 3."""
    return call.emit(ops.Lookup("leaky_relu", call.number("negative_slope", call.number("alpha", 0.3))), call.x)


def elu(call: Call) -> Value:
    return call.emit(ops.Lookup("elu", call.number("alpha", 1.0)), call.x)


def softmax(call: Call) -> Value:
    if call.config.values.get("axis", -1) not in (-1, [-1], len(call.x.type.shape) - 1):
        raise ImportModelError("it runs along another dimension than the last; permute before it")
    return call.emit(ops.Softmax(1.0), call.x)


def prelu(call: Call) -> Value:
    """Slopes of each channel, or of each element."""
    shape = call.x.type.shape
    found = call.weights[0] if call.weights else np.zeros(0, np.float32)
    if found.shape != (*(1,) * (len(shape) - 2), shape[-1]) and found.shape != shape[1:]:
        raise ImportModelError(f"its slopes {list(found.shape)} are neither of channels nor of elements")
    slopes = found.reshape(-1) if found.size == shape[-1] else found.reshape(shape)
    return call.emit(ops.PRelu(), call.x, call.constant("slope", slopes))
