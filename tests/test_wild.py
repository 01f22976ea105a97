"""Models that nobody here made, as people have them: all that stands in their way is told, what runs is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from release_files import SHARED
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
            "4 × ASSIGN_VARIABLE, 1 × CALL_ONCE, 1 × LOGISTIC, 4 × READ_VARIABLE, 4 × STRIDED_SLICE, 4 × VAR_HANDLE",
        ),
        ("ultraface-slim320-float.tflite", "(SHAPE) is not supported", "8 × PACK, 7 × SHAPE, 8 × STRIDED_SLICE"),
        ("coral-keras_lstm_mnist_ptq.tflite", "not uint8", "1 × UNIDIRECTIONAL_SEQUENCE_LSTM"),
    ],
)
def test_every_operator_in_the_way_is_named_at_once(
    name: str, first: str, others: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fail(capsys, monkeypatch, "info", wild(name))
    assert first in said
    assert said.endswith(f"; not supported either, further on: {others}")


def test_an_autoencoder_of_dense_layers_is_profiled_without_asking_for_its_input_whole(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smidgen.targets.cortex_m.cache_folder", lambda: cache)
    printed = json.loads(invoke("profile", wild("mlperf-ad01-int8.tflite"), "--steps", "1", "--json"))
    assert (printed["streamed_input"], printed["exact"]["equal"]) == (False, True)
