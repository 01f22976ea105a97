"""Transposed convolutions: what LiteRT, ONNX Runtime and PyTorch compute, as convolutions and moves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from torch import nn

import smidgen
from smidgen import numerics, ops
from smidgen.frontends import import_model
from smidgen.frontends.tflite.codec import encode
from smidgen.frontends.tflite.flatbuffer import SAME, VALID, TfliteModel, TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.ir import Array, Graph, evaluate
from smidgen.ops.loss import Loss
from smidgen.ops.resize import PickGrad
from smidgen.quantization import quantize
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from tests.frontends.test_architectures import export
from tests.frontends.test_moving import int8, integers, read_file
from tests.frontends.test_onnx import agrees, model, quick
from tests.support.float_models import close, run
from tests.support.litert import run_litert
from tests.support.loss_tasks import Label, compare
from tests.support.tiers import first

written = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # of the older exporter
pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))


def transpose_conv(
    size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padding: int, per_channel: bool = True
) -> TfliteModel:
    """A file of one TRANSPOSE_CONV, as large as Keras has it."""
    rng, out, channels = np.random.default_rng(3), 3, 2
    grown = [n * s if padding == SAME else (n - 1) * s + k for n, s, k in zip(size, stride, kernel, strict=True)]
    scales = tuple(float(s) for s in rng.uniform(0.01, 0.02, out if per_channel else 1))
    w = rng.integers(-127, 128, (out, *kernel, channels)).astype(np.int8)
    b = rng.integers(-900, 900, out).astype(np.int32)
    tensors = (
        integers("shape", 1, *grown, out),
        TfliteTensor("w", w.shape, "int8", scales, (0,) * len(scales), 0, w.tobytes()),
        int8("x", 1, *size, channels),
        TfliteTensor("b", (out,), "int32", tuple(0.5 * s for s in scales), (0,) * len(scales), 0, b.tobytes()),
        replace(int8("y", 1, *grown, out), scales=(3.0,)),
    )
    options = TfliteOptions(padding=padding, stride_h=stride[0], stride_w=stride[1])
    return TfliteModel(tensors, (TfliteOperator("TRANSPOSE_CONV", (0, 1, 2, 3), (4,), options, 3),), (2,), (4,))


@quick
@given(pairs, pairs, pairs, st.sampled_from((SAME, VALID)), st.booleans())
def test_tflite_files_enlarge_a_map_to_litert_s_bytes(
    tmp_path: Path, size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padding: int,
    per_channel: bool,
) -> None:  # fmt: skip
    if padding == SAME and any(k < s for k, s in zip(kernel, stride, strict=True)):
        padding = VALID  # as SAME, rows of the output would have no weight: Keras does not write it
    made = transpose_conv(size, kernel, stride, padding, per_channel)
    x = np.random.default_rng(0).integers(-128, 128, (1, *size, 2)).astype(np.int8)
    (ours,), (theirs,) = evaluate(read_file(made, tmp_path), x), run_litert(encode(made), x)
    assert np.array_equal(ours, theirs)


@quick
@given(
    st.integers(1, 2), st.tuples(pairs, pairs, pairs, pairs, pairs), st.booleans(), st.integers(1, 3), st.integers(1, 3)
)
def test_onnx_files_enlarge_as_onnx_runtime(
    tmp_path: Path, rank: int, drawn: tuple[tuple[int, int], ...], bias: bool, channels: int, out: int
) -> None:
    size, kernel, stride, cut, more = (pair[:rank] for pair in drawn)
    pads = [min(c, k) - 1 for c, k in zip(cut * 2, kernel * 2, strict=True)]
    extra = [min(e, s) - 1 for e, s in zip(more, stride, strict=True)]
    left = [(n - 1) * s + k - a - b + e for n, s, k, a, b, e in
            zip(size, stride, kernel, pads[:rank], pads[rank:], extra, strict=True)]  # fmt: skip
    if min(left) < 1:
        pads = [0] * len(pads)
    rng = np.random.default_rng(1)
    constants = {"w": rng.normal(0, 1, (4 + channels, out, *kernel)).astype(np.float32)}
    constants |= {"b": rng.normal(0, 1, out).astype(np.float32)} if bias else {}
    node = helper.make_node("ConvTranspose", ["x", *constants], ["y"], strides=stride, pads=pads, output_padding=extra)
    shape = (1, 4 + channels, *size)
    agrees(model([node], shape, constants), shape, tmp_path)


class Unet(nn.Module):
    """Down, up by a transposed convolution and by the nearest, each beside what came down."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, 2, 1)
        self.deep = nn.Conv2d(12, 16, 3, 2, 1)
        self.up, self.middle = nn.ConvTranspose2d(16, 12, 2, 2), nn.Conv2d(24, 8, 3, padding=1)
        self.larger, self.last = nn.Upsample(scale_factor=2), nn.Conv2d(16, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.relu(self.first(x))
        b = torch.relu(self.down(a))
        c = torch.relu(self.middle(torch.cat([self.up(torch.relu(self.deep(b))), b], 1)))
        made: torch.Tensor = self.last(torch.cat([self.larger(c), a], 1))
        return made


@pytest.mark.parametrize(
    "kind",
    [
        nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), nn.ConvTranspose2d(3, 4, 4, 2, 1), Unet(),
        nn.ConvTranspose2d(3, 4, 3, 2, 1, dilation=2), nn.ConvTranspose2d(3, 4, (2, 3), (1, 3), dilation=(3, 1)),
    ],
)  # fmt: skip
def test_modules_enlarge_as_pytorch(kind: nn.Module) -> None:
    module, x = kind.eval(), torch.randn(1, 3, 8, 12)
    graph = smidgen.from_torch(module, x)
    with torch.no_grad():
        assert close(run(graph, x.numpy())[0], module(x).numpy())


