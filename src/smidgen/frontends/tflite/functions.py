"""TFLite's functions of one tensor, element by element, which have kernels and roundings of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from smidgen import ops
from smidgen.frontends.tflite.arguments import inputs_of
from smidgen.frontends.tflite.context import TfliteImport
from smidgen.frontends.tflite.flatbuffer import TfliteOperator
from smidgen.ir import Value

# What TFLite calls a function of `Lookup`, its alpha where that is fixed, and the least version that takes int8.
FUNCTION_OPERATORS: Mapping[str, tuple[str, float, int]] = {
    "ABS": ("abs", 0.0, 2), "ELU": ("elu", 1.0, 1), "EXP": ("exp", 0.0, 2), "GELU": ("gelu", 0.0, 2),
    "HARD_SWISH": ("hard_swish", 0.0, 1), "LEAKY_RELU": ("leaky_relu", 0.0, 2), "LOGISTIC": ("sigmoid", 0.0, 2),
    "LOG": ("log", 0.0, 2), "RSQRT": ("power", -0.5, 2), "SQRT": ("power", 0.5, 1), "TANH": ("tanh", 0.0, 2),
}  # fmt: skip


def _function(c: TfliteImport, operator: TfliteOperator) -> Value:
    (x,) = (c.value(index) for index in inputs_of(operator, 1, 1))
    name, alpha, _ = FUNCTION_OPERATORS[operator.code]
    if operator.code == "GELU" and operator.options.approximate:
        name = "gelu_tanh"
    if operator.code == "LEAKY_RELU":
        alpha = float(operator.options.alpha)
    return c.emit(operator, ops.Lookup(name, alpha, tflite=x.type.dtype == "int8"), x)


FUNCTION_RULES: Mapping[str, Callable[[TfliteImport, TfliteOperator], Value]] = dict.fromkeys(
    FUNCTION_OPERATORS, _function
)
