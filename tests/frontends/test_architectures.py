"""The architectures people bring, by both front ends: the float graph computes what PyTorch and ONNX Runtime do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import smidgen
from experiments.architectures import ARCHITECTURES, draw
from smidgen import ops
from smidgen.frontends import import_model
from smidgen.ir import Graph
from tests.support.float_models import close, run, runtime
from tests.support.tiers import first

torch.set_num_threads(1)  # pytest's workers share the cores
QUICK = ("mobilenet-v3-small", "resnet8", "ds-cnn")
names = pytest.mark.parametrize("name", first(*QUICK, *(n for n in ARCHITECTURES if n not in QUICK), quick=len(QUICK)))


def counts(graph: Graph) -> Counter[str]:
    return Counter(type(node.op).__name__ for node in graph.nodes)


def export(module: nn.Module, x: torch.Tensor, path: Path, *, folded: bool) -> Path:
    """An ONNX file, its batch normalizations folded into the convolutions or left as they are."""
    mode = torch.onnx.TrainingMode.EVAL if folded else torch.onnx.TrainingMode.PRESERVE
    torch.onnx.export(
        module, (x,), str(path), dynamo=False, opset_version=17, training=mode, do_constant_folding=folded
    )
    return path


@names
@pytest.mark.parametrize("folded", [True, False], ids=["folded", "as-written"])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # of PyTorch's older exporter
def test_onnx_files_compute_what_onnx_runtime_does(name: str, folded: bool, tmp_path: Path) -> None:
    module, x = draw(name)
    path = export(module, x, tmp_path / "model.onnx", folded=folded)
    graph = import_model(path)
    for seed in range(2):
        array = np.random.default_rng(seed).normal(0, 1, x.shape).astype(np.float32)
        assert close(run(graph, array)[0], runtime(path, array)[0])
    assert counts(graph)["Transpose"] == 0
    assert counts(graph)["Reshape"] <= 1


@names
def test_modules_compute_what_pytorch_does(name: str) -> None:
    module, x = draw(name, seed=1)
    graph = smidgen.from_torch(module, x)
    with torch.no_grad():
        assert close(run(graph, x.numpy())[0], module(x).numpy())
    assert counts(graph)["Transpose"] == 0
    assert counts(graph)["Reshape"] <= 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_the_newer_exporter_of_pytorch_gives_the_same_graph(tmp_path: Path) -> None:
    module, x = draw("mobilenet-v3-small")
    torch.onnx.export(module, (x,), tmp_path / "model.onnx", dynamo=True, verbose=False)
    graph = import_model(tmp_path / "model.onnx")
    assert close(run(graph, x.numpy())[0], runtime(tmp_path / "model.onnx", x.numpy())[0])
    assert counts(graph)["Lookup"] == 28


def test_an_archive_gives_the_graph_its_module_gives(tmp_path: Path) -> None:
    module, x = draw("signal-net")
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "signal.pt2")
    from_file, direct = import_model(tmp_path / "signal.pt2"), smidgen.from_torch(module, x)
    assert [node.op for node in from_file.nodes] == [node.op for node in direct.nodes]
    assert np.array_equal(run(from_file, x.numpy())[0], run(direct, x.numpy())[0])


def test_a_module_is_left_in_the_mode_it_was_in() -> None:
    module, x = draw("resnet8")
    module.train()
    smidgen.from_torch(module, x)
    assert all(part.training for part in module.modules())


class Spelled(nn.Module):
    """Activations as people write them out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * (x + 3).clamp(0, 6) / 6
        x = x * torch.sigmoid(x)
        x = torch.maximum(x, 0.1 * x) if x.dim() == 0 else x
        return 0.5 * x * (1 + torch.erf(x / 2**0.5))


def test_functions_written_out_are_recognized() -> None:
    graph = smidgen.from_torch(Spelled(), torch.randn(1, 4, 5, 5))
    assert [node.op for node in graph.nodes] == [ops.Lookup("hard_swish"), ops.Lookup("silu"), ops.Lookup("gelu")]


class Shuffle(nn.Module):
    """Channels in two groups, taken in turns: a transposition that is really one."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 6, 1, groups=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        n, c, h, w = y.shape
        y = y.reshape(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        result: torch.Tensor = self.after(y).flatten(1)
        return result


def test_a_channel_shuffle_is_one_transposition() -> None:
    module, x = Shuffle().eval(), torch.randn(1, 3, 4, 5)
    graph = smidgen.from_torch(module, x)
    assert close(run(graph, x.numpy())[0], module(x).detach().numpy())
    assert counts(graph)["Transpose"] == 2  # the shuffle, and the map that leaves flat in the file's order


class Attention(nn.Module):
    """A map gated place by place: what repeats runs along the channels, which lie fastest in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.last = nn.Conv2d(4, 1, 3, padding=1), nn.Linear(4 * 6 * 5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last((x * torch.sigmoid(self.gate(x))).flatten(1))
        return result


def test_a_gate_for_each_place_works_too() -> None:
    module, x = Attention().eval(), torch.randn(1, 4, 6, 5)
    graph = smidgen.from_torch(module, x)
    assert close(run(graph, x.numpy())[0], module(x).detach().numpy())
