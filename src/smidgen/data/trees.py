"""The files of a folder or of a .zip archive, by their paths: both are asked the same way."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from smidgen.data.archives import named, unfold
from smidgen.data.budget import Budget
from smidgen.data.samples import DataError

Box = tuple[int, int, int, int]  # left, top, right, bottom, in pixels of a file
PACKED = (".tgz", ".tar.gz", ".tar", ".zip", ".gz", ".7z", ".rar")


@dataclass(frozen=True)
class SampleFile:
    """A file with a sample: its path in a tree, its bytes when asked for, and the box of an image that is wanted."""

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
    """Files by their paths, each read when asked for; what is read counts only while it is in use."""

    where: str
    files: Mapping[str, Callable[[], bytes]]
    budget: Budget

    def __contains__(self, name: str) -> bool:
        """Whether there is such a file."""
        return name in self.files

    def below(self, folder: str) -> Tree:
        """The files of a folder, by their paths in it."""
        start = f"{folder}/"
        found = {name.removeprefix(start): read for name, read in self.files.items() if name.startswith(start)}
        return Tree(f"{self.where}/{folder}", found, self.budget)

    def folders(self) -> list[str]:
        """The folders at the top."""
        return sorted({name.partition("/")[0] for name in self.files if "/" in name})

    def ending(self, suffixes: tuple[str, ...]) -> list[SampleFile]:
        """All files whose names end so, but hidden ones."""
        return [self.file(name) for name in self.files if ends(name, suffixes)]

    def file(self, name: str, box: Box | None = None) -> SampleFile:
        """A file with a sample, or a box of an image; one sentence where it is not there."""
        return SampleFile(name, self._reader(name), box)

    def read(self, name: str) -> bytes:
        """A file's bytes; one sentence where it is not there."""
        return self._reader(name)()

    def _reader(self, name: str) -> Callable[[], bytes]:
        if name not in self.files:
            raise DataError(f"{self.where} holds no {name}; {self.way_out()}")
        return self.files[name]

    def lines(self, name: str) -> list[str]:
        """The lines of a text file that hold anything."""
        try:
            text = self.read(name).decode()
        except UnicodeDecodeError:
            raise DataError(f"{name} in {self.where} is not text; unpack the data set again") from None
        return [line.strip() for line in text.splitlines() if line.strip()]

    def packed(self) -> list[str]:
        """Archives that lie at the top."""
        return sorted(name for name in self.files if "/" not in name and name.lower().endswith(PACKED))

    def way_out(self) -> str:
        """What to do where a file of a data set is missing."""
        packed = self.packed()
        return f"unpack {packed[0]} there" if packed else "unpack the whole data set as it was published"


def folder_tree(path: Path, budget: Budget) -> Tree:
    """The files below a folder."""
    found = sorted(p for p in path.rglob("*") if p.is_file())
    return Tree(str(path), {p.relative_to(path).as_posix(): partial(whole_file, p, budget) for p in found}, budget)


def zip_tree(path: Path, archive: zipfile.ZipFile, budget: Budget) -> Tree:
    """The members of an archive."""
    files = (m for m in archive.infolist() if m.filename and not m.filename.endswith("/"))
    members = named(files, str(path), budget)
    return Tree(str(path), {name: partial(_unfolded, archive, m, budget) for name, m in members.items()}, budget)


def ends(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a file that is not hidden has one of these suffixes."""
    last = name.rpartition("/")[2]
    return last.lower().endswith(suffixes) and not last.startswith(".")


def whole_file(path: Path, budget: Budget) -> bytes:
    """A file's bytes, which count only while they are in use."""
    budget.check(str(path), path.stat().st_size)
    return path.read_bytes()


def _unfolded(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: Budget) -> bytes:
    """A member's bytes, which count only while they are in use."""
    return unfold(archive, member, budget.copy())
