"""What a TFLite file computes from constants is computed when it is read: shapes, and weights kept in fewer bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.tflite import write_tflite
from smidgen.frontends.tflite.codec import decode, encode
from smidgen.frontends.tflite.flatbuffer import TENSOR_TYPES, TfliteModel, TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.ir import Array, Builder, Graph, Type, evaluate
from tests.frontends.test_tflite import read_back
from tests.support.litert import run_litert


def known(name: str, data: Array) -> TfliteTensor:
    return TfliteTensor(name, data.shape, data.dtype.name, data=data.tobytes())


def whole(name: str, *numbers: int) -> TfliteTensor:
    return known(name, np.array(numbers, "<i4"))


def scalar(name: str, number: int) -> TfliteTensor:
    return known(name, np.array(number, "<i4"))


def reshaped_by_its_own_shape() -> TfliteModel:
    """As Keras reshapes with an open batch: [batch, 4, 6, 2] → SHAPE → its first → PACK with −1 and 2 → RESHAPE."""
    tensors = (
        TfliteTensor("x", (1, 4, 6, 2), "float32", signature=(-1, 4, 6, 2)),
        TfliteTensor("shape", (4,), "int32"),
        whole("begin", 0), whole("end", 1), whole("step", 1),
        TfliteTensor("batch", (), "int32"),
        scalar("any", -1), scalar("two", 2),
        TfliteTensor("packed", (3,), "int32"),
        TfliteTensor("y", (1, 1, 2), "float32", signature=(-1, -1, 2)),
        TfliteTensor("z", (1, 1, 2), "float32", signature=(-1, -1, 2)),
    )  # fmt: skip
    operators = (
        TfliteOperator("SHAPE", (0,), (1,)),
        TfliteOperator("STRIDED_SLICE", (1, 2, 3, 4), (5,), TfliteOptions(shrink_axis_mask=1)),
        TfliteOperator("PACK", (5, 6, 7), (8,), TfliteOptions(values_count=3)),
        TfliteOperator("RESHAPE", (0, 8), (9,)),
        TfliteOperator("RELU", (9,), (10,)),
    )
    return TfliteModel(tensors, operators, (0,), (10,))


def test_a_shape_computed_from_shapes_is_a_constant_and_open_sizes_are_found() -> None:
    model = encode(reshaped_by_its_own_shape())
    graph = read_back(model)
    assert [type(node.op).__name__ for node in graph.nodes] == ["Reshape", "Activate"]
    assert graph.outputs[0].type.shape == (1, 24, 2)
    x = np.random.default_rng(0).normal(size=(1, 4, 6, 2)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(graph, x)[0], run_litert(model, x)[0])


ARITHMETIC: dict[str, tuple[TfliteOptions, tuple[TfliteTensor, ...], tuple[int, ...]]] = {
    "ADD": (TfliteOptions(), (whole("a", 2, 5), whole("b", 1, 7)), (3, 12)),
    "SUB": (TfliteOptions(), (whole("a", 5, 9), whole("b", 2, -3)), (3, 12)),
    "MUL": (TfliteOptions(), (whole("a", 3, 6), whole("b", 1, 2)), (3, 12)),
    "FLOOR_DIV": (TfliteOptions(), (whole("a", 7, 25), whole("b", 2, 2)), (3, 12)),
    "MAXIMUM": (TfliteOptions(), (whole("a", 3, 1), whole("b", 2, 12)), (3, 12)),
    "MINIMUM": (TfliteOptions(), (whole("a", 3, 99), whole("b", 9, 12)), (3, 12)),
    "CONCATENATION": (TfliteOptions(axis=0), (whole("a", 3), whole("b", 12)), (3, 12)),
    "GATHER": (TfliteOptions(axis=0), (whole("a", 12, 8, 3), whole("b", 2, 0)), (3, 12)),
    "SLICE": (TfliteOptions(), (whole("a", 9, 3, 12, 9), whole("b", 1), whole("n", 2)), (3, 12)),
    "STRIDED_SLICE": (
        TfliteOptions(begin_mask=1), (whole("a", 3, 9, 12, 9), whole("b", 7), whole("e", 4), whole("s", 2)), (3, 12),
    ),
    "RESHAPE": (TfliteOptions(), (known("a", np.array([[3], [12]], "<i4")), whole("s", 2)), (3, 12)),
    "CAST": (TfliteOptions(out_data_type=TENSOR_TYPES["int32"]), (known("a", np.array([3, 12], "<i8")),), (3, 12)),
    "TILE": (TfliteOptions(), (whole("a", 6), whole("times", 2)), (6, 6)),
}  # fmt: skip


@pytest.mark.parametrize("code", ARITHMETIC)
def test_arithmetic_of_constants_is_litert_s(code: str) -> None:
    """A shape [3, 12] is computed by one operator, then a tensor is reshaped to it."""
    options, ins, expected = ARITHMETIC[code]
    tensors = (
        TfliteTensor("x", (1, 36), "float32"), *ins,
        TfliteTensor("shape", (2,), "int32"), TfliteTensor("y", expected, "float32"),
    )  # fmt: skip
    shape = len(ins) + 1
    operators = (
        TfliteOperator(code, tuple(range(1, shape)), (shape,), options),
        TfliteOperator("RESHAPE", (0, shape), (shape + 1,)),
    )
    model = encode(TfliteModel(tensors, operators, (0,), (shape + 1,)))
    graph = read_back(model)
    assert graph.outputs[0].type.shape == expected
    x = np.arange(36, dtype=np.float32)[None]
    np.testing.assert_array_equal(evaluate(graph, x)[0], run_litert(model, x)[0])


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_constant_that_is_repeated_is_one_constant(dtype: str) -> None:
    """As a positional code is repeated for every row, then added."""
    scales, zeros = ((0.05,), (3,)) if dtype == "int8" else ((), ())
    code = np.random.default_rng(4).integers(-9, 9, (1, 3, 2)).astype(dtype)
    tensors = (
        TfliteTensor("x", (1, 6, 4), dtype, scales, zeros), replace(known("code", code), scales=scales, zeros=zeros),
        whole("times", 1, 2, 2), *(TfliteTensor(name, (1, 6, 4), dtype, scales, zeros) for name in ("codes", "y")),
    )  # fmt: skip
    operators = (TfliteOperator("TILE", (1, 2), (3,)), TfliteOperator("ADD", (0, 3), (4,), version=2))
    model = encode(TfliteModel(tensors, operators, (0,), (4,)))
    graph = read_back(model)
    assert [type(node.op).__name__ for node in graph.nodes] == ["Add"]
    x = np.random.default_rng(5).integers(-99, 99, (1, 6, 4)).astype(dtype)
    np.testing.assert_array_equal(evaluate(graph, x)[0], run_litert(model, x)[0])


def dense() -> tuple[Graph, Array]:
    """A layer of float32 whose weights are whole multiples of 1/64, which float16 and int8 hold as well."""
    w = np.random.default_rng(1).integers(-127, 128, (5, 8)).astype(np.float32) / 64
    g = Builder()
    x = g.input("x", Type((1, 8), "float32"))
    y = g.emit(ops.Dense(), x, g.constant("w", w), g.constant("b", np.ones(5, np.float32)))
    return g.graph(y), w


def test_weights_in_float16_are_read_as_float32() -> None:
    graph, w = dense()
    model = decode(write_tflite(graph))
    (at,) = (i for i, tensor in enumerate(model.tensors) if tensor.name == "w")
    small = replace(model.tensors[at], name="small", dtype="float16", data=w.astype("<f2").tobytes())
    tensors = list(model.tensors)
    tensors[at] = replace(tensors[at], data=None)
    widen = TfliteOperator("DEQUANTIZE", (len(tensors),), (at,), version=3)
    file = encode(replace(model, tensors=(*tensors, small), operators=(widen, *model.operators)))
    again = read_back(file)
    x = np.random.default_rng(2).normal(size=(1, 8)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(again, x)[0], evaluate(graph, x)[0])
    np.testing.assert_allclose(run_litert(file, x)[0], evaluate(again, x)[0], rtol=1e-5)


@pytest.mark.parametrize("kind", ["one scale", "per channel", "uint8"])
def test_8_bit_weights_between_floats_are_read_as_the_numbers_they_stand_for(kind: str) -> None:
    graph, w = dense()
    model = decode(write_tflite(graph))
    (at,) = (i for i, tensor in enumerate(model.tensors) if tensor.name == "w")
    scales = (1 / 64,) * (5 if kind == "per channel" else 1)
    dtype, zero = ("uint8", 127) if kind == "uint8" else ("int8", 0)
    data = (w * 64 + zero).astype(dtype).tobytes()
    small = replace(model.tensors[at], dtype=dtype, scales=scales, zeros=(zero,) * len(scales), data=data)
    tensors = list(model.tensors)
    tensors[at] = small
    again = read_back(encode(replace(model, tensors=tuple(tensors))))
    x = np.random.default_rng(3).normal(size=(1, 8)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(again, x)[0], evaluate(graph, x)[0])
    assert again.notes == ("the weights of 1 layers are int8 and were read as float32, as their inputs are: quantize",)


@pytest.mark.parametrize(
    ("operator", "sentence"),
    [
        (TfliteOperator("STRIDED_SLICE", (1, 2), (8,)), "it computes a constant from"),
        (TfliteOperator("FLOOR_DIV", (2, 2), (8,)), "it divides by 0"),
        (TfliteOperator("GATHER", (1, 3), (8,)), "it computes a constant from"),
        (TfliteOperator("SHAPE", (), (8,)), "0 inputs instead of 1 to 1"),
        (TfliteOperator("REDUCE_PROD", (0, 2), (8,)), "only where all it reads is constant"),
        (TfliteOperator("CAST", (2,), (5,)), "a cast to string"),
        (TfliteOperator("TILE", (2, 4), (8,)), "it repeats .1. .-1. times"),
    ],
)
def test_constants_that_make_no_sense_are_refused_in_a_sentence(operator: TfliteOperator, sentence: str) -> None:
    model = reshaped_by_its_own_shape()
    tensors = list(model.tensors)
    tensors[1], tensors[3], tensors[4] = whole("shape", 1, 4, 6, 2), whole("end", 77), whole("times", -1)
    tensors[5] = replace(tensors[5], dtype="string")
    with pytest.raises(ImportModelError, match=sentence):
        read_back(encode(replace(model, tensors=tuple(tensors), operators=(operator, *model.operators[3:]))))
