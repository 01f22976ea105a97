"""`.tflite` files as others write them are read, damaged and unsupported ones are refused in one sentence."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tflite

from smidgen import ops
from smidgen.errors import ImportModelError, SmidgenError
from smidgen.frontends.tflite import read_tflite, write_tflite
from smidgen.frontends.tflite.codec import decode, encode
from smidgen.frontends.tflite.flatbuffer import TfliteModel, TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.ir import Builder, Graph, QParams, Type, evaluate
from tests.support.litert import run_litert

RNG = np.random.default_rng(3)
X = TfliteTensor("net/x:0", (1, 4, 4, 2), "int8", (0.05,), (3,))
DAMAGED = 400  # files
SECONDS = 2.0  # for one file, on a busy machine
BYTES = 2**25  # at most, while reading a file of a few kilobytes


def int8(name: str, *shape: int, scale: float = 0.1, zero: int = 0) -> TfliteTensor:
    return TfliteTensor(name, shape, "int8", (scale,), (zero,))


def weights(name: str, *shape: int) -> TfliteTensor:
    return replace(int8(name, *shape, scale=0.01), data=RNG.integers(-127, 128, shape, np.int8).tobytes())


def bias(name: str, count: int, scale: float = 0.0005) -> TfliteTensor:
    return TfliteTensor(name, (count,), "int32", (scale,), (0,), data=RNG.integers(-99, 99, count, np.int32).tobytes())


def integers(name: str, *numbers: int, dtype: str = "int32", shape: tuple[int, ...] | None = None) -> TfliteTensor:
    return TfliteTensor(
        name, (len(numbers),) if shape is None else shape, dtype, data=np.array(numbers, dtype).tobytes()
    )


def one(
    code: str,
    y: TfliteTensor,
    *ins: TfliteTensor,
    options: TfliteOptions | None = None,
    version: int = 2,
    x: TfliteTensor = X,
) -> TfliteModel:
    """A model of one operator that reads x, then `ins`."""
    operator = TfliteOperator(code, tuple(range(1 + len(ins))), (1 + len(ins),), options or TfliteOptions(), version)
    return TfliteModel((x, *ins, y), (operator,), (0,), (1 + len(ins),))


def read(model: TfliteModel | bytes, folder: Path) -> Graph:
    path = folder / "net.tflite"
    path.write_bytes(model if isinstance(model, bytes) else encode(model))
    return read_tflite(path)


DENSE = one("FULLY_CONNECTED", int8("y", 4, 5), weights("w", 5, 8), bias("b", 5), version=4)
ACCEPTED = {
    "a dense layer over a map": DENSE,
    "a dense layer without bias": one("FULLY_CONNECTED", int8("y", 4, 5), weights("w", 5, 8), version=4),
    "a dense layer that keeps the dimensions": one(
        "FULLY_CONNECTED", int8("y", 1, 4, 4, 5), weights("w", 5, 2), bias("b", 5),
        options=TfliteOptions(keep_num_dims=True), version=5,
    ),
    "the broadcast operand first": TfliteModel(
        (X, weights("c", 2), int8("y", 1, 4, 4, 2)), (TfliteOperator("MUL", (1, 0), (2,), version=2),), (0,), (2,)
    ),
    "a mean over negative axes": one(
        "MEAN", int8("y", 1, 1, 1, 2), integers("axes", -2, -3), options=TfliteOptions(keep_dims=True)
    ),
    "padding in int64": one(
        "PAD", replace(X, name="y", shape=(1, 6, 5, 2)),
        integers("p", 0, 0, 1, 1, 0, 1, 0, 0, dtype="int64", shape=(4, 2)),
    ),
    "a reshape with one open dimension": one(
        "RESHAPE", replace(X, name="y", shape=(1, 32)), integers("s", 1, -1), version=1
    ),
    "a squeeze": one("SQUEEZE", replace(X, name="y", shape=(4, 4, 2)), version=1),
    "expanded dimensions": one(
        "EXPAND_DIMS", replace(X, name="y", shape=(1, 4, 4)), integers("a", 0, shape=()),
        version=1, x=replace(X, shape=(4, 4)),
    ),
    "a concatenation along the last axis": one(
        "CONCATENATION", replace(X, name="y", shape=(1, 4, 4, 4)), replace(X, name="z", data=bytes(32)),
        options=TfliteOptions(axis=-1),
    ),
    "an open batch": one(
        "RELU", replace(int8("y", 1, 4, 4, 2), signature=(-1, 4, 4, 2)), x=replace(X, signature=(-1, 4, 4, 2))
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ACCEPTED)
def test_what_converters_write_is_read_and_agrees_with_litert(what: str, tmp_path: Path) -> None:
    graph = read(ACCEPTED[what], tmp_path)
    x = RNG.integers(-128, 128, graph.inputs[0].type.shape, np.int8)
    (ours,), (theirs,) = evaluate(graph, x), run_litert(encode(ACCEPTED[what]), x)
    assert ours.tobytes() == theirs.tobytes()
    assert (
        ours.shape == theirs.shape or what == "a squeeze"
    )  # the record leaves out which dimensions go: LiteRT drops all


def test_names_stay_recognisable_and_unique(tmp_path: Path) -> None:
    graph = read(one("RELU", int8("net/x:0;net/y", 1, 4, 4, 2)), tmp_path)
    assert [value.name for value in graph.inputs + graph.outputs] == ["net_x_0", "net_x_0_1"]
    assert graph.name == "net"


def changed(model: TfliteModel, index: int, **fields: object) -> TfliteModel:
    tensors = list(model.tensors)
    tensors[index] = replace(tensors[index], **fields)  # type: ignore[arg-type]
    return replace(model, tensors=tuple(tensors))


def gathered() -> Graph:
    """One function of int8, which a file holds as a table."""
    g = Builder()
    x = g.input("x", Type((1, 4), "int8", QParams.per_tensor(0.1)))
    return g.graph(g.emit(ops.Lookup("tanh"), x, q=QParams.per_tensor(0.01)))


def at(model: TfliteModel, name: str) -> int:
    return [tensor.name for tensor in model.tensors].index(name)


def two_subgraphs() -> bytes:
    return encode(replace(DENSE, others=(DENSE,)))


def two_obstacles() -> TfliteModel:
    model = one("SIN", int8("y", 1, 4, 4, 2))
    (first,) = model.operators
    return replace(model, operators=(first, *(replace(first, code=code) for code in ("COS", "RELU", "FILL", "COS"))))


RELU = one("RELU", int8("y", 1, 4, 4, 2))
CONV = one("CONV_2D", int8("y", 1, 4, 4, 3), weights("w", 3, 1, 1, 2), bias("b", 3), version=3)
CONCAT = one(
    "CONCATENATION",
    int8("y", 1, 4, 4, 4),
    replace(X, name="z", scales=(0.5,), data=bytes(32)),
    options=TfliteOptions(axis=3),
)
TABLE = decode(write_tflite(gathered()))
REFUSED: dict[str, tuple[TfliteModel | bytes, str]] = {
    "an empty file": (b"", r"not a TFLite model: bytes 4 to 8 of its 0 .* give a \.tflite file"),
    "another file": (b"PK\3\4 something else", "not a TFLite model"),
    "an operator that is not supported": (
        one("SIN", int8("y", 1, 4, 4, 2)),
        r"operator 0 \(SIN\) is not supported; replace it, or cut .* before it \(docs/internals/ops.md lists .*\)$",
    ),
    "several obstacles": (
        two_obstacles(),
        r"not supported are 2 × COS, 1 × FILL, 1 × SIN; the first is operator 0 \(SIN\): replace it, or cut",
    ),
    "an SVDF": (one("SVDF", int8("y", 1, 4, 4, 2)), r"\(SVDF\) is not supported; convert .* a convolution over time"),
    "a QUANTIZE to int16": (
        one("QUANTIZE", TfliteTensor("y", (1, 4, 4, 2), "int16", (0.001,), (0,))),
        "tensor 'y' is int16; convert the model with int8 activations, or in float32",
    ),
    "a custom operator": (one("CUSTOM", int8("y", 1, 4, 4, 2)), "the custom operator ''.* is not supported.*, cut"),
    "several subgraphs": (two_subgraphs(), "2 subgraphs, one is supported and .*; convert it without control flow"),
    "float16": (changed(RELU, 0, dtype="float16", scales=()), r"'net/x:0' is float16; convert the model to int8"),
    "rank five": (changed(RELU, 0, shape=(1, 1, 4, 4, 2)), r"shape \[1, 1, 4, 4, 2\]; up to 4 positive dimensions"),
    "gigabytes": (changed(RELU, 0, shape=(1, 2**30, 4, 2)), r"up to 4 positive dimensions and 268,435,456 bytes"),
    "a dimension of zero": (changed(RELU, 0, shape=(1, 0, 4, 2)), "positive dimensions"),
    "a dynamic width": (
        changed(RELU, 0, signature=(1, 4, -1, 2)),
        r"dynamic shape \[1, 4, -1, 2\]; .* fixed input shape",
    ),
    "weights that are cut": (
        changed(CONV, 1, data=bytes(5)),
        r"'w' is int8\[3, 1, 1, 2\], 6 bytes, but its buffer holds 5",
    ),
    "a scale of zero": (changed(RELU, 0, scales=(0.0,)), "not a positive number; quantize the model again"),
    "a scale that is no number": (changed(RELU, 0, scales=(float("nan"),)), "not a positive number"),
    "scales too far apart": (changed(RELU, 0, scales=(1e30,)), "does not fit int32; calibrate the model again"),
    "a zero point out of range": (changed(RELU, 0, zeros=(200,)), "zero point"),
    "asymmetric weights": (changed(CONV, 1, scales=(0.1, 0.1, 0.1), zeros=(0, 1, 0)), "quantize it symmetrically"),
    "scales along nothing": (
        changed(CONV, 1, scales=(0.1, 0.2), zeros=(0, 0)),
        r"2 scales along axis 0 of \[3, 1, 1, 2\]",
    ),
    "no quantization": (changed(RELU, 0, scales=(), zeros=()), r"operator 0 \(RELU\) of 'y': .* int8 with one scale"),
    "a tensor that is not there": (replace(RELU, outputs=(9,)), "tensor 9 does not exist, only 2 do"),
    "an operand that is not there": (
        replace(RELU, operators=(TfliteOperator("RELU", (-7,), (1,)),)),
        "tensor -7 does not exist",
    ),
    "a result that is not there": (
        replace(RELU, operators=(TfliteOperator("RELU", (0,), (77,)),)),
        "tensor 77 does not exist",
    ),
    "a value nobody computes": (replace(RELU, operators=()), "'y' is read before it is written"),
    "a value computed twice": (
        replace(RELU, operators=RELU.operators * 2),
        r"operator 1 \(RELU\) .* has a value already",
    ),
    "an input listed twice": (replace(RELU, inputs=(0, 0)), "listed twice"),
    "no outputs": (replace(RELU, outputs=()), "has no outputs; fix the model"),
    "operands missing": (
        replace(CONV, operators=(TfliteOperator("CONV_2D", (0,), (3,)),)),
        "1 inputs instead of 2 to 3",
    ),
    "a shape the operator does not give": (
        changed(RELU, 1, shape=(1, 4, 4, 1)),
        r"declares int8\[1, 4, 4, 1\] .* gives int8\[1, 4, 4, 2\]",
    ),
    "parts quantized apart": (CONCAT, "requantize them to one quantization first"),
    "a pool that changes quantization": (
        one("MAX_POOL_2D", int8("y", 1, 4, 4, 2), options=TfliteOptions()), "one quantization on both sides"
    ),
    "a mean over a dimension that is not there": (
        one("MEAN", int8("y", 1, 4, 4), integers("a", 4)), r"axis 4 does not fit .1, 4, 4, 2.; fix"
    ),
    "an activation that is not supported": (
        replace(CONV, operators=(replace(CONV.operators[0], options=TfliteOptions(fused_activation_function=4)),)),
        "fused activation 4 is not supported; use none, relu",
    ),
    "a stride of zero": (
        replace(CONV, operators=(replace(CONV.operators[0], options=TfliteOptions(stride_h=0)),)), r"stride \(0, 1\)"
    ),
    "a cast to float32": (
        changed(TABLE, at(TABLE, "v0.integers"), dtype="float32"), "a cast from int8 to float32 is not supported"
    ),
    "places in no table": (
        replace(TABLE, outputs=(at(TABLE, "v0.places"),)), "'v0.places' is int8 cast to int32 and read by an operator"
    ),
    "places that are too many": (
        changed(TABLE, at(TABLE, "zero_place"), shape=(2,), data=bytes(8)), "adds 2 numbers to int8 as int32; add one"
    ),
    "places from elsewhere": (
        changed(TABLE, at(TABLE, "zero_place"), data=bytes(4)), r"\(GATHER\) of 'v0': .* table of a known function"
    ),
    "a table that has no name": (changed(TABLE, at(TABLE, "tanh(0.0, 0.0)"), name="t"), "table of a known function"),
    "a table of something else": (
        changed(TABLE, at(TABLE, "tanh(0.0, 0.0)"), name="sigmoid(0.0, 0.0)"), "table of a known function"
    ),
    "a table whose name is no function": (
        changed(TABLE, at(TABLE, "tanh(0.0, 0.0)"), name="sum(0.0, 0.0)"), "table of a known function"
    ),
    "a permutation that is computed": (
        one("TRANSPOSE", replace(X, name="y"), replace(integers("p", 0, 1, 2, 3), data=None)), "'p' must be a constant"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_supported_is_refused_in_one_sentence(what: str, tmp_path: Path) -> None:
    model, sentence = REFUSED[what]
    with pytest.raises(ImportModelError, match=sentence) as caught:
        read(model, tmp_path)
    assert str(caught.value).startswith("net.tflite: ")
    assert "\n" not in str(caught.value)


def _whole() -> bytes:
    """A file with many operators, small enough that random damage hits its structure."""
    g = Builder("whole")
    x = g.input("x", Type((1, 6, 6, 4), "int8", QParams.per_tensor(0.05, 3)))
    w = g.constant(
        "w", RNG.integers(-127, 128, (4, 3, 3, 4), np.int8), QParams.per_channel((0.01, 0.02, 0.03, 0.04), 0)
    )
    b = g.constant("b", RNG.integers(-100, 100, 4, np.int32))
    h = g.emit(ops.Conv2D(pad=(1, 1, 1, 1), activation="relu6"), x, w, b, q=QParams.per_tensor(0.04, -128))
    h = g.emit(ops.MaxPool((3, 3), (2, 2), (1, 1, 1, 1)), h)
    h = g.emit(ops.Add(), h, h, q=QParams.per_tensor(0.06, 1))
    h = g.emit(ops.Concat(3), h, g.emit(ops.Transpose((0, 2, 1, 3)), h))
    h = g.emit(ops.Mean(), h, q=QParams.per_tensor(0.05))
    dense = g.constant("dense", RNG.integers(-127, 128, (5, 8), np.int8), QParams.per_tensor(0.01))
    h = g.emit(ops.Dense(), h, dense, g.constant("zeros", np.zeros(5, np.int32)), q=QParams.per_tensor(0.1))
    return write_tflite(g.graph(g.emit(ops.Dequantize(), g.emit(ops.Softmax(), h))))


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _flip(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 30))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _splice(data: bytes, rng: random.Random) -> bytes:
    at, start, length = rng.randrange(len(data)), rng.randrange(len(data)), rng.randrange(1, 64)
    return data[:at] + data[start : start + length] + data[at + rng.choice((0, length)) :]


def _exaggerate(data: bytes, rng: random.Random) -> bytes:
    """Some number, length or offset becomes as large as it can be."""
    at = 4 * rng.randrange(len(data) // 4)
    number = rng.choice((b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0\0\0\x10"))
    return data[:at] + number + data[at + 4 :]


def complaint(data: bytes, folder: Path) -> str:
    """Return the error of a file, empty if it can be read; any exception but ours goes through."""
    try:
        read(data, folder)
    except SmidgenError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("damage", [_truncate, _flip, _splice, _exaggerate])
def test_damaged_files_end_in_an_error_of_ours_or_in_a_graph(
    damage: Callable[[bytes, random.Random], bytes], tmp_path: Path
) -> None:
    rng, whole = random.Random(5), _whole()
    tracemalloc.start()
    try:
        for _ in range(DAMAGED // 4):
            data = damage(whole, rng)
            start = time.monotonic()
            assert "\n" not in complaint(data, tmp_path)
            assert time.monotonic() - start < SECONDS
        assert tracemalloc.get_traced_memory()[1] < BYTES
    finally:
        tracemalloc.stop()


def test_a_forged_file_that_repeats_one_vector_without_end_is_refused(tmp_path: Path) -> None:
    """Each of many tensors points at the one large vector: read in turn, they would be a thousand times the file."""
    large = TfliteTensor("large", (2**16,), "int8", (0.1,) * 2**16, (0,))
    model = bytearray(encode(replace(RELU, tensors=(*RELU.tensors, *(int8("small", 1) for _ in range(1000)), large))))
    graph = tflite.Model.GetRootAs(model).Subgraphs(0)
    first = graph._tab.Vector(graph._tab.Offset(4))
    last = first + 4 * (graph.TensorsLength() - 1)
    target = last + int.from_bytes(model[last : last + 4], "little")
    for at in range(first, last, 4):
        model[at : at + 4] = (target - at).to_bytes(4, "little")
    with pytest.raises(ImportModelError, match="Scale vector of 65,536 elements is more than"):
        read(bytes(model), tmp_path)
