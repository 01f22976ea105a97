"""Runs of a ladder that are done, kept in a file line by line, so that one that was interrupted goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

from smidgen.errors import InputError
from smidgen.records import RecordError, from_plain, parse_object
from smidgen.selection.judging import Run, Scores


class Runs:
    """The scores of runs that are known, and the file for the next ones."""

    def __init__(self, file: IO[bytes], known: dict[Run, Scores]) -> None:
        self._file, self.known = file, known

    def add(self, run: Run, scores: Scores) -> None:
        """Write the scores of a run."""
        self._file.write(json.dumps({"run": asdict(run), "scores": scores}).encode() + b"\n")
        self._file.flush()


@contextmanager
def open_runs(path: Path, ladder: str) -> Iterator[Runs]:
    """Open the file of a ladder, known by a digest; what another left there is dropped, as is a line cut off."""
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
        known = dict[Run, Scores]()
        with suppress(RecordError):
            if lines and parse_object(lines[0], "ladder")["ladder"] == ladder:
                for line in lines[1:]:
                    plain = parse_object(line, "run", "scores")
                    scores = plain["scores"]
                    known[from_plain(Run, plain["run"])] = scores and from_plain(tuple[float, ...], scores)
        with path.open("wb") as file:
            file.write(json.dumps({"ladder": ladder}).encode() + b"\n")
            runs = Runs(file, known)
            for run, scores in known.items():
                runs.add(run, scores)
            yield runs
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
