"""What is fuzzed: for each parser how a file is read, what is asked of the result, and how a file is changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from random import Random

import numpy as np

from fuzz_bytes import Mutator, in_archive, json_text, npy, pickled, protobuf, raw, sound, table
from fuzz_graphs import declared_tensors, graph_in_metadata, graph_text, run_in_metadata, tensor_file, tflite
from fuzz_link import answers, framed, requests
from smidgen.data import load_data, load_images
from smidgen.data.files import Budget
from smidgen.errors import SmidgenError
from smidgen.frontends import import_model
from smidgen.frontends.onnx.read.operators import OPERATOR_RULES
from smidgen.ir import Array, Graph
from smidgen.ir.text import parse_graph, print_graph
from smidgen.learning.checkpoint import read_checkpoint
from smidgen.training.scheme import load_scheme

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
MEMORY = 2**24  # bytes that the contents of one case may take: what `--memory` sets for a user
ATTRIBUTES = (
    "axis", "axes", "to", "keepdims", "alpha", "beta", "group", "pads", "strides", "kernel_shape", "dilations",
    "auto_pad", "perm", "value", "ceil_mode", "epsilon", "transA", "transB", "allowzero", "SAME_UPPER", "VALID",
    "ConstantOfShape", "Expand", "Range", "Size", "Where", "Pow", "Slice", "Loop", "If", "location", "offset", "length",
)  # fmt: skip


class RoundTripError(Exception):
    """A graph that was read is not the one that its text describes."""


@dataclass(frozen=True)
class Target:
    """A parser: the suffix of its files, how one is read, how one is changed, and how many cases make ten minutes."""

    suffix: str
    read: Callable[[Path], object]
    mutate: Mutator
    cases: int  # of the run that is the same every time
    corpus: str = ""  # the folder of its seeds, where it is not called as the parser


def model(path: Path) -> Graph:
    """A model file as a graph, which its text must describe."""
    graph = import_model(path, MEMORY)
    _check_text(graph, {value.name: data for value, data in (*graph.constants.items(), *graph.state.items())})
    return graph


def _check_text(graph: Graph, data: dict[str, Array]) -> None:
    said = print_graph(graph)
    try:
        again = print_graph(parse_graph(said, data))
    except SmidgenError as error:
        raise RoundTripError(f"a graph that was read is refused as text: {error}") from error
    for before, after in zip_longest(said.split("\n"), again.split("\n")):
        if before != after:
            raise RoundTripError(f"{before!r} became {after!r}")


def graph(path: Path) -> Graph:
    """A graph's text, with zeros for the constants that it declares."""
    text = path.read_bytes().decode("utf-8", "replace")
    data = {name: np.zeros(shape, dtype) for name, (dtype, shape) in declared_tensors(text).items()}
    made = parse_graph(text, data)
    _check_text(made, data)
    return made


def exported(path: Path) -> object:
    """A .pt2 archive up to where PyTorch is asked to export its calls anew, which takes a hundred times as long."""
    from smidgen.frontends.torch.archive import read_archive  # here, because PyTorch takes seconds to import
    from smidgen.frontends.torch.program import examples, parse

    budget = Budget(MEMORY)
    program = parse(read_archive(path, budget))
    return examples(program, budget)


def data_set(path: Path) -> object:
    """Samples with what is known of them, and without."""
    try:
        load_data(path, MEMORY)
    except SmidgenError:
        load_images(path, 3, MEMORY)
        raise
    return load_images(path, 3, MEMORY)


def picture(path: Path) -> object:
    """An image or a sound in a folder of a label."""
    return load_images(path.parent, 1, MEMORY)


def rows(path: Path) -> object:
    """A table, and the file as a recording in a folder of a label."""
    for read in (partial(load_data, path, MEMORY), partial(load_data, path, MEMORY, label="none")):
        with suppress(SmidgenError):
            read()
    return load_images(path.parent, 1, MEMORY)


@cache
def _network() -> Graph:
    return import_model(CORPUS / "tflite" / "network.tflite")


def scheme(path: Path) -> object:
    """What learns of a network, as a file says."""
    return load_scheme(str(path), _network())


def _in_torch_archive(name: str) -> Mutator:
    return json_text if name.endswith(".json") else raw


def _pickle(data: bytes, rng: Random) -> bytes:
    """A bare pickle, or the one in an archive."""
    return _pickle_archive(data, rng) if data[:2] == b"PK" else pickled(data, rng)


_pickle_archive = in_archive(lambda name: pickled if name.endswith(".pkl") else raw, ("archive/data.pkl",))
_arrays = in_archive(
    lambda name: npy, ("x.npy", "y.npy", "x_test.npy", "y_test.npy", "x_train.npy", "meta.npy", "classes.npy")
)
_pt2 = in_archive(_in_torch_archive)
_keras_archive = in_archive(_in_torch_archive, ("config.json", "metadata.json", "model.weights.h5"))


def _keras(data: bytes, rng: Random) -> bytes:
    """An archive, or an HDF5 file alone."""
    return _keras_archive(data, rng) if data[:2] == b"PK" else raw(data, rng)


_onnx = protobuf((*OPERATOR_RULES, *ATTRIBUTES))

TARGETS = {
    "tflite": Target(".tflite", model, tflite, 30_000),
    "onnx": Target(".onnx", model, _onnx, 40_000),
    "pt2": Target(".pt2", exported, _pt2, 40_000),
    "pt2-export": Target(".pt2", model, _pt2, 100, "pt2"),
    "keras": Target(".keras", model, _keras, 40_000),
    "smg": Target(".smg", model, tensor_file(graph_in_metadata), 50_000),
    "npz": Target(".npz", model, _arrays, 40_000),
    "pkl": Target(".pkl", model, _pickle, 25_000),
    "image": Target(".png", picture, raw, 120_000),
    "sound": Target(".wav", picture, sound, 60_000),
    "zip": Target(".zip", data_set, in_archive(lambda name: raw, ("train/a/9.png", "test/b/9.png", "a/9.png")), 60_000),
    "arrays": Target(".npz", data_set, _arrays, 80_000),
    "npy": Target(".npy", data_set, npy, 20_000),
    "table": Target(".csv", rows, table, 15_000),
    "ckpt": Target(".ckpt", read_checkpoint, tensor_file(run_in_metadata), 120_000),
    "scheme": Target(".json", scheme, json_text, 100_000),
    "answers": Target(".link", answers, framed, 60_000),
    "requests": Target(".link", requests, framed, 60_000),
    "text": Target(".txt", graph, graph_text, 120_000),
}
