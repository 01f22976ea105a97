"""Softmax cross-entropy in float32, with an exp and a log of our own: the same bits everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Graph, Node, Op, Params, Type, Value, op
from smidgen.ops.checking import LABEL, RATE, SCALAR, check_dtypes, check_is, shown

Loss = Literal["softmax", "sigmoid", "mse", "reconstruction", "cells"]

F = np.float32
LOG2_E, LN2_HIGH, LN2_LOW = F(1.4426950408889634), F(0.693145751953125), F(1.42860682030941723e-6)
# Taylor coefficients of e^r on |r| ≤ ln2 / 2, highest first: 1/5! … 1/2!, 1, 1.
EXP_TERMS = tuple(F(c) for c in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0))
# log(m) = 2·atanh(s), s = (m − 1) / (m + 1): coefficients of s², highest first.
LOG_TERMS = tuple(F(c) for c in (2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0))
EXP_LEAST = F(-80)  # below, e^x is taken as 0: it cannot show in a float32 sum that holds a 1
LOGIT_LIMIT = F(2.0**100)  # logits are kept within it, so that their differences are numbers
LEAST_RATE, LARGEST_RATE = 41, 253  # biased exponents of float32: 2^−86 and just below infinity


def exp_f32(x: Array) -> Array:
    """e^x for x ≤ 0, each operation rounded to float32."""
    limited = np.maximum(x, EXP_LEAST)
    n = np.trunc(limited * LOG2_E - F(0.5))
    r = (limited - n * LN2_HIGH) - n * LN2_LOW
    p = np.full_like(r, EXP_TERMS[0])
    for term in EXP_TERMS[1:]:
        p = p * r + term
    power = ((n.astype(np.int32) + 127) << 23).view(np.float32)
    result: Array = np.where(x < EXP_LEAST, F(0), p * power)
    return result


def log_f32(x: Array) -> Array:
    """ln x for normal x > 0, each operation rounded to float32."""
    bits = np.ascontiguousarray(x, F).view(np.int32)
    e = ((bits - 0x3F3504F3) >> 23).astype(np.int32)  # m lies in [√½, √2)
    m = (bits - (e << 23)).view(np.float32)
    s = (m - F(1)) / (m + F(1))
    s2 = s * s
    p = np.full_like(s, LOG_TERMS[0])
    for term in LOG_TERMS[1:]:
        p = p * s2 + term
    result: Array = (e.astype(F) * LN2_LOW + s * p) + e.astype(F) * LN2_HIGH
    return result


def sum_in_order(x: Array) -> Array:
    """Σ over the last axis, one element after another."""
    total: Array = np.add.accumulate(x, axis=-1, dtype=F)[..., -1:]
    return total


def limit(x: Array, most: np.float32) -> Array:
    """x within ±most; in this order a NaN becomes the lower limit."""
    above = np.where(x > -most, x, -most)
    limited: Array = np.where(above < most, above, most)
    return limited


def is_class(label: Array, classes: int) -> bool:
    """Whether the label names a class; a sample without one teaches nothing."""
    return 0 <= int(label[0]) < classes


@dataclass(frozen=True)
class LossOp(Op):
    """A loss: its inputs are the logits and what they should be, its first output is one number."""

    loss: ClassVar[Loss]


def loss_node(graph: Graph) -> Node:
    """The node that gives a training step's loss; GraphError where there is none."""
    for node in graph.nodes if graph.roles else ():
        if isinstance(node.op, LossOp) and graph.roles and graph.roles.loss in node.outs:
            return node
    raise GraphError(f"{graph.name} has no loss that is known; build a training step with build_training")


def loss_kind(graph: Graph) -> Loss | None:
    """Which loss a training step has; None for another graph, and for a step whose loss is not known."""
    try:
        node = loss_node(graph)
    except GraphError:
        return None
    assert isinstance(node.op, LossOp)
    return node.op.loss


