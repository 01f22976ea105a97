"""Transformers from PyTorch and ONNX: read, quantized, and trained on host and board to the bytes of numpy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import smidgen
from smidgen.errors import ExportError
from smidgen.frontends import export_model, import_model
from smidgen.ir import Array, Graph, evaluate
from smidgen.ops.matmul import MatMulGrad
from smidgen.ops.normalize import NormalizeGrad
from smidgen.ops.softmax import SoftmaxGrad
from smidgen.quantization import quantize
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from tests.frontends.test_architectures import export
from tests.support.float_models import close, run, runtime
from tests.support.loss_tasks import Label, compare
from tests.support.tiers import first
from tests.support.transformer_models import SpokenWords, TinyViT

torch.set_num_threads(1)  # pytest's workers share the cores
STEPS, RATE = 10, 0.02


@dataclass(frozen=True)
class Kind:
    """A network, what it reads, and how many of its layers learn."""

    module: type[nn.Module]
    shape: tuple[int, ...]
    classes: int
    last: int  # layers: enough to reach through a whole block of attention


KINDS = {
    "sees": Kind(TinyViT, (1, 3, 32, 32), 10, 5),
    "hears": Kind(SpokenWords, (1, 40, 16), 6, 5),
}
kinds = pytest.mark.parametrize("kind", KINDS)
written = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning",
                                     "ignore::torch.jit.TracerWarning")  # fmt: skip


def drawn(kind: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return KINDS[kind].module().eval(), torch.randn(KINDS[kind].shape)


def samples(shape: tuple[int, ...], count: int) -> list[Array]:
    """Numbers that differ from sample to sample by more than noise."""
    rng = np.random.default_rng(0)
    return [(rng.normal(0, 1, shape[-1:]) + 0.5 * rng.normal(0, 1, shape)).astype(np.float32) for _ in range(count)]


@kinds
def test_modules_compute_what_pytorch_does(kind: str) -> None:
    module, x = drawn(kind)
    graph = smidgen.from_torch(module, x)
    with torch.no_grad():
        assert close(run(graph, x.numpy())[0], module(x).numpy())


@kinds
@written
@pytest.mark.parametrize("exporter", first("older", "newer"))
def test_onnx_files_compute_what_onnx_runtime_does(kind: str, exporter: str, tmp_path: Path) -> None:
    module, x = drawn(kind)
    path = tmp_path / "model.onnx"
    if exporter == "older":
        export(module, x, path, folded=True)
    else:
        torch.onnx.export(module, (x,), path, dynamo=True, verbose=False)
    assert close(run(import_model(path), x.numpy())[0], runtime(path, x.numpy())[0])


@once
def quantized(kind: str, source: str, folder: Path) -> smidgen.Quantized:
    module, x = drawn(kind)
    if source == "torch":
        graph = smidgen.from_torch(module, x)
    else:
        graph = import_model(export(module, x, folder / f"{kind}.onnx", folded=True))
    return quantize(graph, samples(graph.inputs[0].type.shape, 40))


@kinds
@written
@pytest.mark.parametrize("source", first("torch", "onnx"))
def test_in_int8_they_agree_with_their_float_selves(
    kind: str, source: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    report = quantized(kind, source, tmp_path_factory.getbasetemp()).report
    assert report.held_out
    assert report.agreement == 1.0
    assert report.output is not None
    assert report.output > 25  # dB


def steps(graph: Graph, classes: int) -> list[tuple[Array, Label]]:
    rng = np.random.default_rng(1)
    shape = graph.inputs[0].type.shape
    return [(rng.integers(-128, 128, shape).astype(np.int8), int(rng.integers(classes))) for _ in range(STEPS)]


@kinds
@written
@pytest.mark.parametrize("source", first("torch", "onnx"))
@pytest.mark.parametrize("target", first("host", "board"))
def test_they_learn_through_attention_the_same_bytes_as_numpy(
    kind: str, source: str, target: str, host: Host, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = quantized(kind, source, tmp_path_factory.getbasetemp()).graph
    where: Host | BoardTarget = host if target == "host" else BoardTarget(cache=cache)
    options = smidgen.Options(KINDS[kind].classes)
    program = smidgen.compile(graph, f"last:{KINDS[kind].last}", where, options=options)
    assert {MatMulGrad, NormalizeGrad, SoftmaxGrad} <= {type(node.op) for node in program.graph.nodes}
    with program.start() as device:
        compare(program, device, steps(graph, KINDS[kind].classes), RATE)


@kinds
def test_onnx_runtime_computes_the_bytes_of_what_is_exported_and_it_is_read_again(kind: str, tmp_path: Path) -> None:
    graph = quantized(kind, "torch", tmp_path).graph
    ((image, _), *_) = steps(graph, KINDS[kind].classes)
    (expected,) = evaluate(graph, image)
    export_model(graph, tmp_path / "model.onnx")
    (theirs,) = runtime(tmp_path / "model.onnx", image)
    assert np.array_equal(theirs, expected)
    again = import_model(tmp_path / "model.onnx")
    assert np.array_equal(evaluate(again, image.reshape(again.inputs[0].type.shape))[0], expected)


def test_tflite_has_no_normalization_and_a_sentence_says_so(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"Normalize of %.*: TFLite has no such operator"):
        export_model(quantized("hears", "torch", tmp_path).graph, tmp_path / "model.tflite")
