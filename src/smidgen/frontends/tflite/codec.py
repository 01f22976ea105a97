"""Bytes of a `.tflite` file → records, with nothing in the file believed before it is checked, and back."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import flatbuffers
import numpy as np
import tflite

from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.tflite import flatbuffer as records
from smidgen.frontends.tflite.flatbuffer import TfliteModel, TfliteOperator, TfliteOptions, TfliteTensor, camel
from smidgen.frontends.tflite.metadata import NAME as METADATA_NAME
from smidgen.frontends.tflite.metadata import stated_classes, with_class_file

MAX_ITEMS = 1 << 14  # tensors or operators in one model: hundreds of times what a microcontroller runs
MAX_NAME = 96  # bytes of a tensor's name that are kept
IDENTIFIER = b"TFL3"
SCHEMA_VERSION = 3
DATA_ALIGNMENT = 16  # bytes, required by the schema
LAST_DEPRECATED_CODE = 127  # the old one-byte field holds this for every later operator
# Exceptions of flatbuffers' accessors where offsets lead out of the file or make no sense.
CORRUPT = (struct.error, TypeError, ValueError, IndexError, OverflowError)

# The bytes and the place of a table without fields: options that are left out have the schema's defaults.
NO_OPTIONS = (b"\x04\x00\x04\x00\x04\x00\x00\x00", 4)

_OPERATOR_NAMES = {code: name for name, code in records.OPERATORS.items()}


def decode(data: bytes) -> TfliteModel:
    """Return the model in these bytes, or raise an ImportModelError that describes the fault."""
    if data[4:8] != IDENTIFIER:
        raise ImportModelError(
            f"this is not a TFLite model: bytes 4 to 8 of its {len(data):,} should be 'TFL3' but are {data[4:8]!r}; "
            "give a .tflite file as the TensorFlow Lite converter writes it"
        )
    try:
        return _Decoder(data).model()
    except CORRUPT as error:
        what = f"the flatbuffer of {len(data):,} bytes is damaged"
        raise ImportModelError(f"{what}: {str(error)[:80]}; copy it again") from None


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self.data = data
        # An honest file's vectors share no bytes; a forged one could make us read the same ones without end.
        self.budget = 4 * len(data)

    def length(self, table: Any, field: str, width: int) -> int:
        """Return the length of a vector of elements `width` bytes wide; the file must be long enough to hold it."""
        length = int(getattr(table, f"{field}Length")())
        self.budget -= length * width
        if self.budget < 0:
            raise ImportModelError(
                f"the flatbuffer is damaged: a {field} vector of {length:,} elements is more than its "
                f"{len(self.data):,} bytes can hold; copy or convert the model again"
            )
        return length

    def items(self, table: Any, field: str) -> list[Any]:
        """Return the tables in a vector."""
        length = self.length(table, field, 4)
        refuse(length > MAX_ITEMS, f"the model has {length:,} {field.lower()}; up to {MAX_ITEMS:,} are supported")
        return [getattr(table, field)(i) for i in range(length)]

    def numbers(self, table: Any, field: str, width: int = 4) -> tuple[Any, ...]:
        """Return a vector of numbers as a tuple of Python's."""
        if self.length(table, field, width) == 0:
            return ()
        return tuple(getattr(table, f"{field}AsNumpy")().tolist())

    def model(self) -> TfliteModel:
        root = tflite.Model.GetRootAs(self.data)
        subgraphs = self.items(root, "Subgraphs")
        refuse(not subgraphs, "the model has 0 subgraphs, one is supported; copy or convert it again")
        codes = [self.code(code) for code in self.items(root, "OperatorCodes")]
        buffers = [self.buffer(i, buffer) for i, buffer in enumerate(self.items(root, "Buffers"))]
        metadata = self.metadata(root, buffers)
        first, *others = (self.subgraph(graph, codes, buffers) for graph in subgraphs)
        classes = stated_classes(metadata, self.data)
        return replace(first, metadata=metadata, classes=classes, others=tuple(others))

    def subgraph(self, graph: Any, codes: list[str], buffers: list[bytes | None]) -> TfliteModel:
        return TfliteModel(
            tuple(self.tensor(tensor, buffers) for tensor in self.items(graph, "Tensors")),
            tuple(self.operator(operator, codes) for operator in self.items(graph, "Operators")),
            self.numbers(graph, "Inputs"), self.numbers(graph, "Outputs"), self.text(graph.Name()) or "model",
        )  # fmt: skip

    def metadata(self, root: Any, buffers: list[bytes | None]) -> bytes:
        """Return the buffer of metadata; empty if the model has none."""
        for entry in self.items(root, "Metadata"):
            if self.text(entry.Name()) == METADATA_NAME and entry.Buffer() < len(buffers):
                return buffers[entry.Buffer()] or b""
        return b""

    def text(self, raw: bytes | None) -> str:
        """Return a printable name: the first of those that the converter joined with ';'."""
        raw = raw or b""
        self.budget -= len(raw)
        text = raw[:MAX_NAME].decode("utf-8", "replace").partition(";")[0]
        return "".join(c if c.isprintable() else "?" for c in text)

    def code(self, code: Any) -> str:
        """Return the operator's name; files older than 2020 hold it only in the deprecated byte."""
        number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        if number == records.OPERATORS["CUSTOM"]:
            return f"{records.CUSTOM} '{self.text(code.CustomCode())}'"
        return _OPERATOR_NAMES.get(number, f"operator code {number}")

    def tensor(self, tensor: Any, buffers: list[bytes | None]) -> TfliteTensor:
        name, index = self.text(tensor.Name()), tensor.Buffer()
        refuse(index >= len(buffers), f"tensor '{name}' refers to buffer {index} of {len(buffers)}; copy it again")
        q = tensor.Quantization()
        return TfliteTensor(
            name, self.numbers(tensor, "Shape"), records.TYPE_NAMES.get(tensor.Type(), f"tensor type {tensor.Type()}"),
            self.numbers(q, "Scale") if q else (), self.numbers(q, "ZeroPoint", 8) if q else (),
            q.QuantizedDimension() if q else 0, buffers[index], self.numbers(tensor, "ShapeSignature"),
            tensor.Sparsity() is None and not tensor.IsVariable(),
        )  # fmt: skip

    def buffer(self, index: int, buffer: Any) -> bytes | None:
        refuse(buffer.Offset() > 1, f"buffer {index} is outside the flatbuffer, as over 2 GB; convert a smaller model")
        if self.length(buffer, "Data", 1) == 0:
            return None
        data: bytes = buffer.DataAsNumpy().tobytes()
        return data

    def operator(self, operator: Any, codes: list[str]) -> TfliteOperator:
        index = operator.OpcodeIndex()
        refuse(index >= len(codes), f"an operator has code {index} of {len(codes)}; copy or convert the model again")
        return TfliteOperator(
            codes[index], self.numbers(operator, "Inputs"), self.numbers(operator, "Outputs"),
            self.options(operator, codes[index]), intermediates=self.numbers(operator, "Intermediates"),
        )  # fmt: skip

    def options(self, operator: Any, code: str) -> TfliteOptions:
        if code not in records.OPTIONS:
            return TfliteOptions()
        name, fields = records.OPTIONS[code]
        union, kind = operator.BuiltinOptions(), operator.BuiltinOptionsType()
        if union is not None and kind != getattr(tflite.BuiltinOptions, name):
            raise ImportModelError(f"a {code} has options of kind {kind}, not {name}; copy or convert the model again")
        table = getattr(tflite, name)()
        table.Init(*(NO_OPTIONS if union is None else (union.Bytes, union.Pos)))
        return TfliteOptions(**{field: self.option(getattr(table, camel(field))()) for field in fields})

    def option(self, value: Any) -> Any:
        """Return an attribute; one that is text may be absent and hold any bytes."""
        if value is not None and not isinstance(value, bytes):
            return value
        self.budget -= len(value or b"")
        return (value or b"").decode("utf-8", "backslashreplace")


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
    numbers = ((records.OPERATORS[name], version) for name, version in codes)
    operator_codes = _tables(b, [
        _table(b, "OperatorCode", deprecated_builtin_code=min(n, LAST_DEPRECATED_CODE), version=v, builtin_code=n)
        for n, v in numbers
    ])  # fmt: skip
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
        b, "Tensor", shape=_numbers(b, tensor.shape), type=records.TENSOR_TYPES[tensor.dtype],
        buffer=0 if tensor.data is None else places[tensor.data], name=b.CreateString(tensor.name),
        quantization=_quantization(b, tensor) if tensor.scales else None,
        shape_signature=_numbers(b, tensor.signature) if tensor.signature else None,
        is_variable=tensor.variable or None, has_rank=True,
    )  # fmt: skip


def _quantization(b: flatbuffers.Builder, tensor: TfliteTensor) -> int:
    scales, zeros = _numbers(b, tensor.scales, "float32"), _numbers(b, tensor.zeros, "int64")
    return _table(b, "QuantizationParameters", scale=scales, zero_point=zeros, quantized_dimension=tensor.axis)


def _operator(b: flatbuffers.Builder, operator: TfliteOperator, codes: list[tuple[str, int]]) -> int:
    inputs, outputs = _numbers(b, operator.inputs), _numbers(b, operator.outputs)
    between = _numbers(b, operator.intermediates) if operator.intermediates else None
    kind = options = None
    if operator.code in records.OPTIONS:
        name, fields = records.OPTIONS[operator.code]
        values = {field: getattr(operator.options, field) for field in fields}
        values |= {field: b.CreateString(text) for field, text in values.items() if isinstance(text, str)}
        kind, options = getattr(tflite.BuiltinOptions, name), _table(b, name, **values)
    return _table(
        b, "Operator", opcode_index=codes.index((operator.code, operator.version)), inputs=inputs, outputs=outputs,
        intermediates=between, builtin_options_type=kind, builtin_options=options,
    )  # fmt: skip
