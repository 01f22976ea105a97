"""A learned model as a .tflite file that a page fills in: the file of the first state, and where learned bytes go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from smidgen.errors import SmidgenError
from smidgen.frontends import exchange_suffix
from smidgen.frontends.tflite import write_tflite
from smidgen.ir import Array, Graph, Value
from smidgen.ir.rewriting import producers
from smidgen.learning.models import learned_graph
from smidgen.memory import state_offsets
from smidgen.ops.state import Overlay
from smidgen.pipeline import Program
from smidgen.training import Training


@dataclass(frozen=True)
class Patch:
    """Learned bytes in a file: a row of some channels of each row of a tensor, or all of it."""

    at: int  # in the file
    state: int  # in the state
    bytes: int  # of it there
    lasting: bool  # also there while samples are observed
    row: int  # bytes of a row of the file's tensor
    places: tuple[int, ...]  # in a row, of the bytes that are learned; none where all are


@dataclass(frozen=True)
class ModelFile:
    """A file, and its patches."""

    file: bytes
    patches: tuple[Patch, ...]

    def filled(self, state: bytes) -> bytes:
        """Return the file of a state, as the page makes it."""
        file = np.frombuffer(self.file, np.uint8).copy()
        for patch in self.patches:
            learned = np.frombuffer(state, np.uint8, patch.bytes, patch.state)
            if not patch.places:
                file[patch.at : patch.at + patch.bytes] = learned
                continue
            rows = patch.bytes // len(patch.places)
            part = file[patch.at : patch.at + rows * patch.row].reshape(rows, patch.row)
            part[:, list(patch.places)] = learned.reshape(rows, -1)
        return file.tobytes()


def model_file(program: Program) -> ModelFile | None:
    """Return the file that a page fills in; None where a model's learned bytes do not lie in its file as they are."""
    graph, training = program.graph, program.training
    if training is None or exchange_suffix(training.forward) != ".tflite":
        return None
    state = {v.name: v for v in training.forward.state}
    first = {v.name: graph.state[v] for v in graph.state if v.name in state}
    rng = np.random.default_rng(0)
    marked = {name: _marks(array, rng) for name, array in first.items()}
    try:
        file, other = (write_tflite(learned_graph(training, one)) for one in (first, marked))
    except SmidgenError:
        return None
    patches = tuple(_patches(graph, training, marked, other))
    found = ModelFile(file, patches)
    block = np.zeros(max(p.state + p.bytes for p in patches) if patches else 0, np.uint8)
    for v, at in state_offsets(graph).items():
        if v.name in marked:
            block[at : at + v.type.bytes] = np.ascontiguousarray(marked[v.name]).reshape(-1).view(np.uint8)
    return found if len(patches) == len(first) and found.filled(block.tobytes()) == other else None


def _marks(array: Array, rng: np.random.Generator) -> Array:
    """Return numbers of the same type that are found again in a file."""
    if array.dtype == np.float32:
        return rng.normal(size=array.shape).astype(np.float32)
    most = min(int(np.iinfo(array.dtype).max), 1 << 20)
    return rng.integers(-most, most, array.shape).astype(array.dtype)


def _patches(graph: Graph, training: Training, marked: Mapping[str, Array], file: bytes) -> Iterator[Patch]:
    """Yield where each tensor of a marked state lies in its file, once."""
    forward, places = training.forward, {v.name: at for v, at in state_offsets(graph).items()}
    assert graph.one_pass is not None
    lasting = {v.name for v in graph.one_pass.lasting}
    overlays = {node.ins[1]: node for node in producers(forward).values() if isinstance(node.op, Overlay)}
    for value in forward.state:
        whole, row, channels = marked[value.name], 0, tuple[int, ...]()
        node = overlays.get(value)
        if node is not None:
            assert isinstance(node.op, Overlay)
            frozen = forward.constants[node.ins[0]]
            row, channels = frozen.shape[-1] * frozen.itemsize, _octets(node.op.channels, frozen.itemsize)
            whole = node.op.ref(node, frozen, whole)
        octets = np.ascontiguousarray(whole).tobytes()
        if file.count(octets) == 1:
            yield _patch(value, file.index(octets), places[value.name], value.name in lasting, row, channels)


def _patch(value: Value, at: int, state: int, lasting: bool, row: int, places: tuple[int, ...]) -> Patch:
    return Patch(at, state, value.type.bytes, lasting, row, places)


def _octets(channels: tuple[int, ...], size: int) -> tuple[int, ...]:
    return tuple(size * channel + i for channel in channels for i in range(size))
