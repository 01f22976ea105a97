"""A file that outcomes are added to as they come, so that an interrupted analysis goes on from them."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from smidgen.errors import InputError
from smidgen.ir.fingerprint import fingerprint
from smidgen.selection.contributions import ContributionsError
from smidgen.selection.runs import Outcome, Setup
from smidgen.selection.trials import Trial
from smidgen.training.scheme import Scheme, SchemeError

FORMAT = 1
_NOTHING: Mapping[Trial, Outcome] = MappingProxyType({})


class Journal:
    """Outcomes that are there already, and the file the next ones go to; without a file they are kept nowhere."""

    def __init__(self, file: IO[bytes] | None = None, known: Mapping[Trial, Outcome] = _NOTHING) -> None:
        self._file, self.known, self.empty = file, known, not known

    def add(self, trial: Trial, outcome: Outcome) -> None:
        """One more line, on the disk when this returns."""
        if self._file is None:
            return
        self.empty = False
        scheme = json.loads(trial.scheme.to_json())
        line = {"scheme": scheme, "bits": trial.weight_bits, "seed": trial.seed, **asdict(outcome)}
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def journal_path(output: Path) -> Path:
    """Where the outcomes of an analysis lie until it is whole."""
    return output.with_name(f"{output.name}.part")


@contextmanager
def open_journal(path: Path, setup: Setup) -> Iterator[Journal]:
    """The journal of this very analysis, a new one where there is none; ContributionsError where it is another's."""
    try:
        file = path.open("a+b")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"{path} is being written by another analysis; wait for it, or name another file"
            ) from None
        file.seek(0)
        text, header = file.read(), _header(setup)
        whole = text[: text.rfind(b"\n") + 1]  # a last line without an end was cut off when it was written
        first = json.dumps(header).encode() + b"\n"
        if not whole and not first.startswith(text):
            raise ContributionsError(f"{path} is not as smidgen analyze wrote it; remove the file to begin anew")
        journal = Journal(file, _known(whole.decode(errors="replace").splitlines(), header, path))
        file.truncate(len(whole))
        if not whole:
            file.write(first)
            file.flush()
        try:
            yield journal
        finally:
            if journal.empty:
                path.unlink()


def _header(setup: Setup) -> dict[str, Any]:
    course = json.loads(json.dumps(asdict(setup.course)))
    return {"format": FORMAT, "model": fingerprint(setup.model), "data": setup.data.digest(), "course": course}


def _known(lines: list[str], header: Mapping[str, Any], path: Path) -> dict[Trial, Outcome]:
    found = {}
    for number, line in enumerate(lines, start=1):
        try:
            plain = json.loads(line)
            if number == 1:
                _check_header(plain, header, path)
            else:
                trial, outcome = _parsed(plain)
                found[trial] = outcome
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SchemeError) as error:
            raise ContributionsError(
                f"line {number} of {path} is not as smidgen analyze wrote it ({type(error).__name__}); remove the file "
                "to begin anew"
            ) from None
    return found


def _check_header(found: Any, header: Mapping[str, Any], path: Path) -> None:
    """Raise ContributionsError with what differs between the analysis a journal is of and this one."""
    way_out = f"give the same, or remove {path} to begin anew"
    if found["format"] != header["format"]:
        raise ContributionsError(
            f"{path} has format {str(found['format'])[:20]}, this version writes {FORMAT}; {way_out}"
        )
    if found["model"] != header["model"]:
        raise ContributionsError(f"{path} holds the outcomes of another model; {way_out}")
    if found["data"] != header["data"]:
        raise ContributionsError(f"{path} holds outcomes on other images, or on more or fewer of them; {way_out}")
    for key, now in header["course"].items():
        if (was := found["course"].get(key)) != now:
            raise ContributionsError(f"{path} holds the outcomes of runs with {key} {was}, these have {now}; {way_out}")


def _parsed(plain: Any) -> tuple[Trial, Outcome]:
    scheme = Scheme.from_json(json.dumps(plain["scheme"]), "a scheme of the journal")
    accuracy, loss = float(plain["accuracy"]), plain["loss"]
    if not 0 <= accuracy <= 1 or not (loss is None or math.isfinite(loss)):
        raise ValueError(f"top-1 {accuracy}, loss {loss}")
    return Trial(scheme, int(plain["bits"]), int(plain["seed"])), Outcome(accuracy, loss)
