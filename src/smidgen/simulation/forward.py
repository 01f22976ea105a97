"""The ops of the forward pass, for all devices and images at once."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from smidgen import numerics, ops
from smidgen.ir import Array, Node, Op, Value
from smidgen.numerics import projection
from smidgen.ops.dense import LANES
from smidgen.ops.elementwise import Rescale
from smidgen.ops.state import units
from smidgen.ops.weighted import multipliers
from smidgen.simulation import sums
from smidgen.simulation.layout import Setting, check_single, from_lanes, to_lanes, unflatten, zero_of
from smidgen.simulation.sums import ordered_dot

Function = Callable[..., Tensor | tuple[Tensor, ...]]
FleetRule = Callable[[Any, Node, Setting], Function]  # of a node's op, the node and what is simulated
Rule = TypeVar("Rule", bound=Callable[..., object])
FORWARD: dict[type[Op], FleetRule] = {}
WEIGHT_MOST = 128  # magnitudes of int8 weights, and of activations less their zero point
INPUT_MOST = 255


def rule(*kinds: type[Op], into: dict[type[Op], Rule]) -> Callable[[Rule], Rule]:
    """Enter a function under the ops it computes."""

    def enter(function: Rule) -> Rule:
        into.update(dict.fromkeys(kinds, function))
        return function

    return enter


def by_reference(op: Op, node: Node, s: Setting) -> Function:
    """Any other op is its numpy reference; a recurrent layer never learns, and every device has its weights."""
    for value in (node.ins[0], *node.outs):
        check_single(value.type, value.name)
    s.by_reference.append(type(op).__name__)
    return in_numpy(partial(op.ref, node), node.ins, node.outs, s.device)


def in_numpy(
    function: Callable[..., Array | tuple[Array, ...]], ins: Sequence[Value], outs: Sequence[Value], place: torch.device
) -> Callable[..., tuple[Tensor, ...]]:
    """Return a function of numpy over lanes, device by device and image by image; slow, and not for CUDA graphs."""

    def run(*xs: Tensor) -> tuple[Tensor, ...]:
        arrays = [(from_lanes(x, v.type), v.type) for x, v in zip(xs, ins, strict=True)]
        devices, images = max(len(a) for a, _ in arrays), max(a[0].size // type_.size for a, type_ in arrays)

        def one(d: int, i: int) -> tuple[Array, ...]:
            own = [(a[min(d, len(a) - 1)], type_) for a, type_ in arrays]
            made = function(*((a if a.size == t.size else a[i]).reshape(t.shape) for a, t in own))
            return made if isinstance(made, tuple) else (made,)

        made = [[one(d, i) for i in range(images)] for d in range(devices)]
        return tuple(
            torch.cat([to_lanes(np.concatenate([found[k] for found in lane]), v.type) for lane in made]).to(place)
            for k, v in enumerate(outs)
        )

    return run


@rule(ops.Conv2D, into=FORWARD)
def _conv(op: ops.Conv2D, node: Node, s: Setting) -> Function:
    w_type, y = node.ins[1].type, node.out.type
    window, groups = op.window(w_type), op.groups
    multiplier, shift, limits = _requantizing(node, op.activation, s)

    def run(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        images = x.shape[2]
        seen = sums.patches(x, window)
        if groups == 1:
            total = sums.product(w.flatten(2), seen, WEIGHT_MOST * INPUT_MOST)
        else:
            total = sums.grouped_product(w, seen, groups, WEIGHT_MOST * INPUT_MOST)
        made: Tensor = s.run.requantized(total, b, multiplier, shift, limits)
        return unflatten(made, 2, (images, *y.shape[1:3]))

    return run


@rule(ops.Depthwise, into=FORWARD)
def _depthwise(op: ops.Depthwise, node: Node, s: Setting) -> Function:
    w_type = node.ins[1].type
    window = op.window(w_type)
    multiplier, shift, limits = _requantizing(node, op.activation, s)

    def run(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        total = sums.depthwise(x, w.reshape(w.shape[0], *w_type.shape[1:]), window)
        made: Tensor = s.run.requantized(total.flatten(2), b, multiplier, shift, limits)
        return unflatten(made, 2, total.shape[2:])

    return run


def _requantizing(node: Node, activation: str, s: Setting) -> tuple[Tensor, Tensor, Tensor]:
    multiplier, shift = multipliers(node)
    return s.whole(multiplier), s.whole(shift), s.limits(node.out.type, activation)


@rule(ops.LearnedBias, into=FORWARD)
def _learned_bias(op: ops.LearnedBias, node: Node, s: Setting) -> Function:
    unit = s.whole(units(op.shifts))

    def run(base: Tensor, difference: Tensor) -> Tensor:
        moved = base.to(torch.int64) + (difference.to(torch.int64) << unit)
        return moved.clamp(-(2**31), 2**31 - 1).to(torch.int32)

    return run


@rule(ops.Dense, into=FORWARD)
def _dense(op: ops.Dense, node: Node, s: Setting) -> Function:
    y = node.out.type
    check_single(y, node.out.name)
    if y.dtype == "float32":
        return lambda x, w, b: lanes_dot(x, w.flatten(2), LANES) + b.unsqueeze(2)
    scale = torch.from_numpy(op.scaling(node).copy()).to(s.device)
    low, high = numerics.activation_range(op.activation, y)

    def run(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        acc = sums.product(w.flatten(2), x, WEIGHT_MOST * INPUT_MOST).to(torch.float64) + b.unsqueeze(2)
        real = (acc * scale.unsqueeze(1)).clamp(-1e9, 1e9)
        whole = real.trunc()
        up, down = (real - whole >= 0.5).to(whole), (real - whole <= -0.5).to(whole)
        return (whole + up - down).clamp(low - y.zero, high - y.zero).to(torch.float32)

    return run


@rule(ops.Project, into=FORWARD)
def _project(op: ops.Project, node: Node, s: Setting) -> Function:
    signs = s.real(projection.matrix(node.ins[0].type.shape[1], op.count))[None]
    half, limits = s.whole((1 << op.shift) >> 1), s.limits(node.out.type)

    def run(x: Tensor) -> Tensor:
        total = sums.product(signs, x, INPUT_MOST).to(torch.int64)
        halved = total.sign() * ((total.abs() + half) >> op.shift)  # halves away from zero
        return halved.clamp(limits[0], limits[1]).to(torch.float32)

    return run


def lanes_dot(x: Tensor, w: Tensor, lanes: int) -> Tensor:
    """`ops.dense.dot_f32` of x [devices, terms, images] and w [devices, outputs, terms]."""
    over = -x.shape[1] % lanes
    a = unflatten(F.pad(x, (0, 0, 0, over)), 1, (-1, lanes))  # [devices, terms / lanes, lanes, images]
    b = unflatten(F.pad(w, (0, over)), 2, (-1, lanes)).transpose(1, 2)  # [devices, terms / lanes, outputs, lanes]
    total = ordered_dot(a.unsqueeze(2), b.unsqueeze(4))
    while total.shape[2] > 1:
        half = total.shape[2] // 2
        total = total[:, :, :half] + total[:, :, half:]
    return total[:, :, 0]


@rule(ops.Add, into=FORWARD)
def _add(op: ops.Add, node: Node, s: Setting) -> Function:
    multiplier, shift = s.whole(np.transpose(op.multipliers(node)))
    limits = s.limits(node.out.type, op.activation)
    return lambda a, b: s.run.added(a, b, multiplier, shift, limits)


def _rescaling(op: Rescale | ops.Mul | ops.Mean, node: Node, s: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """Return multiplier, shift and limits of an op that has one factor."""
    multiplier, shift = op.multiplier(node)
    activation = "none" if isinstance(op, ops.Mean) else op.activation
    return s.whole(multiplier), s.whole(shift), s.limits(node.out.type, activation)


@rule(ops.Activate, ops.Requantize, into=FORWARD)
def _rescale(op: Rescale, node: Node, s: Setting) -> Function:
    how = _rescaling(op, node, s)
    return lambda x: s.run.rescaled(x, *how)


@rule(ops.Mul, into=FORWARD)
def _mul(op: ops.Mul, node: Node, s: Setting) -> Function:
    how = _rescaling(op, node, s)
    return lambda a, b: s.run.rescaled(a * b, *how)


FORWARD[ops.Maximum] = lambda op, node, s: torch.maximum
FORWARD[ops.Compare] = lambda op, node, s: torch.sub  # the sign of the difference is the mask


@rule(ops.Lookup, into=FORWARD)
def _lookup(op: ops.Lookup, node: Node, s: Setting) -> Function:
    x, y = node.ins[0].type, node.out.type
    table = s.real(op.table(x, y).astype(np.float32) - y.zero)
    offset = x.zero - numerics.INT8_MIN
    return lambda steps: table[steps.to(torch.int64) + offset]


@rule(ops.Mean, into=FORWARD)
def _mean(op: ops.Mean, node: Node, s: Setting) -> Function:
    how = _rescaling(op, node, s)
    pixels = node.ins[0].type.size // node.ins[0].type.shape[-1]
    wide = torch.float32 if pixels * INPUT_MOST < sums.EXACT else torch.float64

    def run(x: Tensor) -> Tensor:
        total = x.to(wide).sum(dim=(3, 4), keepdim=op.keep_dims)
        made: Tensor = s.run.rescaled(total, *how)
        return made

    return run


@rule(ops.Dequantize, into=FORWARD)
def _dequantize(op: Op, node: Node, s: Setting) -> Function:
    scale = float(node.ins[0].type.scale)
    return lambda x: (x.to(torch.float64) * scale).to(torch.float32)


@rule(ops.Reshape, into=FORWARD)
def _reshape(op: Op, node: Node, s: Setting) -> Function:
    check_single(node.ins[0].type, node.ins[0].name)
    check_single(node.out.type, node.out.name)
    shape = node.out.type.shape

    def run(x: Tensor) -> Tensor:
        images_first = x.permute(0, 2, *range(3, x.dim()), 1)
        made = images_first.reshape(*images_first.shape[:2], *shape[1:])
        return made.permute(0, made.dim() - 1, 1, *range(2, made.dim() - 1))

    return run


@rule(ops.Pad, into=FORWARD)
def _pad(op: ops.Pad, node: Node, s: Setting) -> Function:
    if len(op.before) != 4 or op.before[0] or op.after[0] or op.before[3] or op.after[3]:
        return by_reference(op, node, s)
    sides = (op.before[2], op.after[2], op.before[1], op.after[1])
    return lambda x: F.pad(x, sides)


@rule(ops.Concat, into=FORWARD)
def _concat(op: ops.Concat, node: Node, s: Setting) -> Function:
    rank = len(node.out.type.shape)
    axis = op.axis % rank
    if axis == 0 or any(zero_of(v.type) != zero_of(node.out.type) for v in node.ins):
        return by_reference(op, node, s)
    where = 1 if axis == rank - 1 else axis + 2

    def run(*xs: Tensor) -> Tensor:
        devices = max(x.shape[0] for x in xs)
        return torch.cat([x.expand(devices, *x.shape[1:]) for x in xs], dim=where)

    return run


@rule(ops.MaxPool, into=FORWARD)
def _max_pool(op: ops.MaxPool, node: Node, s: Setting) -> Function:
    x, y = node.ins[0].type, node.out.type
    if x.q != y.q:
        return by_reference(op, node, s)
    low, high = numerics.activation_range(op.activation, y)
    top, bottom, left, right = op.window.pad

    def run(q: Tensor) -> Tensor:
        flat = F.pad(q.flatten(0, 1), (left, right, top, bottom), value=-float("inf"))
        pooled = unflatten(F.max_pool2d(flat, op.size, op.stride), 0, q.shape[:2])
        return pooled.clamp(low - y.zero, high - y.zero)

    return run
