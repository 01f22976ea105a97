"""Models as people have them: which are read, and whether they compute what LiteRT's reference kernels compute.

Each is given random inputs and, where it takes images, photographs. A file whose inputs or outputs are uint8 is read as
int8, 128 lower: that is how both are compared. Of float32 outputs the largest difference is told, as a share of the
largest number LiteRT gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import smidgen as sm
from smidgen.data import Data, as_input, pixel_encoding
from smidgen.data.samples import evenly
from smidgen.errors import SmidgenError
from smidgen.frontends import READERS
from smidgen.frontends.tflite import write_tflite
from smidgen.ir import Array, Graph, evaluate_step
from smidgen.targets.device import Device

INPUTS = 20
SIGN = np.uint8(0x80)  # between a byte that is int8 and one that is uint8, 128 higher
KINDS = (*READERS, ".keras", ".h5", ".pt", ".pth", ".pb")  # of model files, read or not


@dataclass(frozen=True)
class Compared:
    """How many of some inputs gave the same bytes; `apart` is the largest difference, in steps or as a share."""

    inputs: int
    equal: int
    apart: float


@dataclass(frozen=True)
class Tried:
    """One file: its layers, and how it compares, or why it is refused."""

    file: str
    layers: int = 0
    computes: str = ""  # int8, float32
    random: Compared | None = None
    real: Compared | None = None
    refused: str = ""
    notes: tuple[str, ...] = ()


def try_all(folder: Path, photographs: Data | None) -> Iterator[Tried]:
    """Every model file of a folder, by name."""
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix.lower() in KINDS:
            yield try_one(path, photographs)


def try_one(path: Path, photographs: Data | None) -> Tried:
    """One model file; whatever is wrong with it is told, not raised."""
    try:
        graph = sm.import_model(path)
    except SmidgenError as error:
        return Tried(path.name, refused=str(error))
    int8 = any(value.type.dtype == "int8" for node in graph.nodes for value in node.outs)
    found = Tried(path.name, len(graph.nodes), "int8" if int8 else "float32", notes=graph.notes)
    if path.suffix.lower() != ".tflite":
        return found
    judge, notes = _judge(path, graph)
    random, real = list(_random(graph)), list(_real(graph, photographs))
    with _Ours(graph, int8) as ours:
        return replace(
            found, random=_compare(ours, judge, random), real=_compare(ours, judge, real), notes=graph.notes + notes
        )


def _judge(path: Path, graph: Graph) -> tuple[_LiteRT, tuple[str, ...]]:
    """LiteRT on the file or, where LiteRT refuses it, on what is exported of it; and a note of that."""
    try:
        return _LiteRT(path.read_bytes()), ()
    except (ValueError, RuntimeError) as error:
        said = str(error).partition(".")[0][:60]
        return _LiteRT(write_tflite(graph)), (f"LiteRT refuses the file ({said}): its export is compared",)


class _Ours:
    """The graph in C on this machine; float32, which has no C of its own, in numpy."""

    def __init__(self, graph: Graph, compiled: bool) -> None:
        self.graph, self.state = graph, graph.state
        self.device: Device | None = sm.compile(graph).start() if compiled else None

    def __enter__(self) -> _Ours:
        return self

    def __exit__(self, *_: object) -> None:
        if self.device is not None:
            self.device.close()

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        if self.device is not None:
            return self.device.run(*arrays)
        outputs, self.state = evaluate_step(self.graph, self.state, *arrays)
        return outputs


class _LiteRT:
    """LiteRT's reference kernels on one model."""

    def __init__(self, model: bytes) -> None:
        self.interpreter = Interpreter(
            model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
        )
        self.interpreter.allocate_tensors()

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        for detail, array in zip(self.interpreter.get_input_details(), arrays, strict=True):
            self.interpreter.set_tensor(detail["index"], _as_bytes(array, detail["dtype"]).reshape(detail["shape"]))
        self.interpreter.reset_all_variables()  # of recurrent layers, which begin at zero here in every run
        self.interpreter.invoke()
        outputs = (self.interpreter.get_tensor(detail["index"]) for detail in self.interpreter.get_output_details())
        return tuple(_as_bytes(output, np.int8) if output.dtype == np.uint8 else output for output in outputs)


def _as_bytes(array: Array, dtype: type) -> Array:
    """The same numbers where only the sign of their bytes differs: int8 as uint8 and back."""
    if {array.dtype, np.dtype(dtype)} != {np.dtype(np.int8), np.dtype(np.uint8)}:
        return array
    flipped: Array = (array.view(np.uint8) ^ SIGN).view(dtype)
    return flipped


def _random(graph: Graph) -> Iterator[tuple[Array, ...]]:
    rng = np.random.default_rng(0)
    for _ in range(INPUTS):
        yield tuple(
            rng.integers(-128, 128, value.type.shape, np.int8)
            if value.type.dtype == "int8"
            else rng.normal(size=value.type.shape).astype(value.type.dtype)
            for value in graph.inputs
        )


def _real(graph: Graph, photographs: Data | None) -> Iterator[tuple[Array, ...]]:
    shape = graph.inputs[0].type.shape if len(graph.inputs) == 1 else ()
    if photographs is None or len(shape) != 4 or shape[3] not in (1, 3) or min(shape[1:3]) < 16:
        return
    if graph.inputs[0].type.dtype == "float32" and graph.preprocessing is None:
        graph = replace(graph, preprocessing=sm.Preprocessing())  # both runtimes get the same numbers
    for image in evenly(photographs.test.images, INPUTS):
        picture = image if shape[3] == 3 else image.mean(axis=2, keepdims=True).astype(np.uint8)
        yield (as_input(picture, pixel_encoding(graph)),)


def _compare(ours: _Ours, judge: _LiteRT, inputs: Sequence[tuple[Array, ...]]) -> Compared | None:
    if not inputs:
        return None
    equal, apart = 0, 0.0
    for arrays in inputs:
        pairs = list(zip(ours.run(*arrays), judge.run(*arrays), strict=True))
        equal += all(mine.tobytes() == other.tobytes() for mine, other in pairs)
        apart = max(apart, *(_apart(mine, other) for mine, other in pairs))
    return Compared(len(inputs), equal, apart)


def _apart(mine: Array, other: Array) -> float:
    """The largest difference, of float32 as a share of the largest number."""
    difference = float(np.abs(mine.astype(np.float64) - other.astype(np.float64)).max())
    return difference / (float(np.abs(other).max()) or 1.0) if other.dtype == np.float32 else difference
