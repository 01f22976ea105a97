"""Results that several of pytest's workers need: the first that asks makes one, and the others read it."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

try:
    import fcntl
except ImportError:  # on Windows each worker makes its own
    fcntl = None  # type: ignore[assignment]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Once:
    """Results of one run of pytest, by name, in a folder that its workers share."""

    folder: Path

    def __call__(self, name: str, make: Callable[[Path], Result]) -> Result:
        """Return what `make` returns, given an empty folder for files that it leaves."""
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home / "lock"):
            kept = home / "result.pickle"
            if not kept.exists():
                result = make(Path(tempfile.mkdtemp(dir=home)))
                kept.write_bytes(pickle.dumps(result))
            found: Result = pickle.loads(kept.read_bytes())
        return found


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as opened:
        if fcntl is not None:
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
