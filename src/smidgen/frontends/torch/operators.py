"""One rule per operator of PyTorch's core ATen set, from its call to a tensor of the graph."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.blocks import sliced
from smidgen.frontends.channels import Constant, FileTensor, Operand, Spans
from smidgen.frontends.layout import Shape, resolved
from smidgen.frontends.sequences import Cells, Sequences, check_zero
from smidgen.ir import Op

INSTEAD = {"argmax": "end the module at its logits"}
X, STATES, WEIGHTS, BIASED, LAYERS, BOTH, BATCH_FIRST = 0, 1, 2, 3, 4, 7, 8  # arguments of recurrent layers, by place


def name_of(target: object) -> str:
    """Return an operator's name without its overload."""
    return str(getattr(target, "__name__", target)).split(".")[0]


@dataclass(frozen=True, eq=False)
class TorchCall:
    """A call to translate; its arguments are given by place or by name."""

    c: Sequences
    node: Any  # of torch.fx
    values: Mapping[Any, object]  # the result of each node before it

    @property
    def name(self) -> str:
        return name_of(self.node.target)

    @property
    def shape(self) -> Shape:
        """Return the shape of the result, as PyTorch recorded it."""
        return tuple(int(n) for n in self.node.meta["val"].shape)

    def raw(self, place: int, default: object = None) -> Any:
        args = self.node.args
        if place < len(args):
            return args[place]
        schema = getattr(self.node.target, "_schema", None)
        if schema is not None and place < len(schema.arguments):
            argument = schema.arguments[place]
            given = self.node.kwargs.get(argument.name, argument.default_value)
            return default if given is None else given
        return default

    def operand(self, place: int) -> Operand:
        return self.held(self.raw(place), f"its argument {place}")

    def held(self, item: Any, what: str = "what it joins") -> Operand:
        """Return an argument, or a part of one, as a tensor."""
        value = Constant(np.array(item, np.float32)) if isinstance(item, int | float) else self.values.get(item)
        if isinstance(value, FileTensor | Constant):
            return value
        raise ImportModelError(f"{what} is neither a tensor nor a number")

    def tensor(self, place: int) -> FileTensor:
        x = self.operand(place)
        return x if isinstance(x, FileTensor) else self.c.real(x)

    def constant(self, place: int) -> Constant:
        x = self.operand(place)
        if isinstance(x, FileTensor):
            raise ImportModelError(f"its argument {place} is computed; it has to be a constant")
        return x

    def optional(self, place: int) -> Constant | None:
        return None if self.raw(place) is None else self.constant(place)

    def number(self, place: int, default: float) -> float:
        value = self.raw(place, default)
        refuse(not isinstance(value, int | float), f"its argument {place} should be a number")
        return float(value)

    def integers(self, place: int, default: Shape = ()) -> Shape:
        """Return one integer or several; sizes must be fixed."""
        value = self.raw(place, default)
        numbers = [value] if isinstance(value, int) else list(value)
        if not all(isinstance(n, int) for n in numbers):
            raise ImportModelError(f"its argument {place} depends on the input's size; export it with fixed sizes")
        return tuple(numbers)

    def axis(self, place: int, rank: int) -> int:
        """Return the argument that names a dimension, counted from 0."""
        return int(self.number(place, 0)) % rank

    def factors(self, *names: str) -> list[float]:
        """Return numbers given by name, each 1 by default."""
        return [float(self.node.kwargs.get(name, 1)) for name in names]

    def spread(self, place: int, count: int, default: Shape) -> Shape:
        """Return one number per dimension of a map, given once or for each."""
        numbers = self.integers(place, default) or tuple(default)
        return numbers * count if len(numbers) == 1 else numbers


TorchRule = Callable[[TorchCall], object]


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


def _product(call: TorchCall, first: int = 0) -> FileTensor:
    """Return a · b: a dense layer if b is one constant matrix, else a product of two tensors."""
    a, b = call.operand(first), call.operand(first + 1)
    if isinstance(a, FileTensor) and isinstance(b, Constant) and math.prod(b.shape[:-2]) == 1 and len(b.shape) > 1:
        return call.c.dense(a, Constant(b.data.reshape(b.shape[-2:])).transposed((1, 0)))
    return call.c.matmul(a, b)


def _added_product(call: TorchCall) -> FileTensor:
    """Read addmm(b, x, w) or baddbmm, a sum of a tensor and a product, each with a factor of 1."""
    beta, alpha = call.factors("beta", "alpha")
    refuse((beta, alpha) != (1.0, 1.0), f"factors {beta} and {alpha} in a matrix product are not supported; use 1")
    if call.name == "addmm":
        return call.c.dense(call.tensor(1), call.constant(2).transposed((1, 0)), call.constant(0))
    return call.c.add(_product(call, 1), call.operand(0))


