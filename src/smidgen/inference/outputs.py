"""What a model's scores are: classes, cells of a map, numbers, or its input over again."""

from __future__ import annotations

from typing import Literal

import numpy as np

from smidgen.errors import InputError
from smidgen.ir import Array, Graph, Op, Type
from smidgen.ir.rewriting import producers
from smidgen.numerics import dequantize
from smidgen.ops.elementwise import Dequantize, Quantize, Requantize
from smidgen.ops.lookup import Lookup
from smidgen.ops.shape import Reshape
from smidgen.ops.softmax import Softmax

Kind = Literal["classes", "cells", "numbers", "reconstruction"]
Ending = Literal["softmax", "sigmoid"]
HALF = 0.5  # a probability above it says yes
KEEPS: tuple[type[Op], ...] = (Dequantize, Quantize, Requantize, Reshape)  # what changes no number but by rounding


def kind_of(graph: Graph) -> Kind:
    """What the scores are, by their shape and by how the graph ends.

    Scores of the input's own shape are a reconstruction, a map of them is cells. One score is a number unless the graph
    names two classes or ends in a sigmoid; several are classes.
    """
    shape = graph.scores.type.shape
    if shape == graph.image.type.shape and graph.scores.type.size > 1:
        return "reconstruction"
    if len(shape) == 4 and shape[1] * shape[2] > 1:
        return "cells"
    if graph.scores.type.size != (shape[-1] if shape else 1):
        raise InputError(f"%{graph.scores.name}, the output of {graph.name}, is {list(shape)}: no list and no map")
    if graph.scores.type.size == 1 and len(graph.classes) < 2 and ending_of(graph) is None:
        return "numbers"
    return "classes"


def ending_of(graph: Graph) -> Ending | None:
    """The function that makes the scores probabilities already, where the graph ends in one."""
    made, value = producers(graph), graph.scores
    while value in made:
        node = made[value]
        if isinstance(node.op, Softmax):
            return "softmax"
        if isinstance(node.op, Lookup) and node.op.function == "sigmoid" and not node.op.slope:
            return "sigmoid"
        if not isinstance(node.op, KEEPS):
            return None
        value = node.ins[0]
    return None


def real(array: Array, type_: Type) -> Array:
    """The numbers that a tensor's integers stand for, as float64."""
    if type_.q is not None and type_.dtype == "int8":
        array = dequantize(array, type_.q)
    numbers: Array = array.astype(np.float64)
    return numbers


def class_count(graph: Graph) -> int:
    """How many classes there are, of which a single score decides between two."""
    shape = graph.scores.type.shape
    return max(shape[-1] if shape else 1, 2)


def names_of(graph: Graph) -> tuple[str, ...]:
    """The classes by name, by number where the model does not name them."""
    return graph.classes if len(graph.classes) == class_count(graph) else tuple(map(str, range(class_count(graph))))


def probabilities(graph: Graph, scores: Array) -> Array:
    """The probability of each class along the last axis; a softmax, or sigmoid, only where the graph has none."""
    numbers, ending = real(scores, graph.scores.type), ending_of(graph)
    if (numbers.shape[-1] if numbers.ndim else 1) == 1:
        yes = numbers if ending == "sigmoid" else 1 / (1 + np.exp(-np.clip(numbers, -700, 700)))
        return np.concatenate([1 - yes, yes], axis=-1)
    if ending is not None:
        return numbers
    raised = np.exp(numbers - numbers.max(axis=-1, keepdims=True))
    shares: Array = raised / raised.sum(axis=-1, keepdims=True)
    return shares


def chosen(graph: Graph, scores: Array) -> Array:
    """The class of each list of scores: its largest element, the first where several are as large."""
    if scores.shape[-1] > 1:
        return np.asarray(scores.argmax(axis=-1))
    return np.asarray((probabilities(graph, scores)[..., 1] > HALF).astype(np.int64))
