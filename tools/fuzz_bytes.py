"""Mutators that know containers and wire formats: what they change lies inside an archive, a header or a field.

A mutator takes bytes and a generator and gives other bytes; where it does not find the structure it knows, it changes
raw bytes.
"""

from __future__ import annotations

import io
import json
import pickletools
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from random import Random
from typing import Any

Mutator = Callable[[bytes, Random], bytes]
INTEGERS = (
    0, 1, 2, 3, 4, 7, 16, 127, 128, 255, 256, 4096, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63,
    2**64 - 1, -1, -2, -128, -(2**31), -(2**63),
)  # fmt: skip
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-30, 3.4e38, 1e300, float("inf"), float("-inf"), float("nan"))
WORDS = ("", "x", "..", "../x", "/", "a\0b", "é\u2028", "\x1b[2J", "x" * 300, "\ud800", "-1", "None", "None\nNone")
METHODS = (zipfile.ZIP_STORED,) * 4 + (zipfile.ZIP_DEFLATED,) * 3 + (zipfile.ZIP_BZIP2,)
LARGEST_INSIDE = 2**20  # bytes of an archive's members that a mutator unfolds
VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5  # wire types of protobuf
DEEPEST = 8  # messages within messages


def raw(data: bytes, rng: Random) -> bytes:
    """Cut, flip, splice, overwrite or repeat a piece, or write a number of some width."""
    if not data:
        return rng.randbytes(rng.randrange(1, 9))
    at, other = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    length = rng.randrange(1, 16)
    match rng.randrange(9):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        case 2:
            return data[:at] + rng.randbytes(length) + data[at + length :]
        case 3:
            return data[:at] + data[other : other + length] + data[at:]
        case 4:
            return data[:at] + data[other:]
        case 5:
            return data[:at] + bytes([rng.choice((0x00, 0x7F, 0x80, 0xFF))]) * length + data[at + length :]
        case 6:
            return data[:at] + data[at : at + length] * rng.randrange(2, 9) + data[at + length :]
        case _:
            return _number(data, at, rng)


def _number(data: bytes, at: int, rng: Random) -> bytes:
    """An integer of 1, 2, 4 or 8 bytes at its own alignment: a telling one, or one near what stands there."""
    width = rng.choice((1, 2, 4, 4, 8))
    at -= at % width
    old = int.from_bytes(data[at : at + width], "little")
    new = rng.choice((old + 1, old - 1, old + width, old - width, old * 2, rng.choice(INTEGERS)))
    return data[:at] + (new % (1 << 8 * width)).to_bytes(width, "little") + data[at + width :]


def tree(root: Any, rng: Random) -> Any:
    """What JSON describes with one entry changed, gone, twice, or replaced by another of the same description."""
    places: list[tuple[Any, Any]] = []
    waiting = [root]
    while waiting and len(places) < 10_000:
        held = waiting.pop()
        items = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
        for key, value in items:
            places.append((held, key))
            waiting.append(value)
    if not places:
        return rng.choice((None, 1, [], {}, "x"))
    held, key = rng.choice(places)
    match rng.randrange(6):
        case 0:
            del held[key]
        case 1:
            donor, place = rng.choice(places)
            held[key] = json.loads(json.dumps(donor[place]))
        case 2 if isinstance(held, list):
            held.insert(key, json.loads(json.dumps(held[key])))
        case 2:
            held[rng.choice((*WORDS, *(str(other) for _, other in places[:50])))] = held[key]
        case 3 if isinstance(held[key], int | float):
            held[key] = held[key] + rng.choice((-1, 1))
        case _:
            held[key] = rng.choice((None, True, *INTEGERS, 2**70, *REALS, *WORDS, [], {}, [[]], [0, 0], {"x": 0}))
    return root


def json_text(data: bytes, rng: Random) -> bytes:
    """JSON with an entry changed."""
    try:
        root = json.loads(data)
        return json.dumps(tree(root, rng)).encode()
    except (ValueError, RecursionError):
        return raw(data, rng)