def _attention(call: TorchCall) -> FileTensor:
    q, k, v = (call.operand(place) for place in range(3))
    mask, named = call.optional(3), call.node.kwargs
    boolean = mask is not None and mask.data.dtype == bool
    if call.raw(5) or named.get("is_causal") or named.get("enable_gqa") or boolean:
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
    """Read a normalization of groups, or a batch normalization by its input's statistics: every channel is a group."""
    x, grouped = call.tensor(0), call.name == "native_group_norm"
    if not grouped and (len(call.node.args) > 6 or x.shape[0] != 1):
        raise ImportModelError("a batch normalization that learns is not supported; export the module in eval mode")
    groups, epsilon = int(call.number(6, 1)) if grouped else x.shape[1], call.number(7 if grouped else 5, 1e-5)
    return call.c.group_norm(x, groups, call.optional(1), call.optional(2), epsilon)


def _pool(call: TorchCall) -> FileTensor:
    x = call.tensor(0)
    count = len(x.shape) - 2
    size = call.spread(1, count, ())
    stride, pads = call.spread(2, count, size) or size, call.spread(3, count, (0,))
    if call.name.startswith("max"):
        refuse(set(call.spread(4, count, (1,))) != {1}, "dilated pooling is not supported; use plain pooling")
        return call.c.pool(ops.MaxPool, x, size, stride, _spans(pads), bool(call.raw(5)))
    refuse(call.raw(6) is not None, "an average with divisor_override is not supported; leave it out")
    return call.c.pool(ops.AvgPool, x, size, stride, _spans(pads), bool(call.raw(4)), bool(call.raw(5)))


