"""Records → the bytes of a `.tflite` file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import flatbuffers
import numpy as np
import tflite

from smidgen.frontends.tflite.decode import IDENTIFIER
from smidgen.frontends.tflite.flatbuffer import (
    OPERATORS,
    OPTIONS,
    TENSOR_TYPES,
    TfliteModel,
    TfliteOperator,
    TfliteTensor,
    camel,
)
from smidgen.frontends.tflite.metadata import NAME as METADATA_NAME
from smidgen.frontends.tflite.metadata import with_class_file

SCHEMA_VERSION = 3
DATA_ALIGNMENT = 16  # bytes, required by the schema
LAST_DEPRECATED_CODE = 127  # the old one-byte field holds this for every later operator


def encode(model: TfliteModel) -> bytes:
    """Return the file's bytes; constants with equal bytes share one buffer."""
    b = flatbuffers.Builder(1024)
    models = (model, *model.others)
    datas = dict.fromkeys(tensor.data for one in models for tensor in one.tensors if tensor.data is not None)
    if model.metadata:
        datas[model.metadata] = None
    places = {data: index for index, data in enumerate(datas, start=1)}  # buffer 0 is empty
    buffers = _tables(b, [_buffer(b, data) for data in (None, *datas)])
    codes = list(dict.fromkeys((operator.code, operator.version) for one in models for operator in one.operators))
    operator_codes = _tables(b, [_code(b, *code) for code in codes])
    subgraphs = _tables(b, [_subgraph(b, one, places, codes) for one in models])
    metadata = None
    if model.metadata:
        name = b.CreateString(METADATA_NAME)
        metadata = _tables(b, [_table(b, "Metadata", name=name, buffer=places[model.metadata])])
    root = _table(
        b, "Model", version=SCHEMA_VERSION, operator_codes=operator_codes, subgraphs=subgraphs,
        description=b.CreateString("Smidgen"), buffers=buffers, metadata=metadata,
    )  # fmt: skip
    b.Finish(root, file_identifier=IDENTIFIER)
    file = bytes(b.Output())
    return with_class_file(file, model.classes) if model.classes else file


def _table(b: flatbuffers.Builder, kind: str, /, **fields: object) -> int:
    """Write a table of the schema with these fields, in this order; a field that is None is left out."""
    getattr(tflite, f"{kind}Start")(b)
    for field, value in fields.items():
        if value is not None:
            getattr(tflite, f"{kind}Add{camel(field)}")(b, value)
    return int(getattr(tflite, f"{kind}End")(b))


def _tables(b: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    """Write a vector of tables that are already written."""
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return int(b.EndVector())


def _numbers(b: flatbuffers.Builder, numbers: Sequence[float], dtype: str = "int32") -> int:
    return int(b.CreateNumpyVector(np.array(numbers, dtype)))


def _buffer(b: flatbuffers.Builder, data: bytes | None) -> int:
    if data is None:
        return _table(b, "Buffer")
    b.StartVector(1, len(data), DATA_ALIGNMENT)
    b.head -= len(data)
    b.Bytes[b.head : b.head + len(data)] = data
    return _table(b, "Buffer", data=b.EndVector())


def _code(b: flatbuffers.Builder, name: str, version: int) -> int:
    number = OPERATORS[name]
    deprecated = min(number, LAST_DEPRECATED_CODE)
    return _table(b, "OperatorCode", deprecated_builtin_code=deprecated, version=version, builtin_code=number)


def _subgraph(
    b: flatbuffers.Builder, model: TfliteModel, places: Mapping[bytes, int], codes: list[tuple[str, int]]
) -> int:
    tensors = _tables(b, [_tensor(b, tensor, places) for tensor in model.tensors])
    operators = _tables(b, [_operator(b, operator, codes) for operator in model.operators])
    return _table(
        b, "SubGraph", tensors=tensors, inputs=_numbers(b, model.inputs), outputs=_numbers(b, model.outputs),
        operators=operators, name=b.CreateString(model.name),
    )  # fmt: skip


def _tensor(b: flatbuffers.Builder, tensor: TfliteTensor, places: Mapping[bytes, int]) -> int:
    return _table(
        b,
        "Tensor",
        shape=_numbers(b, tensor.shape),
        type=TENSOR_TYPES[tensor.dtype],
        buffer=0 if tensor.data is None else places[tensor.data],
        name=b.CreateString(tensor.name),
        quantization=_quantization(b, tensor) if tensor.scales else None,
        shape_signature=_numbers(b, tensor.signature) if tensor.signature else None,
        is_variable=tensor.variable or None,
        has_rank=True,
    )


def _quantization(b: flatbuffers.Builder, tensor: TfliteTensor) -> int:
    scales, zeros = _numbers(b, tensor.scales, "float32"), _numbers(b, tensor.zeros, "int64")
    return _table(b, "QuantizationParameters", scale=scales, zero_point=zeros, quantized_dimension=tensor.axis)


def _operator(b: flatbuffers.Builder, operator: TfliteOperator, codes: list[tuple[str, int]]) -> int:
    named = OPTIONS.get(operator.code)
    return _table(
        b,
        "Operator",
        opcode_index=codes.index((operator.code, operator.version)),
        inputs=_numbers(b, operator.inputs),
        outputs=_numbers(b, operator.outputs),
        intermediates=_numbers(b, operator.intermediates) if operator.intermediates else None,
        builtin_options_type=getattr(tflite.BuiltinOptions, named[0]) if named else None,
        builtin_options=_options(b, operator) if named else None,
    )


def _options(b: flatbuffers.Builder, operator: TfliteOperator) -> int:
    name, fields = OPTIONS[operator.code]
    values = {field: getattr(operator.options, field) for field in fields}
    values |= {field: b.CreateString(text) for field, text in values.items() if isinstance(text, str)}
    return _table(b, name, **values)
