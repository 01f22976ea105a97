"""JSON and MATLAB files of data sets, read within a budget of memory.

Lists in long JSON files are read one element at a time. A .mat file (versions 5 to 7) is a sequence of elements, each a
type, a size and as many bytes; an element may be deflated. Every size is checked before memory is taken for it.
"""

import json
import math
import re
import struct
import zlib
from collections.abc import Iterator
from itertools import islice

import numpy as np

from smidgen.data.files import Budget
from smidgen.data.samples import DataError
from smidgen.ir import Array

GROWTH = 32  # bytes of memory for a byte of text, at most
WINDOWS = (2**13, 2**17, 2**22)  # characters that one element is sought in: most take a few hundred
Value = Array | str | tuple["Value", ...] | dict[str, tuple["Value", ...]]  # numbers are flat, a struct is by field

MATRIX, COMPRESSED = 14, 15
CELL, STRUCT, CHAR, DOUBLE, UINT64 = 1, 2, 4, 6, 15
COMPLEX = 0x800
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
TEXTS = {1: "latin1", 2: "latin1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
HEADER = 128  # bytes
MAX_DEPTH = 8  # of cells and structs in each other
_AGAIN = "unpack the data set again as it was published"
_SPACE = r"[ \t\n\r]*"
_DECODER = json.JSONDecoder()


def parse_json(data: bytes, where: str, budget: Budget) -> object:
    """Return the contents of a JSON file, which take far more memory as objects than as text."""
    budget.check(f"{where}, parsed,", GROWTH * len(data))
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        raise _refused(where) from None
    return value


def members(data: bytes, where: str, lists: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Yield the elements of these lists at the top of a file, each with its list's name."""
    try:
        text = data.decode()
        at = _past(text, 0, "{")
        while text[at] != "}":
            key, at = _value(text, at)
            at = _past(text, at, ":")
            if key in lists and text[at] == "[":
                at = _past(text, at, "[")
                while text[at] != "]":
                    value, at = _value(text, at)
                    yield str(key), value
                    at = at if text[at] == "]" else _past(text, at, ",")
                at = _past(text, at, "]")
            else:
                _, at = _value(text, at)
            at = at if text[at] == "}" else _past(text, at, ",")
    except (ValueError, IndexError, RecursionError):
        raise _refused(where, f", or has an entry of over {WINDOWS[-1]:,} characters") from None


def _refused(where: str, but: str = "") -> DataError:
    return DataError(f"{where} is not whole JSON{but}; {_AGAIN}")


def _past(text: str, at: int, character: str) -> int:
    """Return the place behind this character, which must come next, and the space around it."""
    found = re.compile(rf"{_SPACE}{re.escape(character)}{_SPACE}").match(text, at)
    if found is None:
        raise ValueError(f"no {character}")
    return found.end()


def _value(text: str, at: int) -> tuple[object, int]:
    """Return the value at a place and the place behind it; one longer than the widest window is refused unread."""
    for window in WINDOWS:
        try:
            value, end = _DECODER.raw_decode(text[at : at + window])
        except ValueError:
            if window == WINDOWS[-1] or at + window >= len(text):
                raise
            continue
        if end < window:  # else it may be a number that goes on
            return value, _past(text, at + end, "")
    raise ValueError("a value without end")


def read_mat(data: bytes, where: str, budget: Budget, names: tuple[str, ...]) -> dict[str, Value]:
    """Return the variables of these names from a .mat file."""
    if data[124:HEADER] in (b"\0\2IM", b"\2\0MI"):
        raise DataError(f"{where} is a .mat file of version 7.3; save it again in MATLAB with -v7")
    order = {b"\0\1IM": "<", b"\1\0MI": ">"}.get(data[124:HEADER])
    if order is None:
        raise DataError(f"{where} is not a .mat file of version 5 to 7; {_AGAIN}")
    reader, found = _Reader(where, order, budget), {}
    for kind, content in reader.elements(memoryview(data)[HEADER:]):
        if kind == COMPRESSED:
            kind, content = reader.inflated(content)
        _, named = next(islice(reader.elements(content), 2, None), (0, b"")) if kind == MATRIX else (0, b"")
        if (name := bytes(named).decode("latin1")) in names:
            found[name] = reader.matrix(content, 0)
    if missing := [name for name in names if name not in found]:
        raise DataError(f"{where} holds no variable {missing[0]}; {_AGAIN}")
    return found


class _Reader:
    """A reader of the elements of one .mat file, in its byte order."""

    def __init__(self, where: str, order: str, budget: Budget) -> None:
        self.where, self.order, self.budget = where, order, budget

    def broken(self, why: str) -> DataError:
        return DataError(f"{self.where} cannot be read: {why}; {_AGAIN}")

    def elements(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield the type and the bytes of each element."""
        at = 0
        while at < len(data):
            if at + 8 > len(data):
                raise self.broken("it breaks off")
            kind, size = struct.unpack_from(f"{self.order}II", data, at)
            small = kind >> 16  # type and size share four bytes, the content has the other four
            kind, size, start = (kind & 0xFFFF, small, at + 4) if small else (kind, size, at + 8)
            if small > 4:
                raise self.broken(f"it holds a small element of {small} bytes")
            if start + size > len(data):
                raise self.broken(f"an element of {size:,} bytes breaks off")
            yield kind, data[start : start + size]
            at = at + 8 if small else start + size + (-size % 8 if kind != COMPRESSED else 0)

    def inflated(self, data: memoryview) -> tuple[int, memoryview]:
        """Return the one element in a deflated one."""
        unpacker = zlib.decompressobj()
        try:
            head = unpacker.decompress(data, 8)
            if len(head) < 8:
                raise self.broken("a deflated element breaks off")
            kind, size = struct.unpack(f"{self.order}II", head)
            self.budget.take(f"{self.where}, unpacked,", size)
            content = unpacker.decompress(unpacker.unconsumed_tail, size) if size else b""
            more = unpacker.decompress(unpacker.unconsumed_tail, 1)
        except zlib.error as error:
            raise self.broken(f"a deflated element is damaged ({error})") from None
        if len(content) != size or more or not unpacker.eof:
            raise self.broken(f"a deflated element does not hold the {size:,} bytes it declares")
        return kind, memoryview(content)

    def matrix(self, data: memoryview, depth: int) -> Value:
        """Return the contents of an array of any class."""
        if not len(data):
            return np.zeros(0)
        if depth > MAX_DEPTH:
            raise self.broken(f"arrays lie in each other more than {MAX_DEPTH} deep")
        parts = self.elements(data)
        flags, dims = self.numbers(*self.next(parts)), self.numbers(*self.next(parts))
        self.next(parts)  # the name
        if not len(flags) or (dims < 0).any() or len(dims) > 8:
            raise self.broken("an array has no valid size")
        kind, count = int(flags[0]) & 0xFF, math.prod(int(d) for d in dims)
        if int(flags[0]) & COMPLEX:
            raise self.broken("it holds complex numbers")
        if kind == CELL:
            return self.children(parts, count, len(data), depth)
        if kind == STRUCT:
            return self.struct(parts, count, len(data), depth)
        if kind == CHAR:
            if count > max(dims[1:], default=0):
                raise self.broken("it holds text of several lines")
            return self.text(*self.next(parts)) if count else ""
        if not DOUBLE <= kind <= UINT64:
            raise self.broken(
                f"it holds an array of MATLAB's class {kind}; only numbers, text, cells and structs are read"
            )
        values = self.numbers(*self.next(parts))
        if len(values) != count:
            raise self.broken(f"an array holds {len(values):,} of {count:,} numbers")
        return values

    def next(self, parts: Iterator[tuple[int, memoryview]]) -> tuple[int, memoryview]:
        found = next(parts, None)
        if found is None:
            raise self.broken("an array breaks off")
        return found

    def children(self, parts: Iterator[tuple[int, memoryview]], count: int, size: int, depth: int) -> tuple[Value, ...]:
        """Return `count` arrays, each of which takes eight bytes or more."""
        if 8 * count > size:
            raise self.broken(f"{count:,} arrays do not fit in {size:,} bytes")
        found = []
        for _ in range(count):
            kind, content = self.next(parts)
            if kind != MATRIX:
                raise self.broken(f"an element of type {kind} stands where an array belongs")
            found.append(self.matrix(content, depth + 1))
        return tuple(found)

    def struct(
        self, parts: Iterator[tuple[int, memoryview]], count: int, size: int, depth: int
    ) -> dict[str, tuple[Value, ...]]:
        """Return a struct array by its fields; in the file the fields of one element are adjacent."""
        lengths, (_, names) = self.numbers(*self.next(parts)), self.next(parts)
        length = int(lengths[0]) if len(lengths) else 0
        if length < 1 or len(names) % length:
            raise self.broken("the fields of a struct have no names")
        fields = [
            bytes(names[at : at + length]).partition(b"\0")[0].decode("latin1") for at in range(0, len(names), length)
        ]
        values = self.children(parts, count * len(fields), size, depth)
        return {field: values[place :: len(fields)] for place, field in enumerate(fields)}

    def numbers(self, kind: int, data: memoryview) -> Array:
        """Return numbers as stored, which may be narrower than the array's class."""
        code = NUMBERS.get(kind)
        if code is None or len(data) % int(code[1]):
            raise self.broken(f"{len(data):,} bytes of type {kind} are no numbers")
        return np.frombuffer(data, f"{self.order}{code}")

    def text(self, kind: int, data: memoryview) -> str:
        code = TEXTS.get(kind)
        if code is None:
            raise self.broken(f"{len(data):,} bytes of type {kind} are no text")
        wide = {"<": "-le", ">": "-be"}[self.order] if kind in (4, 17, 18) else ""
        try:
            return bytes(data).decode(code + wide)
        except UnicodeDecodeError:
            raise self.broken("it holds text that cannot be decoded") from None
