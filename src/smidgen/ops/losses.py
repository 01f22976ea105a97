"""The losses, in float32, each with its gradient.

All but softmax cross-entropy are means, over outputs or cells, as PyTorch's are; the order of every sum is fixed.
"""

import math
from collections.abc import Mapping

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError, InputError, TrainingError
from smidgen.ir import Array, Builder, Graph, Node, Op, Params, Type, Value, op
from smidgen.numerics.float32 import F, exp_f32, limit, log_f32, sum_in_order
from smidgen.ops.checks import LABEL, SCALAR, check_dtypes, check_is, check_map, shown
from smidgen.ops.loss import Chance, LossOp, MeanLoss

LOGIT_LIMIT = F(2.0**100)  # logits are kept within it, so that their differences are numbers
ERROR_LIMIT = F(2.0**50)  # errors are kept within it, so that a sum of their squares is a number
MOST_CLASSES = 256  # that the byte of a cell can name


def checked_class(label: int | Array | None, classes: int) -> int:
    """Return the number of a class; InputError unless it is below `classes`."""
    if not isinstance(label, int | np.integer):
        what = "nothing" if label is None else "an array" if isinstance(label, np.ndarray) else repr(label)[:40]
        raise InputError(f"the label is {what}, but the program learns {classes} classes; give a number from 0 up")
    if not 0 <= label < classes:
        raise InputError(f"label {label} is not one of the {classes} classes 0 to {classes - 1}")
    return int(label)


def _is_class(label: Array, classes: int) -> bool:
    """Return whether the label names a class; a sample without one teaches nothing."""
    return 0 <= int(label[0]) < classes


def _mean(x: Array) -> Array:
    """Return the mean of some numbers, added one after another."""
    return np.asarray(sum_in_order(x.reshape(1, -1))[0] / F(x.size))


def _guessing(classes: int) -> Chance:
    return Chance(math.log(classes), f"that of guessing among {classes} classes")


@op
class SoftmaxCrossEntropy(LossOp):
    """loss = −log softmax(logits)[label], 0 where the label is not a class; and the probabilities."""

    loss = "softmax"
    accepts = ("classes",)
    judged_by = "top-1"
    exclusive = True
    kernel = "smg_softmax_cross_entropy_f32"

    def label_type(self, logits: Type) -> Type:
        return LABEL

    def label(self, given: int | Array | None, graph: Graph) -> Array:
        return np.array([checked_class(given, graph.scores.type.shape[1])], np.int32)

    def chance(self, outputs: int) -> Chance:
        return _guessing(outputs)

    def infer(self, logits: Type, label: Type) -> tuple[Type, ...]:
        if logits.dtype != "float32" or len(logits.shape) != 2 or logits.shape[0] != 1:
            raise GraphError(f"SoftmaxCrossEntropy takes float32[1, classes], not {logits.dtype}{list(logits.shape)}")
        check_is("SoftmaxCrossEntropy", "label", label, LABEL)
        return SCALAR, logits

    def ref(self, node: Node, logits: Array, label: Array) -> tuple[Array, ...]:
        limited = limit(logits, LOGIT_LIMIT)
        shifted = limited - limited.max()
        exps = exp_f32(shifted)
        total = sum_in_order(exps)
        known = _is_class(label, logits.shape[1])
        loss = log_f32(total[0]) - shifted[0, label] if known else np.zeros(1, F)
        return loss, exps / total

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        return g.emit(CrossEntropyGrad(), node.outs[1], node.ins[1]), None

    def params(self, node: Node) -> Params:
        return {"classes": node.ins[0].type.shape[1]}


@op
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
        if not _is_class(label, probabilities.shape[1]):
            return np.zeros_like(probabilities)
        d = probabilities.copy()
        d[0, label[0]] -= F(1)
        return d

    def params(self, node: Node) -> Params:
        return {"classes": node.ins[0].type.shape[1]}


@op
class SigmoidCrossEntropy(MeanLoss):
    """loss = mean of −t·log σ(z) − (1 − t)·log(1 − σ(z)) over outputs, with targets t kept within 0 and 1.

    Computed as max(z, 0) − z·t + log(1 + e^−|z|), which is stable.
    """

    loss = "sigmoid"
    accepts = ("classes", "vectors")
    judged_by = "answers"
    sigmoid = True
    output = "the logits, one each; above 0 says yes"
    kernel = "smg_sigmoid_cross_entropy_f32"

    def outputs(self, classes: int, width: int, present: int) -> int | None:
        return 1 if not width and classes == 2 and present == 1 else super().outputs(classes, width, present)

    def label(self, given: int | Array | None, graph: Graph) -> Array | None:
        """Return targets of yes (1) or no (0); of one output class 1 is yes, of several each stands for its class."""
        if isinstance(given, int | np.integer):
            outputs = graph.scores.type.shape[1]
            number = checked_class(int(given), max(outputs, 2))
            return np.array([[number] if outputs == 1 else np.arange(outputs) == number], np.float32)
        target = super().label(given, graph)
        if target is not None and not ((target >= 0) & (target <= 1)).all():
            raise InputError(
                f"the target reaches from {target.min():g} to {target.max():g}, a sigmoid from 0 to 1; use mse"
            )
        return target

    def right(self, logits: Array, label: Array) -> tuple[int, int]:
        return int(((logits > 0) == (label > 0.5)).sum()), label.size

    def chance(self, outputs: int) -> Chance:
        return Chance(math.log(2), "that of guessing yes or no")

    def ref(self, node: Node, logits: Array, target: Array) -> tuple[Array, ...]:
        z = limit(logits, LOGIT_LIMIT)
        above = np.where(target > 0, target, F(0))  # in this order a NaN becomes 0
        t = np.where(above < 1, above, F(1))
        e = exp_f32(-np.abs(z))
        total = F(1) + e
        each = (np.where(z > 0, z, F(0)) - z * t) + log_f32(total)
        p = np.where(z > 0, F(1), e) / total
        return _mean(each), (p - t) / F(z.size)


