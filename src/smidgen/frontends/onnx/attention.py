"""What transformers are made of in ONNX: products of two tensors, normalization, attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from smidgen.errors import ImportModelError
from smidgen.frontends.channels import Constant, FileTensor
from smidgen.frontends.onnx.context import OnnxCall


def _matmul(call: OnnxCall) -> FileTensor:
    """A dense layer where the second factor is one constant matrix, else a product of two tensors.

    What is int8 and not two-dimensional, or has a zero point, is no weights: our own files have such constants.
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


def _layer_norm(call: OnnxCall) -> FileTensor:
    x, rank = call.tensor(0), len(call.tensor(0).shape)
    axis = call.integer("axis", -1)
    if not -rank <= axis < rank or any(call.operator.outputs[1:]):
        raise ImportModelError(f"its axis is {axis} of {rank} dimensions, or its mean is read; read its first output")
    return call.c.layer_norm(x, rank - axis % rank, call.optional(1), call.optional(2), call.real("epsilon", 1e-5))


def spelled_norm(call: OnnxCall) -> FileTensor:
    """(x − mean) / √(variance + ε), which several nodes of the file amount to."""
    x, rank = call.tensor(0), len(call.tensor(0).shape)
    axes = sorted(axis % rank for axis in call.integers("axes", ()) if -rank <= axis < rank)
    if axes != list(range(rank - len(axes), rank)) or not axes:
        raise ImportModelError(f"it normalizes dimensions {axes} of {list(x.shape)}; normalize the last ones")
    return call.c.layer_norm(x, len(axes), None, None, call.real("epsilon", 1e-5))


def _group_norm(call: OnnxCall) -> FileTensor:
    """Scales and shifts are one a channel or, before opset 21, one a group."""
    x = call.tensor(0)
    if len(x.shape) < 3:
        raise ImportModelError(f"{list(x.shape)} has no map to normalize; export the model again")
    channels, scale, shift = x.shape[1], call.constant(1), call.constant(2)
    groups = channels if call.operator.code == "InstanceNormalization" else call.integer("num_groups", 1)
    if groups < 1 or channels % groups or {scale.data.size, shift.data.size} - {groups, channels}:
        raise ImportModelError(f"{groups} groups and {scale.data.size} scales do not fit {list(x.shape)}")
    scales, shifts = (
        Constant(np.repeat(c.data.reshape(-1), channels // c.data.size), scales=c.scales, zero=c.zero)
        for c in (scale, shift)
    )
    return call.c.group_norm(x, groups, scales, shifts, call.real("epsilon", 1e-5))


def _attention(call: OnnxCall) -> FileTensor:
    """Of tensors by heads, [batch, heads, length, width], as many heads of each."""
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


def _unit_norm(call: OnnxCall) -> FileTensor:
    x, rank, axis = call.tensor(0), len(call.tensor(0).shape), call.integer("axis", -1)
    call.forbid("p", 2)
    if not -rank <= axis < rank:
        raise ImportModelError(f"axis {axis} does not fit {list(x.shape)}")
    return call.c.unit_norm(x, axis)


SPELLED_NORM = "normalization in several nodes"  # what `normalizing` calls the operator that it puts in their place
ATTENTION_RULES: Mapping[str, Callable[[OnnxCall], FileTensor]] = {
    "Attention": _attention, "GroupNormalization": _group_norm, "InstanceNormalization": _group_norm,
    "LayerNormalization": _layer_norm, "LpNormalization": _unit_norm, "MatMul": _matmul,
}  # fmt: skip