def _adaptive_pool(call: TorchCall) -> FileTensor:
    """Read a pool to a map of a given size, which must divide the input's, by windows of one size."""
    x = call.tensor(0)
    maps, wanted = x.shape[2:], call.spread(1, len(x.shape) - 2, ())
    average = "avg" in call.name
    if average and set(wanted) == {1}:
        return call.c.mean(x, range(2, len(x.shape)), keep=True)
    if any(n % k for n, k in zip(maps, wanted, strict=True)):
        raise ImportModelError(f"a map of {list(maps)} does not divide into {list(wanted)}; use a size that divides it")
    size = tuple(n // k for n, k in zip(maps, wanted, strict=True))
    return call.c.pool(ops.AvgPool if average else ops.MaxPool, x, size, size, ((0, 0),) * len(size))


def _sum(call: TorchCall, sign: float = 1.0) -> FileTensor:
    a, b = call.operand(0), call.operand(1)
    factor = sign * call.factors("alpha")[0]
    if isinstance(b, Constant):
        return call.c.add(a, Constant(b.data * factor))
    return call.c.add(a, b if factor == 1 else call.c.multiply(b, Constant(np.array([factor], np.float32))))


def _div(call: TorchCall) -> FileTensor:
    divisor = call.constant(1).data.astype(np.float64)
    if not divisor.all() or call.node.kwargs.get("rounding_mode") is not None:
        raise ImportModelError("it divides by zero or rounds; divide by a constant")
    return call.c.multiply(call.operand(0), Constant(1 / divisor))


def _identity(call: TorchCall) -> FileTensor:
    """Read an operator that changes nothing, and one that repeats a tensor no times."""
    x = call.tensor(0)
    refuse(call.shape != x.shape, f"{list(x.shape)} would be repeated; let the operator that reads it repeat it")
    return x


def _pad(call: TorchCall) -> FileTensor:
    x, pads, fill = call.tensor(0), call.integers(1), call.number(2, 0.0)
    refuse(fill != 0.0, f"padding with {fill} is not supported; pad with zeros")
    pairs = tuple(zip(pads[::2], pads[1::2], strict=True))
    return call.c.pad(x, ((0, 0),) * (len(x.shape) - len(pairs)) + tuple(reversed(pairs)))


def _clip(low: float, high: float) -> TorchRule:
    """Return the rule of a clip to the second and the third argument, with these defaults."""
    return lambda call: call.c.clip(call.tensor(0), call.number(1, low), call.number(2, high))


def _power(exponent: float) -> TorchRule:
    """Return the rule of a power with this exponent."""
    return lambda call: call.c.power(call.tensor(0), exponent)


def _slice(call: TorchCall) -> FileTensor:
    x = call.tensor(0)
    axis = call.axis(1, len(x.shape))
    return call.c.take(x, {axis: sliced(x.shape[axis], call.raw(2), call.raw(3), int(call.number(4, 1)))})


def _select(call: TorchCall) -> FileTensor:
    """Read select, which drops the dimension, or index_select at several constant places."""
    x, several = call.tensor(0), call.name == "index_select"
    places = call.constant(2).data.ravel() if several else [call.number(2, 0)]
    return call.c.select(x, call.axis(1, len(x.shape)), [int(n) for n in places], keep=several)


def _split(call: TorchCall) -> tuple[FileTensor, ...]:
    """Split into parts of given sizes, or of one size but for the last."""
    x, sizes = call.tensor(0), call.integers(1)
    axis = call.axis(2, len(x.shape))
    if isinstance(call.raw(1), int):
        total = x.shape[axis]
        sizes = tuple(min(sizes[0], total - at) for at in range(0, total, max(sizes[0], 1)))
    return call.c.split(x, axis, sizes)


def _flip(call: TorchCall) -> FileTensor:
    x = call.tensor(0)
    return call.c.take(x, {a % len(x.shape): range(x.shape[a] - 1, -1, -1) for a in call.integers(1)})


def _upsample_nearest(call: TorchCall) -> FileTensor:
    """Take the place below each point; the step is 1 / factor if one is given, else the ratio of sizes, in float32."""
    x = call.tensor(0)
    factors = call.raw(2) if "vec" in str(call.node.target) else None
    places = {}
    for axis, n in enumerate(call.shape[2:], start=2):
        size = x.shape[axis]
        step = np.float32(1 / factors[axis - 2]) if factors else np.float32(size) / np.float32(n)
        found = np.floor(np.arange(n).astype(np.float32) * step)
        places[axis] = [int(at) for at in np.minimum(found, size - 1)]
    return call.c.take(x, places)


def _upsample_bilinear(call: TorchCall) -> FileTensor:
    x, sizes = call.tensor(0), call.shape[2:]
    factors = call.raw(3) if "vec" in str(call.node.target) else None
    if factors and any(n != m * f for n, m, f in zip(sizes, x.shape[2:], factors, strict=True)):
        raise ImportModelError(f"{list(x.shape)} enlarged {list(factors)} times has no whole size; give a size")
    return call.c.bilinear(x, sizes, bool(call.raw(2)), not call.raw(2))


def _getitem(call: TorchCall) -> object:
    """Return one of several results; of most operators only the first is computed."""
    several, place = call.values[call.raw(0)], call.raw(1)
    results = several if isinstance(several, tuple) else (several,)
    if not 0 <= place < len(results):
        raise ImportModelError(f"only the first {len(results)} results of it are supported; do not use the others")
    return results[place]


def _layers(call: TorchCall, op: ops.Lstm | ops.Gru) -> list[Cells]:
    """Return the weights of each layer, of both directions if it has two."""
    held = [call.values.get(item) for item in call.raw(WEIGHTS)]
    weights = [item.data for item in held if isinstance(item, Constant)]
    count = int(call.number(LAYERS, 1)) * (2 if call.raw(BOTH) else 1)
    each = 4 if call.raw(BIASED) else 2
    if len(weights) != len(held) or count < 1 or len(weights) != each * count:
        raise ImportModelError(
            f"its {len(held)} weights are not {each * count} constants, those of {count} layers; leave out proj_size"
        )
    parts = (weights[i : i + each] for i in range(0, len(weights), each))
    return [Cells.stacked(op, range(op.gates), w, u, *(b or (np.zeros(w.shape[0]),) * 2)) for w, u, *b in parts]


def _recurrent(call: TorchCall, op: ops.Lstm | ops.Gru) -> tuple[FileTensor, FileTensor]:
    """Return the hidden states of the last layer, and the last ones of every layer."""
    given = call.raw(STATES)
    for state in given if isinstance(given, list | tuple) else [given]:
        check_zero(call.values.get(state))
    c, x, lasts = call.c, call.tensor(X), []
    time = 1 if call.raw(BATCH_FIRST) and len(x.shape) == 3 else 0
    directions = (False, True) if call.raw(BOTH) else (False,)
    layers = iter(_layers(call, op))
    for _ in range(int(call.number(LAYERS, 1))):
        made = [c.recurrent(x, time, next(layers), reverse) for reverse in directions]
        x = made[0][0] if len(made) == 1 else c.concat([y for y, _ in made], -1)
        lasts += [c.reshape(last, (1, *(1,) * (len(x.shape) - 2), last.shape[-1])) for _, last in made]
    return x, lasts[0] if len(lasts) == 1 else c.concat(lasts, 0)


def _elu(call: TorchCall) -> Op:
    alpha, scale = call.number(1, 1.0), call.number(2, 1.0)
    refuse(call.number(3, 1.0) != 1.0, "an ELU that scales its input is not supported; use 1")
    return ops.Lookup("elu", alpha) if scale == 1.0 else ops.Lookup("selu", alpha, scale)


def _softplus(call: TorchCall) -> Op:
    refuse(call.number(1, 1.0) != 1.0, "a Softplus with a beta other than 1 is not supported; use 1")
    return ops.Lookup("softplus")


def _unary(op: Callable[[TorchCall], Op]) -> TorchRule:
    return lambda call: call.c.unary(op(call), call.tensor(0))


def _lookup(name: str, alpha: float = 0.0, beta: float = 0.0) -> TorchRule:
    return _unary(lambda call: ops.Lookup(name, alpha, beta))


def _softmax(op: ops.Softmax) -> TorchRule:
    return lambda call: call.c.along(op, call.tensor(0), int(call.number(1, -1)))


def _gelu(call: TorchCall) -> Op:
    return ops.Lookup("gelu_tanh" if call.node.kwargs.get("approximate", call.raw(1)) == "tanh" else "gelu")


RECURRENT = ("gru", "lstm")
RULES: Mapping[str, TorchRule] = {
    # PyTorch recorded the shapes of squeezes and unsqueezes.
    **dict.fromkeys(("squeeze", "unsqueeze"), lambda call: call.c.reshape(call.tensor(0), call.shape)),
    **dict.fromkeys(("_to_copy", "alias", "clone", "expand"), _identity),
    "_native_batch_norm_legit": _group_norm, "baddbmm": _added_product, "bmm": _product, "matmul": _product,
    "native_group_norm": _group_norm, "native_layer_norm": _layer_norm, "scaled_dot_product_attention": _attention,
    "gru": lambda call: _recurrent(call, ops.Gru()), "lstm": lambda call: _recurrent(call, ops.Lstm()),
    "_adaptive_avg_pool2d": _adaptive_pool, "_native_batch_norm_legit_no_training": _batch_norm,
    "_log_softmax": _softmax(ops.LogSoftmax()), "_softmax": _softmax(ops.Softmax()), "abs": _lookup("abs"),
    "adaptive_avg_pool1d": _adaptive_pool, "adaptive_max_pool2d": _adaptive_pool, "add": _sum,
    "addmm": _added_product, "avg_pool1d": _pool, "avg_pool2d": _pool,
    "cat": lambda call: call.c.concat([call.held(item) for item in call.raw(0)], int(call.number(1, 0))),
    "celu": _unary(lambda call: ops.Lookup("celu", call.number(1, 1.0))), "clamp": _clip(-math.inf, math.inf),
    "constant_pad_nd": _pad, "convolution": _convolution, "div": _div,
    "elu": _unary(_elu), "erf": _lookup("erf"), "exp": _lookup("exp"),
    "flip": _flip, "gelu": _unary(_gelu), "getitem": _getitem, "hardsigmoid": _lookup("hard_sigmoid", 1 / 6, 0.5),
    "hardswish": _lookup("hard_swish"), "hardtanh": _clip(-1.0, 1.0), "index_select": _select,
    "leaky_relu": _unary(lambda call: ops.Lookup("leaky_relu", call.number(1, 0.01))),
    "max_pool2d_with_indices": _pool, "mish": _lookup("mish"), "mm": _product,
    "mean": lambda call: call.c.mean(
        x := call.tensor(0), call.integers(1) or range(len(x.shape)), bool(call.raw(2))
    ),
    "maximum": lambda call: call.c.pair(ops.Maximum(), call.operand(0), call.operand(1)),
    "mul": lambda call: call.c.multiply(call.operand(0), call.operand(1)),
    "neg": lambda call: call.c.negative(call.tensor(0)),
    "permute": lambda call: call.c.transpose(x := call.tensor(0), tuple(n % len(x.shape) for n in call.integers(1))),
    "pow": lambda call: call.c.power(call.tensor(0), call.number(1, 1.0)), "reciprocal": _power(-1.0),
    "rsqrt": _power(-0.5), "sqrt": _power(0.5), "log": _lookup("log"),
    "repeat": lambda call: call.c.repeat(call.tensor(0), call.integers(1)), "select": _select, "slice": _slice,
    "split": _split, "split_with_sizes": _split,
    "relu": _unary(lambda call: ops.Activate("relu")),
    "selu": _lookup("selu", 1.6732632423543772, 1.0507009873554805), "sigmoid": _lookup("sigmoid"),
    "silu": _lookup("silu"), "softplus": _unary(_softplus),
    "sub": lambda call: _sum(call, -1.0), "tanh": _lookup("tanh"),
    "upsample_bilinear2d": _upsample_bilinear, "upsample_nearest1d": _upsample_nearest,
    "upsample_nearest2d": _upsample_nearest,
    "view": lambda call: call.c.reshape(x := call.tensor(0), resolved(call.integers(1), x.size)),
}  # fmt: skip
