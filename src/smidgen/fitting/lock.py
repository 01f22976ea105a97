"""The lock of a folder that is being fitted: one fit at a time, and a killed one's leftovers are removed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from smidgen.errors import SmidgenError
from smidgen.records import from_plain

LOCK = "fit.lock"
LEFTOVERS = (".smidgen-*", ".project-*")  # files and folders under temporary names, as writers name them


class FitError(SmidgenError):
    """A fit cannot go on."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a folder, and the machine it runs on."""

    process: int
    host: str

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    @property
    def runs(self) -> bool:
        """Return whether a process of this number runs on this machine."""
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # another user's
            pass
        return True


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for one fit; FitError where another holds it, or may hold it on another machine.

    The system ends the lock of a process that dies. Its file stays, and the next fit takes it over.
    """
    path = folder / LOCK
    with _opened(path) as file:
        before, here = _holder(file), Holder(os.getpid(), socket.gethostname())
        if before is not None and before.host != here.host:
            raise FitError(
                f"{folder} is held by a fit, {before}, which cannot be seen from {here.host}; wait for it, or if it no "
                f"longer runs there, remove {path}"
            )
        _remove_leftovers(folder)
        file.seek(0)
        file.truncate()
        file.write(json.dumps(asdict(here)) + "\n")
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _opened(path: Path) -> IO[str]:
    """Open the lock's file and lock it, or raise FitError."""
    while True:
        try:
            file = path.open("a+")
        except OSError as error:
            raise FitError(f"{path} cannot be written: {error.strerror}") from None
        if not _lock(file):
            found = _holder(file)
            file.close()
            raise FitError(
                f"{path.parent} is being fitted by {found or 'another process'}; wait for it, or give another folder"
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        file.close()  # its holder was done and removed it in between


def _lock(file: IO[str]) -> bool:
    """Return whether the file could be locked; without locks in the file system, whether its holder is gone."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        found = _holder(file)
        return found is None or found.host != socket.gethostname() or not found.runs
    return True


def _holder(file: IO[str]) -> Holder | None:
    """Return the holder that a lock names; None for one that is empty or was cut short."""
    file.seek(0)
    try:
        return from_plain(Holder, json.loads(file.read(1000)))
    except (ValueError, TypeError):
        return None


def _remove_leftovers(folder: Path) -> None:
    """Remove what a fit that was killed was writing."""
    for pattern in LEFTOVERS:
        for path in folder.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
