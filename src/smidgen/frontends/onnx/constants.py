"""Arithmetic on constants, done while the file is read: the shapes exporters compute, and their like."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from smidgen.errors import ImportModelError
from smidgen.frontends.channels import broadcast
from smidgen.frontends.onnx.protobuf import OnnxOperator
from smidgen.ir import MAX_BYTES, Array

MATCHING = frozenset(
    ("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Equal", "Greater", "GreaterOrEqual", "Less",
     "LessOrEqual", "And", "Or", "Where")
)  # fmt: skip
SHRINKING = frozenset(
    ("Abs", "Cast", "Ceil", "Concat", "Exp", "Flatten", "Floor", "Gather", "Identity", "Log", "Neg", "Not",
     "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Reciprocal", "Reshape", "Round", "Size",
     "Slice", "Sqrt", "Squeeze", "Transpose", "Unsqueeze")
)  # fmt: skip
SHAPED = {"ConstantOfShape": 0, "Expand": 1}  # the input that says how large the output will be


def fold(operator: OnnxOperator, opset: int, arrays: tuple[Array | None, ...]) -> Array:
    """What an operator whose inputs are all constant gives."""
    given = [a for a in arrays if a is not None]
    if operator.code in MATCHING:
        broadcast(*(a.shape for a in given))
    elif operator.code in SHAPED:
        shape = given[min(SHAPED[operator.code], len(given) - 1)].ravel().tolist()
        if 8 * math.prod(abs(n) for n in shape) > MAX_BYTES:
            raise ImportModelError(f"it would make a constant of more than {MAX_BYTES:,} bytes; use a smaller model")
    elif operator.code not in SHRINKING:
        raise ImportModelError(f"{operator.code} of constants is not folded; simplify the model before exporting it")
    if operator.code == "Gather" and len(given) == 2 and 8 * given[0].size * given[1].size > MAX_BYTES:
        raise ImportModelError(f"it would gather more than {MAX_BYTES:,} bytes; use a smaller model")
    return _evaluate(operator, opset, arrays)


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
