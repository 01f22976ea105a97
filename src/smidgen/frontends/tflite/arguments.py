"""What every rule for a TFLite operator asks of it: its inputs, and the activation fused to it."""

from __future__ import annotations

from smidgen.errors import ImportModelError
from smidgen.frontends.tflite.flatbuffer import ACTIVATIONS, TfliteOperator

NO_TENSOR = -1  # the index of an optional input left out
_ACTIVATION_NAMES = {number: name for name, number in ACTIVATIONS.items()}


def inputs_of(operator: TfliteOperator, least: int, most: int) -> tuple[int, ...]:
    """The operator's inputs, optional ones as NO_TENSOR."""
    count = len(operator.inputs)
    if not least <= count <= most:
        raise ImportModelError(f"it has {count} inputs instead of {least} to {most}; convert the model again")
    return operator.inputs + (NO_TENSOR,) * (most - count)


def activation_of(operator: TfliteOperator) -> str:
    """The name of the activation fused to the operator."""
    number = operator.options.fused_activation_function
    if number not in _ACTIVATION_NAMES:
        raise ImportModelError(
            f"fused activation {number} is not supported; use {', '.join(_ACTIVATION_NAMES.values())}"
        )
    return _ACTIVATION_NAMES[number]
