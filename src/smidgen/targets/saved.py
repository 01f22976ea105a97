"""Files of what programs learned: the bytes that a program saves, which it and a link to it load."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

from smidgen.data.files import read_whole, write_whole
from smidgen.errors import InputError
from smidgen.ir import Array, Graph
from smidgen.ir.text import fingerprint
from smidgen.memory import state_bytes
from smidgen.targets.device import read_state, state_block

HEAD = struct.Struct("<IIII")  # the fingerprint's first 64 bits, bytes of state, Adler-32; the state follows
LARGEST = 1 << 28  # bytes of a file


def write_saved(graph: Graph, state: Mapping[str, Array], path: Path) -> None:
    """Write a program's state as the program itself would save it."""
    block = state_block(graph, state)
    write_whole(path, HEAD.pack(*_words(graph), len(block), zlib.adler32(block)) + block)


def read_saved(graph: Graph, path: Path) -> dict[str, Array]:
    """Return the state in a file that a program saved; InputError where it is damaged or another program's."""
    known, size = _words(graph), state_bytes(graph)
    return read_state(graph, saved_block(path, known, size, f"this program of {graph.name}"))


def saved_block(path: Path, known: tuple[int, int], size: int, who: str) -> bytes:
    """Return the state in a file that the program of a fingerprint saved; InputError where it is not that."""
    data = read_whole(path, LARGEST)
    if len(data) < HEAD.size:
        raise InputError(f"{path} has {len(data)} bytes and is not what a program saved")
    high, low, length, expected = HEAD.unpack_from(data)
    block = data[HEAD.size :]
    if (high, low) != known:
        own = "".join(f"{word:08x}" for word in known)
        raise InputError(f"{path} was saved by another program, {high:08x}{low:08x}; {who} is {own}")
    if len(block) != length or length != size or zlib.adler32(block) != expected:
        raise InputError(f"{path} is cut short or damaged: it is not what a program saved")
    return block


def _words(graph: Graph) -> tuple[int, int]:
    digits = fingerprint(graph)
    return int(digits[:8], 16), int(digits[8:16], 16)
