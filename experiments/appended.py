"""Results as lines of JSON: each is appended when it is there, so that what stops goes on where it was.

A line says which version of the arithmetic it is of; those of others are left alone and count as missing. A line that
was cut short is dropped when the next is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

from smidgen.errors import SmidgenError
from smidgen.ir.text import FORMAT as ARITHMETIC

Trial = TypeVar("Trial")
Outcome = TypeVar("Outcome")


class AppendedError(SmidgenError):
    """A file of results cannot be read or written."""


class Appended(Generic[Trial, Outcome]):
    """What each trial gave, by trial; both are frozen dataclasses of plain fields and tuples."""

    def __init__(self, path: Path, trial: type[Trial], outcome: type[Outcome]) -> None:
        self.path = path
        self.found: dict[Trial, Outcome] = {}
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise AppendedError(f"{path} cannot be read as results: {error}; name another file") from None
        self._whole = text[: text.rfind("\n") + 1]
        for number, line in enumerate(self._whole.splitlines(), start=1):
            try:
                plain = json.loads(line)
                if plain["arithmetic"] == ARITHMETIC:
                    self.found[trial(**_plain(plain["trial"]))] = outcome(**_plain(plain["outcome"]))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise AppendedError(
                    f"line {number} of {path} is not a result ({type(error).__name__}: {error}); remove that line and "
                    "what it held is measured again"
                ) from None

    def missing(self, trials: Iterable[Trial]) -> list[Trial]:
        """Those that have no outcome yet."""
        return [trial for trial in trials if trial not in self.found]

    def add(self, trial: Trial, outcome: Outcome) -> None:
        """Append an outcome; it is in the file when this returns."""
        held = {"arithmetic": ARITHMETIC, "trial": _dict(trial), "outcome": _dict(outcome)}
        line = json.dumps(held, allow_nan=False) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("r+b" if self.path.exists() else "wb") as file:
                file.truncate(len(self._whole.encode()))
                file.seek(0, 2)
                file.write(line.encode())
        except OSError as error:
            raise AppendedError(f"{self.path} cannot be written: {error.strerror}; name another file") from None
        self._whole += line
        self.found[trial] = outcome


def _dict(held: Any) -> dict[str, Any]:
    return asdict(held)


def _plain(read: Any) -> Any:
    """What JSON gave, its lists as tuples."""
    if isinstance(read, list):
        return tuple(_plain(item) for item in read)
    return {key: _plain(item) for key, item in read.items()} if isinstance(read, dict) else read
