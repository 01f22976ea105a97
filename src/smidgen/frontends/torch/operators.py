"""What each operator of PyTorch's core ATen set means: one rule per operator, from its call to a tensor of the "
"graph."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping

import numpy as np

from smidgen import ops
from smidgen.errors import CUT, ImportModelError
from smidgen.frontends.blocks import sliced
from smidgen.frontends.channels import Constant, FileTensor, Spans
from smidgen.frontends.layout import Shape
from smidgen.frontends.torch.attention import ATTENTION_RULES, product
from smidgen.frontends.torch.call import TorchCall, name_of
from smidgen.frontends.torch.recurrence import RECURRENT_RULES
from smidgen.ir import Op

INSTEAD = {
    "_log_softmax": "end the module at its logits", "argmax": "end the module at its logits",
}  # fmt: skip


def instead_of(name: str) -> str:
    if name in INSTEAD:
        return INSTEAD[name]
    near = difflib.get_close_matches(name, RULES, 1, 0.6)
    return f"nearest is {near[0]}" if near else CUT


def _spans(pads: Shape) -> Spans:
    return tuple((p, p) for p in pads)


def _convolution(call: TorchCall) -> FileTensor:
    x, w = call.tensor(0), call.constant(1)
    count = len(x.shape) - 2
    stride, pads, dilation = (call.spread(i, count, (d,)) for i, d in ((3, 1), (4, 0), (5, 1)))
    if call.raw(6):
        extra, groups = call.spread(7, count, (0,)), int(call.number(8, 1))
        return call.c.conv_transpose(x, w, call.optional(2), stride, _spans(pads), extra, dilation, groups)
    return call.c.conv(x, w, call.optional(2), stride, _spans(pads), dilation, int(call.number(8, 1)))


def _batch_norm(call: TorchCall) -> FileTensor:
    x = call.tensor(0)
    mean, variance = (call.constant(i).data.astype(np.float64) for i in (3, 4))
    scale = np.ones_like(mean) if call.raw(1) is None else call.constant(1).data
    shift = np.zeros_like(mean) if call.raw(2) is None else call.constant(2).data
    factor = scale / np.sqrt(variance + call.number(6, 1e-5))
    return call.c.batch_norm(x, factor, shift - mean * factor)


def _matrix(call: TorchCall) -> FileTensor:
    """mm(x, w), and addmm(b, x, w) with factors beta and alpha."""
    at = 1 if name_of(call.node.target) == "addmm" else 0
    if not at:
        return product(call.c, call.operand(0), call.operand(1))
    x, w = call.tensor(at), call.constant(at + 1).transposed((1, 0))
    beta, alpha = (float(call.node.kwargs.get(k, 1)) for k in ("beta", "alpha"))
    if (beta, alpha) != (1.0, 1.0):
        raise ImportModelError(f"factors {beta} and {alpha} in a matrix product are not supported; use 1")
    return call.c.dense(x, w, call.constant(0))


def _pool(call: TorchCall) -> FileTensor:
    x = call.tensor(0)
    count = len(x.shape) - 2
    size = call.spread(1, count, ())
    stride, pads = call.spread(2, count, size) or size, call.spread(3, count, (0,))
    if name_of(call.node.target).startswith("max"):
        if set(call.spread(4, count, (1,))) != {1}:
            raise ImportModelError("dilated pooling is not supported; use plain pooling")
        return call.c.pool(ops.MaxPool, x, size, stride, _spans(pads), bool(call.raw(5)))
    if call.raw(6) is not None:
        raise ImportModelError("an average with divisor_override is not supported; leave it out")
    return call.c.pool(ops.AvgPool, x, size, stride, _spans(pads), bool(call.raw(4)), bool(call.raw(5)))


def _adaptive_pool(call: TorchCall) -> FileTensor:
    """To a map of a given size: windows of one size where it divides the map's."""
    x = call.tensor(0)
    maps, wanted = x.shape[2:], call.spread(1, len(x.shape) - 2, ())
    average = "avg" in name_of(call.node.target)
    if average and set(wanted) == {1}:
        return call.c.mean(x, range(2, len(x.shape)), keep=True)
    if any(n % k for n, k in zip(maps, wanted, strict=True)):
        raise ImportModelError(f"a map of {list(maps)} does not divide into {list(wanted)}; use a size that divides it")
    size = tuple(n // k for n, k in zip(maps, wanted, strict=True))
    return call.c.pool(ops.AvgPool if average else ops.MaxPool, x, size, size, ((0, 0),) * len(size))


def _mean(call: TorchCall) -> FileTensor:
    x = call.tensor(0)
    return call.c.mean(x, call.integers(1) or range(len(x.shape)), bool(call.raw(2)))


def _sum(call: TorchCall, sign: float = 1.0) -> FileTensor:
    a, b = call.operand(0), call.operand(1)
    factor = sign * float(call.node.kwargs.get("alpha", 1))
    if isinstance(b, Constant):
        return call.c.add(a, Constant(b.data * factor))
    return call.c.add(a, b if factor == 1 else call.c.multiply(b, Constant(np.array([factor], np.float32))))


def _div(call: TorchCall) -> FileTensor:
    divisor = call.constant(1).data.astype(np.float64)
    if not divisor.all() or call.node.kwargs.get("rounding_mode") is not None:
        raise ImportModelError("it divides by zero or rounds; divide by a constant")
    return call.c.multiply(call.operand(0), Constant(1 / divisor))


def _view(call: TorchCall) -> FileTensor:
    x, shape = call.tensor(0), list(call.integers(1))
    if shape.count(-1) == 1:
        shape[shape.index(-1)] = x.size // max(1, math.prod(n for n in shape if n != -1))
    return call.c.reshape(x, tuple(shape))


def _recorded_shape(call: TorchCall) -> FileTensor:
    """Squeezes, unsqueezes and the like: the shape is what PyTorch says it is."""
    return call.c.reshape(call.tensor(0), tuple(int(n) for n in call.node.meta["val"].shape))


def _expand(call: TorchCall) -> FileTensor:
    x = call.tensor(0)
    if tuple(call.node.meta["val"].shape) != x.shape:
        raise ImportModelError(f"{list(x.shape)} would be repeated; let the operator that reads it repeat it")
    return x


def _permute(call: TorchCall) -> FileTensor:
    x = call.tensor(0)
    return call.c.transpose(x, tuple(n % len(x.shape) for n in call.integers(1)))


def _cat(call: TorchCall) -> FileTensor:
    parts = [call.values[item] for item in call.raw(0)]
    return call.c.concat([p for p in parts if isinstance(p, FileTensor | Constant)], int(call.number(1, 0)))


def _pad(call: TorchCall) -> FileTensor:
    x, pads = call.tensor(0), call.integers(1)
    if call.number(2, 0.0) != 0.0:
        raise ImportModelError(f"padding with {call.number(2, 0.0)} is not supported; pad with zeros")
    pairs = tuple(zip(pads[::2], pads[1::2], strict=True))
    return call.c.pad(x, ((0, 0),) * (len(x.shape) - len(pairs)) + tuple(reversed(pairs)))


def _softmax(call: TorchCall) -> FileTensor:
    return call.c.softmax(call.tensor(0), int(call.number(1, -1)))


def _clamp(call: TorchCall) -> FileTensor:
    return call.c.clip(call.tensor(0), call.number(1, -math.inf), call.number(2, math.inf))


def _power(exponent: float | None = None) -> Callable[[TorchCall], FileTensor]:
    """A power by name, or by the second argument."""
    return lambda call: call.c.power(call.tensor(0), call.number(1, 1.0) if exponent is None else exponent)


def _slice(call: TorchCall) -> FileTensor:
    x, rank = call.tensor(0), len(call.tensor(0).shape)
    axis, (start, stop) = int(call.number(1, 0)) % rank, (call.raw(i) for i in (2, 3))
    return call.c.take(x, {axis: sliced(x.shape[axis], start, stop, int(call.number(4, 1)))})


def _select(call: TorchCall) -> FileTensor:
    x, rank = call.tensor(0), len(call.tensor(0).shape)
    axis, at = int(call.number(1, 0)) % rank, int(call.number(2, 0))
    y = call.c.take(x, {axis: [at + x.shape[axis] if at < 0 else at]})
    return call.c.reshape(y, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _index_select(call: TorchCall) -> FileTensor:
    x = call.tensor(0)
    return call.c.take(x, {int(call.number(1, 0)) % len(x.shape): [int(n) for n in call.constant(2).data.ravel()]})


def _split(call: TorchCall) -> tuple[FileTensor, ...]:
    """Into parts of given sizes, or of one size but for the last."""
    x, sizes = call.tensor(0), call.integers(1)
    axis = int(call.number(2, 0)) % len(x.shape)
    if isinstance(call.raw(1), int):
        total = x.shape[axis]
        sizes = tuple(min(sizes[0], total - at) for at in range(0, total, max(sizes[0], 1)))
    return call.c.split(x, axis, sizes)


def _flip(call: TorchCall) -> FileTensor:
    x = call.tensor(0)
    return call.c.take(x, {a % len(x.shape): range(x.shape[a] - 1, -1, -1) for a in call.integers(1)})


def _repeat(call: TorchCall) -> FileTensor:
    x, times = call.tensor(0), call.integers(1)
    x = call.c.reshape(x, (1,) * (len(times) - len(x.shape)) + x.shape)
    return call.c.take(x, {i: list(range(x.shape[i])) * n for i, n in enumerate(times)})


def _upsample_nearest(call: TorchCall) -> FileTensor:
    """The place below each point; a factor that is given is what it is, else sizes tell it, in float32."""
    x, sizes = call.tensor(0), tuple(int(n) for n in call.node.meta["val"].shape)[2:]
    factors = call.raw(2) if call.node.target is not None and "vec" in str(call.node.target) else None
    places = {}
    for i, n in enumerate(sizes):
        size = x.shape[2 + i]
        step = np.float32(1 / factors[i]) if factors else np.float32(size) / np.float32(n)
        found = np.floor(np.arange(n).astype(np.float32) * step)
        places[2 + i] = [int(at) for at in np.minimum(found, size - 1)]
    return call.c.take(x, places)


def _upsample_bilinear(call: TorchCall) -> FileTensor:
    x, sizes = call.tensor(0), tuple(int(n) for n in call.node.meta["val"].shape)[2:]
    factors = call.raw(3) if "vec" in str(call.node.target) else None
    if factors and any(n != m * f for n, m, f in zip(sizes, x.shape[2:], factors, strict=True)):
        raise ImportModelError(f"{list(x.shape)} enlarged {list(factors)} times has no whole size; give a size")
    return call.c.bilinear(x, sizes, bool(call.raw(2)), not call.raw(2))


def _getitem(call: TorchCall) -> object:
    """One of several results; of most operators only the first is computed."""
    several = call.values[call.raw(0)]
    results = several if isinstance(several, tuple) else (several,)
    if not 0 <= call.raw(1) < len(results):
        raise ImportModelError(f"only the first {len(results)} results of it are supported; do not use the others")
    return results[call.raw(1)]


def _elu(call: TorchCall) -> Op:
    alpha, scale = call.number(1, 1.0), call.number(2, 1.0)
    if call.number(3, 1.0) != 1.0:
        raise ImportModelError("an ELU that scales its input is not supported; use 1")
    return ops.Lookup("elu", alpha) if scale == 1.0 else ops.Lookup("selu", alpha, scale)


def _softplus(call: TorchCall) -> Op:
    if call.number(1, 1.0) != 1.0:
        raise ImportModelError("a Softplus with a beta other than 1 is not supported; use 1")
    return ops.Lookup("softplus")


def _unary(op: Callable[[TorchCall], Op]) -> Callable[[TorchCall], FileTensor]:
    return lambda call: call.c.unary(op(call), call.tensor(0))


def _lookup(name: str, alpha: float = 0.0, beta: float = 0.0) -> Callable[[TorchCall], FileTensor]:
    return _unary(lambda call: ops.Lookup(name, alpha, beta))


def _gelu(call: TorchCall) -> Op:
    return ops.Lookup("gelu_tanh" if call.node.kwargs.get("approximate", call.raw(1)) == "tanh" else "gelu")


RULES: Mapping[str, Callable[[TorchCall], object]] = {
    **ATTENTION_RULES, **RECURRENT_RULES,
    "_adaptive_avg_pool2d": _adaptive_pool, "_native_batch_norm_legit_no_training": _batch_norm,
    "_softmax": _softmax, "_to_copy": lambda call: call.tensor(0), "abs": _lookup("abs"),
    "adaptive_avg_pool1d": _adaptive_pool, "adaptive_max_pool2d": _adaptive_pool, "add": _sum, "addmm": _matrix,
    "alias": lambda call: call.tensor(0), "avg_pool1d": _pool, "avg_pool2d": _pool, "cat": _cat,
    "celu": _unary(lambda call: ops.Lookup("celu", call.number(1, 1.0))), "clamp": _clamp,
    "clone": lambda call: call.tensor(0), "constant_pad_nd": _pad, "convolution": _convolution, "div": _div,
    "elu": _unary(_elu), "erf": _lookup("erf"), "exp": _lookup("exp"), "expand": _expand,
    "flip": _flip, "gelu": _unary(_gelu),
    "getitem": _getitem, "hardsigmoid": _lookup("hard_sigmoid", 1 / 6, 0.5), "hardswish": _lookup("hard_swish"),
    "index_select": _index_select,
    "hardtanh": lambda call: call.c.clip(call.tensor(0), call.number(1, -1.0), call.number(2, 1.0)),
    "leaky_relu": _unary(lambda call: ops.Lookup("leaky_relu", call.number(1, 0.01))),
    "max_pool2d_with_indices": _pool, "mean": _mean, "mish": _lookup("mish"), "mm": _matrix,
    "maximum": lambda call: call.c.maximum(call.operand(0), call.operand(1)),
    "mul": lambda call: call.c.multiply(call.operand(0), call.operand(1)),
    "neg": lambda call: call.c.negative(call.tensor(0)), "permute": _permute, "pow": _power(),
    "reciprocal": _power(-1.0), "rsqrt": _power(-0.5), "sqrt": _power(0.5), "log": _lookup("log"),
    "repeat": _repeat, "select": _select, "slice": _slice, "split": _split, "split_with_sizes": _split,
    "relu": _unary(lambda call: ops.Activate("relu")),
    "selu": _lookup("selu", 1.6732632423543772, 1.0507009873554805), "sigmoid": _lookup("sigmoid"),
    "silu": _lookup("silu"), "softplus": _unary(_softplus), "squeeze": _recorded_shape,
    "sub": lambda call: _sum(call, -1.0), "tanh": _lookup("tanh"), "unsqueeze": _recorded_shape,
    "upsample_bilinear2d": _upsample_bilinear, "upsample_nearest1d": _upsample_nearest,
    "upsample_nearest2d": _upsample_nearest, "view": _view,
}  # fmt: skip
