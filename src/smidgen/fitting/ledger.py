"""Which stages of a fit are done: the inputs of each, the files it wrote, and its result.

The ledger is a file beside the results. A stage with the same inputs and unchanged files is not run again. A file that
someone changed is neither read nor overwritten: the fit stops with an error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from smidgen.data.files import write_whole
from smidgen.fitting.lock import LOCK, FitError
from smidgen.records import RecordError, from_plain, parse_object, read_record, to_plain

FORMAT = 3
NAME = "fit.json"
Result = TypeVar("Result")


@dataclass(frozen=True)
class Entry:
    """A stage that is done: its fit, its inputs as one digest, the digest of each of its files, and its result."""

    run: str  # the request of the fit that ran it, as a digest
    inputs: str
    files: dict[str, str]
    result: dict[str, Any] | None  # in JSON; None where its only file holds it


class Ledger:
    """The ledger of a folder, read when it is opened and written after every stage."""

    def __init__(self, folder: Path, run: str, force: bool = False) -> None:
        self.folder, self.path, self.run, self.force = folder, folder / NAME, run, force
        if not self.path.exists() and any(one.name != LOCK for one in folder.iterdir()) and not force:
            raise FitError(
                f"{folder} holds files and no {NAME}, so no fit made them; give --force to fit there all the same, or "
                "another folder"
            )
        self._text = self._on_disk()
        self._entries, self._under_way = self._read() if self._text is not None else ({}, "")

    def check(self, stage: str, files: tuple[str, ...]) -> None:
        """Raise FitError if a file that a stage is about to write was not written by it, or was changed since."""
        self._check_alone()
        known = self._entries[stage].files if stage in self._entries else {}
        for name in files if stage != self._under_way else ():
            there = self.folder / name
            if there.exists() and digest(there) != known.get(name):
                if self.force:
                    self._entries.pop(stage, None)
                    return
                raise self._changed(there)

    def digest(self, name: str) -> str:
        """Return the digest of a file that an earlier stage wrote; FitError if it was changed since."""
        written = {file: one for entry in self._entries.values() for file, one in entry.files.items()}
        if digest(self.folder / name) != written[name]:
            raise self._changed(self.folder / name)
        return written[name]

    def result(self, stage: str, inputs: str, files: tuple[str, ...], kind: type[Result]) -> Result | None:
        """Return a stage's result if it was run with these inputs and all its files exist."""
        entry = self._entries.get(stage)
        if entry is None or entry.inputs != inputs or set(entry.files) != set(files):
            return None
        if not all((self.folder / name).exists() for name in files):
            return None
        try:
            if entry.result is None:
                return read_record(kind, self.folder / files[0])
            return from_plain(kind, entry.result)
        except RecordError as error:
            raise self._damaged(error) from None
        except OSError as error:
            raise FitError(f"{self.folder / files[0]} cannot be read: {error.strerror}") from None

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
            if not self._entries and {one.name for one in self.folder.iterdir()} <= {NAME, LOCK}:
                self.path.unlink()
            raise

    def add(self, stage: str, inputs: str, files: tuple[str, ...], result: object, in_file: bool) -> None:
        """Note that a stage is done and its files are written; its only file may hold its result."""
        digests = {name: digest(self.folder / name) for name in files}
        self._entries[stage] = Entry(self.run, inputs, digests, None if in_file else to_plain(result))
        self._under_way = ""
        self._write()

    def _write(self) -> None:
        self._check_alone()
        stages = {name: asdict(entry) for name, entry in self._entries.items()}
        plain = {"format": FORMAT, "stages": stages, "under_way": self._under_way}
        self._text = json.dumps(plain, indent=1, allow_nan=False) + "\n"
        write_whole(self.path, self._text.encode())

    def _check_alone(self) -> None:
        """Raise FitError if another fit wrote the ledger since this one did."""
        if self._on_disk() != self._text:
            raise FitError(f"another fit wrote into {self.folder} meanwhile; this one ends, fit again once it is done")

    def _on_disk(self) -> str | None:
        """Return the ledger's text; None without one."""
        try:
            return self.path.read_text("utf-8", "replace") if self.path.exists() else None
        except OSError as error:
            raise FitError(f"{self.path} cannot be read: {error.strerror}") from None

    def _read(self) -> tuple[dict[str, Entry], str]:
        try:
            plain = parse_object(self._text or "", "format", "stages", "under_way")
            if plain["format"] != FORMAT:
                raise FitError(
                    f"{self.path} has format {str(plain['format'])[:20]}, this version reads {FORMAT}; give another "
                    f"folder, or remove {self.path} and give --force"
                )
            return from_plain(dict[str, Entry], plain["stages"]), from_plain(str, plain["under_way"])
        except RecordError as error:
            raise self._damaged(error) from None

    def _changed(self, path: Path) -> FitError:
        return FitError(
            f"{path} was not written by this fit, or was changed since; move it away, give --force to "
            "overwrite it, or give another folder"
        )

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
    texts = [_stated(one) if type(one).__str__ is object.__str__ else str(one) for one in inputs]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def _stated(value: object) -> str:
    """Return a value with every field of every dataclass in it, also of those that show themselves briefly."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = (f"{one.name}={_stated(getattr(value, one.name))}" for one in fields(value) if one.repr)
        return f"{type(value).__qualname__}({', '.join(parts)})"
    if type(value) is tuple:
        return f"({', '.join(map(_stated, value))}{',' if len(value) == 1 else ''})"
    return repr(value)