@op
@dataclass(frozen=True)
class SoftmaxCrossEntropy(LossOp):
    """loss = −log softmax(logits)[label], 0 where the label is not a class; and the probabilities."""

    loss = "softmax"
    kernel = "smg_softmax_cross_entropy_f32"
    takes = "float32"

    def infer(self, logits: Type, label: Type) -> tuple[Type, ...]:
        if logits.dtype != "float32" or len(logits.shape) != 2 or logits.shape[0] != 1:
            raise GraphError(f"SoftmaxCrossEntropy takes float32[1, classes], not {logits.dtype}{list(logits.shape)}")
        check_is("SoftmaxCrossEntropy", "label", label, LABEL)
        return Type((1,), "float32"), logits

    def ref(self, node: Node, logits: Array, label: Array) -> tuple[Array, ...]:
        limited = limit(logits, LOGIT_LIMIT)
        shifted = limited - limited.max()
        exps = exp_f32(shifted)
        total = sum_in_order(exps)
        known = is_class(label, logits.shape[1])
        loss = log_f32(total[0]) - shifted[0, label] if known else np.zeros(1, F)
        return loss, exps / total

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        return g.emit(CrossEntropyGrad(), node.outs[1], node.ins[1]), None

    def params(self, node: Node) -> Params:
        return {"classes": node.ins[0].type.shape[1]}


@op
@dataclass(frozen=True)
class CrossEntropyGrad(Op):
    """softmax − one-hot, or zeros where the label is not a class."""

    kernel = "smg_cross_entropy_grad_f32"
    takes = "float32"
    inplace = 0

    def infer(self, probabilities: Type, label: Type) -> Type:
        check_dtypes("CrossEntropyGrad", ("float32",), probabilities)
        if len(probabilities.shape) != 2 or probabilities.shape[0] != 1:
            raise GraphError(f"CrossEntropyGrad takes float32[1, classes], not {shown(probabilities)}")
        check_is("CrossEntropyGrad", "label", label, LABEL)
        return probabilities

    def ref(self, node: Node, probabilities: Array, label: Array) -> Array:
        if not is_class(label, probabilities.shape[1]):
            return np.zeros_like(probabilities)
        d = probabilities.copy()
        d[0, label[0]] -= F(1)
        return d

    def params(self, node: Node) -> Params:
        return {"classes": node.ins[0].type.shape[1]}


@op
@dataclass(frozen=True)
class MaxAbs(Op):
    """g0: the largest magnitude of the loss gradient, the unit of every int8 gradient of this step."""

    kernel = "smg_max_abs_f32"
    takes = "float32"

    def infer(self, x: Type) -> Type:
        check_dtypes("MaxAbs", ("float32",), x)
        return SCALAR

    def ref(self, node: Node, x: Array) -> Array:
        largest: Array = np.fmax.reduce(np.abs(x), axis=None, initial=F(0)).reshape(1)
        return largest

    def params(self, node: Node) -> Params:
        return {"n": node.ins[0].type.size}


@op
@dataclass(frozen=True)
class Rate(Op):
    """learning rate · g0 as a 31-bit mantissa and an exponent: rate = m · 2^(e − 31).

    Tiny, negative, infinite or not a number, it becomes 0: no update.
    """

    kernel = "smg_rate_f32"
    takes = "float32"

    def infer(self, learning_rate: Type, g0: Type) -> Type:
        check_is("Rate", "learning rate", learning_rate, SCALAR)
        check_is("Rate", "unit", g0, SCALAR)
        return RATE

    def ref(self, node: Node, learning_rate: Array, g0: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            bits = int((learning_rate * g0).view(np.int32)[0])
        exponent = bits >> 23
        if not LEAST_RATE <= exponent <= LARGEST_RATE:
            return np.zeros(2, np.int32)
        return np.array([((bits & 0x7FFFFF) | 0x800000) << 7, exponent - 126], np.int32)

    def params(self, node: Node) -> Params:
        return {"least": LEAST_RATE, "largest": LARGEST_RATE}
