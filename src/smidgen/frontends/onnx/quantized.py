"""QuantizeLinear and DequantizeLinear: where a file holds int8, so does the graph."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from smidgen.errors import ImportModelError
from smidgen.frontends.channels import Constant, FileTensor, Operand
from smidgen.frontends.onnx.context import OnnxCall
from smidgen.frontends.onnx.protobuf import OnnxModel, OnnxOperator
from smidgen.ir import Array, QParams

# What may stand between a layer and its QuantizeLinear: its activation, and what only moves elements.
BETWEEN = ("Relu", "Clip", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def planned_quantizations(model: OnnxModel) -> dict[str, QParams]:
    """The int8 quantization each output gets: that of the only QuantizeLinear that reads it, or its activation."""
    constants = held_constants(model)
    readers: dict[str, list[OnnxOperator]] = {}
    for operator in model.operators:
        for name in operator.inputs:
            readers.setdefault(name, []).append(operator)
    plan: dict[str, QParams] = {}
    for operator in reversed(model.operators):
        for out in operator.outputs[:1]:
            after = readers.get(out, [])
            if len(after) != 1 or not after[0].outputs:
                continue
            if after[0].code == "QuantizeLinear" and all(n in constants for n in after[0].inputs[1:]):
                plan[out] = qparams(constants, after[0])
            elif after[0].code in BETWEEN and after[0].inputs[0] == out and after[0].outputs[0] in plan:
                plan[out] = plan[after[0].outputs[0]]
    return plan


def held_constants(model: OnnxModel) -> dict[str, Array]:
    """The constants of a file by name, those that nodes hold among them."""
    held = {o.outputs[0]: _constant_value(o) for o in model.operators if o.outputs}
    return {**model.constants, **{name: data for name, data in held.items() if data is not None}}


def input_quantization(model: OnnxModel, name: str) -> QParams:
    """The quantization of an int8 or uint8 input: that of the DequantizeLinear that reads it."""
    constants = held_constants(model)
    for operator in model.operators:
        reads = operator.inputs[:1] == (name,) and operator.code == "DequantizeLinear"
        if reads and all(n in constants for n in operator.inputs[1:]):
            return qparams(constants, operator)
    raise ImportModelError(f"input '{name}' is int8 and no DequantizeLinear gives its scale; use float32 inputs")


def _constant_value(operator: OnnxOperator) -> Array | None:
    value = operator.attributes.get("value")
    return value if operator.code == "Constant" and isinstance(value, np.ndarray) else None


def qparams(constants: Mapping[str, Array], operator: OnnxOperator) -> QParams:
    """One scale and zero point, with uint8 moved to int8."""
    arrays = [constants[name] for name in operator.inputs[1:] if name]
    scale = arrays[0] if arrays else np.ones(0)
    zero = arrays[1] if len(arrays) > 1 else np.zeros(1, np.uint8)
    if scale.size != 1 or zero.size != 1 or zero.dtype not in (np.int8, np.uint8):
        raise ImportModelError(
            f"'{operator.inputs[0]}' is quantized with {scale.size} scales to {zero.dtype}; quantize activations to "
            "int8 or uint8 with one scale"
        )
    factor = float(scale.reshape(-1)[0])
    if not math.isfinite(factor) or factor <= 0:
        raise ImportModelError(f"'{operator.inputs[0]}' has the scale {factor}; quantize the model again")
    return QParams.per_tensor(factor, int(zero.reshape(-1)[0]) - (128 if zero.dtype == np.uint8 else 0))


def quantize(call: OnnxCall) -> Operand:
    arrays = {name: call.constant(i).data for i, name in enumerate(call.operator.inputs) if i and name}
    x = call.operand(0)
    if isinstance(x, Constant):
        raise ImportModelError("it quantizes a constant; store the constant quantized")
    return call.c.quantized(x, qparams(arrays, call.operator))


def dequantize(call: OnnxCall) -> Operand:
    """A computed tensor stays in int8 for whoever can read it so; a constant keeps its integers beside its numbers."""
    x = call.operand(0)
    if isinstance(x, FileTensor):
        arrays = {name: call.constant(i).data for i, name in enumerate(call.operator.inputs) if i and name}
        if x.value.type.q != qparams(arrays, call.operator):
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
        return Constant(real)  # one zero point for all is what our integers can have: these count as floats
    return Constant(real, steps, tuple(float(s) for s in scale), axis, int(zeros[0]))
