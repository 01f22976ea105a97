"""Models that nobody here made, as people have them: all that stands in their way is told, what runs is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.wild import try_one
from smidgen.frontends import import_model
from smidgen.ops import Pad
from smidgen.pipeline import compile
from tests.cli.test_cli import invoke
from tests.support.release_files import SHARED
from tests.support.tiers import first


def wild(name: str) -> str:
    path = SHARED / "models" / "wild" / name
    if not path.exists():
        pytest.skip(f"models from the wild are not beside the checkout: no {name}")
    return str(path)


# What of the corpus this reader takes: whether it computes in int8 or in float32.
READ = {
    "coral-mobilenet_v1_0.25_128_quant.tflite": "int8",
    "coral-keras_lstm_mnist_ptq.tflite": "int8",
    "esphome-vad-v2.tflite": "int8",
    "mlperf-ad01-int8.tflite": "int8",
    "mlperf-kws-float.tflite": "float32",
    "openmv-face_landmarks_192.tflite": "int8",
    "openmv-fomo_face_detection.tflite": "int8",
    "openmv-force_int_quant.tflite": "int8",
    "openmv-yolo_lc_192.tflite": "int8",
    "tflm-mnist-lstm-int8.tflite": "int8",
    "tflm-person-detect-int8.tflite": "int8",
    "tinyengine-detection-int8.tflite": "int8",
    "tinyengine-vww-int8.tflite": "int8",
    "ultraface-slim320-float.tflite": "float32",
}
REQUANTIZED = "coral-mobilenet_v1_0.25_128_quant.tflite"  # its weights reach beyond int8
WIDENED = "mlperf-kws-float.tflite"  # LiteRT rounds its activations to int8 on the way


@pytest.mark.parametrize("name", first(*READ))
def test_models_from_the_wild_compute_what_litert_computes(name: str) -> None:
    found = try_one(Path(wild(name)), None)
    assert (found.refused, found.computes) == ("", READ[name])
    assert found.random is not None
    if READ[name] == "int8" and name != REQUANTIZED:
        assert (found.random.equal, found.random.inputs) == (20, 20)
    else:
        apart = {REQUANTIZED: 32, WIDENED: 0.2}.get(name, 1e-5)
        assert found.random.apart <= apart
    assert any("requantized" in note for note in found.notes) == (name == REQUANTIZED)
    assert any("read as float32" in note for note in found.notes) == (name == WIDENED)


def test_padding_before_strided_convolutions_takes_no_memory_of_a_detector() -> None:
    graph = import_model(wild("openmv-fomo_face_detection.tflite"))
    assert not any(isinstance(node.op, Pad) for node in graph.nodes)
    assert compile(graph, target="cortex-m7", streamed_input=True).memory.peak < 24_000  # padded on its own: 225,840


def test_an_autoencoder_of_dense_layers_is_profiled_without_asking_for_its_input_whole(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smidgen.targets.firmware.cache_folder", lambda: cache)
    printed = json.loads(invoke("profile", wild("mlperf-ad01-int8.tflite"), "--steps", "1", "--json"))
    assert (printed["streamed_input"], printed["exact"]["equal"]) == (False, True)
