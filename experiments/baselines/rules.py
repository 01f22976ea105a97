"""What each op computes in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.baselines.arithmetic import EXACT_SUMS, Arithmetic, Function, TorchRule
from experiments.baselines.attention import ATTENTION_RULES
from experiments.baselines.recurrent import RECURRENT_RULES
from smidgen import numerics, ops
from smidgen.ir import Node, Op, Type
from smidgen.numerics import projection
from smidgen.ops.elementwise import ADD_SHIFT, ratio
from smidgen.ops.functions import LEAST
from smidgen.ops.resize import ONE
from smidgen.ops.state import units
from smidgen.ops.weighted import Windowed, factors, multipliers
from smidgen.ops.window import Window

RULES: dict[type[Op], TorchRule] = {**ATTENTION_RULES, **RECURRENT_RULES}


def rule(*kinds: type[Op]) -> Callable[[TorchRule], TorchRule]:
    """Enter a function under the ops it computes."""

    def enter(function: TorchRule) -> TorchRule:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return enter


def by_reference(node: Node, a: Arithmetic) -> Function:
    """An op without a gradient is its numpy reference, one sample of its first input after another."""

    def run(*xs: Tensor) -> Tensor:
        x, *others = (t.detach().cpu().numpy().astype(v.type.dtype) for t, v in zip(xs, node.ins, strict=True))
        made = [np.asarray(node.op.ref(node, x[i : i + 1], *others)) for i in range(len(x))]
        return torch.from_numpy(np.concatenate(made).astype(np.float32)).to(a.device)

    return run


def _pad(x: Tensor, window: Window, fill: float) -> Tensor:
    """[n, h, w, c] → [n, c, h, w] with its padding."""
    top, bottom, left, right = window.pad
    x = x.permute(0, 3, 1, 2)
    return F.pad(x, (left, right, top, bottom), value=fill) if any(window.pad) else x


@rule(ops.Conv2D, ops.Depthwise)
def _convolution(node: Node, a: Arithmetic) -> Function:
    op, (x_type, w_type, _) = node.op, (v.type for v in node.ins)
    assert isinstance(op, Windowed)
    order = (0, 3, 1, 2) if isinstance(op, ops.Conv2D) else (3, 0, 1, 2)
    groups = op.groups if isinstance(op, ops.Conv2D) else x_type.shape[3]
    window = op.window(w_type)
    taps = w_type.shape[1] * w_type.shape[2] * (x_type.shape[3] // groups)
    wide = torch.float64 if x_type.dtype == "int8" and taps > EXACT_SUMS else torch.float32
    finish = (
        a.limit(op.activation)
        if x_type.dtype == "float32"
        else a.requantizer(node.out.type, op.activation, factors(node), a.multiply(*multipliers(node)))
    )

    def run(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        shifted = _pad((x - x_type.zero).to(wide), window, 0.0)
        sums = F.conv2d(shifted, w.to(wide).permute(order), None, op.stride, 0, op.dilation, groups)
        return finish(sums.permute(0, 2, 3, 1).to(b.dtype) + b)

    return run


@rule(ops.Dense)
def _dense(node: Node, a: Arithmetic) -> Function:
    op, zero = node.op, node.ins[0].type.zero
    assert isinstance(op, ops.Dense)
    if node.out.type.dtype == "float32":
        limit = a.limit(op.activation)
        return lambda x, w, b: limit(F.linear(x, w, b))
    scale = a.real(factors(node))
    finish = a.requantizer(node.out.type, op.activation, factors(node), lambda acc: _half_away(acc * scale))
    return lambda x, w, b: finish((x - zero).double() @ w.double().T + b)


@rule(ops.Project)
def _project(node: Node, a: Arithmetic) -> Function:
    op, x = node.op, node.ins[0].type
    assert isinstance(op, ops.Project)
    signs = torch.from_numpy(projection.matrix(x.shape[1], op.count).astype(np.float64)).to(a.device)
    if x.q is None:
        return lambda features: F.linear(features, signs.to(features))
    factor = (2.0**-op.shift,)
    finish = a.requantizer(node.out.type, "none", factor, lambda acc: _half_away(acc * factor[0]))
    return lambda features: finish((features - x.zero).double() @ signs.T)


def _half_away(x: Tensor) -> Tensor:
    """Rounded, halves away from zero."""
    whole = x.trunc()
    return whole + (x - whole >= 0.5).to(x) - (x - whole <= -0.5).to(x)


@rule(ops.Add)
def _add(node: Node, a: Arithmetic) -> Function:
    op, (left, right), y = node.op, (v.type for v in node.ins), node.out.type
    assert isinstance(op, ops.Add)
    if y.dtype == "float32":
        limit = a.limit(op.activation)
        return lambda p, q: limit(p + q)
    up_left, up_right, down = (a.multiply(*pair) for pair in op.multipliers(node))
    scale_left, scale_right = a.real(ratio(left, over=y)), a.real(ratio(right, over=y))

    def exact(p: Tensor, q: Tensor) -> Tensor:
        return down(up_left(p * (1 << ADD_SHIFT)) + up_right(q * (1 << ADD_SHIFT)))

    finish = a.requantizer(y, op.activation, (), exact)

    def run(p: Tensor, q: Tensor) -> Tensor:
        p, q = (p - left.zero).double(), (q - right.zero).double()
        return finish(p * scale_left + q * scale_right, p, q)

    return run


@rule(ops.Mul)
def _mul(node: Node, a: Arithmetic) -> Function:
    op, (left, right), y = node.op, (v.type for v in node.ins), node.out.type
    assert isinstance(op, ops.Mul)
    if y.dtype == "float32":
        limit = a.limit(op.activation)
        return lambda p, q: limit(p * q)
    finish = a.requantizer(y, op.activation, ratio(left, right, over=y), a.multiply(*op.multiplier(node)))
    return lambda p, q: finish((p - left.zero) * (q - right.zero))


@rule(ops.Maximum)
def _maximum(node: Node, a: Arithmetic) -> Function:
    return lambda p, q: torch.where(p >= q, p, q)  # equals: the gradient is the first one's, as the op has it


@rule(ops.PRelu)
def _prelu(node: Node, a: Arithmetic) -> Function:
    op, (x, slope), y = node.op, (v.type for v in node.ins), node.out.type
    assert isinstance(op, ops.PRelu)
    if y.dtype == "float32":
        return lambda p, q: torch.where(p >= 0, p, p * q)
    (up, down), scale = (a.multiply(*pair) for pair in op.multipliers(node)), a.real(ratio(x, over=y))
    product = a.real(ratio(x, slope, over=y))
    finish = a.requantizer(y, "none", (), lambda p, q: torch.where(p >= 0, up(p), down(p * q)))

    def run(p: Tensor, q: Tensor) -> Tensor:
        p, q = (p - x.zero).double(), (q - slope.zero).double()
        return finish(torch.where(p >= 0, p * scale, p * q * product), p, q)

    return run


@rule(ops.Activate, ops.Requantize)
def _rescale(node: Node, a: Arithmetic) -> Function:
    op, x, y = node.op, node.ins[0].type, node.out.type
    assert isinstance(op, ops.Activate | ops.Requantize)
    activation = op.activation if isinstance(op, ops.Activate) else "none"
    if y.dtype == "float32":
        return a.limit(activation)
    finish = a.requantizer(y, activation, ratio(x, over=y), a.multiply(*op.multiplier(node)))
    return lambda q: finish(q - x.zero)


_FUNCTIONS: Mapping[str, Callable[[Tensor, float, float], Tensor]] = {
    "abs": lambda x, a, b: x.abs(), "celu": lambda x, a, b: F.celu(x, a), "clip": lambda x, a, b: x.clamp(a, b),
    "elu": lambda x, a, b: F.elu(x, a), "erf": lambda x, a, b: x.erf(), "exp": lambda x, a, b: x.exp(),
    "gelu": lambda x, a, b: F.gelu(x), "gelu_tanh": lambda x, a, b: F.gelu(x, approximate="tanh"),
    "hard_sigmoid": lambda x, a, b: (a * x + b).clamp(0, 1), "hard_swish": lambda x, a, b: F.hardswish(x),
    "leaky_relu": lambda x, a, b: F.leaky_relu(x, a), "log": lambda x, a, b: x.clamp(min=LEAST).log(),
    "mish": lambda x, a, b: F.mish(x),
    "power": lambda x, a, b: x**a if a == int(a) else x.clamp(min=LEAST) ** a,
    "selu": lambda x, a, b: b * F.elu(x, a), "sigmoid": lambda x, a, b: x.sigmoid(), "silu": lambda x, a, b: F.silu(x),
    "softplus": lambda x, a, b: F.softplus(x), "softsign": lambda x, a, b: F.softsign(x),
    "tanh": lambda x, a, b: x.tanh(),
}  # fmt: skip


@rule(ops.Lookup)
def _lookup(node: Node, a: Arithmetic) -> Function:
    op, x, y = node.op, node.ins[0].type, node.out.type
    assert isinstance(op, ops.Lookup)
    alpha, beta, of = op.alpha, op.beta, _FUNCTIONS[op.function]

    def function(real: Tensor) -> Tensor:
        return of(real, alpha, beta)

    if y.dtype == "float32":
        return function
    tangent, q = op.tangent(x)
    table = torch.from_numpy(op.table(x, y).astype(np.float64) - y.zero).to(a.device)
    slope = torch.from_numpy(tangent.table(x, Type((1,), "int8", q)) * (q.one * x.scale)).to(a.device)
    finish = a.requantizer(y, "none", (1 / y.scale,), lambda index: table[index])

    def run(steps: Tensor) -> Tensor:
        if not a.rounded:
            return finish(function((steps.double() - x.zero) * x.scale))
        index = steps.detach().long() - numerics.INT8_MIN
        return finish(steps.double() * slope[index], index)

    return run


@rule(ops.Dequantize)
def _dequantize(node: Node, a: Arithmetic) -> Function:
    x_type = node.ins[0].type
    return lambda x: ((x - x_type.zero).double() * x_type.scale).to(torch.float32)


@rule(ops.MaxPool, ops.AvgPool)
def _pool(node: Node, a: Arithmetic) -> Function:
    op, y = node.op, node.out.type
    assert isinstance(op, ops.MaxPool | ops.AvgPool)
    pool = _largest(op) if isinstance(op, ops.MaxPool) else _average(op, node.ins[0].type, a)
    if y.dtype == "float32":
        limit = a.limit(op.activation)
        return lambda x: limit(pool(x))
    finish = a.requantizer(y, op.activation, (), lambda q: _half_away(q) - y.zero, clamps=op.activation != "none")

    def run(x: Tensor) -> Tensor:
        pooled = pool(x)
        return finish(pooled - y.zero, pooled)

    return run


def _largest(op: ops.MaxPool) -> Callable[[Tensor], Tensor]:
    return lambda x: F.max_pool2d(_pad(x, op.window, -torch.inf), op.size, op.stride).permute(0, 2, 3, 1)


def _average(op: ops.AvgPool, x: Type, a: Arithmetic) -> Callable[[Tensor], Tensor]:
    """In float64, where a mean on the half is exactly that."""

    def sums(x: Tensor) -> Tensor:
        padded = _pad(x.double(), op.window, 0.0)
        return F.avg_pool2d(padded, op.size, op.stride, divisor_override=1).permute(0, 2, 3, 1)

    count = sums(torch.ones((1, *x.shape[1:]), device=a.device))
    return lambda x: sums(x) / count


@rule(ops.Mean)
def _mean(node: Node, a: Arithmetic) -> Function:
    op, x, y = node.op, node.ins[0].type, node.out.type
    assert isinstance(op, ops.Mean)
    if y.dtype == "float32":
        return lambda q: q.mean(dim=(1, 2), keepdim=op.keep_dims)
    factor = (x.scale / y.scale / (x.shape[1] * x.shape[2]),)
    finish = a.requantizer(y, "none", factor, a.multiply(*op.multiplier(node)), clamps=False)
    return lambda q: finish((q - x.zero).double().sum(dim=(1, 2), keepdim=op.keep_dims))


@rule(ops.Pad)
def _zeros_around(node: Node, a: Arithmetic) -> Function:
    op = node.op
    assert isinstance(op, ops.Pad)
    pads = [p for pair in zip(reversed(op.before), reversed(op.after), strict=True) for p in pair]
    return lambda x: F.pad(x, pads, value=node.ins[0].type.zero)


@rule(ops.Crop)
def _crop(node: Node, a: Arithmetic) -> Function:
    op = node.op
    assert isinstance(op, ops.Crop)
    parts = tuple(slice(start, stop) for start, stop in zip(op.start[1:], op.stop[1:], strict=True))
    return lambda x: x[(slice(None) if op.stop[0] == 1 else slice(op.start[0], op.stop[0]), *parts)]


@rule(ops.Pick)
def _pick(node: Node, a: Arithmetic) -> Function:
    op = node.op
    assert isinstance(op, ops.Pick)
    rows, columns = (torch.tensor(places, device=a.device) for places in (op.rows, op.columns))

    def run(x: Tensor) -> Tensor:
        y = x.index_select(1, rows) if op.rows else x
        return y.index_select(2, columns) if op.columns else y

    return run


@rule(ops.ResizeBilinear)
def _resize_bilinear(node: Node, a: Arithmetic) -> Function:
    op, x, y = node.op, node.ins[0].type, node.out.type
    assert isinstance(op, ops.ResizeBilinear)
    between = [s.reals() if y.dtype == "float32" else s.integers() for s in op.spreads(x)]
    rows, columns = (
        torch.from_numpy(b.matrix(s.size).astype(np.float64)).to(a.device)
        for b, s in zip(between, op.spreads(x), strict=True)
    )
    if y.dtype == "float32":
        return lambda q: torch.einsum("yr,xc,nrck->nyxk", rows, columns, q.double()).to(q.dtype)
    rows, columns = rows / ONE, columns / ONE
    finish = a.requantizer(y, "none", (), lambda q: _half_away(q) - y.zero, clamps=False)

    def run(q: Tensor) -> Tensor:
        blended = torch.einsum("yr,xc,nrck->nyxk", rows, columns, q.double())
        return finish(blended - y.zero, blended)

    return run


@rule(ops.Reshape)
def _reshape(node: Node, a: Arithmetic) -> Function:
    op = node.op
    assert isinstance(op, ops.Reshape)
    return lambda x: x.reshape(-1, *op.shape[1:])  # so that a batch runs along the first dimension


@rule(ops.Transpose)
def _transpose(node: Node, a: Arithmetic) -> Function:
    op = node.op
    assert isinstance(op, ops.Transpose)
    return lambda x: x.permute(op.perm)


@rule(ops.Concat)
def _concat(node: Node, a: Arithmetic) -> Function:
    op = node.op
    assert isinstance(op, ops.Concat)
    return lambda *xs: torch.cat(xs, dim=op.axis)


@rule(ops.Overlay)
def _overlay(node: Node, a: Arithmetic) -> Function:
    op = node.op
    assert isinstance(op, ops.Overlay)
    channels = torch.tensor(op.channels, device=a.device)
    return lambda frozen, trained: frozen.index_copy(-1, channels, trained)


@rule(ops.LearnedBias)
def _learned_bias(node: Node, a: Arithmetic) -> Function:
    op = node.op
    assert isinstance(op, ops.LearnedBias)
    unit = torch.from_numpy(2.0 ** units(op.shifts)).to(a.device)
    return lambda base, difference: (base + difference.double() * unit).clamp(-(2.0**31), 2.0**31 - 1)


@rule(ops.SoftmaxCrossEntropy)
def _cross_entropy(node: Node, a: Arithmetic) -> Function:
    def run(logits: Tensor, label: Tensor) -> tuple[Tensor, ...]:
        return F.cross_entropy(logits, label.long(), reduction="none"), F.softmax(logits, dim=1)

    return run


def _with_gradient(loss: Callable[[Tensor, Tensor], Tensor]) -> Function:
    """A loss as an op gives it: the gradient beside it is autograd's to find, and is not computed here."""
    return lambda logits, target: (loss(logits, target), torch.full_like(logits, torch.nan))


