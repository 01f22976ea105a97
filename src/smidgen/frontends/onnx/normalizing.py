"""Normalizations that a file spells out as mean, difference, power, mean, root and quotient become one operator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from smidgen.frontends.onnx.attention import SPELLED_NORM
from smidgen.frontends.onnx.protobuf import OnnxModel, OnnxOperator
from smidgen.frontends.onnx.quantized import held_constants
from smidgen.ir import Array


def join_normalizations(model: OnnxModel) -> OnnxModel:
    """The model with one operator in place of each quotient that is a normalization; what it read may stay unread."""
    search = _Search(model)
    joined = tuple(search.normalization(operator) or operator for operator in model.operators)
    if joined == model.operators:
        return model
    return replace(model, operators=_read(joined, {value.name for value in model.outputs}))


def _read(operators: tuple[OnnxOperator, ...], outputs: set[str]) -> tuple[OnnxOperator, ...]:
    """The operators that an output depends on, in order."""
    needed, kept = set(outputs), list[OnnxOperator]()
    for operator in reversed(operators):
        if needed & set(operator.outputs):
            kept.append(operator)
            needed |= set(operator.inputs)
    return tuple(reversed(kept))


class _Search:
    """Finds which operators made what another reads."""

    def __init__(self, model: OnnxModel) -> None:
        self.constants = held_constants(model)
        self.makers = {name: operator for operator in model.operators for name in operator.outputs if name}

    def made(self, name: str, *codes: str) -> OnnxOperator | None:
        operator = self.makers.get(name)
        return operator if operator is not None and operator.code in codes and len(operator.inputs) > 0 else None

    def normalization(self, operator: OnnxOperator) -> OnnxOperator | None:
        """What a quotient is where it is one: the operator that does all of it."""
        if operator.code != "Div" or len(operator.inputs) != 2:
            return None
        root = self.made(operator.inputs[1], "Sqrt")
        total = self.made(root.inputs[0], "Add") if root else None
        if total is None or len(total.inputs) != 2:
            return None
        for variance, epsilon in (total.inputs, reversed(total.inputs)):
            number = self.constants.get(epsilon)
            found = self._about(operator.inputs[0], variance)
            if number is not None and number.size == 1 and found is not None:
                x, axes = found
                attributes = {"axes": axes, "epsilon": float(number.reshape(-1)[0])}
                return OnnxOperator(SPELLED_NORM, operator.name, (x,), operator.outputs, attributes)
        return None

    def _about(self, difference: str, variance: str) -> tuple[str, tuple[int, ...]] | None:
        """x and the dimensions of its mean, where these are x − mean and the mean of its square."""
        centred, mean = self._centred(difference), self.made(variance, "ReduceMean")
        squared = self.made(mean.inputs[0], "Pow", "Mul") if mean else None
        if centred is None or mean is None or squared is None or len(squared.inputs) != 2:
            return None
        base, by = squared.inputs
        power: Array | None = self.constants.get(by)
        twice = power is not None and power.size == 1 and float(power.reshape(-1)[0]) == 2.0
        if (base != by if squared.code == "Mul" else not twice) or self._centred(base) != centred:
            return None
        return centred if self._axes(mean) == centred[1] else None

    def _centred(self, name: str) -> tuple[str, tuple[int, ...]] | None:
        """x and the dimensions of its mean, where this is x − mean."""
        difference = self.made(name, "Sub")
        mean = self.made(difference.inputs[1], "ReduceMean") if difference and len(difference.inputs) == 2 else None
        if difference is None or mean is None or mean.inputs[0] != difference.inputs[0]:
            return None
        axes = self._axes(mean)
        return (difference.inputs[0], axes) if axes else None

    def _axes(self, mean: OnnxOperator) -> tuple[int, ...]:
        """The dimensions that a mean keeps as ones; none where they are not known."""
        given: object = mean.attributes.get("axes", ())
        if len(mean.inputs) > 1 and mean.inputs[1] in self.constants:
            given = self.constants[mean.inputs[1]].reshape(-1).tolist()
        whole = isinstance(given, tuple | list) and all(isinstance(n, int) for n in given)
        if not whole or mean.attributes.get("keepdims", 1) != 1:
            return ()
        return tuple(int(n) for n in np.array(given, np.int64))
