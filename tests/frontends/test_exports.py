"""A model that has learned leaves Smidgen: other runtimes choose as it does, on photographs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import smidgen as sm
from smidgen import numerics
from smidgen.cli.start import first_of_each_class
from smidgen.data import Data, centre, pixel_encoding
from smidgen.data.layouts.cifar import read_sample
from smidgen.frontends import export_model
from smidgen.ir import Array, Graph, evaluate
from smidgen.ir.rewriting import prune
from smidgen.learning import Course
from smidgen.ops import Dequantize
from tests.support.litert import LiteRT

Learned = tuple[Graph, tuple[Array, ...], list[int]]  # a model, images, and what it takes each for


@pytest.fixture(scope="module")
def learned() -> Learned:
    data = read_sample()
    few = Data(data.name, data.classes, first_of_each_class(data.train, 20), first_of_each_class(data.test, 10))
    program = sm.compile(sm.load("mbv2-w0.35"), "49kb", options=sm.Options(classes=10))
    result = sm.learn(program, few, Course(epochs=2, learning_rate=0.02))
    assert result.accuracy > result.before + 0.2
    images = tuple(centre(image, pixel_encoding(result.model)) for image in few.test.images)
    with sm.compile(result.model).start() as device:
        return result.model, images, [device.predict(image) for image in images]


def choices(run: Callable[[Array], Array], images: tuple[Array, ...]) -> list[int]:
    return [int(run(image).argmax()) for image in images]


@pytest.mark.slow
def test_litert_chooses_the_same_for_every_photograph(learned: Learned, tmp_path: Path) -> None:
    graph, images, ours = learned
    export_model(graph, tmp_path / "learned.tflite")
    runtime = LiteRT((tmp_path / "learned.tflite").read_bytes())
    assert choices(lambda image: runtime.run(image)[0], images) == ours


def onnx_runtime(graph: Graph, folder: Path, plain: bool = False) -> Callable[[Array], Array]:
    """What ONNX Runtime computes, as it comes, for an image."""
    export_model(graph, folder / "learned.onnx", plain)
    session = onnxruntime.InferenceSession(folder / "learned.onnx", providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda image: np.asarray(session.run(None, {name: image})[0])


def test_onnx_runtime_chooses_the_same_for_every_photograph(learned: Learned, tmp_path: Path) -> None:
    graph, images, ours = learned
    assert choices(onnx_runtime(graph, tmp_path), images) == ours


def test_onnx_runtime_gives_a_float_head_the_same_features(learned: Learned, tmp_path: Path) -> None:
    graph, images, _ = learned
    (features,) = (node.out for node in graph.nodes if isinstance(node.op, Dequantize))
    backbone = prune(replace(graph, outputs=(features,)))
    run = onnx_runtime(backbone, tmp_path)
    for image in images[::10]:
        np.testing.assert_array_equal(run(image), evaluate(backbone, image)[0])


def test_onnx_runtime_rounding_its_own_way_chooses_the_same_for_nearly_every_photograph(
    learned: Learned, tmp_path: Path
) -> None:
    graph, images, ours = learned
    theirs = choices(onnx_runtime(graph, tmp_path, plain=True), images)
    assert np.mean(np.array(theirs) == ours) >= 0.95


def rounded_once(x: Array, multiplier: Array | int, shift: Array | int) -> Array:
    """round(x · multiplier · 2^(shift − 31)), halves to even, as runtimes round that multiply by a real number."""
    real = np.asarray(multiplier, np.float64) * 2.0 ** (np.asarray(shift, np.float64) - 31)
    once: Array = np.rint(np.asarray(x, np.float64) * real).astype(np.int64)
    return once


@pytest.mark.slow
def test_rounding_once_is_what_sets_the_plain_form_apart(
    learned: Learned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, images, _ = learned
    few = images[::4]
    run = onnx_runtime(graph, tmp_path, plain=True)
    theirs, ours = (np.concatenate([f(image) for image in few]) for f in (run, lambda x: evaluate(graph, x)[0]))
    monkeypatch.setattr(numerics, "multiply", rounded_once)
    once = np.concatenate([evaluate(graph, image)[0] for image in few])
    assert np.abs(once - theirs).mean() < np.abs(ours - theirs).mean() / 2
