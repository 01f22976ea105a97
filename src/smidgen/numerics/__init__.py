"""The arithmetic contract in numpy: TFLite's int8 (`int8`), and random bits by counter (`stochastic`)."""

from smidgen.numerics.int8 import (
    ACTIVATIONS,
    INT8_MAX,
    INT8_MIN,
    INT32_MAX,
    activated,
    activation_limits,
    activation_range,
    check_activation,
    dequantize,
    multiply,
    quantize,
    quantize_multiplier,
    quantize_multipliers,
    quantize_single,
    round_half_away,
    rounded,
    scale_double,
    to_int8,
)

__all__ = [
    "ACTIVATIONS", "INT8_MAX", "INT8_MIN", "INT32_MAX", "activated", "activation_limits", "activation_range",
    "check_activation", "dequantize", "multiply", "quantize", "quantize_multiplier", "quantize_multipliers",
    "quantize_single", "round_half_away", "rounded", "scale_double", "to_int8",
]  # fmt: skip
