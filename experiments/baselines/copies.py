"""A forward pass cut where learning begins: a front that all runs share, and a tail with weights for each of them.

In the tail the runs are one more batch dimension, folded into the first: an op without weights is computed by its
ordinary rule. Layers with weights are computed here, in float32, as few large products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.baselines.arithmetic import Arithmetic, Function
from experiments.baselines.finishing import finisher
from experiments.baselines.rules import RULES, by_reference
from smidgen import ops
from smidgen.ir import Graph, Node, Value
from smidgen.ops.elementwise import ratio
from smidgen.ops.state import units as bias_units
from smidgen.ops.weighted import Weighted, Windowed, factors, multipliers

SMALLEST_UNIT = 2.0**-30  # of a weight: a dead channel's, by which gradients are divided, stays a number


class Front:
    """The nodes that do not depend on what learns, computed once for all runs."""

    def __init__(self, graph: Graph, *, rounded: bool, device: torch.device) -> None:
        learning = _learning(graph)
        arithmetic = Arithmetic(rounded, device)
        nodes = [node for node in graph.nodes if node.out not in learning]
        self._functions = [(node, RULES.get(type(node.op), by_reference)(node, arithmetic)) for node in nodes]
        self._image, self._constants = graph.image, _tensors(graph.constants, device)
        self.between = between(graph)
        self._narrow = [rounded and v.type.dtype == "int8" for v in self.between]

    def run(self, images: Tensor) -> tuple[Tensor, ...]:
        """What the tail reads of a batch of images; int8 where it holds whole numbers."""
        with torch.no_grad():
            values = {**self._constants, self._image: images.float()}
            for node, function in self._functions:
                outs = function(*(values[v] for v in node.ins))
                values.update(zip(node.outs, outs if isinstance(outs, tuple) else (outs,), strict=True))
            found = (values[v] for v in self.between)
            return tuple(x.to(torch.int8) if narrow else x for x, narrow in zip(found, self._narrow, strict=True))


class Tail:
    """The nodes from the first that learns on, with the weights of `runs` runs at once."""

    def __init__(self, graph: Graph, runs: int, *, rounded: bool, device: torch.device) -> None:
        learning = _learning(graph)
        self._runs, self._logits, self._between = runs, graph.scores, between(graph)
        nodes = [node for node in graph.nodes if node.out in learning]
        self._constants = _tensors(graph.constants, device)
        self._functions = [(node, _function(node, runs, rounded, device)) for node in nodes]
        self.capturable = all(_is_weighted(node) or type(node.op) in RULES for node in nodes)

    def logits(self, found: tuple[Tensor, ...], weights: Mapping[Value, Tensor]) -> Tensor:
        """[runs, batch, classes] of what the front found, with these weights, [runs, …] each."""
        values = {**self._constants, **weights}
        for v, x in zip(self._between, found, strict=True):
            values[v] = x.float().expand(self._runs, *x.shape).flatten(0, 1)
        for node, function in self._functions:
            outs = function(*(values[v] for v in node.ins))
            values.update(zip(node.outs, outs if isinstance(outs, tuple) else (outs,), strict=True))
        return _split(values[self._logits], 0, self._runs)


def between(graph: Graph) -> tuple[Value, ...]:
    """The activations that nodes which learn read of those that do not."""
    learning = _learning(graph)
    read = dict.fromkeys(v for node in graph.nodes if node.out in learning for v in node.ins)
    return tuple(v for v in read if v not in learning and v not in graph.constants)


def units(graph: Graph) -> dict[Value, Tensor]:
    """What one step of each tensor that learns stands for, in its shape or one that repeats along it; 1 in float32."""
    found: dict[Value, Tensor] = {v: torch.ones(1) for v in graph.state}
    laid = {node.out: node.ins[1] for node in graph.nodes if isinstance(node.op, ops.Overlay)}
    narrow = {node.out: node for node in graph.nodes if isinstance(node.op, ops.LearnedBias)}
    for node in graph.nodes:
        if isinstance(node.op, Weighted) and node.ins[1].type.q is not None:
            x, read, b = node.ins
            w = laid.get(read, read)
            assert w.type.q is not None
            axis, scales = node.op.weight_axis, torch.tensor(w.type.q.scale, dtype=torch.float64)
            if w in graph.state:
                found[w] = scales.reshape([-1 if i == axis else 1 for i in range(len(w.type.shape))])
            assert read.type.q is not None
            step = torch.tensor(read.type.q.scale, dtype=torch.float64) * x.type.scale
            if b in graph.state:
                found[b] = step
            elif b in narrow:
                found[narrow[b].ins[1]] = step * _bias_units(narrow[b])
    return {v: unit.clamp(min=SMALLEST_UNIT) for v, unit in found.items()}


def _bias_units(node: Node) -> Tensor:
    """How many steps of a bias a difference counts, channel by channel."""
    assert isinstance(node.op, ops.LearnedBias)
    return torch.from_numpy(2.0 ** bias_units(node.op.shifts))


def _learning(graph: Graph) -> set[Value]:
    """What learns, and everything that depends on it."""
    found = set(graph.state)
    for node in graph.nodes:
        if not found.isdisjoint(node.ins):
            found.update(node.outs)
    return found


def _tensors(arrays: Mapping[Value, np.ndarray[Any, Any]], device: torch.device) -> dict[Value, Tensor]:
    """int32 as float64 for the exact rules, all else as float32."""
    return {
        v: torch.from_numpy(a.astype(np.float64 if a.dtype == np.int32 else np.float32)).to(device)
        for v, a in arrays.items()
    }


def _is_weighted(node: Node) -> bool:
    return isinstance(node.op, Weighted | ops.Overlay)


def _function(node: Node, runs: int, rounded: bool, device: torch.device) -> Function:
    """How a node of the tail is computed: activations are [runs · batch, …], weights [runs, …] or shared."""
    arithmetic = Arithmetic(rounded, device)
    if isinstance(node.op, ops.Overlay):
        return _overlay(node, runs, device)
    if isinstance(node.op, Weighted):
        multiplied = multipliers(node) if rounded and isinstance(node.op, Windowed) else None
        return _weighted(node, runs, finisher(node.out.type, node.op.activation, factors(node), arithmetic, multiplied))
    if node.out.type.dtype == "int8" and isinstance(node.op, ops.Add):
        return _add(node, finisher(node.out.type, node.op.activation, (), arithmetic))
    if node.out.type.dtype == "int8" and isinstance(node.op, ops.Mean):
        return _mean(node, arithmetic)
    return RULES.get(type(node.op), by_reference)(node, arithmetic)


def _weighted(node: Node, runs: int, finish: Callable[[Tensor], Tensor]) -> Function:
    op, (x_type, w_type, _) = node.op, (v.type for v in node.ins)
    zero = x_type.zero if x_type.q is not None else 0
    sums = _products(node, runs) if _is_matrix(node) else _windows(node, runs)
    assert isinstance(op, Weighted)
    rank = len(w_type.shape)

    def run(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        y = sums(x - zero if zero else x, w.float(), w.dim() > rank)
        y = _split(y, 0, runs)
        bias = b.float().reshape(-1, *(1 for _ in y.shape[1:-1]), y.shape[-1])
        return finish((y + bias).flatten(0, 1))

    return run


def _is_matrix(node: Node) -> bool:
    """Whether a layer is one product of matrices: dense, or a convolution of single pixels."""
    op, w = node.op, node.ins[1].type
    if not isinstance(op, ops.Conv2D):
        return isinstance(op, ops.Dense)
    return w.shape[1:3] == (1, 1) and op.stride == (1, 1) and not any(op.pad) and op.groups == 1


def _products(node: Node, runs: int) -> Callable[[Tensor, Tensor, bool], Tensor]:
    outs, ins = node.ins[1].type.shape[0], node.ins[1].type.shape[-1]

    def run(x: Tensor, w: Tensor, own: bool) -> Tensor:
        if not own:
            return F.linear(x, w.reshape(outs, ins))
        y = torch.bmm(x.reshape(runs, -1, ins), w.reshape(runs, outs, ins).transpose(1, 2))
        return y.reshape(*x.shape[:-1], outs)

    return run


def _windows(node: Node, runs: int) -> Callable[[Tensor, Tensor, bool], Tensor]:
    """A convolution; that of every run is a group of one convolution over the channels of all."""
    op, x_type = node.op, node.ins[0].type
    assert isinstance(op, Windowed)
    groups = op.groups if isinstance(op, ops.Conv2D) else x_type.shape[3]
    order = (0, 3, 1, 2) if isinstance(op, ops.Conv2D) else (3, 0, 1, 2)
    top, bottom, left, right = op.pad

    def run(x: Tensor, w: Tensor, own: bool) -> Tensor:
        copies = runs if own else 1
        maps = _split(x, 0, copies).permute(1, 0, 4, 2, 3).flatten(1, 2)
        maps = maps.contiguous()  # of a batch of 1 the strides are any, and oneDNN's gradients by them wrong
        kernels = w if own else w[None]
        kernels = kernels.permute(0, *(i + 1 for i in order)).flatten(0, 1)
        padded = F.pad(maps, (left, right, top, bottom)) if any(op.pad) else maps
        y = F.conv2d(padded, kernels, None, op.stride, 0, op.dilation, groups * copies)
        return _split(y, 1, copies).permute(1, 0, 3, 4, 2).flatten(0, 1)

    return run


def _split(x: Tensor, dim: int, count: int) -> Tensor:
    """A dimension as `count` and what is left."""
    return x.reshape(*x.shape[:dim], count, -1, *x.shape[dim + 1 :])


def _overlay(node: Node, runs: int, device: torch.device) -> Function:
    op = node.op
    assert isinstance(op, ops.Overlay)
    channels = torch.tensor(op.channels, device=device)
    return lambda frozen, trained: frozen.expand(runs, *frozen.shape).index_copy(-1, channels, trained)


def _add(node: Node, finish: Callable[[Tensor], Tensor]) -> Function:
    left, right = (v.type for v in node.ins)
    (p_scale,), (q_scale,) = (ratio(type, over=node.out.type) for type in (left, right))
    offset = -(left.zero * p_scale + right.zero * q_scale)
    return lambda p, q: finish(torch.add(p * p_scale + offset, q, alpha=q_scale))


def _mean(node: Node, arithmetic: Arithmetic) -> Function:
    op, x, y = node.op, node.ins[0].type, node.out.type
    assert isinstance(op, ops.Mean)
    factor = x.scale / y.scale / (x.shape[1] * x.shape[2])
    finish = finisher(y, "none", (factor,), arithmetic, op.multiplier(node), clamps=False)
    return lambda q: finish((q - x.zero).sum(dim=(1, 2), keepdim=op.keep_dims))
