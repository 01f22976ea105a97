"""Model files in, graphs out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from smidgen.data.files import MEMORY, write_whole
from smidgen.errors import ImportModelError, InputError
from smidgen.frontends.keras import read_keras
from smidgen.frontends.native import read_smg, write_smg
from smidgen.frontends.release import read_pkl, read_release_npz
from smidgen.frontends.tflite import read_tflite, write_tflite
from smidgen.ir import Graph, Op
from smidgen.ops import Gru, Lookup

NO_TORCH = "needs PyTorch to be read, which is not installed; install smidgen[torch], or export the model to .onnx"


def _read_onnx(path: Path, memory: int, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    from smidgen.frontends.onnx import read_onnx  # here, because onnx takes a while to import

    return read_onnx(path, memory, shapes or {})


def _read_pt2(path: Path, memory: int) -> Graph:
    try:
        from smidgen.frontends.torch.reader import (
            read_pt2,  # here, because it imports PyTorch, which nothing else needs
        )
    except ModuleNotFoundError:
        raise ImportModelError(f"{path.name} {NO_TORCH}") from None
    return read_pt2(path, memory)


def from_torch(module: Any, example: Any) -> Graph:
    """A `torch.nn.Module` as a float32 graph; `example` is one input, a batch of 1, or a tuple of them."""
    try:
        from smidgen.frontends.torch import reader
    except ModuleNotFoundError:
        raise ImportModelError(f"{type(module).__name__} {NO_TORCH}") from None
    return reader.from_torch(module, example)


READERS: dict[str, Callable[[Path, int], Graph]] = {
    ".smg": read_smg,
    ".tflite": read_tflite,
    ".npz": read_release_npz,
    ".pkl": read_pkl,
    ".onnx": _read_onnx,
    ".pt2": _read_pt2,
    ".keras": read_keras,
    ".h5": read_keras,
    ".hdf5": read_keras,
}


def _write_tflite(graph: Graph, path: Path) -> None:
    write_whole(path, write_tflite(graph))


def _write_onnx(graph: Graph, path: Path) -> None:
    from smidgen.frontends.onnx import write_onnx

    write_whole(path, write_onnx(graph))


WRITERS: dict[str, Callable[[Graph, Path], None]] = {
    ".smg": write_smg,
    ".tflite": _write_tflite,
    ".onnx": _write_onnx,
}


def _write_plain(graph: Graph, path: Path) -> None:
    from smidgen.frontends.onnx import write_plain

    write_whole(path, write_plain(graph))


def check_writable(path: Path, plain: bool = False) -> None:
    """Raise InputError unless the suffix is of a kind of file that is written, in the form asked for."""
    suffix = path.suffix.lower()
    if suffix not in WRITERS:
        kinds = list(WRITERS)
        raise InputError(
            f"{path} should end in {', '.join(kinds[:-1])} or {kinds[-1]}, the formats that can be written"
        )
    if plain and suffix != ".onnx":
        raise InputError(f"{path}: only .onnx has a plain form, {suffix} has just one form; leave plain out")


def export_model(graph: Graph, path: str | Path, plain: bool = False) -> None:
    """Write a model file of the kind its suffix tells; `plain` is ONNX that runtimes fuse and round their own way."""
    path = Path(path)
    check_writable(path, plain)
    (_write_plain if plain else WRITERS[path.suffix.lower()])(graph, path)


def exchange_suffix(graph: Graph) -> str:
    """The kind of file in which a model goes elsewhere: .tflite, or .onnx where TFLite lacks its functions."""
    return ".onnx" if any(_beyond_tflite(node.op) for node in graph.nodes) else ".tflite"


def _beyond_tflite(op: Op) -> bool:
    return isinstance(op, Gru) or (isinstance(op, Lookup) and not op.tflite)


def import_model(path: str | Path, memory: int = MEMORY, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """Read a model file of any supported kind; its suffix says which, and its contents may take `memory` bytes.

    `shapes` gives sizes to inputs that an `.onnx` file leaves open, by their names.
    """
    path = Path(path)
    if path.suffix.lower() not in READERS:
        kind = f"'{path.suffix}' files are" if path.suffix else "files without a suffix are"
        raise ImportModelError(f"{path.name}: {kind} not supported; supported are {', '.join(READERS)}")
    if not path.exists():
        raise ImportModelError(f"there is no file {path}")
    if not path.is_file():
        raise ImportModelError(f"{path} is not a file; a model file ({', '.join(READERS)}) is expected")
    if shapes and path.suffix.lower() != ".onnx":
        raise ImportModelError(f"{path.name}: a shape is given, and only .onnx files leave sizes open; leave it out")
    with np.errstate(all="ignore"):  # what is no number afterwards is refused as such
        if shapes:
            return _read_onnx(path, memory, shapes)
        return READERS[path.suffix.lower()](path, memory)
