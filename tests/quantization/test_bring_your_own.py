"""The architectures people bring: from PyTorch to int8, the same bytes here, on a board and in other runtimes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import smidgen as sm
from experiments.architectures import ARCHITECTURES, draw
from smidgen.data.layouts.cifar import read_sample
from smidgen.frontends import export_model, import_model
from smidgen.ir import Array, Graph, evaluate
from smidgen.quantization import quantize
from smidgen.targets import find_board
from smidgen.targets.device import Target
from smidgen.targets.host import Host
from smidgen.training.head import layers
from tests.support.float_models import runtime
from tests.support.litert import LiteRT
from tests.support.tiers import first

STEPS = 10
CLASSES = 3
NARROW = {"mobilenet-v1": 0.125, "resnet8": 0.5, "resnet18": 0.125}  # widths, so that emulation takes seconds


@cache
def int8(name: str) -> Graph:
    """An architecture quantized on real images, or on noise where it takes none."""
    graph = sm.from_torch(*draw(name, NARROW.get(name)))
    shape = graph.inputs[0].type.shape
    if len(shape) == 4 and shape[3] == 3 and shape[1] > 1:
        return quantize(graph, read_sample().train.images[::25], preprocessing=sm.Preprocessing()).graph
    rng = np.random.default_rng(0)
    return quantize(graph, [rng.normal(size=shape).astype(np.float32) for _ in range(40)]).graph


def learn(graph: Graph, scheme: str, target: Target) -> tuple[list[Array], dict[str, Array]]:
    """Loss and logits of some steps, and all state after them."""
    program = sm.compile(graph, scheme, target, options=sm.Options(classes=CLASSES))
    rng = np.random.default_rng(1)
    outputs: list[Array] = []
    with program.start() as device:
        for step in range(STEPS):
            image = rng.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
            device.train(image, step % CLASSES, 0.02)
            outputs += device.outputs()
        return outputs, dict(device.state())


@pytest.mark.parametrize("name", first("resnet8", *(name for name in ARCHITECTURES if name != "resnet8")))
def test_an_architecture_learns_the_same_bytes_on_the_host_and_on_a_board(name: str, host: Host) -> None:
    graph = int8(name)
    scheme = f"last:{min(6, len(layers(graph)))}"
    board = find_board("cortex-m7", sram="2MB", flash="4MB")  # the last layers of some are large
    (outputs, state), (there, state_there) = (learn(graph, scheme, target) for target in (host, board))
    assert all(np.isfinite(a).all() and np.array_equal(a, b) for a, b in zip(outputs, there, strict=True))
    assert set(state) == set(state_there)
    assert all(np.array_equal(data, state_there[key]) for key, data in state.items())


@pytest.mark.parametrize("name", first("resnet8", *(name for name in ARCHITECTURES if name != "resnet8")))
def test_an_architecture_computes_the_same_bytes_in_other_runtimes(name: str, tmp_path: Path) -> None:
    graph = int8(name)
    onnx, tflite = tmp_path / "model.onnx", tmp_path / "model.tflite"
    for path in (onnx, tflite):
        export_model(graph, path)
    litert = LiteRT(tflite.read_bytes())
    rng = np.random.default_rng(2)
    for _ in range(3):
        image = rng.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
        expected = evaluate(graph, image)[0]
        np.testing.assert_array_equal(runtime(onnx, image)[0], expected)
        np.testing.assert_array_equal(litert.run(image)[0], expected)
        np.testing.assert_array_equal(evaluate(import_model(tflite), image)[0], expected)
