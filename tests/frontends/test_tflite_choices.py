"""A TFLite model that ends in ARG_MAX: its scores are the output, and the largest of them is LiteRT's class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smidgen.errors import ImportModelError
from smidgen.frontends import export_model
from smidgen.frontends.tflite.codec import encode
from smidgen.frontends.tflite.flatbuffer import TENSOR_TYPES, TfliteModel, TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.inference.scores import chosen
from smidgen.ir import evaluate
from smidgen.training.head import ending_of
from tests.cli.test_cli import invoke
from tests.frontends.test_tflite_files import bias, int8, integers, read, weights
from tests.support.litert import run_litert

INT32 = TfliteOptions(output_type=TENSOR_TYPES["int32"])


def classifier(*ends: TfliteOperator, dtype: str = "int32", shape: tuple[int, ...] = (1,)) -> TfliteModel:
    """A dense layer of five scores, 3, then `ends`, which read the axis 4 and write 5 and 6, the last as an output."""
    tensors = (
        int8("x", 1, 8, scale=0.05), weights("w", 5, 8), bias("b", 5), int8("scores", 1, 5), integers("axis", -1),
        TfliteTensor("class", (1,), "int32"), TfliteTensor("y", shape, dtype), integers("shape", *shape),
    )  # fmt: skip
    dense = TfliteOperator("FULLY_CONNECTED", (0, 1, 2), (3,), version=4)
    return TfliteModel(tensors, (dense, *ends), (0,), (ends[-1].outputs[0],))


CHOICE = TfliteOperator("ARG_MAX", (3, 4), (5,), INT32, version=2)
ENDS = {
    "alone": classifier(CHOICE),
    "cast": classifier(CHOICE, TfliteOperator("CAST", (5,), (6,)), dtype="float32"),
    "reshaped": classifier(CHOICE, TfliteOperator("RESHAPE", (5, 7), (6,)), shape=(1, 1)),
}


@pytest.mark.parametrize("how", ENDS)
def test_the_class_is_litert_s(how: str, tmp_path: Path) -> None:
    file = encode(ENDS[how])
    graph = read(file, tmp_path)
    assert graph.scores.type.shape == (1, 5)
    assert graph.notes == (
        "ARG_MAX at the end is left out: the output is the scores %scores, and the class their largest",
    )
    for seed in range(30):
        x = np.random.default_rng(seed).integers(-128, 128, (1, 8), np.int8)
        assert chosen(graph, evaluate(graph, x)[0]) == run_litert(file, x)[0]


def test_a_model_that_also_gives_its_scores_has_them_once(tmp_path: Path) -> None:
    model = ENDS["alone"]
    graph = read(TfliteModel(model.tensors, model.operators, (0,), (5, 3)), tmp_path)
    assert [value.name for value in graph.outputs] == ["scores"]


def test_its_head_is_found_and_info_and_predict_say_what_it_says(tmp_path: Path) -> None:
    (path := tmp_path / "net.tflite").write_bytes(encode(ENDS["alone"]))
    graph = read(ENDS["alone"], tmp_path)
    assert ending_of(graph).outputs == 5
    assert "ARG_MAX at the end is left out" in invoke("info", str(path))
    assert "ARG_MAX at the end is left out" in invoke("import", str(path), "-o", str(tmp_path / "a.smg"))
    rows = np.random.default_rng(1).integers(-128, 128, (3, 1, 8), np.int8)
    np.save(tmp_path / "rows.npy", rows)
    export_model(graph, tmp_path / "scores.tflite")
    one, two = (
        invoke("predict", str(tmp_path / name), str(tmp_path / "rows.npy"), "--json") for name in (path, "a.smg")
    )
    assert one.replace("net", "a") == two.replace("net", "a")


@pytest.mark.parametrize(
    ("operators", "why"),
    [
        ((TfliteOperator("ARG_MAX", (3, 7), (5,), INT32),), "it chooses along .0. of .1, 5.; choose along the last"),
        (
            (CHOICE, TfliteOperator("ADD", (5, 5), (6,))),
            "'class' is the class that ARG_MAX chose, and more is computed",
        ),
    ],
)
def test_a_choice_that_is_not_of_scores_or_not_the_end_is_refused(
    operators: tuple[TfliteOperator, ...], why: str, tmp_path: Path
) -> None:
    model = classifier(*operators, shape=(0,))
    with pytest.raises(ImportModelError, match=why):
        read(TfliteModel((*model.tensors[:7], integers("first", 0)), model.operators, (0,), model.outputs), tmp_path)
