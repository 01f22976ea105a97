"""Readers of model files into graphs, and writers of graphs into model files, by suffix."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from smidgen.data.files import MEMORY, write_whole
from smidgen.errors import ImportModelError, InputError, refuse
from smidgen.frontends.native import read_smg, write_smg
from smidgen.ir import Graph
from smidgen.ops import Gru, Lookup

NO_TORCH = "needs PyTorch to be read, which is not installed; install smidgen[torch], or export the model to .onnx"


def _lazy(module: str, function: str) -> Callable[..., Any]:
    """Return a function of a module that is imported when the function is first called: formats take a while to."""

    def call(*given: Any) -> Any:
        return getattr(import_module(module), function)(*given)

    return call


def _torch_reader(what: str) -> Any:
    """Return the module that imports PyTorch, which nothing else needs."""
    try:
        return import_module("smidgen.frontends.torch.reader")
    except ModuleNotFoundError:
        raise ImportModelError(f"{what} {NO_TORCH}") from None


def from_torch(module: Any, example: Any) -> Graph:
    """Return a `torch.nn.Module` as a float32 graph; `example` is one input, a batch of 1, or a tuple of them."""
    graph: Graph = _torch_reader(type(module).__name__).from_torch(module, example)
    return graph


READERS: dict[str, Callable[..., Graph]] = {
    ".smg": read_smg,
    ".tflite": _lazy("smidgen.frontends.tflite", "read_tflite"),
    ".npz": _lazy("smidgen.frontends.release", "read_release_npz"),
    ".pkl": _lazy("smidgen.frontends.release", "read_pkl"),
    ".onnx": _lazy("smidgen.frontends.onnx", "read_onnx"),
    ".pt2": lambda path, memory: _torch_reader(path.name).read_pt2(path, memory),
    **dict.fromkeys((".keras", ".h5", ".hdf5"), _lazy("smidgen.frontends.keras", "read_keras")),
}
WRITTEN: dict[str, Callable[[Graph], bytes]] = {
    ".tflite": _lazy("smidgen.frontends.tflite", "write_tflite"),
    ".onnx": _lazy("smidgen.frontends.onnx", "write_onnx"),
}
SUFFIXES = (".smg", *WRITTEN)  # of files that can be written


def check_writable(path: Path, plain: bool = False) -> None:
    """Raise InputError unless the suffix is of a kind of file that is written, in the form asked for."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path} should end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, the formats written")
    if plain and suffix != ".onnx":
        raise InputError(f"{path}: only .onnx has a plain form, {suffix} has just one form; leave plain out")


def export_model(graph: Graph, path: str | Path, plain: bool = False) -> None:
    """Write a model file in the format of its suffix; `plain` is ONNX that runtimes fuse and round their own way."""
    path = Path(path)
    check_writable(path, plain)
    if path.suffix.lower() == ".smg":
        write_smg(graph, path)
        return
    write = _lazy("smidgen.frontends.onnx", "write_plain") if plain else WRITTEN[path.suffix.lower()]
    write_whole(path, write(graph))


def exchange_suffix(graph: Graph) -> str:
    """Return the suffix of the format for other tools: .tflite, or .onnx where TFLite lacks the model's functions."""
    used = [node.op for node in graph.nodes]
    beyond = any(isinstance(op, Gru) or (isinstance(op, Lookup) and not op.tflite) for op in used)
    return ".onnx" if beyond else ".tflite"


def import_model(path: str | Path, memory: int = MEMORY, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """Read a model file in the format of its suffix; its contents may take `memory` bytes.

    `shapes` gives sizes to inputs that an `.onnx` file leaves open, by their names.
    """
    path = Path(path)
    if path.suffix.lower() not in READERS:
        kind = f"'{path.suffix}' files are" if path.suffix else "files without a suffix are"
        raise ImportModelError(f"{path.name}: {kind} not supported; supported are {', '.join(READERS)}")
    refuse(not path.exists(), f"there is no file {path}")
    refuse(not path.is_file(), f"{path} is not a file; a model file ({', '.join(READERS)}) is expected")
    if shapes and path.suffix.lower() != ".onnx":
        raise ImportModelError(f"{path.name}: a shape is given, and only .onnx files leave sizes open; leave it out")
    with np.errstate(all="ignore"):  # what is no number afterwards is refused as such
        return READERS[path.suffix.lower()](path, memory, *([shapes] if shapes else []))
