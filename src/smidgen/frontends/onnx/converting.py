"""Files of older opsets brought to one that the reader knows, by ONNX's own version converter."""

from __future__ import annotations

import math

import onnx
from onnx import version_converter

from smidgen.errors import ImportModelError

OLDEST = 13  # of the opsets whose operators have rules
LARGEST_CONVERTED = 64  # elements of a constant that the converter may look at: shapes, scales, axes


def converted(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model with the operators of opset 13; its weights stay where they are, outside of the conversion."""
    small = onnx.ModelProto()
    small.CopyFrom(proto)
    graph = small.graph
    kept = [t for t in graph.initializer if math.prod(t.dims) > LARGEST_CONVERTED or t.external_data]
    declared = {value.name for value in graph.input}
    for tensor in kept:
        graph.initializer.remove(tensor)
        if tensor.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    try:
        result = version_converter.convert_version(small, OLDEST)
    except Exception as error:  # the converter raises an exception of each of its parts
        reason = " ".join(str(error).split())[:160]
        raise ImportModelError(
            f"it uses opset {opset}, which ONNX's converter cannot bring to {OLDEST}: {reason}; export it with opset "
            f"{OLDEST} or later"
        ) from None
    result.graph.initializer.extend(kept)
    return result