def test_a_kernel_as_large_as_its_stride_wastes_no_product() -> None:
    graph = smidgen.from_torch(nn.ConvTranspose2d(16, 8, 2, 2).eval(), torch.randn(1, 16, 5, 7))
    (conv,) = (node for node in graph.nodes if isinstance(node.op, ops.Conv2D))
    assert conv.op.macs(conv) == 5 * 7 * 16 * 8 * 2 * 2


class Autoencoder(nn.Module):
    """A picture through a narrow map and back, by transposed convolutions with a stride and an overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 4, 3, 2, 1), nn.ReLU())
        self.up = nn.Sequential(nn.ConvTranspose2d(4, 8, 3, 2, 1, 1), nn.ReLU(), nn.ConvTranspose2d(8, 8, 4, 2, 1))
        self.last = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.last(torch.relu(self.up(self.down(x))))
        return made


SIZE = (8, 12)
LEARNERS: dict[str, tuple[type[nn.Module], Loss, str]] = {  # a network, its loss, and what of it learns
    "unet": (Unet, "cells", "last:3"),
    "unet, all of it": (Unet, "cells", "full"),
    "autoencoder": (Autoencoder, "reconstruction", "last:3"),
}


def read_network(name: str, source: str, folder: Path) -> Graph:
    torch.manual_seed(0)
    module, x = LEARNERS[name][0]().eval(), torch.randn(1, 3, *SIZE)
    if source == "torch":
        return smidgen.from_torch(module, x)
    return import_model(export(module, x, folder / "model.onnx", folded=True))


def quantized(name: str, source: str, folder: Path) -> Graph:
    rng, graph = np.random.default_rng(0), read_network(name, source, folder)
    return quantize(graph, tuple(rng.normal(0, 1, (*SIZE, 3)).astype(np.float32) for _ in range(8))).graph


def steps(count: int, loss: str) -> list[tuple[Array, Label]]:
    rng = np.random.default_rng(1)
    images = [rng.integers(-128, 128, (1, *SIZE, 3)).astype(np.int8) for _ in range(count)]
    return [(x, rng.integers(0, 3, SIZE).astype(np.uint8) if loss == "cells" else None) for x in images]


@pytest.mark.parametrize("target", first("host", "board"))
@pytest.mark.parametrize("source", first("torch", "onnx"))
@pytest.mark.parametrize("name", LEARNERS)
@written
def test_networks_learn_through_all_that_enlarges_them_the_same_bytes_as_numpy(
    name: str, source: str, target: str, host: Host, cache: Path, tmp_path: Path
) -> None:
    _, loss, scheme = LEARNERS[name]
    where: Host | BoardTarget = host if target == "host" else BoardTarget(cache=cache)
    graph = quantized(name, source, tmp_path)
    program = smidgen.compile(graph, scheme, where, options=smidgen.Options(loss=loss))
    used = {type(node.op) for node in program.graph.nodes}
    assert used >= ({PickGrad, ops.Crop, ops.Transpose} if name == "unet, all of it" else {ops.Transpose})
    with program.start() as device:
        compare(program, device, steps(10, loss), 0.02)


@pytest.mark.parametrize("source", first("torch", "onnx"))
@pytest.mark.parametrize("name", ["unet", "autoencoder"])
@written
def test_in_int8_they_stay_near_their_float_selves(name: str, source: str, tmp_path: Path) -> None:
    graph, int8 = read_network(name, source, tmp_path), quantized(name, source, tmp_path)
    x = np.random.default_rng(5).normal(0, 1, (1, *SIZE, 3)).astype(np.float32)
    assert int8.inputs[0].type.q is not None
    (real,), (found,) = evaluate(graph, x), evaluate(int8, numerics.quantize(x, int8.inputs[0].type.q))
    y = int8.outputs[0].type
    error = (found.astype(np.float64) - y.zero) * y.scale - real
    assert np.sqrt((error**2).mean()) < 0.1 * real.std()
