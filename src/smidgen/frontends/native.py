"""`.smg`, Smidgen's own files: safetensors whose metadata holds the graph in its text form."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

import smidgen.ops  # noqa: F401  (the text names ops by their entries in the table)
from smidgen.data.files import MEMORY, check_size, write_whole
from smidgen.errors import ExportError, GraphError, ImportModelError, refuse
from smidgen.ir import DTYPES, Array, Graph
from smidgen.ir.text import parse_graph, print_graph

FORMAT = 1
HEADER = "smidgen"  # the metadata key: a line "format 1", then the graph's text
BESIDE = "sums/"  # begins the names of what lies beside a graph, which no value's name can
MAX_TEXT = 2**24
SAFE_DTYPES = ("I8", "U8", "I16", "I32", "U32", "F32")  # ours, as safetensors spells them


def write_smg(graph: Graph, path: Path, beside: Mapping[str, Array] | None = None) -> None:
    """Write the graph with its constants and state; the whole file appears, or none.

    Tensors `beside` the graph, whose names begin with BESIDE, are kept for who asks.
    """
    if len(graph.name.splitlines()) > 1:
        raise ExportError(f"the graph's name {graph.name!r} has line breaks; .smg files hold it on one line")
    kept = {**graph.constants, **graph.state}
    tensors = {value.name: np.ascontiguousarray(data) for value, data in kept.items()}
    write_whole(path, save({**tensors, **(beside or {})}, {HEADER: f"format {FORMAT}\n{print_graph(graph)}"}))


def read_smg(path: Path, memory: int = MEMORY) -> Graph:
    """Read a graph back; what the text declares and what the file holds must agree."""
    try:
        check_size(path, memory)
        with safe_open(path, framework="np") as file:
            text = _text(file.metadata(), path.name)
            names = [name for name in file.keys() if not name.startswith(BESIDE)]  # noqa: SIM118
            tensors = {name: _tensor(file, name, path.name) for name in names}
    except OSError as error:
        raise ImportModelError(f"{path} cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise ImportModelError(f"{path.name} is not a valid .smg file: {str(error)[:120]}") from None
    try:
        graph = parse_graph(text, tensors)
    except GraphError as error:
        raise ImportModelError(f"{path.name} does not hold a valid graph: {error}") from None
    extra = sorted(tensors.keys() - {value.name for value in (*graph.constants, *graph.state)})
    if extra:
        what = f"{len(extra)} tensors its graph does not declare"
        raise ImportModelError(f"{path.name} holds {what}, as {extra[0][:80]!r}")
    return graph


def _text(metadata: Mapping[str, str] | None, where: str) -> str:
    line, _, text = (metadata or {}).get(HEADER, "").partition("\n")
    refuse(not line.startswith("format "), f"{where} is a safetensors file without a Smidgen graph in its metadata")
    if line != f"format {FORMAT}":
        raise ImportModelError(f"{where} has {line[:40]!r}, this Smidgen reads format {FORMAT}; upgrade Smidgen")
    refuse(len(text) > MAX_TEXT, f"{where} describes its graph in {len(text):,} characters; the limit is {MAX_TEXT:,}")
    return text


def _tensor(file: safe_open, name: str, where: str) -> Array:
    if file.get_slice(name).get_dtype() not in SAFE_DTYPES:  # type: ignore[no-untyped-call]
        raise ImportModelError(f"{where} holds {name[:80]!r} of a type other than {', '.join(DTYPES)}")
    data: Array = file.get_tensor(name)  # type: ignore[no-untyped-call]
    data.setflags(write=False)
    return data
