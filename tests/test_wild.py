"""Models that nobody here made, as people have them: all that stands in their way is told, what runs is measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from litert import LiteRT
from release_files import SHARED
from smidgen.frontends import import_model
from smidgen.ir import evaluate
from smidgen.ops import Pad
from smidgen.pipeline import compile
from test_cli import fail, invoke


def wild(name: str) -> str:
    path = SHARED / "models" / "wild" / name
    if not path.exists():
        pytest.skip(f"models from the wild are not beside the checkout: no {name}")
    return str(path)


@pytest.mark.parametrize(
    ("name", "first", "others"),
    [
        (
            "esphome-vad-v2.tflite",
            "2 subgraphs, one is supported",
            "4 × ASSIGN_VARIABLE, 1 × CALL_ONCE, 1 × LOGISTIC, 4 × READ_VARIABLE, 4 × VAR_HANDLE",
        ),
        ("coral-keras_lstm_mnist_ptq.tflite", "not uint8", "1 × UNIDIRECTIONAL_SEQUENCE_LSTM"),
    ],
)
def test_every_operator_in_the_way_is_named_at_once(
    name: str, first: str, others: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fail(capsys, monkeypatch, "info", wild(name))
    assert first in said
    assert said.endswith(f"; not supported either, further on: {others}")


@pytest.mark.parametrize(
    ("name", "most"), [("tinyengine-detection-int8.tflite", 0.0), ("ultraface-slim320-float.tflite", 1e-4)]
)
def test_maps_that_are_enlarged_and_sizes_that_are_computed_are_litert_s(name: str, most: float) -> None:
    path = Path(wild(name))
    graph, oracle, rng = import_model(path), LiteRT(path.read_bytes()), np.random.default_rng(0)
    x = graph.inputs[0].type
    for _ in range(3):
        drawn = rng.integers(-128, 128, x.shape) if x.dtype == "int8" else rng.normal(0, 1, x.shape)
        for one, other in zip(evaluate(graph, drawn.astype(x.dtype)), oracle.run(drawn.astype(x.dtype)), strict=True):
            assert np.abs(one.astype(np.float64) - other).max() <= most


def test_padding_before_strided_convolutions_takes_no_memory_of_a_detector() -> None:
    graph = import_model(wild("openmv-fomo_face_detection.tflite"))
    assert not any(isinstance(node.op, Pad) for node in graph.nodes)
    assert compile(graph, target="cortex-m7", streamed_input=True).memory.peak < 24_000  # padded on its own: 225,840


def test_an_autoencoder_of_dense_layers_is_profiled_without_asking_for_its_input_whole(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smidgen.targets.cortex_m.cache_folder", lambda: cache)
    printed = json.loads(invoke("profile", wild("mlperf-ad01-int8.tflite"), "--steps", "1", "--json"))
    assert (printed["streamed_input"], printed["exact"]["equal"]) == (False, True)