@rule(ops.SigmoidCrossEntropy)
def _sigmoid_cross_entropy(node: Node, a: Arithmetic) -> Function:
    return _with_gradient(lambda z, t: F.binary_cross_entropy_with_logits(z, t, reduction="none").mean(dim=1))


@rule(ops.MeanSquaredError)
def _mean_squared_error(node: Node, a: Arithmetic) -> Function:
    return _with_gradient(lambda y, t: F.mse_loss(y, t, reduction="none").mean(dim=1))


@rule(ops.ReconstructionError)
def _reconstruction_error(node: Node, a: Arithmetic) -> Function:
    x = node.ins[1].type
    return _with_gradient(
        lambda y, q: F.mse_loss(y.flatten(1), (q.reshape(len(y), -1) - x.zero) * x.scale, reduction="none").mean(dim=1)
    )


@rule(ops.CellCrossEntropy)
def _cell_cross_entropy(node: Node, a: Arithmetic) -> Function:
    def run(logits: Tensor, labels: Tensor) -> Tensor:
        known = labels < logits.shape[3]
        each = F.cross_entropy(logits.movedim(3, 1), labels.long().where(known, -100), reduction="none")
        return each.sum(dim=(1, 2)) / known.sum(dim=(1, 2)).clamp(min=1)

    return _with_gradient(run)