def _squares(y: Array, t: Array) -> tuple[Array, ...]:
    """Return the mean of squared errors, and its gradient 2·(y − t) / n."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = limit(y - t, ERROR_LIMIT)
    return _mean(error * error), (error + error) / F(error.size)


@op
class MeanSquaredError(MeanLoss):
    """loss = mean of (y − t)² over outputs."""

    loss = "mse"
    accepts = ("vectors",)
    judged_by = "error"
    output = "what the network tells"
    kernel = "smg_mean_squared_error_f32"

    def ref(self, node: Node, logits: Array, target: Array) -> tuple[Array, ...]:
        return _squares(logits, target)


@op
class ReconstructionError(MeanLoss):
    """loss = mean of (y − x)² over outputs, where x is an int8 tensor of as many numbers: the network's own input."""

    loss = "reconstruction"
    accepts = ("classes", "vectors", "maps", "nothing")
    judged_by = "error"
    output = "what the network makes of its input"
    kernel = "smg_reconstruction_error_f32"

    def per_cell(self, has_map: bool) -> bool:
        return has_map

    def label_type(self, logits: Type) -> None:
        return None

    def check_model(self, logits: Type, image: Type, model: str) -> None:
        if logits.size != image.size:
            raise TrainingError(
                f"{model} takes {image.size:,} numbers and its head gives {logits.size:,}; the loss reconstruction "
                "compares one with the other and needs as many"
            )
        if image.dtype != "int8" or image.q is None:
            raise TrainingError(
                f"the input of {model} is {image.dtype}, the loss reconstruction compares int8; quantize the model "
                "first, with `smidgen quantize` or quantize()"
            )

    def outputs(self, classes: int, width: int, present: int) -> None:
        return None

    def label(self, given: int | Array | None, graph: Graph) -> None:
        if given is not None:
            raise InputError(f"{graph.name} learns to give its own input: there is no label; give None")

    def infer(self, logits: Type, x: Type) -> tuple[Type, ...]:
        self.check_logits(logits)
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


@op
class CellCrossEntropy(MeanLoss):
    """loss = mean of −log softmax(logits)[label] over the cells of a map whose label is a class; 0 without any.

    A cell whose label is not below the number of classes teaches nothing.
    """

    loss = "cells"
    accepts = ("maps",)
    judged_by = "answers"
    exclusive = True
    output = "the logits, cell by cell and {classes} classes each"
    kernel = "smg_cell_cross_entropy_f32"

    def per_cell(self, has_map: bool) -> bool:
        return True

    def label_type(self, logits: Type) -> Type:
        return Type(logits.shape[:3], "uint8")

    def check_model(self, logits: Type, image: Type, model: str) -> None:
        if len(logits.shape) != 4:
            raise TrainingError(
                f"the loss cells compares maps of cells, the head of {model} gives {list(logits.shape)}; keep a head "
                "that gives a map, or choose another loss"
            )

    def right(self, logits: Array, label: Array) -> tuple[int, int]:
        known = label < logits.shape[-1]
        return int((logits.argmax(axis=-1) == label)[known].sum()), int(known.sum())

    def chance(self, outputs: int) -> Chance:
        return _guessing(outputs)

    def infer(self, logits: Type, labels: Type) -> tuple[Type, ...]:
        self.check_logits(logits)
        check_map("CellCrossEntropy", logits)
        if not 2 <= logits.shape[3] <= MOST_CLASSES:
            raise GraphError(f"CellCrossEntropy takes cells of 2 to {MOST_CLASSES} classes, not {shown(logits)}")
        check_is("CellCrossEntropy", "labels", labels, self.label_type(logits))
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


LOSSES: Mapping[str, LossOp] = {
    op.loss: op
    for op in (
        SoftmaxCrossEntropy(), SigmoidCrossEntropy(), MeanSquaredError(), ReconstructionError(), CellCrossEntropy(),
    )
}  # fmt: skip


def loss_node(graph: Graph) -> Node:
    """Return the node that gives a training step's loss; GraphError where there is none."""
    for node in graph.nodes if graph.roles else ():
        if isinstance(node.op, LossOp) and graph.roles and graph.roles.loss in node.outs:
            return node
    raise GraphError(f"{graph.name} has no loss that is known; build a training step with build_training")


def loss_of(graph: Graph) -> LossOp:
    """Return the loss of a training step; softmax cross-entropy for other graphs, and where it is not known."""
    try:
        op = loss_node(graph).op
    except GraphError:
        return SoftmaxCrossEntropy()
    assert isinstance(op, LossOp)
    return op


def check_softmax(step: Graph, what: str) -> None:
    """Raise InputError for a training step whose loss is not softmax cross-entropy."""
    if (loss := loss_of(step).loss) != "softmax":
        raise InputError(f"{step.name} learns by the loss {loss}, {what} by softmax alone; use the host, or a board")


def example_label(label: Value | None, logits: Value, index: int) -> tuple[Array, ...]:
    """Return a made-up label of sample `index`: classes in turn, vectors of 0 and of 1 in turn, or none."""
    if label is None:
        return ()
    outputs, shape = logits.type.shape[-1], label.type.shape
    if label.type.dtype != "float32":
        cells = np.arange(math.prod(shape)).reshape(shape) + index
        return ((cells % outputs).astype(label.type.dtype),)
    return (np.full(shape, index % 2, np.float32),)
