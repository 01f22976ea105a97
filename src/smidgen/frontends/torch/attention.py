"""What transformers are made of in PyTorch's core ATen set: products, attention, normalization."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from smidgen.errors import ImportModelError
from smidgen.frontends.channels import Constant, FileTensor, Operand
from smidgen.frontends.sequences import Sequences
from smidgen.frontends.torch.call import TorchCall


def product(c: Sequences, a: Operand, b: Operand) -> FileTensor:
    """a · b: a dense layer where b is one constant matrix, else a product of two tensors."""
    if isinstance(a, FileTensor) and isinstance(b, Constant) and math.prod(b.shape[:-2]) == 1 and len(b.shape) > 1:
        matrix = Constant(b.data.reshape(b.shape[-2:]))
        return c.dense(a, matrix.transposed((1, 0)))
    return c.matmul(a, b)


def _product(call: TorchCall) -> FileTensor:
    return product(call.c, call.operand(0), call.operand(1))


def _added_product(call: TorchCall) -> FileTensor:
    """baddbmm: a product and what is added to it, each with a factor of 1."""
    factors = [float(call.node.kwargs.get(name, 1)) for name in ("beta", "alpha")]
    if factors != [1.0, 1.0]:
        raise ImportModelError(f"factors {factors} in a product are not supported; use 1")
    return call.c.add(product(call.c, call.operand(1), call.operand(2)), call.operand(0))


def _attention(call: TorchCall) -> FileTensor:
    q, k, v = (call.operand(place) for place in range(3))
    mask, named = call.optional(3), call.node.kwargs
    if (
        call.raw(5)
        or named.get("is_causal")
        or named.get("enable_gqa")
        or (mask is not None and mask.data.dtype == bool)
    ):
        raise ImportModelError(
            "attention with a causal or boolean mask, or with grouped heads, is not supported; leave the mask out"
        )
    if mask is not None and not np.isfinite(mask.data).all():
        raise ImportModelError("its mask holds infinite numbers, which int8 has not; leave the mask out")
    scale = named.get("scale")
    keys = k if isinstance(k, FileTensor) else call.c.real(k)
    return call.c.attention(q, keys, v, 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale), mask)


def _layer_norm(call: TorchCall) -> FileTensor:
    count = len(call.integers(1))
    return call.c.layer_norm(call.tensor(0), count, call.optional(2), call.optional(3), call.number(4, 1e-5))


def _group_norm(call: TorchCall) -> FileTensor:
    groups = int(call.number(6, 1))
    return call.c.group_norm(call.tensor(0), groups, call.optional(1), call.optional(2), call.number(7, 1e-5))


def _instance_norm(call: TorchCall) -> FileTensor:
    """A batch normalization by the statistics of its own input: every channel is a group."""
    x = call.tensor(0)
    if len(call.node.args) > 6 or x.shape[0] != 1:
        raise ImportModelError("a batch normalization that learns is not supported; export the module in eval mode")
    return call.c.group_norm(x, x.shape[1], call.optional(1), call.optional(2), call.number(5, 1e-5))


ATTENTION_RULES: Mapping[str, Callable[[TorchCall], FileTensor]] = {
    "_native_batch_norm_legit": _instance_norm, "baddbmm": _added_product, "bmm": _product, "matmul": _product,
    "native_group_norm": _group_norm, "native_layer_norm": _layer_norm, "scaled_dot_product_attention": _attention,
}  # fmt: skip
