"""Arithmetic on constants, done while the file is read: the shapes exporters compute, and their like."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from smidgen.data.files import Budget
from smidgen.errors import ImportModelError
from smidgen.frontends.channels import together
from smidgen.frontends.onnx.protobuf import ELEMENT_TYPES, LARGEST_RANK, OnnxOperator
from smidgen.ir import Array

MATCHING = frozenset(
    ("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Equal", "Greater", "GreaterOrEqual", "Less",
     "LessOrEqual", "And", "Or", "Where")
)  # fmt: skip
ALIKE = frozenset(
    ("Abs", "Cast", "Ceil", "Exp", "Flatten", "Floor", "Identity", "Log", "Neg", "Not", "ReduceMax", "ReduceMean",
     "ReduceMin", "ReduceProd", "ReduceSum", "Reciprocal", "Reshape", "Round", "Size", "Slice", "Sqrt", "Squeeze",
     "Transpose", "Unsqueeze")
)  # fmt: skip
SHAPED = {"ConstantOfShape": 0, "Expand": 1}  # the input that says how large the output will be
FOLDED_TYPES = {
    **ELEMENT_TYPES, onnx.TensorProto.INT16: np.dtype(np.int16), onnx.TensorProto.UINT16: np.dtype(np.uint16),
    onnx.TensorProto.UINT32: np.dtype(np.uint32), onnx.TensorProto.UINT64: np.dtype(np.uint64),
}  # fmt: skip
WIDEST = 8  # bytes of an element, at most


def fold(operator: OnnxOperator, opset: int, arrays: tuple[Array | None, ...], budget: Budget) -> Array:
    """What an operator whose inputs are all constant gives, once the budget has room for it."""
    if operator.code == "Cast" and operator.attributes.get("to") not in FOLDED_TYPES:
        kinds = ", ".join(str(dtype) for dtype in FOLDED_TYPES.values())
        raise ImportModelError(f"it makes constants of ONNX type {operator.attributes.get('to')}; use {kinds}")
    given = [a for a in arrays if a is not None]
    if not given:
        raise ImportModelError("it reads nothing; export the model again")
    budget.check("its result", WIDEST * _elements(operator, given))
    result = _evaluate(operator, opset, arrays)
    if result.dtype not in FOLDED_TYPES.values():
        raise ImportModelError(f"it gives constants of type {result.dtype}, which are not supported")
    if not any(np.may_share_memory(result, a) for a in given):
        budget.take("its result", result.nbytes)
    return result


def _elements(operator: OnnxOperator, given: list[Array]) -> int:
    """How many elements the result has, at most."""
    code = operator.code
    if code in MATCHING:
        return math.prod(together(*(a.shape for a in given)))
    if code in SHAPED:
        asked = given[min(SHAPED[code], len(given) - 1)].ravel()
        if asked.size > LARGEST_RANK or asked.dtype.kind not in "iu" or (asked < 0).any():
            raise ImportModelError(f"it makes a constant of shape {str(asked)[:60]}; export the model again")
        shape = tuple(int(n) for n in asked)
        return math.prod(together(given[0].shape, shape) if code == "Expand" else shape)
    if code == "Concat":
        return sum(a.size for a in given)
    if code == "Gather" and len(given) == 2:
        axis = operator.attributes.get("axis", 0)
        rank = given[0].ndim
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise ImportModelError(f"it gathers along dimension {axis!r:.40} of {list(given[0].shape)}")
        others = (n for i, n in enumerate(given[0].shape) if i != axis % rank)
        return math.prod((*others, given[1].size))
    if code in ALIKE:
        return max(a.size for a in given)
    raise ImportModelError(f"{code} of constants is not folded; simplify the model before exporting it")


def _evaluate(operator: OnnxOperator, opset: int, arrays: tuple[Array | None, ...]) -> Array:
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    attributes: dict[str, Any] = {
        name: onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in operator.attributes.items()
    }
    node = onnx.helper.make_node(operator.code, names, ["y"], **attributes)
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in zip(names, arrays, strict=True)
        if a is not None
    ]
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.UNDEFINED, None)
    graph = onnx.helper.make_graph([node], "constant", inputs, [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        (result,) = ReferenceEvaluator(model).run(None, {n: a for n, a in zip(names, arrays, strict=True) if n})
    except Exception as error:  # the evaluator raises whatever numpy does
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise ImportModelError(f"its constant inputs do not go together: {reason}") from None
    return np.asarray(result)
