"""Reader of `torch.export` archives: a JSON description and raw bytes, none of it unpickled.

PyTorch never sees the file. Its own loader would run code that a hostile one holds: pickled objects, classes named in
tree specifications, and names of tensors, which it pastes into Python source.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smidgen.data.files import Budget, read_zip
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.fields import Record
from smidgen.ir import Array

MODEL, SAMPLES = "models/model.json", "data/sample_inputs/model.pt"
TABLES = {"data/weights/": "model_weights_config.json", "data/constants/": "model_constants_config.json"}
PAYLOAD = re.compile(r"(weight|tensor)_[0-9]{1,6}")
# Members that do not describe the model; example inputs and files that the user added stay unread too.
UNREAD = re.compile(r"archive_format|archive_version|\.data/(version|serialization_id)")
LARGEST_RANK = 8
STRIDED = 7  # the number of dense tensors among layouts
PICKLED = "holds pickled objects, which could run code; save a model of plain tensors with torch.export.save"
SAVE = "save the model with torch.export.save of PyTorch 2.13 or later"
# PyTorch's numbers for element types in these files.
DTYPES: Mapping[int, type[np.generic]] = {
    1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.float16, 7: np.float32, 8: np.float64,
    12: np.bool_,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Archive:
    """A file's description as JSON, and its tensors by their names in the module."""

    model: Record
    tensors: Mapping[str, Array]


def read_archive(path: Path, budget: Budget) -> Archive:
    """Return the description and the tensors of the one model in an archive."""
    members = read_zip(path, budget, lambda name: not name.endswith("/" + SAMPLES) and "/extra/" not in name)
    roots = {name.partition("/")[0] + "/" for name in members}
    refuse(not any(name.endswith("/" + MODEL) for name in members), f"{path.name} holds no {MODEL}; {SAVE}")
    refuse(len(roots) != 1, f"{path.name} holds {len(roots)} folders where one belongs; {SAVE}")
    inside = {name.removeprefix(*roots): data for name, data in members.items()}
    _check_members(inside, path.name)
    tensors: dict[str, Array] = {}
    for folder, table in TABLES.items():
        refuse(folder + table not in inside, f"{path.name} holds no {folder}{table}; {SAVE}")
        config = Record.from_json(inside[folder + table], f"{path.name}, {table}", budget).record("config")
        for name, entry in config.values.items():
            tensors[str(name)] = _tensor(Record.of(entry, f"{table}, {str(name)[:80]!a}"), inside, folder, budget)
    return Archive(Record.from_json(inside[MODEL], f"{path.name}, {MODEL}", budget), tensors)


def _check_members(inside: Mapping[str, bytes], where: str) -> None:
    """Raise unless the archive holds only what `torch.export.save` writes for one model of plain tensors."""
    known = {MODEL, "byteorder", *(folder + table for folder, table in TABLES.items())}
    for name in inside:
        folder = next((folder for folder in TABLES if name.startswith(folder)), "")
        payload = folder and PAYLOAD.fullmatch(name.removeprefix(folder))
        refuse(folder and name.endswith(".pt"), f"{where} {PICKLED}")
        if name not in known and not payload and not UNREAD.fullmatch(name):
            raise ImportModelError(f"{where} holds {name[:80]!a}, which no archive of one plain model needs; {SAVE}")
    refuse(MODEL not in inside, f"{where} holds no {MODEL} in its one folder; {SAVE}")
    if inside.get("byteorder", b"little") != b"little":
        raise ImportModelError(f"{where} was saved on a big-endian machine; save it on a little-endian one")


def _tensor(entry: Record, inside: Mapping[str, bytes], folder: str, budget: Budget) -> Array:
    """Return an entry's tensor: a view of raw bytes by sizes, strides and offset, which must be within them."""
    if entry.entry("use_pickle") is not False or entry.values.get("tensor_meta") is None:
        raise ImportModelError(f"{entry.where} {PICKLED}")
    path = entry.entry("path_name")
    data = inside.get(f"{folder}{path}") if isinstance(path, str) and PAYLOAD.fullmatch(path) else None
    if data is None:
        raise ImportModelError(f"{entry.where} refers to {str(path)[:80]!a}, which is no tensor of the archive")
    return _view(data, entry.record("tensor_meta"), budget)


def _view(data: bytes, meta: Record, budget: Budget) -> Array:
    shape, dtype = sizes(meta), element_type(meta)
    strides = tuple(fixed(item) for item in meta.records("strides"))
    offset = fixed(meta.record("storage_offset"))
    if len(strides) != len(shape) or min(strides, default=0) < 0 or offset < 0:
        raise ImportModelError(f"{meta.where} has sizes {list(shape)}, strides {list(strides)} and offset {offset}")
    size = math.prod(shape)
    reach = offset + 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if size and reach * dtype.itemsize > len(data):
        raise ImportModelError(
            f"{meta.where} reaches element {reach:,} of {dtype}, its {len(data):,} bytes hold "
            f"{len(data) // dtype.itemsize:,}; save it again"
        )
    budget.take(meta.where, size * dtype.itemsize)
    if not size:
        return np.zeros(shape, dtype)
    flat = np.frombuffer(data, dtype, len(data) // dtype.itemsize)[offset:]
    steps = tuple(stride * dtype.itemsize for stride in strides)
    return np.array(np.lib.stride_tricks.as_strided(flat, shape, steps, writeable=False), order="C")


def element_type(meta: Record) -> np.dtype[np.generic]:
    """Return a tensor's element type, which must be one of numpy's, in plain order of memory."""
    number = meta.integer("dtype")
    if number not in DTYPES or meta.integer("layout") != STRIDED:
        kinds = ", ".join(kind.__name__ for kind in DTYPES.values())
        raise ImportModelError(f"{meta.where} is of PyTorch's type {number}, or sparse; use dense {kinds}")
    return np.dtype(DTYPES[number])


def sizes(meta: Record) -> tuple[int, ...]:
    """Return a tensor's shape, all of it fixed."""
    shape = tuple(fixed(item) for item in meta.records("sizes"))
    if len(shape) > LARGEST_RANK or min(shape, default=0) < 0:
        raise ImportModelError(f"{meta.where} has sizes {list(shape[:LARGEST_RANK])}; up to {LARGEST_RANK} are read")
    return shape


def fixed(item: Record) -> int:
    """Return a size that is a number, not an expression."""
    if "as_int" not in item.values:
        raise ImportModelError(f"{item.where} leaves a dimension open; export it with fixed sizes, no dynamic_shapes")
    return item.integer("as_int")
