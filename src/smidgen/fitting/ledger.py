"""Which stages of a fit are done: what each was made from, the files it wrote, and what it found.

The ledger is a file beside the results. A stage whose inputs are the same and whose files are as they were written is
not made again. A file that someone changed is never overwritten: the fit stops and says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from smidgen.data.files import write_whole
from smidgen.errors import SmidgenError

FORMAT = 2
NAME = "fit.json"
Made = TypeVar("Made")


class FitError(SmidgenError):
    """A fit cannot go on."""


@dataclass(frozen=True)
class Entry:
    """A stage that is done: its inputs as one digest, the digest of each of its files, and its result in JSON."""

    inputs: str
    files: dict[str, str]
    result: dict[str, Any]


class Ledger:
    """The ledger of a folder, read when it is opened and written with every stage that is done."""

    def __init__(self, folder: Path, force: bool = False) -> None:
        self.folder, self.path, self.force = folder, folder / NAME, force
        if not self.path.exists() and any(folder.iterdir()) and not force:
            raise FitError(
                f"{folder} holds files and no {NAME}, so no fit made them; give --force to fit there all the same, or "
                "another folder"
            )
        self._entries, self._under_way = _read(self.path) if self.path.exists() else ({}, "")

    def check(self, stage: str, files: tuple[str, ...]) -> None:
        """Raise FitError where a file that a stage is about to write is not its own work, or no longer."""
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

    def result(self, stage: str, inputs: str, files: tuple[str, ...], kind: type[Made]) -> Made | None:
        """What a stage found, where it is done with these inputs and all its files are there."""
        entry = self._entries.get(stage)
        if entry is None or entry.inputs != inputs or set(entry.files) != set(files):
            return None
        if not all((self.folder / name).exists() for name in files):
            return None
        if set(entry.result) != {field.name for field in fields(kind)}:  # type: ignore[arg-type]
            raise _damaged(self.path)
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.result.items()})

    @contextmanager
    def begun(self, stage: str) -> Iterator[None]:
        """A stage is under way: what is left of it, should it be interrupted, may be overwritten.

        Where it fails and nothing is there yet but the ledger, that goes too.
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
        """A stage is done; its files are there."""
        digests = {name: digest(self.folder / name) for name in files}
        self._entries[stage] = Entry(inputs, digests, asdict(result))  # type: ignore[call-overload]
        self._under_way = ""
        self._write()

    def _write(self) -> None:
        stages = {name: asdict(entry) for name, entry in self._entries.items()}
        plain = {"format": FORMAT, "stages": stages, "under_way": self._under_way}
        write_whole(self.path, json.dumps(plain, indent=1, allow_nan=False).encode() + b"\n")


def digest(path: Path) -> str:
    """SHA-256 of a file, or of all files in a folder with their names."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    hashed = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            hashed.update(f"{file.relative_to(path)} {digest(file)}\n".encode())
    return hashed.hexdigest()


def digest_of(*inputs: object) -> str:
    """One digest of what a stage is made from."""
    return hashlib.sha256(json.dumps([str(one) for one in inputs]).encode()).hexdigest()


def _read(path: Path) -> tuple[dict[str, Entry], str]:
    try:
        plain = json.loads(path.read_text(errors="replace"))
        if plain["format"] != FORMAT:
            raise FitError(f"{path} has format {str(plain['format'])[:20]}, this version reads {FORMAT}; fit anew")
        return {str(name): _entry(one) for name, one in plain["stages"].items()}, str(plain["under_way"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damaged(path) from None
    except OSError as error:
        raise FitError(f"{path} cannot be read: {error.strerror}") from None


def _entry(plain: dict[str, Any]) -> Entry:
    files = {str(name): str(held) for name, held in plain["files"].items()}
    return Entry(str(plain["inputs"]), files, dict(plain["result"]))


def _damaged(path: Path) -> FitError:
    return FitError(
        f"{path} is not a ledger as smidgen fit writes it; remove it with what lies beside it, and fit anew"
    )
