"""Files, folders and archives read within a budget of memory, and numpy's formats without trust in their headers."""

from __future__ import annotations

import io
import math
import os
import re
import secrets
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from smidgen.data.samples import DataError
from smidgen.errors import ImportModelError, InputError, SmidgenError
from smidgen.ir import MAX_BYTES, MAX_RANK, Array

# Bytes. Networks for microcontrollers have megabytes of weights, also in float32; what they learn from is 50,000
# images of 32×32 pixels (154 MB) or a few thousand photographs.
MEMORY = 2**30
MAX_MEMBERS = 4096  # of an archive
PIECE = 2**20  # bytes unpacked at a time
LAST_POINT, SURROGATES = 0x10FFFF, (0xD800, 0xE000)  # of Unicode
PACKED = (".tgz", ".tar.gz", ".tar", ".zip", ".gz", ".7z", ".rar")
_STORED_OR_DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_NPY_DTYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")
_NPY_TEXT = re.compile(r"<U([0-9]{1,8})")
_NPY_HEADER = re.compile(
    r"\{\s*'descr':\s*'([<>|=][A-Za-z0-9]+)',\s*'fortran_order':\s*(True|False),\s*"
    r"'shape':\s*\(((?:[0-9]{1,10}, ?)*(?:[0-9]{1,10})?)\),?\s*\}\s*"
)
# Raised by zipfile on damaged archives; the last where a member claims a feature it does not know.
CORRUPT_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, NotImplementedError)

Box = tuple[int, int, int, int]  # left, top, right, bottom, in pixels of a file


class Budget:
    """The memory that a file's contents may take, counted before it is taken; `error` is raised beyond it."""

    def __init__(self, limit: int = MEMORY, error: type[SmidgenError] = ImportModelError) -> None:
        self.limit = limit
        self.taken = 0
        self.error = error

    def check(self, what: str, size: int) -> None:
        """Raise unless `size` more bytes can be taken."""
        if self.taken + size > self.limit:
            before = f" beside {self.taken:,} before" if self.taken else ""
            raise self.error(
                f"{what} would take {size:,} bytes of memory{before}, the limit for one file is {self.limit:,}; "
                "where you trust the file, raise the limit with --memory, or memory= in Python"
            )

    def take(self, what: str, size: int) -> None:
        """Count `size` bytes as taken, or raise."""
        self.check(what, size)
        self.taken += size

    def copy(self) -> Budget:
        """Return the same budget from here on, counted apart."""
        made = Budget(self.limit, self.error)
        made.taken = self.taken
        return made


def read_whole(path: Path, memory: int = MEMORY) -> bytes:
    """Return a file's bytes; a file larger than the memory for it is refused unread."""
    try:
        check_size(path, memory)
        return path.read_bytes()
    except OSError as error:
        raise ImportModelError(f"{path} cannot be read: {error.strerror or error}") from None


def read_text(path: Path, memory: int = MEMORY, way_out: str = "save it as such") -> str:
    """Return a file's text; raise InputError unless it can be read, as text."""
    try:
        return read_whole(path, memory).decode()
    except ImportModelError as error:
        raise InputError(str(error)) from None
    except UnicodeDecodeError:
        raise InputError(f"{path} cannot be read: it is not text in UTF-8; {way_out}") from None


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
    """Make a folder to write into, with its parents; a failure removes those that were made and are empty."""
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


