"""Records → the bytes of a `.tflite` file."""

from __future__ import annotations

from collections.abc import Sequence

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
DATA_ALIGNMENT = 16  # bytes, asked for by the schema
LAST_DEPRECATED_CODE = 127  # the old one-byte field holds this for every later operator


def encode(model: TfliteModel) -> bytes:
    """The file; constants with equal bytes share one buffer."""
    builder = flatbuffers.Builder(1024)
    models = (model, *model.others)
    datas = dict.fromkeys(tensor.data for one in models for tensor in one.tensors if tensor.data is not None)
    if model.metadata:
        datas[model.metadata] = None
    places = {data: index for index, data in enumerate(datas, start=1)}  # buffer 0 is the empty one
    buffers = _tables(builder, [_buffer(builder, data) for data in (None, *datas)])
    codes = list(dict.fromkeys((operator.code, operator.version) for one in models for operator in one.operators))
    operator_codes = _tables(builder, [_code(builder, *code) for code in codes])
    subgraphs = _tables(builder, [_subgraph(builder, one, places, codes) for one in models])
    metadata = _metadata(builder, places[model.metadata]) if model.metadata else None
    description = builder.CreateString("Smidgen")
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, SCHEMA_VERSION)
    tflite.ModelAddOperatorCodes(builder, operator_codes)
    tflite.ModelAddSubgraphs(builder, subgraphs)
    tflite.ModelAddDescription(builder, description)
    tflite.ModelAddBuffers(builder, buffers)
    if metadata is not None:
        tflite.ModelAddMetadata(builder, metadata)
    builder.Finish(tflite.ModelEnd(builder), file_identifier=IDENTIFIER)
    file = bytes(builder.Output())
    return with_class_file(file, model.classes) if model.classes else file


def _metadata(builder: flatbuffers.Builder, buffer: int) -> int:
    """The entry that leads to the buffer of metadata."""
    name = builder.CreateString(METADATA_NAME)
    tflite.MetadataStart(builder)
    tflite.MetadataAddName(builder, name)
    tflite.MetadataAddBuffer(builder, buffer)
    return _tables(builder, [int(tflite.MetadataEnd(builder))])


def _tables(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    """A vector of tables written before."""
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _numbers(builder: flatbuffers.Builder, numbers: Sequence[float], dtype: str = "int32") -> int:
    return int(builder.CreateNumpyVector(np.array(numbers, dtype)))


def _buffer(builder: flatbuffers.Builder, data: bytes | None) -> int:
    if data is not None:
        builder.StartVector(1, len(data), DATA_ALIGNMENT)
        builder.head -= len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        vector = builder.EndVector()
    tflite.BufferStart(builder)
    if data is not None:
        tflite.BufferAddData(builder, vector)
    return int(tflite.BufferEnd(builder))


def _code(builder: flatbuffers.Builder, name: str, version: int) -> int:
    number = OPERATORS[name]
    tflite.OperatorCodeStart(builder)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, min(number, LAST_DEPRECATED_CODE))
    tflite.OperatorCodeAddVersion(builder, version)
    tflite.OperatorCodeAddBuiltinCode(builder, number)
    return int(tflite.OperatorCodeEnd(builder))


def _subgraph(
    builder: flatbuffers.Builder, model: TfliteModel, places: dict[bytes, int], codes: list[tuple[str, int]]
) -> int:
    tensors = _tables(builder, [_tensor(builder, tensor, places) for tensor in model.tensors])
    operators = _tables(builder, [_operator(builder, operator, codes) for operator in model.operators])
    inputs, outputs = _numbers(builder, model.inputs), _numbers(builder, model.outputs)
    name = builder.CreateString(model.name)
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, tensors)
    tflite.SubGraphAddInputs(builder, inputs)
    tflite.SubGraphAddOutputs(builder, outputs)
    tflite.SubGraphAddOperators(builder, operators)
    tflite.SubGraphAddName(builder, name)
    return int(tflite.SubGraphEnd(builder))


def _tensor(builder: flatbuffers.Builder, tensor: TfliteTensor, places: dict[bytes, int]) -> int:
    shape, name = _numbers(builder, tensor.shape), builder.CreateString(tensor.name)
    quantization = _quantization(builder, tensor) if tensor.scales else None
    signature = _numbers(builder, tensor.signature) if tensor.signature else None
    tflite.TensorStart(builder)
    tflite.TensorAddShape(builder, shape)
    tflite.TensorAddType(builder, TENSOR_TYPES[tensor.dtype])
    tflite.TensorAddBuffer(builder, 0 if tensor.data is None else places[tensor.data])
    tflite.TensorAddName(builder, name)
    if quantization is not None:
        tflite.TensorAddQuantization(builder, quantization)
    if signature is not None:
        tflite.TensorAddShapeSignature(builder, signature)
    if tensor.variable:
        tflite.TensorAddIsVariable(builder, True)
    tflite.TensorAddHasRank(builder, True)
    return int(tflite.TensorEnd(builder))


def _quantization(builder: flatbuffers.Builder, tensor: TfliteTensor) -> int:
    scales, zeros = _numbers(builder, tensor.scales, "float32"), _numbers(builder, tensor.zeros, "int64")
    tflite.QuantizationParametersStart(builder)
    tflite.QuantizationParametersAddScale(builder, scales)
    tflite.QuantizationParametersAddZeroPoint(builder, zeros)
    tflite.QuantizationParametersAddQuantizedDimension(builder, tensor.axis)
    return int(tflite.QuantizationParametersEnd(builder))


def _operator(builder: flatbuffers.Builder, operator: TfliteOperator, codes: list[tuple[str, int]]) -> int:
    inputs, outputs = _numbers(builder, operator.inputs), _numbers(builder, operator.outputs)
    intermediates = _numbers(builder, operator.intermediates) if operator.intermediates else None
    options = _options(builder, operator) if operator.code in OPTIONS else None
    tflite.OperatorStart(builder)
    tflite.OperatorAddOpcodeIndex(builder, codes.index((operator.code, operator.version)))
    tflite.OperatorAddInputs(builder, inputs)
    tflite.OperatorAddOutputs(builder, outputs)
    if intermediates is not None:
        tflite.OperatorAddIntermediates(builder, intermediates)
    if options is not None:
        kind = getattr(tflite.BuiltinOptions, OPTIONS[operator.code][0])
        tflite.OperatorAddBuiltinOptionsType(builder, kind)
        tflite.OperatorAddBuiltinOptions(builder, options)
    return int(tflite.OperatorEnd(builder))


def _options(builder: flatbuffers.Builder, operator: TfliteOperator) -> int:
    name, fields = OPTIONS[operator.code]
    values = {field: getattr(operator.options, field) for field in fields}
    values |= {field: builder.CreateString(text) for field, text in values.items() if isinstance(text, str)}
    getattr(tflite, f"{name}Start")(builder)
    for field, value in values.items():
        getattr(tflite, f"{name}Add{camel(field)}")(builder, value)
    return int(getattr(tflite, f"{name}End")(builder))
