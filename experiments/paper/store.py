"""Results on disk: one line of JSON each behind a header, appended when a fleet is done and never rewritten.

The header says which version of the format and of the arithmetic the results are of. A line that a power failure cut
short is dropped; all others stay.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from experiments.paper.runs import Build, Footprint, Outcome, Run
from smidgen.errors import SmidgenError
from smidgen.ir.text import FORMAT as ARITHMETIC

FORMAT = 1
HEADER = {"results": "paper", "format": FORMAT, "arithmetic": ARITHMETIC}
Record = TypeVar("Record", Run, Outcome, Build, Footprint)


class ResultsError(SmidgenError):
    """A file of results cannot be read or written, or is of another version."""


class Store:
    """The results in a file, read once; what is added is on disk when `add` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: dict[Run, Outcome] = {}
        self.builds: dict[Build, Footprint] = {}
        text = _text(path)
        whole, _, _ = text.rpartition("\n")
        if whole:
            self._read(whole.split("\n"))

    def _read(self, lines: list[str]) -> None:
        _check_header(lines[0], self.path)
        for number, line in enumerate(lines[1:], start=2):
            try:
                plain = json.loads(line)
                if "run" in plain:
                    self.runs[_record(Run, plain["run"])] = _record(Outcome, plain["outcome"])
                else:
                    self.builds[_record(Build, plain["build"])] = _record(Footprint, plain["footprint"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise ResultsError(
                    f"line {number} of {self.path} is not a result ({type(error).__name__}: {error}); remove that line "
                    "and what it held is measured again"
                ) from None

    def check_writable(self) -> None:
        """Raise ResultsError where results could not be kept."""
        _append(self.path, "")

    def add(self, runs: Mapping[Run, Outcome] | None = None, builds: Mapping[Build, Footprint] | None = None) -> None:
        """Append results; several processes may do so at once."""
        plain: list[dict[str, Any]] = [{"run": asdict(r), "outcome": asdict(o)} for r, o in (runs or {}).items()]
        plain += [{"build": asdict(b), "footprint": asdict(f)} for b, f in (builds or {}).items()]
        _append(self.path, "".join(json.dumps(finite_json(one), allow_nan=False) + "\n" for one in plain))
        self.runs.update(runs or {})
        self.builds.update(builds or {})


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path} cannot be read as results: {error}; name another file") from None


def _check_header(line: str, path: Path) -> None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("results") != HEADER["results"]:
        raise ResultsError(f"{path} does not hold results of the paper's tables; name another file")
    for key in ("format", "arithmetic"):
        if found.get(key) != HEADER[key]:
            raise ResultsError(
                f"{path} holds results of {key} {str(found.get(key))[:20]}, this is {key} {HEADER[key]}; name another "
                "file, or measure with the version that wrote it"
            )


def _append(path: Path, lines: str) -> None:
    """Behind what is there, less a line that was cut short, in one write that is on disk afterwards."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            held = file.read()
            whole = held.rfind(b"\n") + 1
            if whole < len(held):
                file.truncate(whole)
            header = "" if whole else json.dumps(HEADER) + "\n"
            file.write((header + lines).encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ResultsError(f"{path} cannot be written: {error.strerror}; name another file") from None


def finite_json(plain: Any) -> Any:
    """JSON has no infinities: a number that is none becomes null."""
    if isinstance(plain, dict):
        return {key: finite_json(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [finite_json(value) for value in plain]
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def _record(kind: type[Record], plain: object) -> Record:
    """What a line holds; a field that came later has its default in lines from before."""
    hints = get_type_hints(kind)
    needed = {f.name for f in fields(kind) if f.default is MISSING}
    if not isinstance(plain, dict) or not needed <= set(plain) <= set(hints):
        raise ValueError(f"a {kind.__name__} has {', '.join(hints)}")
    return kind(**{name: _value(value, hints[name], name) for name, value in plain.items()})


def _value(plain: Any, hint: Any, name: str) -> Any:
    """A field's value as its type says; null is a number that is none where a float is due."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Literal and plain in options:
        return plain
    if origin in (UnionType, Union):
        return None if plain is None and NoneType in options else _value(plain, options[0], name)
    if origin is tuple and isinstance(plain, list):
        return tuple(_value(one, options[0], name) for one in plain)
    if hint is float and (plain is None or (isinstance(plain, int | float) and not isinstance(plain, bool))):
        return math.nan if plain is None else float(plain)
    if origin is None and type(plain) is hint:
        return plain
    raise ValueError(f"{name} cannot be {str(plain)[:40]!r}")
