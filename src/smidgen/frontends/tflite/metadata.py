"""What the metadata of a TFLite model says of its first input: the mean and deviation that pixels are normalized by."""

from __future__ import annotations

import math
import struct

from flatbuffers.number_types import Float32Flags, UOffsetTFlags
from flatbuffers.table import Table

from smidgen.errors import InputError
from smidgen.ir.preprocessing import Preprocessing

NAME = "TFLITE_METADATA"  # of the entry in a model that leads to it
IDENTIFIER = b"M001"
MOST = 16  # channels, or process units of an input
# Fields of the schema's tables, by their order there.
SUBGRAPHS, INPUTS, PROCESS_UNITS, OPTIONS_KIND, OPTIONS, MEAN, STD = 3, 2, 4, 0, 1, 0, 1
NORMALIZATION = 1  # the kind of process unit that normalizes
# What reading raises where offsets lead out of the buffer or make no sense.
DAMAGED = (struct.error, TypeError, ValueError, IndexError, OverflowError, InputError)


def stated_preprocessing(data: bytes, channels: int) -> Preprocessing | None:
    """How pixels 0 … 255 become the first input of so many channels; None where the metadata does not say it soundly.

    A model runs without its metadata, so that what cannot be read here says nothing, and is no error.
    """
    if data[4:8] != IDENTIFIER:
        return None
    try:
        root = Table(data, struct.unpack_from("<I", data)[0])
        subgraph = _first(root, SUBGRAPHS)
        tensor = _first(subgraph, INPUTS) if subgraph else None
        for unit in _tables(tensor, PROCESS_UNITS) if tensor else ():
            if _byte(unit, OPTIONS_KIND) == NORMALIZATION and (options := _table(unit, OPTIONS)):
                stated = Preprocessing(_floats(options, MEAN), _floats(options, STD), range=(0.0, 255.0))
                stated.check(channels)
                return stated
    except DAMAGED:
        return None
    return None


def _offset(table: Table, field: int) -> int:
    """Where a field lies from the table's beginning; 0 where it is left out."""
    return int(table.Offset(4 + 2 * field))


def _byte(table: Table, field: int) -> int:
    offset = _offset(table, field)
    return table.Bytes[table.Pos + offset] if offset else 0


def _table(table: Table, field: int) -> Table | None:
    offset = _offset(table, field)
    return Table(table.Bytes, table.Indirect(table.Pos + offset)) if offset else None


def _tables(table: Table, field: int) -> list[Table]:
    offset = _offset(table, field)
    if not offset:
        return []
    start, width = table.Vector(offset), UOffsetTFlags.bytewidth
    count = min(table.VectorLen(offset), MOST)
    return [Table(table.Bytes, table.Indirect(start + i * width)) for i in range(count)]


def _first(table: Table, field: int) -> Table | None:
    return next(iter(_tables(table, field)), None)


def _floats(table: Table, field: int) -> tuple[float, ...]:
    offset = _offset(table, field)
    if not offset:
        raise ValueError("the field is left out")
    count = table.VectorLen(offset)
    if not 0 < count <= MOST:
        raise ValueError(f"{count} numbers cannot be one per channel")
    start, width = table.Vector(offset), Float32Flags.bytewidth
    numbers = tuple(struct.unpack_from("<f", table.Bytes, start + i * width)[0] for i in range(count))
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a number is not finite")
    return numbers
