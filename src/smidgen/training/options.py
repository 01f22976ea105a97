"""The options of learning: all that is chosen apart from the scheme."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from smidgen.data import Data
from smidgen.errors import InputError
from smidgen.ir import Graph
from smidgen.ops.loss import Loss
from smidgen.ops.losses import LOSSES
from smidgen.ops.rules import SGD, UpdateRule
from smidgen.training.head import ending_of
from smidgen.training.scheme import WEIGHT_BITS, Scheme

HeadStart = Literal["keep", "new"]
HeadDtype = Literal["float32", "int8"]
DEFAULT_BITS = 12
BIAS_BITS = (16, 32)
LARGEST = 4096  # outputs of a head
LARGEST_LOSS = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Options:
    """Options of learning; the learning rate is given at each step.

    A head that is kept goes on from the model's last layer, a new one starts at zero. By default
    it is kept if it has as many outputs as there are classes. A kept head computes in what it is stored in, so
    that its first scores are exactly the model's, a new one in float32; a kept int8 layer without an activation can
    also go on in float32, unless it is a convolution over a map.
    """

    classes: int | None = None  # outputs of the head; None: as many as the model has
    weight_bits: int | None = None  # of each weight that learns; None: as many as the scheme has, or 12
    qas: bool = True
    rule: UpdateRule = SGD
    head_dtype: HeadDtype | None = None
    seed: int = 0
    head: HeadStart | None = None
    loss: Loss = "softmax"
    bias_bits: int = 32  # of each bias of a convolution that learns: all, or the 16 of a difference to the model's
    skip_below: float = 0.0  # a step of a smaller loss runs no backward pass and changes nothing; 0: every step learns
    project: int | None = None  # numbers that a new head reads: as many sums of all features; None: the features

    def check(self) -> None:
        """Raise InputError where options are out of range or exclude each other."""
        if self.loss not in LOSSES:
            raise InputError(f"there is no loss {self.loss!r}; known are {', '.join(LOSSES)}")
        least, what = (2, "classes") if LOSSES[self.loss].exclusive else (1, "outputs")
        if self.classes is not None and not least <= self.classes <= LARGEST:
            raise InputError(f"{self.classes} {what} cannot be learned; give {least} to {LARGEST}")
        if self.weight_bits not in (None, *WEIGHT_BITS):
            raise InputError(f"weights of {self.weight_bits} bits are not supported; choose 8, 10 or 12")
        if self.bias_bits not in BIAS_BITS:
            raise InputError(f"biases of {self.bias_bits} bits are not supported; choose 16 or 32")
        if self.seed < 0:
            raise InputError(f"a seed of {self.seed} cannot be used; give a number from 0 up")
        if not 0 <= self.skip_below <= LARGEST_LOSS:
            raise InputError(f"steps below a loss of {self.skip_below} cannot be skipped; give a number from 0 up")
        if self.project is not None and self.project < 1:
            raise InputError(f"features cannot be projected to {self.project} numbers; give 1 or more")
        self.rule.check()

    def bits(self, scheme: Scheme) -> int:
        """Return the bits of each weight that learns by a scheme."""
        return self.weight_bits or scheme.weight_bits or DEFAULT_BITS

    def head_of(self, graph: Graph) -> Head:
        """Return the head of a model by these options; its scores are a map where the loss compares maps."""
        self.check()
        ending = ending_of(graph)
        per_cell = LOSSES[self.loss].per_cell(ending.per_cell)
        outputs = ending.outputs if self.classes is None else self.classes
        fits = outputs == ending.outputs and per_cell == ending.per_cell
        if self.head == "keep" and not fits:
            raise InputError(
                f"{graph.name} has {ending.outputs} outputs{' in each cell' if ending.per_cell else ''}, {outputs} "
                "classes are to be learned: its head cannot be kept; begin with a new one, or extend it by the classes "
                "it lacks"
            )
        start: HeadStart = self.head or ("keep" if fits and self.project is None else "new")
        if self.project is not None and (start == "keep" or per_cell):
            why = "scores each cell of a map" if per_cell else "is kept and reads the features that it was made for"
            raise InputError(f"the head of {graph.name} {why}; only a new one for whole samples reads projected ones")
        if outputs > LARGEST:
            raise InputError(f"{graph.name} has {outputs} outputs; heads of up to {LARGEST} can learn")
        able: tuple[HeadDtype, ...] = ("int8",) if per_cell else ("float32", "int8")
        if start == "keep" and not per_cell:
            able = ("float32",) if ending.is_float else ("int8", "float32") if ending.plain else ("int8",)
        if self.head_dtype is not None and self.head_dtype not in able:
            raise InputError(
                f"the last layer of {graph.name} can go on in {able[0]} alone, not in {self.head_dtype}; leave what "
                "the head computes in to be chosen, or begin with a new head"
            )
        return Head(outputs, start, self.head_dtype or able[0], per_cell, LOSSES[self.loss].sigmoid, self.project)


@dataclass(frozen=True)
class Head:
    """The layer that gives the scores: their number, its first weights, its dtype, and whether each cell has scores."""

    outputs: int
    start: HeadStart
    dtype: HeadDtype
    per_cell: bool
    sigmoid: bool = False  # the loss has one: a kept head's is dropped
    project: int | None = None  # numbers that it reads: sums of all features; None: the features


def choose_loss(graph: Graph, data: Data) -> Loss:
    """Choose the loss that fits the labels: sigmoid for yes or no, softmax for one of several classes."""
    match data.label_kind:
        case "classes":
            return "sigmoid" if len(data.classes) == 2 and ending_of(graph).outputs == 1 else "softmax"
        case "vectors":
            targets = (*data.train.targets, *data.test.targets)
            return "sigmoid" if all(((t == 0) | (t == 1)).all() for t in targets) else "mse"
        case "maps":
            return "cells"
        case "nothing":
            return "reconstruction"


def options_on(graph: Graph, data: Data, options: Options, loss: Loss | None = None) -> Options:
    """Return options with what the data decide where it is open: the loss, and how many outputs the head has.

    Raise InputError where the loss cannot learn from such labels, or the options do not fit the model.
    """
    loss = loss or choose_loss(graph, data)
    check_label_kind(loss, data, graph.name)
    if data.label_kind == "nothing" and graph.scores.type.size != graph.image.type.size:
        raise InputError(
            f"{data.name} has no labels, which is for autoencoders, and {graph.name} gives {graph.scores.type.size:,} "
            "scores; label the samples, as in a folder for each class"
        )
    width = data.train.targets[0].size if data.label_kind == "vectors" else 0
    outputs = options.classes or LOSSES[loss].outputs(len(data.classes), width, ending_of(graph).outputs)
    found = replace(options, classes=outputs, loss=loss)
    found.check()
    return found


def check_label_kind(loss: Loss, data: Data, name: str) -> None:
    """Raise InputError unless a loss learns from labels of the data's kind."""
    kind, accepted = data.label_kind, LOSSES[loss].accepts
    if kind not in accepted:
        fitting = " or ".join(name for name, one in LOSSES.items() if kind in one.accepts)
        raise InputError(
            f"{data.name} has {data.label_text}, {name} learns by {loss} from {' or '.join(accepted)}; choose the "
            f"loss {fitting}"
        )