def first_line(error: Exception) -> str:
    """Return the first line of another library's error, or the error's type if it has no text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


def parse_npy(data: bytes, where: str, rank: int = MAX_RANK) -> Array:
    """Return the array in a `.npy` file's bytes, of at most `rank` dimensions; its header must match their number."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12 or data[6] not in (1, 2, 3):
        raise ImportModelError(f"{where} is not a .npy file: its first bytes are {data[:6].hex()}")
    start = 10 if data[6] == 1 else 12
    end = start + int.from_bytes(data[8:start], "little")
    header = _NPY_HEADER.fullmatch(data[start:end].decode("latin1")) if end - start <= 4096 else None
    if header is None or end > len(data):
        raise ImportModelError(f"{where} has a .npy header that cannot be read")
    descr, fortran, dims = header.groups()
    shape = tuple(int(d) for d in dims.split(",") if d.strip())
    text = _NPY_TEXT.fullmatch(descr)
    if descr not in _NPY_DTYPES and not (text and 0 < int(text[1]) <= MAX_BYTES // 4):
        raise ImportModelError(f"{where} holds elements of type '{descr}'; only numbers and text can be read")
    dtype: np.dtype[Any] = np.dtype(descr)
    expected, found = math.prod(shape) * dtype.itemsize, len(data) - end
    if len(shape) > rank:
        raise ImportModelError(f"{where} declares {len(shape)} dimensions; up to {rank} are read")
    if expected != found or not expected:
        raise ImportModelError(f"{where} declares {dtype}{list(shape)}, {expected:,} bytes, but holds {found:,}")
    points = np.frombuffer(data, "<u4", offset=end) if dtype.kind == "U" else np.zeros(0, np.uint32)
    if ((points > LAST_POINT) | ((points >= SURROGATES[0]) & (points < SURROGATES[1]))).any():
        raise ImportModelError(f"{where} holds text that is no Unicode; store the words again")
    array = np.frombuffer(data, dtype, math.prod(shape), end)
    return array.reshape(shape, order="F" if fortran == "True" else "C")


def read_npz(path: Path, budget: Budget) -> dict[str, Array]:
    """Return the arrays of a `.npz` file by name, each checked before memory is taken for it."""
    return {
        name.removesuffix(".npy"): parse_npy(data, f"{name[:80]!a} in {path.name}")
        for name, data in read_zip(path, budget, lambda name: name.endswith(".npy")).items()
    }


def read_zip(path: Path, budget: Budget, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Return the members of an archive whose names are wanted; their declared sizes are summed first."""
    data = read_whole(path, budget.limit)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = by_name((m for m in archive.infolist() if wanted(m.filename)), path.name, budget)
            if len(members) > MAX_MEMBERS:
                raise ImportModelError(f"{path.name} holds {len(members):,} members; up to {MAX_MEMBERS:,} are read")
            budget.check(path.name, sum(m.file_size for m in members.values()))
            return {name: unpack(archive, member, budget) for name, member in members.items()}
    except CORRUPT_ZIP as error:
        raise ImportModelError(f"{path.name} is not a complete archive: {first_line(error)}") from None


def by_name(members: Iterable[zipfile.ZipInfo], where: str, budget: Budget) -> dict[str, zipfile.ZipInfo]:
    """Return an archive's members by name; a name may appear once."""
    found: dict[str, zipfile.ZipInfo] = {}
    for member in members:
        if member.filename in found:
            raise budget.error(f"{where} holds {member.filename[:80]!a} twice; pack it again")
        found[member.filename] = member
    return found


def unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: Budget, apart: bool = False) -> bytes:
    """Return a member's bytes, as many as it declares; the budget must have room for them, or those `apart`, first."""
    budget = budget.copy() if apart else budget
    what = f"{member.filename[:80]!a}"
    if member.compress_type not in _STORED_OR_DEFLATED:
        raise budget.error(f"{what} is compressed in a way other than deflate; pack it again")
    budget.take(what, member.file_size)
    whole, left = io.BytesIO(), member.file_size
    with archive.open(member) as file:  # in pieces: read at once, it would unpack before its size is looked at
        while left > 0 and (piece := file.read(min(PIECE, left))):
            whole.write(piece)
            left -= len(piece)
    if left:
        raise budget.error(f"{what} holds {left:,} bytes less than the {member.file_size:,} it declares; pack it again")
    return whole.getvalue()


@dataclass(frozen=True)
class SampleFile:
    """A file with a sample: its path in a tree, a reader of its bytes, and the box of an image that is wanted."""

    name: str
    read: Callable[[], bytes]
    box: Box | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.name.split("/"))

    @property
    def label(self) -> str:
        return self.parts[-2]