@lru_cache(128)  # fuzzers return to the same files
def members_of(data: bytes) -> tuple[tuple[str, bytes], ...]:
    """An archive's members, or nothing where it is no sound and small archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > LARGEST_INSIDE:
                return ()
            return tuple((member.filename, archive.read(member)) for member in archive.infolist())
    except Exception:  # whatever a damaged archive makes zipfile raise
        return ()


def packed(members: Sequence[tuple[str, bytes]], kind: int = zipfile.ZIP_STORED) -> bytes:
    """An archive with right sums and sizes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that stand there twice are meant
        for name, held in members:
            archive.writestr(zipfile.ZipInfo(name), held, kind)
    return file.getvalue()


def in_archive(mutator_of: Callable[[str], Mutator], names: Sequence[str] = ()) -> Mutator:
    """Members of a zip archive are changed by the mutator that their names ask for, or exchanged, renamed, left out."""

    def mutate(data: bytes, rng: Random) -> bytes:
        members = list(members_of(data))
        if not members or not rng.randrange(10):
            return raw(data, rng)
        at, other = rng.randrange(len(members)), rng.randrange(len(members))
        name, held = members[at]
        match rng.randrange(12):
            case 0:
                del members[at]
            case 1:
                members[at] = name, members[other][1]
            case 2:
                members[at] = rng.choice((*WORDS, *names, *(name for name, _ in members))), held
            case 3:
                members.insert(other, (rng.choice((*names, name)), held))
            case _:
                members[at] = name, mutator_of(name)(held, rng)
        try:
            whole = packed(members, rng.choice(METHODS))
        except (ValueError, UnicodeError, struct.error):
            return raw(data, rng)
        return _forged(whole, rng) if not rng.randrange(12) else whole

    return mutate


def _forged(data: bytes, rng: Random) -> bytes:
    """An archive with a number of its directory changed: a size, a sum, a method, an offset."""
    at = data.rfind(b"PK\x01\x02")
    if at < 0:
        return raw(data, rng)
    place = at + rng.choice((6, 8, 10, 16, 20, 24, 28, 30, 32, 42))
    return data[:place] + rng.choice(INTEGERS).__mod__(2**32).to_bytes(4, "little") + data[place + 4 :]


HEADER = re.compile(rb"'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([^)]*)\)")
DESCRIPTIONS = (
    "|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8", "<f2", ">i4", "|O", "<U1", "<U9",
    "<c8", "|S3", "<M8", "|V4", "<U99999999", "<i16", "",
)  # fmt: skip
SHAPES = (
    "", "0,", "1,", "3,", "-1,", "2, 2", "1, 1, 1, 1", "10, 4, 4, 3", "0, 9", "9999999999,", "65536, 65536", "1, " * 70,
)  # fmt: skip


def npy(data: bytes, rng: Random) -> bytes:
    """A .npy file with another type, shape or order, whose data may be cut to fit; or with JSON inside it changed."""
    found = HEADER.search(data[:512])
    if found is None or not rng.randrange(6):
        return raw(data, rng)
    start = 10 + int.from_bytes(data[8:10], "little")
    kind, order, shape = (part.decode("latin1") for part in found.groups())
    body = data[start:]
    if kind.startswith("<U") and rng.randrange(8):
        text = json_text(body.decode("utf-32-le", "replace").encode("utf-8", "replace"), rng).decode("utf-8", "replace")
        return npy_file(f"<U{len(text)}", order, shape, text.encode("utf-32-le", "replace"))
    match rng.randrange(5):
        case 0:
            kind = rng.choice(DESCRIPTIONS)
        case 1:
            shape = rng.choice((*SHAPES, *(f"{shape}, {n}" for n in (0, 1, 3)), shape.partition(",")[2].strip()))
        case 2:
            order = "True" if order == "False" else "False"
        case 3:
            body = raw(body, rng)
        case _:
            return npy_file(kind, order, shape, _number(body, rng.randrange(len(body) or 1), rng))
    if rng.randrange(2):
        body = resized(body, kind, shape)
    return npy_file(kind, order, shape, body)


