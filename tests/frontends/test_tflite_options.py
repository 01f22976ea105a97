"""Options are optional in a `.tflite` file: an operator without them has the schema's defaults, as in LiteRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smidgen.errors import ImportModelError
from smidgen.frontends.tflite import codec, flatbuffer
from smidgen.frontends.tflite.flatbuffer import OPTIONS, TfliteModel, TfliteOperator, TfliteTensor
from smidgen.ir import evaluate
from tests.frontends.test_tflite_files import DENSE, bias, int8, integers, one, read, weights
from tests.support.litert import run_litert

LEFT_OUT = {
    "ADD": one("ADD", int8("y", 1, 4, 4, 2), weights("w", 1, 4, 4, 2)),
    "BATCH_MATMUL": one("BATCH_MATMUL", int8("y", 1, 4, 4, 3), weights("w", 1, 4, 2, 3), version=4),
    "CONCATENATION": TfliteModel(
        (int8("x", 2, 3), int8("z", 1, 3), int8("y", 3, 3)),
        (TfliteOperator("CONCATENATION", (0, 1), (2,), version=2),), (0, 1), (2,),
    ),
    "FULLY_CONNECTED": DENSE,
    "GATHER": one("GATHER", int8("y", 2, 5), integers("at", 2, 0), x=int8("x", 3, 5)),
    "MEAN": one("MEAN", int8("y", 1, 2), integers("axes", 1, 2)),
    "MUL": one("MUL", int8("y", 1, 4, 4, 2), weights("w", 1, 4, 4, 2)),
    "RESIZE_BILINEAR": one(
        "RESIZE_BILINEAR", TfliteTensor("y", (1, 8, 8, 2), "int8", (0.05,), (3,)), integers("size", 8, 8)
    ),
    "STRIDED_SLICE": one(
        "STRIDED_SLICE", int8("y", 2, 4), integers("b", 1, 0), integers("e", 3, 4), integers("s", 1, 1),
        x=int8("x", 3, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", LEFT_OUT)
def test_an_operator_without_options_is_litert_s(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flatbuffer, "OPTIONS", {})
    file = codec.encode(LEFT_OUT[code])
    monkeypatch.undo()
    graph = read(file, tmp_path)
    ins = [np.random.default_rng(i).integers(-128, 128, x.type.shape, np.int8) for i, x in enumerate(graph.inputs)]
    np.testing.assert_array_equal(evaluate(graph, *ins)[0], run_litert(file, *ins)[0])


def test_a_cast_without_options_takes_its_types_from_its_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of bytes to float32 while the model runs, and of a shape in int64 while it is read."""
    tensors = (
        TfliteTensor("x", (1, 6), "uint8"), TfliteTensor("real", (1, 6), "float32"),
        integers("long", 3, 2, dtype="int64"), TfliteTensor("shape", (2,), "int32"),
        TfliteTensor("y", (3, 2), "float32"),
    )  # fmt: skip
    operators = (
        TfliteOperator("CAST", (0,), (1,)), TfliteOperator("CAST", (2,), (3,)), TfliteOperator("RESHAPE", (1, 3), (4,)),
    )  # fmt: skip
    monkeypatch.setattr(flatbuffer, "OPTIONS", {})
    file = codec.encode(TfliteModel(tensors, operators, (0,), (4,)))
    monkeypatch.undo()
    graph = read(file, tmp_path)
    x = np.arange(0, 252, 42, dtype=np.uint8)[None]
    np.testing.assert_array_equal(evaluate(graph, (x ^ 128).view(np.int8))[0], run_litert(file, x)[0])


@pytest.mark.parametrize("code", ["CONV_2D", "MAX_POOL_2D", "SOFTMAX"])
def test_defaults_that_compute_nothing_are_refused(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema's stride is 0 and its beta as well."""
    inputs = (weights("w", 3, 1, 1, 2), bias("b", 3)) if code == "CONV_2D" else ()
    monkeypatch.setattr(flatbuffer, "OPTIONS", {})
    file = codec.encode(one(code, int8("y", 1, 4, 4, 3 if inputs else 2), *inputs))
    monkeypatch.undo()
    with pytest.raises(ImportModelError, match=r"stride \(0, 0\)|positive β"):
        read(file, tmp_path)


def test_options_of_another_operator_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flatbuffer, "OPTIONS", {"MUL": OPTIONS["SOFTMAX"]})
    file = codec.encode(LEFT_OUT["MUL"])
    monkeypatch.undo()
    with pytest.raises(ImportModelError, match="a MUL has options of kind 9, not MulOptions"):
        read(file, tmp_path)
