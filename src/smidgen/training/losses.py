"""What a training step ends in: a loss of the logits, and the label it compares them with."""

from __future__ import annotations

import math

import numpy as np

from smidgen.data import Data
from smidgen.errors import InputError
from smidgen.ir import Array, Builder, Graph, Type, Value
from smidgen.ops.loss import Loss as Loss
from smidgen.ops.loss import LossOp, SoftmaxCrossEntropy, loss_kind
from smidgen.ops.losses import CellCrossEntropy, MeanSquaredError, ReconstructionError, SigmoidCrossEntropy
from smidgen.training.head import TrainingError, ending_of


def end_in_loss(g: Builder, logits: Value, loss: Loss, image: Value, model: str) -> tuple[Value, Value | None]:
    """Emit the loss of the logits and the input for its label; there is none where the image is the target."""
    shape = logits.type.shape
    if loss == "reconstruction":
        _check_reconstruction(logits, image, model)
        return _emit(g, ReconstructionError(), logits, image), None
    if loss == "cells":
        if len(shape) != 4:
            raise TrainingError(
                f"the loss cells compares maps of cells, the head of {model} gives {list(shape)}; keep a head that "
                "gives a map, or choose another loss"
            )
        label = g.input("label", Type(shape[:3], "uint8"))
        return _emit(g, CellCrossEntropy(), logits, label), label
    if len(shape) != 2:
        raise TrainingError(
            f"the loss {loss} compares vectors, the head of {model} gives {list(shape)}; choose the loss cells, or a "
            "new head"
        )
    if loss == "softmax":
        label = g.input("label", Type((1,), "int32"))
        return _emit(g, SoftmaxCrossEntropy(), logits, label), label
    label = g.input("label", Type(shape, "float32"))
    return _emit(g, SigmoidCrossEntropy() if loss == "sigmoid" else MeanSquaredError(), logits, label), label


def _emit(g: Builder, op: LossOp, logits: Value, target: Value) -> Value:
    loss, _ = g.emit_all(op, logits, target, name="loss")
    return loss


def _check_reconstruction(logits: Value, image: Value, model: str) -> None:
    if logits.type.size != image.type.size:
        raise TrainingError(
            f"{model} takes {image.type.size:,} numbers and its head gives {logits.type.size:,}; the loss "
            "reconstruction compares one with the other and needs as many"
        )
    if image.type.dtype != "int8" or image.type.q is None:
        raise TrainingError(
            f"the input of {model} is {image.type.dtype}, the loss reconstruction compares int8; quantize the model "
            "first, with `smidgen quantize` or quantize()"
        )


def choose_loss(graph: Graph, data: Data) -> Loss:
    """The loss that fits what is known of each sample: yes or no by sigmoid, one of several classes by softmax."""
    match data.told:
        case "classes":
            return "sigmoid" if len(data.classes) == 2 and ending_of(graph).outputs == 1 else "softmax"
        case "vectors":
            parts = (data.train.targets, data.test.targets)
            yes_or_no = all(((t == 0) | (t == 1)).all() for targets in parts for t in targets)
            return "sigmoid" if yes_or_no else "mse"
        case "maps":
            return "cells"
        case "nothing":
            return "reconstruction"


def outputs_for(graph: Graph, data: Data, loss: Loss) -> int | None:
    """How many outputs a head needs for the data; None where it is as many as the model has."""
    if loss == "reconstruction":
        return None
    match data.told:
        case "vectors":
            return data.train.targets[0].size
        case "classes" if loss == "sigmoid" and len(data.classes) == 2 and ending_of(graph).outputs == 1:
            return 1
        case "classes" | "maps" if data.classes:
            return len(data.classes)
    return None


def example_label(label: Value | None, logits: Value, index: int) -> tuple[Array, ...]:
    """What sample `index` is told where nobody says: classes in turn, vectors of 0 and of 1 in turn, or nothing."""
    if label is None:
        return ()
    outputs, shape = logits.type.shape[-1], label.type.shape
    if label.type.dtype != "float32":
        cells = np.arange(math.prod(shape)).reshape(shape) + index
        return ((cells % outputs).astype(label.type.dtype),)
    return (np.full(shape, index % 2, np.float32),)


def check_softmax(step: Graph, what: str) -> None:
    """Raise InputError for a training step whose loss is not softmax cross-entropy."""
    if (loss := loss_kind(step)) not in (None, "softmax"):
        raise InputError(f"{step.name} learns by the loss {loss}, {what} by softmax alone; use the host, or a board")


def check_learns_always(step: Graph, what: str) -> None:
    """Raise InputError for a training step that skips samples."""
    if step.roles and step.roles.skip_below:
        raise InputError(
            f"{step.name} skips steps below a loss of {step.roles.skip_below:.6g}, {what} learns from all of them; use "
            "the host, a board or a fleet"
        )
