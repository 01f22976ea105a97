"""A model by zoo name or by file: what MODEL means everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from smidgen.data.files import MEMORY
from smidgen.errors import ImportModelError, InputError
from smidgen.frontends import READERS, import_model
from smidgen.ir import Graph
from smidgen.zoo import is_zoo_name, load_zoo


def load(model: str | Path, memory: int = MEMORY, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """A network of the zoo, or a model file; a name stands for the network, `./name` for the file.

    A file's contents may take so many bytes of `memory`; `shapes` are those of inputs that it leaves open.
    """
    if isinstance(model, str) and is_zoo_name(model):
        if shapes:
            raise InputError(f"{model} has fixed sizes; leave the shape out")
        return load_zoo(model)
    path = Path(model)
    if path.exists() or path.suffix.lower() in READERS:
        return import_model(path, memory, shapes)
    try:
        return load_zoo(str(model))
    except InputError as error:
        raise ImportModelError(f"there is no file {model}, and {error}") from None
