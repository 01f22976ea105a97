"""Losses besides softmax cross-entropy, in float32: each gives the loss and, beside it, its gradient.

All are means, over outputs or over cells, as PyTorch's are; the order of every sum is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Params, Type, Value, op
from smidgen.ops.checking import SCALAR, check_dtypes, check_is, check_map, shown
from smidgen.ops.loss import LOGIT_LIMIT, F, LossOp, exp_f32, limit, log_f32, sum_in_order

ERROR_LIMIT = F(2.0**50)  # errors are kept within it, so that a sum of their squares is a number
MOST_CLASSES = 256  # that the byte of a cell can name
MOST_OUTPUTS = 2**24  # float32 counts so far without a gap


@dataclass(frozen=True)
class MeanLoss(LossOp):
    """A loss that is a mean, and whose second output is its gradient with respect to the logits."""

    takes = "float32"

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        return node.outs[1], None


def _check_logits(op: LossOp, logits: Type) -> None:
    check_dtypes(type(op).__name__, ("float32",), logits)
    if not logits.shape or logits.shape[0] != 1 or logits.size >= MOST_OUTPUTS:
        raise GraphError(f"{type(op).__name__} takes float32[1, …] of fewer than 2^24 numbers, not {shown(logits)}")


def _check_vectors(op: LossOp, logits: Type, target: Type) -> None:
    _check_logits(op, logits)
    if len(logits.shape) != 2:
        raise GraphError(f"{type(op).__name__} takes float32[1, outputs], not {shown(logits)}")
    check_is(type(op).__name__, "target", target, logits)


def _mean(x: Array) -> Array:
    """The mean of some numbers, added one after another."""
    mean: Array = sum_in_order(x.reshape(1, -1))[0] / F(x.size)
    return mean


@op
@dataclass(frozen=True)
class SigmoidCrossEntropy(MeanLoss):
    """loss = mean of −t·log σ(z) − (1 − t)·log(1 − σ(z)) over outputs, with targets t kept within 0 and 1.

    Computed as max(z, 0) − z·t + log(1 + e^−|z|), which is stable.
    """

    loss = "sigmoid"
    kernel = "smg_sigmoid_cross_entropy_f32"

    def infer(self, logits: Type, target: Type) -> tuple[Type, ...]:
        _check_vectors(self, logits, target)
        return SCALAR, logits

    def ref(self, node: Node, logits: Array, target: Array) -> tuple[Array, ...]:
        z = limit(logits, LOGIT_LIMIT)
        above = np.where(target > 0, target, F(0))  # in this order a NaN becomes 0
        t = np.where(above < 1, above, F(1))
        e = exp_f32(-np.abs(z))
        total = F(1) + e
        each = (np.where(z > 0, z, F(0)) - z * t) + log_f32(total)
        p = np.where(z > 0, F(1), e) / total
        return _mean(each), (p - t) / F(z.size)

    def params(self, node: Node) -> Params:
        return {"n": node.ins[0].type.size}


@op
@dataclass(frozen=True)
class MeanSquaredError(MeanLoss):
    """loss = mean of (y − t)² over outputs."""

    loss = "mse"
    kernel = "smg_mean_squared_error_f32"

    def infer(self, logits: Type, target: Type) -> tuple[Type, ...]:
        _check_vectors(self, logits, target)
        return SCALAR, logits

    def ref(self, node: Node, logits: Array, target: Array) -> tuple[Array, ...]:
        return _squares(logits, target)

    def params(self, node: Node) -> Params:
        return {"n": node.ins[0].type.size}


@op
@dataclass(frozen=True)
class ReconstructionError(MeanLoss):
    """loss = mean of (y − x)² over outputs, where x is an int8 tensor of as many numbers: the network's own input."""

    loss = "reconstruction"
    kernel = "smg_reconstruction_error_f32"

    def infer(self, logits: Type, x: Type) -> tuple[Type, ...]:
        _check_logits(self, logits)
        if x.dtype != "int8" or x.q is None or x.q.axis is not None:
            raise GraphError(f"ReconstructionError takes int8 with one scale as its target, not {shown(x)}")
        if x.size != logits.size:
            raise GraphError(
                f"ReconstructionError compares {logits.size:,} outputs with {x.size:,} inputs; as many are needed"
            )
        return SCALAR, logits

    def ref(self, node: Node, logits: Array, x: Array) -> tuple[Array, ...]:
        q = node.ins[1].type.q
        assert q is not None
        return _squares(logits, numerics.dequantize(x, q).reshape(logits.shape))

    def params(self, node: Node) -> Params:
        logits, x = (v.type for v in node.ins)
        return {"n": logits.size, "zero": x.zero, "scale": x.scale}


def _squares(y: Array, t: Array) -> tuple[Array, ...]:
    """The mean of squared errors, and its gradient 2·(y − t) / n."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = limit(y - t, ERROR_LIMIT)
    return _mean(error * error), (error + error) / F(error.size)


@op
@dataclass(frozen=True)
class CellCrossEntropy(MeanLoss):
    """loss = mean of −log softmax(logits)[label] over the cells of a map whose label is a class; 0 without any.

    What a label ≥ the number of classes stands for is not known, and teaches nothing.
    """

    loss = "cells"
    kernel = "smg_cell_cross_entropy_f32"

    def infer(self, logits: Type, labels: Type) -> tuple[Type, ...]:
        _check_logits(self, logits)
        check_map("CellCrossEntropy", logits)
        if not 2 <= logits.shape[3] <= MOST_CLASSES:
            raise GraphError(f"CellCrossEntropy takes cells of 2 to {MOST_CLASSES} classes, not {shown(logits)}")
        check_is("CellCrossEntropy", "labels", labels, Type(logits.shape[:3], "uint8"))
        return SCALAR, logits

    def ref(self, node: Node, logits: Array, labels: Array) -> tuple[Array, ...]:
        limited = limit(logits, LOGIT_LIMIT)
        shifted = limited - limited.max(axis=-1, keepdims=True)
        exps = exp_f32(shifted)
        total = sum_in_order(exps)
        known = labels < logits.shape[3]
        gradient = np.zeros_like(exps)
        if not known.any():
            return np.zeros(1, F), gradient
        label = labels[known].astype(np.intp)
        at = np.arange(label.size)
        each = log_f32(total[known][:, 0]) - shifted[known][at, label]
        d = exps[known] / total[known]
        d[at, label] -= F(1)
        gradient[known] = d / F(label.size)
        return _mean(each), gradient

    def params(self, node: Node) -> Params:
        *cells, classes = node.ins[0].type.shape
        return {"cells": int(np.prod(cells)), "classes": classes}