@dataclass(frozen=True)
class Tree:
    """The files of a folder or an archive by their paths; a file's bytes count only while they are in use."""

    where: str
    files: Mapping[str, Callable[[], bytes]]
    budget: Budget
    folders: tuple[str, ...] = ()  # those of an archive where it lists them

    def __contains__(self, name: str) -> bool:
        return name in self.files

    def below(self, folder: str) -> Tree:
        """Return the files of a folder, by their paths in it."""
        start = f"{folder}/"
        found = {name.removeprefix(start): read for name, read in self.files.items() if name.startswith(start)}
        return Tree(f"{self.where}/{folder}", found, self.budget)

    def ending(self, suffixes: tuple[str, ...]) -> list[SampleFile]:
        """Return all files with these suffixes, except hidden ones."""
        return [self.file(name) for name in self.files if ends(name, suffixes)]

    def file(self, name: str, box: Box | None = None) -> SampleFile:
        """Return a file with a sample, or a box of an image; raise DataError if it is missing."""
        if name not in self.files:
            raise DataError(f"{self.where} holds no {name}; {self.way_out()}")
        return SampleFile(name, self.files[name], box)

    def read(self, name: str) -> bytes:
        """Return a file's bytes; raise DataError if it is missing."""
        return self.file(name).read()

    def lines(self, name: str) -> list[str]:
        """Return the lines of a text file that are not blank."""
        try:
            text = self.read(name).decode()
        except UnicodeDecodeError:
            raise DataError(f"{name} in {self.where} is not text; unpack the data set again") from None
        return [line.strip() for line in text.splitlines() if line.strip()]

    def packed(self) -> list[str]:
        """Return the archives at the top."""
        return sorted(name for name in self.files if "/" not in name and name.lower().endswith(PACKED))

    def way_out(self) -> str:
        """Return what to do if a file of a data set is missing."""
        packed = self.packed()
        return f"unpack {packed[0]} there" if packed else "unpack the whole data set as it was published"

    def unpacked(self) -> str:
        """Return what to unpack if a folder holds archives instead of samples."""
        return f"{self.way_out()}, and give the folder" if self.packed() else ""

    def wrong(self, source: str, what: str) -> DataError:
        """Return the error for a file that is not as published."""
        return DataError(f"{source} in {self.where} {what}; {self.way_out()}")


def open_tree(path: Path, budget: Budget, stack: ExitStack) -> Tree:
    """Return the files of a folder, a single file, or the members of an archive, open while the stack is."""
    files: dict[str, Callable[[], bytes]]
    if path.suffix.lower() == ".zip" and not path.is_dir():
        archive = stack.enter_context(zipfile.ZipFile(path))
        members = by_name((m for m in archive.infolist() if m.filename), str(path), budget)
        folders = tuple(name[:-1] for name in members if name.endswith("/"))
        plain = {name: member for name, member in members.items() if not name.endswith("/")}
        files = {name: partial(unpack, archive, member, budget, apart=True) for name, member in plain.items()}
    else:
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        names = {p: in_unicode(p.relative_to(path).as_posix() if path.is_dir() else p.name) for p in found}
        files = {name: sample_file(p, budget).read for p, name in names.items() if p.is_file()}
        folders = tuple(name for p, name in names.items() if p.is_dir())
    return Tree(str(path), files, budget, folders)


def in_unicode(name: str) -> str:
    """Return the name of a file as the UTF-8 that it is stored in, whatever the locale; other bytes as \\xff."""
    return os.fsencode(name).decode(errors="backslashreplace")


def ends(name: str, suffixes: tuple[str, ...]) -> bool:
    """Return whether a file has one of these suffixes and is not hidden."""
    last = name.rpartition("/")[2]
    return last.lower().endswith(suffixes) and not last.startswith(".")


def sample_file(path: Path, budget: Budget, name: str = "") -> SampleFile:
    """Return a file with a sample, by its own name unless another is given; its bytes count only while in use."""

    def read() -> bytes:
        budget.check(str(path), path.stat().st_size)
        return path.read_bytes()

    return SampleFile(name or path.name, read)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what goes wrong with a file that is read into a DataError of one sentence."""
    try:
        yield
    except ImportModelError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except CORRUPT_ZIP as error:
        if path.is_dir() or path.suffix.lower() not in (".zip", ".npz"):
            raise
        raise DataError(f"{path} is not a complete archive: {first_line(error)}") from None
