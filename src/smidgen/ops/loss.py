"""The loss as an object: all that follows from its choice, its labels, right answers, chance level and outputs."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from smidgen.errors import GraphError, InputError, TrainingError
from smidgen.ir import Array, Builder, Graph, LabelKind, Node, Op, Params, Type, Value, roles_of
from smidgen.ops.checks import SCALAR, check_dtypes, check_is, shown

MOST_OUTPUTS = 2**24  # up to which float32 counts without a gap
Loss = Literal["softmax", "sigmoid", "mse", "reconstruction", "cells"]


@dataclass(frozen=True)
class Chance:
    """The loss of a network that has learned nothing, and how it comes about."""

    loss: float
    text: str


@dataclass(frozen=True)
class LossOp(Op):
    """A loss of logits and their target; its first output is one number."""

    loss: ClassVar[Loss]
    accepts: ClassVar[tuple[LabelKind, ...]]  # the labels of data that it learns from
    judged_by: ClassVar[Literal["top-1", "answers", "error"]]  # answers: their share that is right, and the mean loss
    exclusive: ClassVar[bool] = False  # outputs score classes of which one is right
    sigmoid: ClassVar[bool] = False  # it takes the sigmoid of the logits itself
    output: ClassVar[str] = ""  # what a network that learned by it gives, where that is not the score of each class

    takes = "float32"

    def per_cell(self, has_map: bool) -> bool:
        """Return whether the logits are a map, given whether the model's scores are one."""
        return False

    def label_type(self, logits: Type) -> Type | None:
        """Return the type of a step's label; None where the network's input is the target."""
        return logits

    def check_model(self, logits: Type, image: Type, model: str) -> None:
        """Raise TrainingError unless a model with these logits can learn by this loss."""
        if len(logits.shape) != 2:
            raise TrainingError(
                f"the loss {self.loss} compares vectors, the head of {model} gives {list(logits.shape)}; choose the "
                "loss cells, or a new head"
            )

    def outputs(self, classes: int, width: int, present: int) -> int | None:
        """Return the outputs for data with these classes, or vectors of this width; None: those the model has."""
        return width or classes or None

    def label(self, given: int | Array | None, graph: Graph) -> Array | None:
        """Return a label as a training step takes it; InputError unless the loss can learn from it."""
        roles = roles_of(graph)
        assert roles.label is not None
        type_ = roles.label.type
        array = None if given is None else np.asarray(given)
        if array is None or array.dtype != type_.dtype or array.shape not in (type_.shape[1:], type_.shape):
            found = "nothing" if array is None else f"{array.dtype.name}{list(array.shape)}"
            wanted = f"{roles.label_kind} of {type_.dtype}{list(type_.shape[1:])}"
            raise InputError(f"{graph.name} learns from {wanted}, given was {found}")
        if type_.dtype == "float32" and not np.isfinite(array).all():
            raise InputError(f"the target holds numbers that are not finite; {graph.name} cannot learn from them")
        return array.reshape(type_.shape)

    def right(self, logits: Array, label: Array) -> tuple[int, int]:
        """Return how many answers are right, and how many there are."""
        return 0, 0

    def chance(self, outputs: int) -> Chance | None:
        """Return the loss of guessing; None where that is the variance of the targets."""
        return None


@dataclass(frozen=True)
class MeanLoss(LossOp):
    """A loss that is a mean, by default over a vector of outputs; its second output is its gradient."""

    def check_logits(self, logits: Type) -> None:
        """Raise GraphError unless these are float32 numbers of one sample, few enough to count them."""
        what = type(self).__name__
        check_dtypes(what, ("float32",), logits)
        if not logits.shape or logits.shape[0] != 1 or logits.size >= MOST_OUTPUTS:
            raise GraphError(f"{what} takes float32[1, …] of fewer than 2^24 numbers, not {shown(logits)}")

    def infer(self, logits: Type, target: Type) -> tuple[Type, ...]:
        self.check_logits(logits)
        if len(logits.shape) != 2:
            raise GraphError(f"{type(self).__name__} takes float32[1, outputs], not {shown(logits)}")
        check_is(type(self).__name__, "target", target, logits)
        return SCALAR, logits

    def params(self, node: Node) -> Params:
        return {"n": node.ins[0].type.size}

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        return node.outs[1], None
