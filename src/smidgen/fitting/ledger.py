"""Which stages of a fit are done: the inputs of each, the files it wrote, and its result.

The ledger is a file beside the results. A stage with the same inputs and unchanged files is not run again. A file that
someone changed is never overwritten: the fit stops with an error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from smidgen.data.files import write_whole
from smidgen.errors import SmidgenError
from smidgen.records import RecordError, from_plain, parse_object

FORMAT = 2
NAME = "fit.json"
Result = TypeVar("Result")


class FitError(SmidgenError):
    """A fit cannot go on."""


@dataclass(frozen=True)
class Entry:
    """A stage that is done: its inputs as one digest, the digest of each of its files, and its result in JSON."""

    inputs: str
    files: dict[str, str]
    result: dict[str, Any]


class Ledger:
    """The ledger of a folder, read when it is opened and written after every stage."""

    def __init__(self, folder: Path, force: bool = False) -> None:
        self.folder, self.path, self.force = folder, folder / NAME, force
        if not self.path.exists() and any(folder.iterdir()) and not force:
            raise FitError(
                f"{folder} holds files and no {NAME}, so no fit made them; give --force to fit there all the same, or "
                "another folder"
            )
        self._entries, self._under_way = self._read() if self.path.exists() else ({}, "")

    def check(self, stage: str, files: tuple[str, ...]) -> None:
        """Raise FitError if a file that a stage is about to write was not written by it, or was changed since."""
        known = self._entries[stage].files if stage in self._entries else {}
        for name in files if stage != self._under_way else ():
            there = self.folder / name
            if there.exists() and digest(there) != known.get(name):
                if self.force:
                    self._entries.pop(stage, None)
                    return
                raise FitError(
                    f"{there} was not written by this fit, or was changed since; move it away, give --force to "
                    "overwrite it, or give another folder"
                )

    def result(self, stage: str, inputs: str, files: tuple[str, ...], kind: type[Result]) -> Result | None:
        """Return a stage's result if it was run with these inputs and all its files exist."""
        entry = self._entries.get(stage)
        if entry is None or entry.inputs != inputs or set(entry.files) != set(files):
            return None
        if not all((self.folder / name).exists() for name in files):
            return None
        try:
            return from_plain(kind, entry.result)
        except RecordError as error:
            raise self._damaged(error) from None

    @contextmanager
    def begun(self, stage: str) -> Iterator[None]:
        """Mark a stage as under way: if it is interrupted, its files may be overwritten.

        If it fails and the folder holds only the ledger, that is removed, too.
        """
        self._entries.pop(stage, None)
        self._under_way = stage
        self._write()
        try:
            yield
        except BaseException:
            if not self._entries and list(self.folder.iterdir()) == [self.path]:
                self.path.unlink()
            raise

    def add(self, stage: str, inputs: str, files: tuple[str, ...], result: object) -> None:
        """Note that a stage is done and its files are written."""
        digests = {name: digest(self.folder / name) for name in files}
        self._entries[stage] = Entry(inputs, digests, asdict(result))  # type: ignore[call-overload]
        self._under_way = ""
        self._write()

    def _write(self) -> None:
        stages = {name: asdict(entry) for name, entry in self._entries.items()}
        plain = {"format": FORMAT, "stages": stages, "under_way": self._under_way}
        write_whole(self.path, json.dumps(plain, indent=1, allow_nan=False).encode() + b"\n")

    def _read(self) -> tuple[dict[str, Entry], str]:
        try:
            plain = parse_object(self.path.read_bytes(), "format", "stages", "under_way")
            if plain["format"] != FORMAT:
                raise FitError(
                    f"{self.path} has format {str(plain['format'])[:20]}, this version reads {FORMAT}; fit again"
                )
            return from_plain(dict[str, Entry], plain["stages"]), from_plain(str, plain["under_way"])
        except RecordError as error:
            raise self._damaged(error) from None
        except OSError as error:
            raise FitError(f"{self.path} cannot be read: {error.strerror}") from None

    def _damaged(self, error: RecordError) -> FitError:
        return FitError(
            f"{self.path} is not a ledger as smidgen fit writes it: {error}; remove it with the files beside it, and "
            "fit again"
        )


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of all files in a folder with their names."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    hashed = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            hashed.update(f"{file.relative_to(path)} {digest(file)}\n".encode())
    return hashed.hexdigest()


def digest_of(*inputs: object) -> str:
    """Return one digest of a stage's inputs."""
    return hashlib.sha256(json.dumps([str(one) for one in inputs]).encode()).hexdigest()
