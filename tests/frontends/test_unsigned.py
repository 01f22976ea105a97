"""uint8 files are read as int8, 128 lower, and compute the bytes that LiteRT computes in uint8."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smidgen import ops
from smidgen.frontends.tflite import write_tflite
from smidgen.frontends.tflite.codec import decode, encode
from smidgen.frontends.tflite.flatbuffer import TfliteModel, TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.ir import Array, Builder, Graph, Op, QParams, Type, evaluate
from smidgen.ops.unit_norm import UNIT
from tests.cli.test_cli import invoke
from tests.frontends.test_tflite import read_back
from tests.support.litert import run_litert
from tests.support.tflite_cases import CASES, arrays, graphs
from tests.support.tiers import examples

SIGN = np.uint8(128)
Q = QParams.per_tensor(0.05, 3)
# A table is read at int8 places; averages of even numbers of uint8 round halves up; uint8 is resized in float32 and
# normalized with another root; LiteRT multiplies no matrices of uint8.
OTHERWISE = {"Lookup", "AvgPool", "MatMul", "ResizeBilinear", "UnitNorm"}


def flipped(array: Array) -> Array:
    """int8 as uint8, 128 higher, and back."""
    if array.dtype not in (np.int8, np.uint8):
        return array
    return (array.view(np.uint8) ^ SIGN).view(np.int8 if array.dtype == np.uint8 else np.uint8)


def unsigned(model: TfliteModel, weights_zero: int = 128) -> TfliteModel:
    """The model with all that is int8 as uint8; constants of layers lie around a zero point of their own."""
    weights = {o.inputs[1] for o in model.operators if o.code in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")}
    tensors = []
    for index, tensor in enumerate(model.tensors):
        if tensor.dtype == "int8":
            zero = weights_zero if index in weights else 128
            data = None
            if tensor.data is not None:
                data = (np.frombuffer(tensor.data, np.int8).astype(np.int16) + zero).astype(np.uint8).tobytes()
            tensor = replace(tensor, dtype="uint8", zeros=tuple(z + zero for z in tensor.zeros), data=data)
        tensors.append(tensor)
    operators = tuple(replace(operator, version=1) for operator in model.operators)
    return replace(model, tensors=tuple(tensors), operators=operators)


def legacy(graph: Graph, weights_zero: int = 128) -> bytes:
    return encode(unsigned(decode(write_tflite(graph)), weights_zero))


def dense(w: Array) -> Graph:
    g = Builder("legacy")
    b = g.constant("b", np.arange(-2, w.shape[0] - 2).astype(np.int32) * 900)
    x = g.input("x", Type((1, w.shape[1]), "int8", Q))
    return g.graph(g.emit(ops.Dense(), x, g.constant("w", w, QParams.per_tensor(0.01)), b, q=QParams.per_tensor(0.1)))


@pytest.mark.sampled
@pytest.mark.parametrize("op", sorted(set(CASES) - OTHERWISE))
def test_uint8_files_compute_what_litert_computes_for_them(op: str) -> None:
    @settings(max_examples=examples(15))
    @given(graph=graphs(op), seed=st.integers(0, 2**32 - 1))
    def check(graph: Graph, seed: int) -> None:
        if any(v.type.q is not None and len(v.type.q.scale) > 1 for v in graph.constants):
            return  # uint8 weights have one scale
        model, ins = legacy(graph), arrays(graph, seed)
        theirs = run_litert(model, *map(flipped, ins))
        for mine, other in zip(evaluate(read_back(model), *ins), theirs, strict=True):
            np.testing.assert_array_equal(mine, flipped(other))

    check()


def test_weights_within_int8_keep_every_step_whatever_their_zero_point() -> None:
    w = np.random.default_rng(0).integers(-100, 101, (4, 9), np.int8)
    graph = read_back(legacy(dense(w), weights_zero=140))
    (found,) = (data for data in graph.constants.values() if data.dtype == np.int8)
    np.testing.assert_array_equal(found, w)
    assert graph.notes == ("uint8 became int8: the weights of all 1 layers exactly",)


def test_only_channels_beyond_int8_are_requantized_and_the_graph_says_so() -> None:
    w = np.random.default_rng(1).integers(-120, 121, (4, 30), np.int8)
    model = decode(legacy(dense(w), weights_zero=128))
    (index,) = (i for i, t in enumerate(model.tensors) if t.name == "w")
    bytes_ = bytearray(model.tensors[index].data or b"")
    bytes_[30] = 255  # of channel 1; with the zero point at 100, 155 steps
    bytes_[0:30], bytes_[60:] = (bytes(min(b, 220) for b in part) for part in (bytes_[0:30], bytes_[60:]))
    tensors = list(model.tensors)
    tensors[index] = replace(tensors[index], zeros=(100,), data=bytes(bytes_))
    file = encode(replace(model, tensors=tuple(tensors)))
    graph = read_back(file)
    (weights,) = (v for v, data in graph.constants.items() if data.dtype == np.int8)
    kept = np.frombuffer(bytes(bytes_), np.uint8).reshape(4, 30).astype(int) - 100
    np.testing.assert_array_equal(graph.constants[weights][[0, 2, 3]], kept[[0, 2, 3]])
    (bias,) = (data for data in graph.constants.values() if data.dtype == np.int32)
    assert bias.tolist() == [-1800, round(-900 * 127 / 155), 0, 900]
    assert weights.type.q is not None
    scales = np.array(weights.type.q.scale)
    np.testing.assert_allclose(scales, np.array([1, 155 / 127, 1, 1]) * 0.01, rtol=1e-6)
    assert graph.notes == (
        "uint8 became int8: the weights of 0 of 1 layers exactly, of 1 requantized: 1 of their 4 channels reach beyond "
        "127 steps",
    )
    x = np.random.default_rng(2).integers(-128, 128, (1, 30), np.int8)
    (mine,), (other,) = evaluate(graph, x), run_litert(file, flipped(x))
    assert np.abs(mine.astype(int) - flipped(other)).max() <= 1
    np.testing.assert_array_equal(mine[0, [0, 2, 3]], flipped(other)[0, [0, 2, 3]])


def test_a_passage_between_uint8_and_int8_leaves_no_node() -> None:
    """As Keras writes it: QUANTIZE, an int8 network, QUANTIZE."""
    inner = decode(write_tflite(dense(np.ones((3, 4), np.int8))))
    (x,), (y,), tensors = inner.inputs, inner.outputs, list(inner.tensors)
    outer = [replace(tensors[i], name=f"outer{i}", dtype="uint8", zeros=(tensors[i].zeros[0] + 128,)) for i in (x, y)]
    first, last = len(tensors), len(tensors) + 1
    operators = (
        TfliteOperator("QUANTIZE", (first,), (x,), version=2), *inner.operators,
        TfliteOperator("QUANTIZE", (y,), (last,), version=2),
    )  # fmt: skip
    model = encode(replace(inner, tensors=(*tensors, *outer), operators=operators, inputs=(first,), outputs=(last,)))
    graph = read_back(model)
    assert [type(node.op).__name__ for node in graph.nodes] == ["Dense"]
    ins = np.random.default_rng(3).integers(-128, 128, (1, 4), np.int8)
    np.testing.assert_array_equal(evaluate(graph, ins)[0], flipped(run_litert(model, flipped(ins))[0]))
    assert graph.notes == ()


def test_bytes_without_a_scale_are_cast_to_the_numbers_they_are() -> None:
    tensors = (TfliteTensor("x", (1, 256), "uint8"), TfliteTensor("y", (1, 256), "float32"))
    graph = read_back(encode(TfliteModel(tensors, (TfliteOperator("CAST", (0,), (1,)),), (0,), (1,))))
    every = np.arange(-128, 128).astype(np.int8)[None]
    np.testing.assert_array_equal(evaluate(graph, every)[0], np.arange(256, dtype=np.float32)[None])


def test_parts_of_a_concatenation_in_other_scales_are_requantized_and_that_is_noted() -> None:
    tensors = (
        TfliteTensor("a", (1, 256), "uint8", (0.05,), (10,)),
        TfliteTensor("b", (1, 256), "uint8", (0.02,), (0,)),
        TfliteTensor("y", (1, 512), "uint8", (0.05,), (10,)),
    )
    operator = TfliteOperator("CONCATENATION", (0, 1), (2,), TfliteOptions(axis=1))
    model = encode(TfliteModel(tensors, (operator,), (0, 1), (2,)))
    graph = read_back(model)
    assert [type(node.op).__name__ for node in graph.nodes] == ["Requantize", "Concat"]
    assert graph.notes == (
        "uint8 became int8: 1 parts of concatenations are requantized to the scale of the whole, within a step",
    )
    every = np.arange(-128, 128).astype(np.int8)[None]
    (mine,), (other,) = evaluate(graph, every, every), run_litert(model, flipped(every), flipped(every))
    assert np.abs(mine.astype(int) - flipped(other)).max() <= 1
    np.testing.assert_array_equal(mine[:, :256], every)


def test_averages_of_an_even_number_of_bytes_are_noted() -> None:
    for size, noted in (((2, 2), True), ((3, 3), False)):
        g = Builder("pooled")
        x = g.input("x", Type((1, 6, 6, 2), "int8", Q))
        graph = read_back(legacy(g.graph(g.emit(ops.AvgPool(size, size), x))))
        assert any("halves in 1 average pools" in note for note in graph.notes) == noted


def test_import_says_what_became_of_the_weights(tmp_path: Path) -> None:
    source = tmp_path / "old.tflite"
    source.write_bytes(legacy(dense(np.ones((3, 4), np.int8))))
    printed = json.loads(invoke("import", str(source), "-o", str(tmp_path / "new.smg"), "--json"))
    assert printed["notes"] == ["uint8 became int8: the weights of all 1 layers exactly"]


@pytest.mark.parametrize(("op", "what"), [(ops.ResizeBilinear((7, 9)), "bilinear resizes"), (ops.UnitNorm(), "L2")])
def test_what_rounds_otherwise_in_uint8_is_within_a_step_and_noted(op: Op, what: str) -> None:
    g = Builder("enlarged")
    graph = g.graph(g.emit(op, g.input("x", Type((1, 3, 4, 2), "int8", Q)), q=None if what != "L2" else UNIT))
    model = legacy(graph)
    read = read_back(model)
    assert any(f"1 {what}" in note and "round as those of int8 do" in note for note in read.notes)
    for seed in range(20):
        ins = arrays(graph, seed)
        (theirs,) = run_litert(model, *map(flipped, ins))
        (mine,) = evaluate(read, *ins)
        assert np.abs(mine.astype(int) - flipped(theirs).astype(int)).max() <= 1
