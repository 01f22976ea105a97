"""Reader of HDF5 files as Keras writes them: groups, attributes that are text, and arrays of floats.

That is version 0 of the format, h5py's default: symbol tables, object headers of version 1, contiguous arrays. Links,
filters and chunks are refused. The HDF5 library never sees the file: it was not made for untrusted files.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from smidgen.data.files import Budget
from smidgen.errors import ImportModelError, refuse
from smidgen.ir import Array

SIGNATURE = b"\x89HDF\r\n\x1a\n"
UNDEFINED = 0xFFFF_FFFF_FFFF_FFFF  # the address of a missing object
ROOT = 64  # where the address of the root's header is
MAX_OBJECTS = 1 << 16  # groups, arrays and blocks of one file
MAX_DEPTH = 24
MAX_RANK = 8
DATASPACE, DATATYPE, LAYOUT, FILTERS, ATTRIBUTE, CONTINUED, TABLE = 0x01, 0x03, 0x08, 0x0B, 0x0C, 0x10, 0x11
LINK, LINKS = 0x06, 0x02  # of newer versions
FLOAT, TEXT, VARIABLE = 1, 3, 9  # classes of elements
COMPACT, CONTIGUOUS = 0, 1
# Bits of exponent and mantissa, by bytes.
FLOATS = {2: (5, 10), 4: (8, 23), 8: (11, 52)}


@dataclass(frozen=True)
class Dataset:
    """An array that is still in the file."""

    shape: tuple[int, ...]
    dtype: str
    at: int


@dataclass
class Hdf5Group:
    """The members of a group by name, and its attributes that are text or lists of it."""

    members: dict[str, Hdf5Group | Dataset] = field(default_factory=dict)
    attributes: dict[str, str | tuple[str, ...]] = field(default_factory=dict)

    def group(self, *names: str) -> Hdf5Group | None:
        """Return a group further down; None if there is none."""
        found: Hdf5Group | Dataset | None = self
        for name in names:
            found = found.members.get(name) if isinstance(found, Hdf5Group) else None
        return found if isinstance(found, Hdf5Group) else None


def read_hdf5(data: bytes, where: str) -> Hdf5Group:
    """Return the root group of a file, or raise an ImportModelError that describes the fault."""
    refuse(data[:8] != SIGNATURE, f"{where} is not an HDF5 file: it begins with {data[:8]!r}; save the model again")
    try:
        return _Hdf5Reader(data, where).root()
    except (struct.error, IndexError, ValueError) as error:
        raise ImportModelError(f"{where} is damaged: {str(error)[:80]}; save the model again") from None


def array_of(dataset: Dataset, data: bytes, what: str, budget: Budget) -> Array:
    """Return a dataset's numbers as float32."""
    count = math.prod(dataset.shape)
    budget.take(what, 4 * count)
    found = np.frombuffer(data, dataset.dtype, count, dataset.at)
    return found.reshape(dataset.shape).astype(np.float32)