def npy_file(kind: str, order: str, shape: str, body: bytes) -> bytes:
    header = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': ({shape}), }}\n".encode("latin1", "replace")
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


def resized(body: bytes, kind: str, shape: str) -> bytes:
    """As many bytes as a type and shape ask for, where these are few."""
    size = int(re.sub(r"\D", "", kind[1:]) or 0) * (4 if "U" in kind else 1)
    for dimension in shape.split(","):
        size *= int(dimension) if dimension.strip().isdecimal() else 1
    return (body * (size // max(len(body), 1) + 1))[:size] if 0 < size < 2**16 else body


def sound(data: bytes, rng: Random) -> bytes:
    """A .wav file with a number of its header changed; or raw bytes."""
    fields = ((4, "<I"), (16, "<I"), (20, "<H"), (22, "<H"), (24, "<I"), (32, "<H"), (34, "<H"), (40, "<I"))
    at, kind = rng.choice(fields)
    if len(data) < 44 or rng.randrange(3) == 0:
        return raw(data, rng)
    usual = (1, 2, 3, 8, 16, 24, 32, 64, 8_000, 11_025, 22_050, 44_100, 48_000, 192_000, 0xFFFE, *INTEGERS)
    number = rng.choice(usual) % 2 ** (8 * struct.calcsize(kind))
    return data[:at] + struct.pack(kind, number) + data[at + struct.calcsize(kind) :]


CELLS = (
    b"", b" ", b"0", b"-1.5", b"1e39", b"nan", b"1_0", b"walk", b'"', b'""', b'"a,b"', b"label", b"y", b"none", b"time",
    b"\xff", b"\xef\xbb\xbf", b"9" * 400, b"\x00", b"\r", b"3.0", b"12",
)  # fmt: skip


def table(data: bytes, rng: Random) -> bytes:
    """Lines of cells with a cell changed, dropped or added, or a line dropped, repeated or moved; or raw bytes."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    separator = rng.choice((b",", b",", b",", b";", b"\t"))
    cells = lines[at].split(separator)
    place = rng.randrange(len(cells))
    match rng.randrange(7):
        case 0 | 1:
            cells[place] = rng.choice(CELLS)
        case 2:
            del cells[place]
        case 3:
            cells.insert(place, rng.choice(CELLS))
        case 4:
            return b"\n".join((*lines[:at], *lines[at + 1 :]))
        case 5:
            return b"\n".join((*lines[:at], lines[at], lines[rng.randrange(len(lines))], *lines[at + 1 :]))
        case _:
            return raw(data, rng)
    return b"\n".join((*lines[:at], separator.join(cells), *lines[at + 1 :]))


SNIPPETS = (
    *(opcode.code.encode("latin1") for opcode in pickletools.opcodes),
    b"K\x00", b"J\xff\xff\xff\x7f", b"M\xff\xff", b"\x8a\x09" + b"\xff" * 9, b"G\x7f\xf0" + bytes(6), b"h\x00",
    b"q\x00", b"C\x04abcd", b"X\x01\x00\x00\x00b", b"X\x06\x00\x00\x00latin1", b"cnumpy\ndtype\n", b"cnumpy\nndarray\n",
    b"c_codecs\nencode\n", b"cos\nsystem\n", b"cnumpy.core.multiarray\n_reconstruct\n",
    b"ccollections\nOrderedDict\n)R",
)  # fmt: skip


def pickled(data: bytes, rng: Random) -> bytes:
    """A pickle with instructions gone, twice, exchanged, added, or with other arguments."""
    starts = [0] if data else []
    with suppress(Exception):  # pickletools raises what it likes; what it found until then is changed
        starts += (place for _, _, place in pickletools.genops(data) if place)
    pieces = [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=False)]
    if not pieces or not rng.randrange(12):
        return raw(data, rng)
    at, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
    match rng.randrange(6):
        case 0:
            del pieces[at]
        case 1:
            pieces.insert(at, pieces[other])
        case 2:
            pieces[at], pieces[other] = pieces[other], pieces[at]
        case 3:
            pieces.insert(at, rng.choice(SNIPPETS))
        case 4:
            pieces[at] = rng.choice(SNIPPETS)
        case _:
            pieces[at] = pieces[at][:1] + raw(pieces[at][1:], rng)
    return b"".join(pieces)


Field = tuple[int, int, int | bytes]  # number, wire type, contents


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise IndexError


def fields_of(data: bytes) -> list[Field] | None:
    """The fields of a protobuf message, or None where these bytes are none."""
    found: list[Field] = []
    at = 0
    try:
        while at < len(data):
            key, at = _varint(data, at)
            number, wire = key >> 3, key & 7
            if wire == VARINT:
                value, at = _varint(data, at)
                found.append((number, wire, value))
                continue
            length = {EIGHT: 8, FOUR: 4}.get(wire)
            if wire == BYTES:
                length, at = _varint(data, at)
            if length is None or number == 0 or at + length > len(data):
                return None
            found.append((number, wire, data[at : at + length]))
            at += length
    except IndexError:
        return None
    return found


def _spelled(value: int) -> bytes:
    value %= 1 << 64
    said = bytearray()
    while value > 127:
        said.append(value & 127 | 128)
        value >>= 7
    return bytes((*said, value))


def message(fields: Sequence[Field]) -> bytes:
    """The bytes of a message, its lengths as they are."""
    said = []
    for number, wire, value in fields:
        said.append(_spelled(number << 3 | wire))
        if isinstance(value, int):
            said.append(_spelled(value))
        else:
            said.append((_spelled(len(value)) if wire == BYTES else b"") + value)
    return b"".join(said)


def protobuf(words: Sequence[str]) -> Mutator:
    """One field of a message, at any depth, is changed, gone, twice or elsewhere; all lengths around it fit."""
    spoken = tuple(word.encode("utf-8", "replace") for word in (*words, *WORDS))

    def mutate(data: bytes, rng: Random, depth: int = 0) -> bytes:
        fields = fields_of(data)
        if not fields or (depth == 0 and not rng.randrange(16)):
            return raw(data, rng)
        at, other = rng.randrange(len(fields)), rng.randrange(len(fields))
        number, wire, value = fields[at]
        if isinstance(value, bytes) and wire == BYTES and depth < DEEPEST and rng.randrange(8):
            inner = fields_of(value)
            changed = mutate(value, rng, depth + 1) if inner else _said(value, spoken, rng)
            fields[at] = number, wire, changed
            return message(fields)
        match rng.randrange(6):
            case 0:
                del fields[at]
            case 1:
                fields.insert(other, fields[at])
            case 2:
                fields[at], fields[other] = fields[other], fields[at]
            case 3:
                fields[at] = rng.choice((number + 1, max(number - 1, 1), rng.randrange(1, 30))), wire, value
            case _:
                fields[at] = number, wire, _valued(wire, value, spoken, rng)
        return message(fields)

    return mutate


def _valued(wire: int, value: int | bytes, spoken: Sequence[bytes], rng: Random) -> int | bytes:
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, rng.randrange(32), rng.choice(INTEGERS)))
    if wire == FOUR:
        return struct.pack("<f", rng.choice([r for r in REALS if abs(r) < 3.5e38 or abs(r) > 1e308]))
    return struct.pack("<d", rng.choice(REALS)) if wire == EIGHT else _said(value, spoken, rng)


def _said(value: bytes, spoken: Sequence[bytes], rng: Random) -> bytes:
    """Another word, or these bytes changed."""
    return rng.choice(spoken) if rng.randrange(3) else raw(value, rng)
