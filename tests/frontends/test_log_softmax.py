"""Log-softmax at the end of a model: read from every kind of file, and part of the loss when training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper

from smidgen import ops
from smidgen.frontends import from_torch
from smidgen.frontends.tflite import write_tflite
from smidgen.inference.scores import probabilities
from smidgen.ir import Builder, Graph, QParams, Type, evaluate
from smidgen.ops.log_softmax import LOG_OUTPUT
from smidgen.quantization import quantize
from smidgen.training import Options, build_training
from smidgen.training.head import ending_of
from smidgen.training.scheme import load_scheme
from tests.frontends.test_onnx import agrees, model
from tests.frontends.test_tflite import read_back
from tests.support.litert import run_litert

RNG = np.random.default_rng(8)


@pytest.mark.parametrize(("shape", "axis"), [((1, 7), 1), ((1, 7), -1), ((1, 4, 3, 5), 1), ((1, 3, 6), 2)])
def test_onnx_s_is_onnx_runtime_s(shape: tuple[int, ...], axis: int, tmp_path: Path) -> None:
    graph = agrees(model([helper.make_node("LogSoftmax", ["x"], ["y"], axis=axis)], shape, {}), shape, tmp_path)
    assert any(isinstance(node.op, ops.LogSoftmax) for node in graph.nodes)


def test_pytorch_s_is_pytorch_s() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.LogSoftmax(1))
    x = RNG.normal(0, 1, (1, 6)).astype(np.float32)
    (ours,) = evaluate(from_torch(module.eval(), torch.from_numpy(x)), x)
    np.testing.assert_allclose(ours, module(torch.from_numpy(x)).detach().numpy(), atol=1e-6)


def int8_classifier() -> Graph:
    g = Builder("net")
    x = g.input("x", Type((1, 8), "int8", QParams.per_tensor(0.05)))
    w = g.constant("w", RNG.integers(-127, 128, (5, 8), np.int8), QParams.per_channel([0.01] * 5, 0))
    y = g.emit(ops.Dense(), x, w, g.constant("b", np.zeros(5, np.int32)), q=QParams.per_tensor(0.1, 4), name="logits")
    return g.graph(g.emit(ops.LogSoftmax(), y, name="logs"))


def test_int8_goes_to_tflite_and_back_with_litert_s_bytes() -> None:
    graph = int8_classifier()
    file = write_tflite(graph)
    for seed in range(20):
        x = np.random.default_rng(seed).integers(-128, 128, (1, 8), np.int8)
        (ours,), (theirs,) = evaluate(read_back(file), x), run_litert(file, x)
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(ours, evaluate(graph, x)[0])


def test_the_loss_replaces_it_when_the_head_learns() -> None:
    graph = int8_classifier()
    assert [type(node.op) for node in ending_of(graph).after] == [ops.LogSoftmax]
    step = build_training(graph, load_scheme("head", graph), Options(5)).step
    assert not any(isinstance(node.op, ops.LogSoftmax) for node in step.nodes)
    assert any(isinstance(node.op, ops.SoftmaxCrossEntropy) for node in step.nodes)


def test_probabilities_are_its_exponentials() -> None:
    graph = int8_classifier()
    (scores,) = evaluate(graph, RNG.integers(-128, 128, (1, 8), np.int8))
    found, logs = probabilities(graph, scores), (scores.astype(float) - LOG_OUTPUT.zero) / 16
    np.testing.assert_allclose(found, np.exp(logs) / np.exp(logs).sum())


def test_a_float_model_that_ends_in_it_is_quantized_to_its_fixed_scale() -> None:
    g = Builder("net")
    x = g.input("x", Type((1, 8), "float32"))
    w, b = (g.constant(name, RNG.normal(0, 1, shape).astype(np.float32)) for name, shape in (("w", (5, 8)), ("b", 5)))
    graph = g.graph(g.emit(ops.LogSoftmax(), g.emit(ops.Dense(), x, w, b)))
    rounded = quantize(graph, [RNG.normal(0, 1, (1, 8)).astype(np.float32) for _ in range(32)]).graph
    assert rounded.scores.type.q == LOG_OUTPUT
