"""The metadata of a TFLite model: the mean and deviation of its pixels, and the names of its classes.

The names are lines of a file in a zip archive appended to the model, as TensorFlow's metadata writer packs them.
"""

import io
import struct
import zipfile

import flatbuffers
import numpy as np
from flatbuffers.number_types import Float32Flags, Uint8Flags, UOffsetTFlags
from flatbuffers.table import Table

from smidgen.data.files import CORRUPT_ZIP
from smidgen.errors import InputError
from smidgen.ir.preprocessing import Preprocessing

NAME = "TFLITE_METADATA"  # of the model's entry that refers to it
IDENTIFIER = b"M001"
MOST = 16  # channels, or process units of an input
# Fields of the schema's tables, by their order there.
SUBGRAPHS, INPUTS, PROCESS_UNITS, OPTIONS_KIND, OPTIONS, MEAN, STD = 3, 2, 4, 0, 1, 0, 1
MODEL_NAME, PARSER, OUTPUTS, FILES, FILE_NAME, FILE_KIND = 0, 7, 3, 6, 0, 2
NORMALIZATION = 1  # the kind of process unit that normalizes
AXIS_LABELS, VALUE_LABELS = 2, 3  # the kinds of file that name what an output scores
LABELS = "labels.txt"  # the file that is written
PARSER_VERSION = "1.0.0"  # of the schema that the fields written here are in
LARGEST = 2**22  # bytes of a file of labels
EPOCH = (1980, 1, 1, 0, 0, 0)  # of the archive's only member: the same model gives the same bytes
# Exceptions raised where offsets lead out of the buffer or make no sense.
DAMAGED = (struct.error, TypeError, ValueError, IndexError, OverflowError, InputError)
NO_ARCHIVE = (*CORRUPT_ZIP, KeyError, OSError)


def stated_preprocessing(data: bytes, channels: int) -> Preprocessing | None:
    """Return how pixels 0 … 255 become the first input; None if the metadata does not state it soundly.

    A model runs without its metadata, so damaged metadata is ignored and is not an error.
    """
    try:
        for unit in _parts(data, INPUTS, PROCESS_UNITS):
            if _byte(unit, OPTIONS_KIND) == NORMALIZATION and (offset := _offset(unit, OPTIONS)):
                options = Table(unit.Bytes, unit.Indirect(unit.Pos + offset))
                stated = Preprocessing(_floats(options, MEAN), _floats(options, STD), range=(0.0, 255.0))
                stated.check(channels)
                return stated
    except DAMAGED:
        pass
    return None


def stated_classes(data: bytes, file: bytes) -> tuple[str, ...]:
    """Return the names of the classes that the first output scores; none if the metadata does not name them."""
    try:
        for entry in _parts(data, OUTPUTS, FILES):
            if _byte(entry, FILE_KIND) in (AXIS_LABELS, VALUE_LABELS):
                offset = _offset(entry, FILE_NAME)
                name = bytes(entry.String(entry.Pos + offset)).decode() if offset else ""
                with zipfile.ZipFile(io.BytesIO(file)) as archive:
                    if archive.getinfo(name).file_size > LARGEST:
                        return ()
                    with archive.open(name) as member:
                        text = member.read(LARGEST).decode()
                return tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n"))
    except (*DAMAGED, *NO_ARCHIVE):
        pass
    return ()


def _parts(data: bytes, tensors: int, parts: int) -> list[Table]:
    """Return the tables in a field of the first input or the first output."""
    if data[4:8] != IDENTIFIER:
        return []
    table = Table(data, struct.unpack_from("<I", data)[0])
    for field in (SUBGRAPHS, tensors):
        found = _tables(table, field)
        if not found:
            return []
        table = found[0]
    return _tables(table, parts)


def class_metadata(name: str) -> bytes:
    """Return the metadata that names the file of the first output's classes."""
    b = flatbuffers.Builder(256)
    file_name, model, parser = (b.CreateString(text) for text in (LABELS, name, PARSER_VERSION))
    b.StartObject(FILE_KIND + 1)
    b.PrependUOffsetTRelativeSlot(FILE_NAME, file_name, 0)
    b.PrependInt8Slot(FILE_KIND, AXIS_LABELS, 0)
    tensor = _written(b, {FILES: _vector(b, b.EndObject())})
    subgraph = _written(b, {OUTPUTS: _vector(b, tensor)})
    root = {MODEL_NAME: model, SUBGRAPHS: _vector(b, subgraph), PARSER: parser}
    b.Finish(_written(b, root), IDENTIFIER)
    return bytes(b.Output())


def with_class_file(model: bytes, classes: tuple[str, ...]) -> bytes:
    """Append the archive that holds the classes to a model's file; a name of several lines is put on one."""
    file = io.BytesIO(model)
    with zipfile.ZipFile(file, "a") as archive:
        text = "".join(f"{' '.join(name.splitlines())}\n" for name in classes)
        archive.writestr(zipfile.ZipInfo(LABELS, EPOCH), text.encode("utf-8", "replace"))
    return file.getvalue()


def _written(b: flatbuffers.Builder, fields: dict[int, int]) -> int:
    """Write a table of fields that are already written."""
    b.StartObject(max(fields) + 1)
    for field, offset in fields.items():
        b.PrependUOffsetTRelativeSlot(field, offset, 0)
    return int(b.EndObject())


def _vector(b: flatbuffers.Builder, table: int) -> int:
    """Write a vector of one table."""
    b.StartVector(UOffsetTFlags.bytewidth, 1, UOffsetTFlags.bytewidth)
    b.PrependUOffsetTRelative(table)
    return int(b.EndVector())


def _offset(table: Table, field: int) -> int:
    """Return a field's offset from the table's beginning; 0 if it is left out."""
    return int(table.Offset(4 + 2 * field))


def _byte(table: Table, field: int) -> int:
    return int(table.GetSlot(4 + 2 * field, 0, Uint8Flags))


def _tables(table: Table, field: int) -> list[Table]:
    offset = _offset(table, field)
    if not offset:
        return []
    start, width = table.Vector(offset), UOffsetTFlags.bytewidth
    count = min(table.VectorLen(offset), MOST)
    return [Table(table.Bytes, table.Indirect(start + i * width)) for i in range(count)]


def _floats(table: Table, field: int) -> tuple[float, ...]:
    offset = _offset(table, field)
    numbers = table.GetVectorAsNumpy(Float32Flags, offset) if offset else np.zeros(0, np.float32)
    if not 0 < len(numbers) <= MOST or not np.isfinite(numbers).all():
        raise ValueError(f"{len(numbers)} numbers are not one per channel, or not finite")
    return tuple(numbers.tolist())
