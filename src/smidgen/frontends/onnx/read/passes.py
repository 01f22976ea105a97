"""Passes over an ONNX file's operators before they become nodes: constants, quantizations, normalizations."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from smidgen.data.files import Budget, first_line
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.channels import together
from smidgen.frontends.onnx.read.decode import ELEMENT_TYPES, LARGEST_RANK, OnnxModel, OnnxOperator
from smidgen.ir import Array, QParams

SPELLED_NORM = "normalization in several nodes"  # the code of the operator that replaces them
# Operators that may stand between a layer and its QuantizeLinear: its activation, and moves of elements.
BETWEEN = ("Relu", "Clip", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
# Operators whose result is no larger than their inputs broadcast together, or than the largest of them.
MATCHING = frozenset(
    ("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Equal", "Greater", "GreaterOrEqual", "Less",
     "LessOrEqual", "And", "Or", "Where")
)  # fmt: skip
ALIKE = frozenset(
    ("Abs", "Cast", "Ceil", "Exp", "Flatten", "Floor", "Identity", "Log", "Neg", "Not", "ReduceMax", "ReduceMean",
     "ReduceMin", "ReduceProd", "ReduceSum", "Reciprocal", "Reshape", "Round", "Size", "Slice", "Sqrt", "Squeeze",
     "Transpose", "Unsqueeze")
)  # fmt: skip
SHAPED = {"ConstantOfShape": 0, "Expand": 1}  # the input that holds the output's shape
FOLDED_TYPES = {
    **ELEMENT_TYPES, onnx.TensorProto.INT16: np.dtype(np.int16), onnx.TensorProto.UINT16: np.dtype(np.uint16),
    onnx.TensorProto.UINT32: np.dtype(np.uint32), onnx.TensorProto.UINT64: np.dtype(np.uint64),
}  # fmt: skip
WIDEST = 8  # bytes of an element, at most
# A normalization as exporters spell it: operators and what they read, names of tensors, a number, or a list of ways.
Pattern = str | float | list[Any] | tuple[Any, ...]
Found = dict[str, object]  # what the names of a pattern stand for, and the dimensions of its means
CENTRED = ("Sub", "x", ("ReduceMean", "x"))
VARIANCE = ("ReduceMean", [("Mul", CENTRED, CENTRED), ("Pow", CENTRED, 2.0)])
DEVIATION = ("Sqrt", [("Add", VARIANCE, "epsilon"), ("Add", "epsilon", VARIANCE)])
NORMALIZED = ("Div", CENTRED, DEVIATION)


def fold(operator: OnnxOperator, opset: int, arrays: tuple[Array | None, ...], budget: Budget) -> Array:
    """Compute an operator whose inputs are all constant, such as the shapes that exporters compute."""
    if operator.code == "Cast" and operator.attributes.get("to") not in FOLDED_TYPES:
        kinds = ", ".join(str(dtype) for dtype in FOLDED_TYPES.values())
        raise ImportModelError(f"it makes constants of ONNX type {operator.attributes.get('to')}; use {kinds}")
    given = [a for a in arrays if a is not None]
    refuse(not given, "it reads nothing")
    budget.check("its result", WIDEST * _elements(operator, given))
    result = _evaluate(operator, opset, arrays)
    if result.dtype not in FOLDED_TYPES.values():
        raise ImportModelError(f"it gives constants of type {result.dtype}, which are not supported")
    if not any(np.may_share_memory(result, a) for a in given):
        budget.take("its result", result.nbytes)
    return result


def _elements(operator: OnnxOperator, given: list[Array]) -> int:
    """Return the number of elements that the result has at most."""
    code = operator.code
    if code in MATCHING:
        return math.prod(together(*(a.shape for a in given)))
    if code in SHAPED:
        asked = given[min(SHAPED[code], len(given) - 1)].ravel()
        if asked.size > LARGEST_RANK or asked.dtype.kind not in "iu" or (asked < 0).any():
            raise ImportModelError(f"it makes a constant of shape {str(asked)[:60]}")
        shape = tuple(int(n) for n in asked)
        return math.prod(together(given[0].shape, shape) if code == "Expand" else shape)
    if code == "Tile":
        times = given[-1].ravel()
        if len(given) != 2 or times.dtype.kind not in "iu" or times.size != given[0].ndim or (times < 1).any():
            raise ImportModelError(f"it repeats {list(given[0].shape)} {str(times)[:60]} times")
        return math.prod((given[0].size, *(int(n) for n in times)))
    if code == "Concat":
        return sum(a.size for a in given)
    if code == "Gather" and len(given) == 2:
        axis, rank = operator.attributes.get("axis", 0), given[0].ndim
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise ImportModelError(f"it gathers along dimension {axis!r:.40} of {list(given[0].shape)}")
        others = (n for i, n in enumerate(given[0].shape) if i != axis % rank)
        return math.prod((*others, given[1].size))
    if code in ALIKE:
        return max(a.size for a in given)
    raise ImportModelError(f"{code} of constants is not folded; simplify the model before exporting it")


def _evaluate(operator: OnnxOperator, opset: int, arrays: tuple[Array | None, ...]) -> Array:
    names, given = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)], operator.attributes.items()
    kept = ((k, onnx.numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v) for k, v in given)
    attributes: dict[str, Any] = dict(kept)
    node = onnx.helper.make_node(operator.code, names, ["y"], **attributes)
    feeds = {name: a for name, a in zip(names, arrays, strict=True) if a is not None}
    opsets = [onnx.helper.make_opsetid("", opset)]
    function = onnx.helper.make_function("constant", "folded", list(feeds), ["y"], [node], opsets)
    try:
        (result,) = ReferenceEvaluator(function).run(None, feeds, {})
    except Exception as error:  # the evaluator raises whatever numpy does
        raise ImportModelError(f"its constant inputs do not go together: {first_line(error)}") from None
    return np.asarray(result)


def held_constants(model: OnnxModel) -> dict[str, Array]:
    """Return the constants of a file by name, including those that nodes hold."""
    found = dict(model.constants)
    for operator in model.operators:
        value = operator.attributes.get("value")
        if operator.code == "Constant" and operator.outputs and isinstance(value, np.ndarray):
            found[operator.outputs[0]] = value
    return found


def planned_quantizations(model: OnnxModel) -> dict[str, QParams]:
    """Return the int8 quantization of each output that only a QuantizeLinear reads, directly or after an activation."""
    constants = held_constants(model)
    readers: dict[str, list[OnnxOperator]] = {}
    for operator in model.operators:
        for name in operator.inputs:
            readers.setdefault(name, []).append(operator)
    plan: dict[str, QParams] = {}
    for operator in reversed(model.operators):
        for out in operator.outputs[:1]:
            after = readers.get(out, [])
            if len(after) != 1 or not after[0].outputs:
                continue
            if after[0].code == "QuantizeLinear" and all(n in constants for n in after[0].inputs[1:]):
                plan[out] = qparams(constants, after[0])
            elif after[0].code in BETWEEN and after[0].inputs[0] == out and after[0].outputs[0] in plan:
                plan[out] = plan[after[0].outputs[0]]
    return plan


def input_quantization(model: OnnxModel, name: str) -> QParams:
    """Return the quantization of an int8 or uint8 input: that of the DequantizeLinear that reads it."""
    constants = held_constants(model)
    for operator in model.operators:
        reads = operator.inputs[:1] == (name,) and operator.code == "DequantizeLinear"
        if reads and all(n in constants for n in operator.inputs[1:]):
            return qparams(constants, operator)
    raise ImportModelError(f"input '{name}' is int8 and no DequantizeLinear gives its scale; use float32 inputs")


def qparams(constants: Mapping[str, Array], operator: OnnxOperator) -> QParams:
    """Return an operator's only scale and zero point, with uint8 moved to int8."""
    arrays = [constants[name] for name in operator.inputs[1:] if name]
    scale = arrays[0] if arrays else np.ones(0)
    zero = arrays[1] if len(arrays) > 1 else np.zeros(1, np.uint8)
    if scale.size != 1 or zero.size != 1 or zero.dtype not in (np.int8, np.uint8):
        raise ImportModelError(
            f"'{operator.inputs[0]}' is quantized with {scale.size} scales to {zero.dtype}; quantize activations to "
            "int8 or uint8 with one scale"
        )
    factor = float(scale.reshape(-1)[0])
    if not math.isfinite(factor) or factor <= 0:
        raise ImportModelError(f"'{operator.inputs[0]}' has the scale {factor}; quantize the model again")
    return QParams.per_tensor(factor, int(zero.reshape(-1)[0]) - (128 if zero.dtype == np.uint8 else 0))


