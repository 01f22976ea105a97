"""A model that has learned leaves Smidgen: other runtimes choose as it does, on photographs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import smidgen as sm
from litert import LiteRT
from smidgen.data import Data, centre, intake
from smidgen.data.sample import read_sample
from smidgen.demo import some
from smidgen.frontends import export_model
from smidgen.ir import Array, Graph
from smidgen.learning import Course

Learned = tuple[Graph, tuple[Array, ...], list[int]]  # a model, images, and what it takes each for


@pytest.fixture(scope="module")
def learned() -> Learned:
    data = read_sample()
    few = Data(data.name, data.classes, some(data.train, 20), some(data.test, 10))
    program = sm.compile(sm.load("mbv2-w0.35"), "49kb", options=sm.Options(classes=10))
    result = sm.learn(program, few, Course(epochs=2, learning_rate=0.02))
    assert result.accuracy > result.before + 0.2
    images = tuple(centre(image, intake(result.model)) for image in few.test.images)
    with sm.compile(result.model).start() as device:
        return result.model, images, [device.predict(image) for image in images]


def choices(run: Callable[[Array], Array], images: tuple[Array, ...]) -> list[int]:
    return [int(run(image).argmax()) for image in images]


def test_litert_chooses_the_same_for_every_photograph(learned: Learned, tmp_path: Path) -> None:
    graph, images, ours = learned
    export_model(graph, tmp_path / "learned.tflite")
    runtime = LiteRT((tmp_path / "learned.tflite").read_bytes())
    assert choices(lambda image: runtime.run(image)[0], images) == ours


def test_onnx_runtime_which_rounds_once_chooses_the_same_for_nearly_every_photograph(
    learned: Learned, tmp_path: Path
) -> None:
    graph, images, ours = learned
    export_model(graph, tmp_path / "learned.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "learned.onnx", providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    theirs = choices(lambda image: session.run(None, {name: image})[0], images)
    assert np.mean(np.array(theirs) == ours) >= 0.95
