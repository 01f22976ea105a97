"""Model files in, graphs out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from smidgen.errors import ImportModelError
from smidgen.frontends.native import read_smg
from smidgen.frontends.release import read_pkl, read_release_npz
from smidgen.frontends.tflite import read_tflite
from smidgen.ir import Graph

READERS: dict[str, Callable[[Path], Graph]] = {
    ".smg": read_smg,
    ".tflite": read_tflite,
    ".npz": read_release_npz,
    ".pkl": read_pkl,
}


def import_model(path: str | Path) -> Graph:
    """Read a model file of any supported kind, told by its suffix."""
    path = Path(path)
    if path.suffix.lower() not in READERS:
        kind = f"'{path.suffix}' files are" if path.suffix else "files without a suffix are"
        raise ImportModelError(f"{path.name}: {kind} not supported; supported are {', '.join(READERS)}")
    if not path.exists():
        raise ImportModelError(f"there is no file {path}")
    if not path.is_file():
        raise ImportModelError(f"{path} is not a file; a model file ({', '.join(READERS)}) is expected")
    return READERS[path.suffix.lower()](path)