def join_normalizations(model: OnnxModel) -> OnnxModel:
    """Replace mean, difference, power, mean, root and quotient by one normalization, and drop unread operators."""
    search = _Search(model)
    joined = tuple(search.normalization(operator) or operator for operator in model.operators)
    if joined == model.operators:
        return model
    needed, kept = {value.name for value in model.outputs}, list[OnnxOperator]()
    for operator in reversed(joined):
        if needed & set(operator.outputs):
            kept.append(operator)
            needed |= set(operator.inputs)
    return replace(model, operators=tuple(reversed(kept)))


class _Search:
    """A search for normalizations among the operators that made a tensor."""

    def __init__(self, model: OnnxModel) -> None:
        self.constants = held_constants(model)
        self.makers = {name: operator for operator in model.operators for name in operator.outputs if name}

    def normalization(self, operator: OnnxOperator) -> OnnxOperator | None:
        """Return the operator that a quotient completes, where it is that of a normalization."""
        found: Found = {}
        out = next(iter(operator.outputs), "")
        if operator.code != "Div" or not self._is(out, NORMALIZED, found) or not found["axes"]:
            return None
        epsilon = self.constants.get(str(found["epsilon"]))
        if epsilon is None or epsilon.size != 1:
            return None
        attributes = {"axes": found["axes"], "epsilon": float(epsilon.reshape(-1)[0])}
        return OnnxOperator(SPELLED_NORM, operator.name, (str(found["x"]),), operator.outputs, attributes)

    def _is(self, name: str, pattern: Pattern, found: Found) -> bool:
        """Return whether a tensor is computed as a pattern says, and record what its names stand for."""
        if isinstance(pattern, str):
            return found.setdefault(pattern, name) == name
        if isinstance(pattern, float):
            data = self.constants.get(name)
            return data is not None and data.size == 1 and float(data.reshape(-1)[0]) == pattern
        if isinstance(pattern, list):
            return any(self._is(name, way, found) for way in pattern)
        (code, *parts), made = pattern, self.makers.get(name)
        if made is None or made.code != code or not made.inputs:
            return False
        if code == "ReduceMean":
            same = found.setdefault("axes", self._axes(made)) == self._axes(made)
            return same and self._is(made.inputs[0], parts[0], found)
        return len(parts) == len(made.inputs) and all(map(self._is, made.inputs, parts, repeat(found)))

    def _axes(self, mean: OnnxOperator) -> tuple[int, ...]:
        """Return the dimensions that a mean keeps as ones; none where unknown."""
        given: object = mean.attributes.get("axes", ())
        if len(mean.inputs) > 1 and mean.inputs[1] in self.constants:
            given = self.constants[mean.inputs[1]].reshape(-1).tolist()
        if not isinstance(given, tuple | list) or not all(isinstance(n, int) for n in given):
            return ()
        return tuple(given) if mean.attributes.get("keepdims", 1) == 1 else ()
