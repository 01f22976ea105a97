"""MATLAB's .mat files, written by the format's own description: what the tests of data sets need of it."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from smidgen.ir import Array

Value = Array | str | list["Value"] | dict[str, list["Value"]]

CODES = {"int8": (1, 8), "uint8": (2, 9), "int16": (3, 10), "uint16": (4, 11), "int32": (5, 12), "uint32": (6, 13)}
CODES |= {"float32": (7, 7), "float64": (9, 6), "int64": (12, 14), "uint64": (13, 15)}
CELL, STRUCT, CHAR = 1, 2, 4


def mat_file(variables: dict[str, Value], order: str = "<", deflated: bool = False, version: int = 1) -> bytes:
    """A file of these variables: numbers by their arrays, cells as lists, struct arrays as lists by field."""
    mark = struct.pack(f"{order}HH", version << 8, 0x4D49)
    data = b"MATLAB 5.0 MAT-file".ljust(124) + mark
    for name, value in variables.items():
        element = matrix(name, value, order)
        if deflated:
            packed = zlib.compress(element)
            element = struct.pack(f"{order}II", 15, len(packed)) + packed
        data += element
    return data


def matrix(name: str, value: Value, order: str) -> bytes:
    """An array of any class, by its type."""
    if isinstance(value, str):
        kind, shape, inside = CHAR, (1, len(value)), tagged(4, value.encode(f"utf-16-{'lb'[order == '>']}e"), order)
    elif isinstance(value, list):
        kind, shape, inside = CELL, (1, len(value)), b"".join(matrix("", item, order) for item in value)
    elif isinstance(value, dict):
        kind, shape, inside = STRUCT, (1, len(next(iter(value.values())))), fields(value, order)
    else:
        code, kind = CODES[value.dtype.name]
        shape, inside = (1, value.size), tagged(code, value.astype(f"{order}{value.dtype.str[1:]}").tobytes(), order)
    flags = tagged(6, struct.pack(f"{order}II", kind, 0), order)
    dims = tagged(5, struct.pack(f"{order}ii", *shape), order)
    return tagged(14, flags + dims + tagged(1, name.encode(), order) + inside, order)


def fields(value: dict[str, list[Value]], order: str) -> bytes:
    names = b"".join(name.encode().ljust(32, b"\0") for name in value)
    rows = zip(*value.values(), strict=True)
    inside = b"".join(matrix("", item, order) for row in rows for item in row)
    return tagged(5, struct.pack(f"{order}i", 32), order) + tagged(1, names, order) + inside


def tagged(kind: int, data: bytes, order: str) -> bytes:
    """An element; of up to four bytes in the short form, as MATLAB writes them."""
    if 0 < len(data) <= 4:
        return struct.pack(f"{order}I", len(data) << 16 | kind) + data.ljust(4, b"\0")
    return struct.pack(f"{order}II", kind, len(data)) + data + bytes(-len(data) % 8)


def numbers(*values: int, dtype: str = "uint8") -> Array:
    return np.array(values, dtype)
