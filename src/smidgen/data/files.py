"""Reading and writing whole files, and numpy's own formats without trusting what they declare."""

from __future__ import annotations

import io
import math
import re
import secrets
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from smidgen.data.archives import named, unfold
from smidgen.data.budget import MEMORY, Budget
from smidgen.errors import ImportModelError, InputError
from smidgen.ir import MAX_BYTES, MAX_RANK, Array

MAX_MEMBERS = 4096  # of an archive
LAST_POINT, SURROGATES = 0x10FFFF, (0xD800, 0xE000)  # of Unicode
_NPY_DTYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")
_NPY_TEXT = re.compile(r"<U([0-9]{1,8})")
_NPY_HEADER = re.compile(
    r"\{\s*'descr':\s*'([<>|=][A-Za-z0-9]+)',\s*'fortran_order':\s*(True|False),\s*"
    r"'shape':\s*\(((?:[0-9]{1,10}, ?)*(?:[0-9]{1,10})?)\),?\s*\}\s*"
)
# What zipfile raises on damaged archives; the last where a member claims a feature it does not know.
CORRUPT_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, NotImplementedError)


def read_whole(path: Path, memory: int = MEMORY) -> bytes:
    """A file's bytes; one larger than the memory for it is refused unread."""
    try:
        check_size(path, memory)
        return path.read_bytes()
    except OSError as error:
        raise ImportModelError(f"{path} cannot be read: {error.strerror or error}") from None


def check_size(path: Path, memory: int = MEMORY) -> None:
    """Raise unless this is a plain file no larger than the memory for it."""
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise ImportModelError(f"{path} is a folder; a file is expected")
    if not stat.S_ISREG(found.st_mode):
        raise ImportModelError(f"{path} is not a regular file; copy its contents into one")
    Budget(memory).check(path.name, found.st_size)


def write_whole(path: Path, data: bytes) -> None:
    """Write the file under a temporary name and rename it: the whole file appears, or none.

    The name is random and the file must be new: two containers that share a folder may have the same process ids.
    """
    if not path.name:
        raise InputError(f"{str(path)!r} names no file to write; give one")
    temporary = path.with_name(f".smidgen-{secrets.token_hex(8)}")
    try:
        file = temporary.open("xb")
        try:
            with file:
                file.write(data)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def made_folder(path: Path) -> Iterator[None]:
    """A folder to write into, made with those above it; a failure removes the ones that were made and are empty."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # it holds something, or was not made
                folder.rmdir()
        raise


def parse_npy(data: bytes, where: str, rank: int = MAX_RANK) -> Array:
    """The array of a `.npy` file's bytes, of so many dimensions at most; its header must agree with their number."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12 or data[6] not in (1, 2, 3):
        raise ImportModelError(f"{where} is not a .npy file: its first bytes are {data[:6].hex()}")
    start = 10 if data[6] == 1 else 12
    end = start + int.from_bytes(data[8:start], "little")
    header = _NPY_HEADER.fullmatch(data[start:end].decode("latin1")) if end - start <= 4096 else None
    if header is None or end > len(data):
        raise ImportModelError(f"{where} has a .npy header that cannot be read")
    descr, fortran, dims = header.groups()
    shape = tuple(int(d) for d in dims.split(",") if d.strip())
    dtype = _npy_dtype(descr, where)
    expected, found = math.prod(shape) * dtype.itemsize, len(data) - end
    if len(shape) > rank:
        raise ImportModelError(f"{where} declares {len(shape)} dimensions; up to {rank} are read")
    if expected != found or not expected:
        raise ImportModelError(f"{where} declares {dtype}{list(shape)}, {expected:,} bytes, but holds {found:,}")
    if dtype.kind == "U" and not _is_unicode(np.frombuffer(data, "<u4", offset=end)):
        raise ImportModelError(f"{where} holds text that is no Unicode; store the words again")
    array = np.frombuffer(data, dtype, math.prod(shape), end)
    return array.reshape(shape, order="F" if fortran == "True" else "C")


def _is_unicode(points: Array) -> bool:
    """Whether all code points are characters: none beyond the last, none that is half of a pair."""
    return not bool(((points > LAST_POINT) | ((points >= SURROGATES[0]) & (points < SURROGATES[1]))).any())


def _npy_dtype(descr: str, where: str) -> np.dtype[Any]:
    text = _NPY_TEXT.fullmatch(descr)
    if descr not in _NPY_DTYPES and not (text and 0 < int(text[1]) <= MAX_BYTES // 4):
        raise ImportModelError(f"{where} holds elements of type '{descr}'; only numbers and text can be read")
    return np.dtype(descr)


def read_npz(path: Path, budget: Budget) -> dict[str, Array]:
    """The arrays of a `.npz` file by name, each checked before memory is taken for it."""
    return {
        name.removesuffix(".npy"): parse_npy(data, f"{name[:80]!a} in {path.name}")
        for name, data in read_zip(path, budget, lambda name: name.endswith(".npy")).items()
    }


def read_zip(path: Path, budget: Budget, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The members of an archive whose names are wanted; their declared sizes are summed first."""
    data = read_whole(path, budget.limit)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = named((m for m in archive.infolist() if wanted(m.filename)), path.name, budget)
            if len(members) > MAX_MEMBERS:
                raise ImportModelError(f"{path.name} holds {len(members):,} members; up to {MAX_MEMBERS:,} are read")
            budget.check(path.name, sum(m.file_size for m in members.values()))
            return {name: unfold(archive, member, budget) for name, member in members.items()}
    except CORRUPT_ZIP as error:
        raise ImportModelError(f"{path.name} is not a complete archive: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """The first line of what another library complained of, or the error's type where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