class _Hdf5Reader:
    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where, self.objects = data, where, 0
        # An honest file's blocks share no bytes; a forged one could make us read the same ones without end.
        self.left = 8 * len(data)

    def error(self, what: str) -> ImportModelError:
        return ImportModelError(f"{self.where} {what}; save the model with keras' own model.save()")

    def refuse(self, wrong: object, what: str) -> None:
        if wrong:
            raise self.error(what)

    def bytes_at(self, at: int, size: int) -> bytes:
        """Return bytes that the file must have; all are counted, so that a forged file cannot lead in circles."""
        self.left -= size
        self.refuse(self.left < 0, "is damaged: its blocks overlap")
        self.check(at, size)
        return self.data[at : at + size]

    def check(self, at: int, size: int) -> None:
        count = len(self.data)
        self.refuse(not 0 <= at <= at + size <= count, f"is damaged: {size:,} bytes at {at:,} are beyond its {count:,}")

    def numbers(self, at: int, form: str) -> tuple[int, ...]:
        return struct.unpack("<" + form, self.bytes_at(at, struct.calcsize("<" + form)))

    def root(self) -> Hdf5Group:
        version, offsets, lengths, (base,) = self.data[8], self.data[13], self.data[14], self.numbers(24, "Q")
        if version != 0 or (offsets, lengths, base) != (8, 8, 0):
            raise self.error(f"is of version {version} of HDF5, or of another shape than 0 has")
        found = self.object(self.numbers(ROOT, "Q")[0], 0)
        if not isinstance(found, Hdf5Group):
            raise self.error("has no root")
        return found

    def object(self, at: int, depth: int) -> Hdf5Group | Dataset | None:
        """Return a group or an array; None for an array without floats, which cannot be weights."""
        self.objects += 1
        if depth > MAX_DEPTH or self.objects > MAX_OBJECTS:
            raise self.error(f"holds {self.objects:,} objects, or some {depth} deep")
        messages = list(self.messages(at))
        kinds = dict(messages)
        if LINK in kinds or LINKS in kinds or FILTERS in kinds:
            raise self.error("has groups of a newer version of HDF5, or compressed arrays")
        if LAYOUT in kinds:
            return self.dataset(kinds)
        group = Hdf5Group({}, dict(a for kind, body in messages if kind == ATTRIBUTE for a in self.attribute(body)))
        if TABLE in kinds:
            tree, heap = struct.unpack_from("<QQ", kinds[TABLE])
            for name, where in self.entries(tree, self.heap(heap), depth):
                found = self.object(where, depth + 1)
                if found is not None:
                    group.members[name] = found
        return group

    def messages(self, at: int) -> Iterator[tuple[int, bytes]]:
        """Yield the messages of an object's header, in its first block and those that continue it."""
        version, _, count, _, size = self.numbers(at, "BBHII")
        self.refuse(version != 1, f"has an object of version {version}")
        blocks = [(at + 16, size)]
        while blocks:
            place, left = blocks.pop(0)
            while left >= 8 and count:
                kind, length, _ = self.numbers(place, "HHI")
                body = self.bytes_at(place + 8, length)
                place, left, count = place + 8 + length, left - 8 - length, count - 1
                if kind == CONTINUED:
                    blocks.append(struct.unpack_from("<QQ", body))
                else:
                    yield kind, body

    def heap(self, at: int) -> bytes:
        """Return the block of names that a group keeps."""
        self.refuse(self.bytes_at(at, 4) != b"HEAP", f"is damaged: there are no names at {at:,}")
        size, _, place = self.numbers(at + 8, "QQQ")
        return self.bytes_at(place, size)

    def entries(self, at: int, names: bytes, depth: int) -> Iterator[tuple[str, int]]:
        """Yield the names of a group's members and the addresses of their headers."""
        self.refuse(depth > MAX_DEPTH, f"is damaged: tables are nested {depth} deep")
        kind, (_, _, count) = self.bytes_at(at, 4), self.numbers(at + 4, "BBH")
        self.refuse(kind not in (b"TREE", b"SNOD"), f"is damaged: there is no table of members at {at:,}")
        for index in range(count):
            if kind == b"TREE":
                yield from self.entries(self.numbers(at + 32 + 16 * index, "Q")[0], names, depth + 1)
                continue
            name, header, cached = self.numbers(at + 8 + 40 * index, "QQI")
            self.refuse(cached == 2 or header == UNDEFINED, "holds links in place of groups")
            yield names[name : names.index(b"\0", name)].decode(), header

    def dataset(self, kinds: Mapping[int, bytes]) -> Dataset | None:
        layout = kinds[LAYOUT]
        shape, element = _shape(kinds.get(DATASPACE, b"")), kinds.get(DATATYPE, b"")
        dtype = _float(element)
        if shape is None or dtype is None:
            return None
        size = math.prod(shape) * np.dtype(dtype).itemsize
        self.refuse(layout[:2] != bytes((3, CONTIGUOUS)), "keeps an array in chunks, or in a way of another version")
        at, held = struct.unpack_from("<QQ", layout, 2)
        wrong = held != size or at == UNDEFINED
        self.refuse(size and wrong, f"is damaged: an array of {list(shape)} has {held:,} bytes")
        self.check(at if size else 0, size)
        return Dataset(shape, dtype, at if size else 0)

    def attribute(self, body: bytes) -> Iterator[tuple[str, str | tuple[str, ...]]]:
        """Yield an attribute if it is text or a list of it."""
        version, _, name_size, type_size, space_size = struct.unpack_from("<BBHHH", body)
        self.refuse(version not in (1, 2, 3), f"has an attribute of version {version}")
        step, at = 8 if version == 1 else 1, 9 if version == 3 else 8
        ends = []
        for size in (name_size, type_size, space_size):
            ends.append((at, at + size))
            at += -(-size // step) * step
        name, element, space = (body[begin:end] for begin, end in ends)
        shape, data = _shape(space), body[at:]
        if shape is None or not element:
            return
        count, kind, (size,) = math.prod(shape), element[0] & 15, struct.unpack_from("<I", element, 4)
        pointers = kind == VARIABLE and size == 16 and element[1] & 15 == 1
        if count * size > len(data) or not (pointers or (kind == TEXT and size > 0)):
            return
        places = range(0, count * size, size)
        found = tuple(self.variable(data, at) if pointers else data[at : at + size] for at in places)
        texts = tuple(text.rstrip(b"\0").decode() for text in found)
        yield name.rstrip(b"\0").decode(), texts if shape else texts[0]

    def variable(self, data: bytes, at: int) -> bytes:
        """Return a text of variable length, from the global heap."""
        length, place, index = struct.unpack_from("<IQI", data, at)
        if length == 0:
            return b""
        self.refuse(self.bytes_at(place, 4) != b"GCOL", f"is damaged: there is no text at {place:,}")
        (end,), at = self.numbers(place + 8, "Q"), place + 16
        while at + 16 <= place + end:
            number, _, _, size = self.numbers(at, "HHIQ")
            if number == index:
                return self.bytes_at(at + 16, min(length, size))
            at += 16 + -(-size // 8) * 8
        raise self.error(f"is damaged: text {index} is not where it should be")


def _shape(body: bytes) -> tuple[int, ...] | None:
    """Return the sizes of an array; None if the file leaves them open or another version describes them."""
    if len(body) < 4 or body[0] not in (1, 2) or body[1] > MAX_RANK:
        return None
    begin = 8 if body[0] == 1 else 4
    return struct.unpack_from(f"<{body[1]}Q", body, begin)


def _float(body: bytes) -> str | None:
    """Return numpy's name of a float type; None for anything but little-endian IEEE 754."""
    if len(body) < 20 or body[0] & 15 != FLOAT or body[1] & 0x41:
        return None
    (size,) = struct.unpack_from("<I", body, 4)
    exponent, mantissa = body[13], body[15]
    return f"<f{size}" if FLOATS.get(size) == (exponent, mantissa) else None
