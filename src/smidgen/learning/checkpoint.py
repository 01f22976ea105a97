"""Checkpoints: a safetensors file of all state by name, with its program, data, course and progress.

The metadata is one JSON object; its digest covers the object and every byte of the state, so that a
truncated or damaged file is recognized.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from smidgen.data.files import write_whole
from smidgen.errors import InputError, SmidgenError
from smidgen.frontends.native import SAFE_DTYPES
from smidgen.ir import MAX_BYTES, Array, Graph
from smidgen.ir.text import fingerprint
from smidgen.learning.course import Course, RunPosition
from smidgen.records import RecordError, from_plain, parse_object

FORMAT = 1
HEADER = "smidgen-checkpoint"  # the metadata key


class CheckpointError(SmidgenError):
    """A checkpoint cannot be read, or belongs to something else."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A run to continue: its program and data by fingerprint, its course, its position, and all state."""

    program: str
    data: str
    course: Course
    position: RunPosition
    state: Mapping[str, Array]


def start_fingerprint(graph: Graph) -> str:
    """Return a fingerprint of a program and its first state, which a run that goes on must share."""
    hashed = hashlib.sha256(fingerprint(graph).encode())
    for array in graph.state.values():
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


def write_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write the whole file, or leave the old one."""
    state = {name: np.ascontiguousarray(array) for name, array in checkpoint.state.items()}
    described = json.dumps(
        {
            "format": FORMAT, "program": checkpoint.program, "data": checkpoint.data,
            "course": asdict(checkpoint.course), "place": asdict(checkpoint.position),
        }
    )  # fmt: skip
    text = json.dumps({"digest": _digest(described, state), "run": described})
    write_whole(path, save(state, {HEADER: text}))


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint back, every byte checked against its digest."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CheckpointError(f"{path} has more than {MAX_BYTES:,} bytes and is not a checkpoint")
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get(HEADER)
            state = {name: _tensor(file, name, path) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise CheckpointError(f"{path} is cut short or damaged: {str(error)[:120]}") from None
    if text is None:
        raise CheckpointError(f"{path} is a safetensors file but not a Smidgen checkpoint")
    return _parse(text, state, path)


def _digest(described: str, state: Mapping[str, Array]) -> str:
    hashed = hashlib.sha256(described.encode())
    for name in sorted(state):
        hashed.update(f"{name} {state[name].dtype} {state[name].shape}".encode())
        hashed.update(state[name].tobytes())
    return hashed.hexdigest()


def _tensor(file: safe_open, name: str, path: Path) -> Array:
    if file.get_slice(name).get_dtype() not in SAFE_DTYPES:  # type: ignore[no-untyped-call]
        raise CheckpointError(f"{path} holds {name[:80]!r} of a type that state never has")
    data: Array = file.get_tensor(name)  # type: ignore[no-untyped-call]
    return data


def _parse(text: str, state: Mapping[str, Array], path: Path) -> Checkpoint:
    try:
        outer = parse_object(text, "run", "digest")
        described = from_plain(str, outer["run"])
        run = parse_object(described, "format", "program", "data", "course", "place")
        if type(run["format"]) is not int or run["format"] != FORMAT:
            raise CheckpointError(f"{path} has format {run['format']!r}, this Smidgen reads {FORMAT}; upgrade it")
        if outer["digest"] != _digest(described, state):
            raise CheckpointError(f"{path} is damaged: its bytes are not those that were written")
        course, position = from_plain(Course, run["course"]), from_plain(RunPosition, run["place"])
        course.check()
        return Checkpoint(run["program"], run["data"], course, position, state)
    except (InputError, RecordError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
