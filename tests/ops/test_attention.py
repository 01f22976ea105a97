"""What transformers are made of: products of two tensors, softmax within a network, normalization by integers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from torch import nn

import smidgen
from smidgen import ops
from smidgen.errors import GraphError, ImportModelError
from smidgen.frontends.tflite.codec import encode
from smidgen.frontends.tflite.flatbuffer import TfliteModel, TfliteOperator, TfliteOptions
from smidgen.ir import Builder, QParams, Type, evaluate
from smidgen.ops.normalize import rounded_constants
from tests.frontends.test_moving import int8, read_file
from tests.frontends.test_onnx import agrees, model, quick, read
from tests.support.float_models import close, run
from tests.support.litert import run_litert
from tests.support.tiers import examples

Shape = tuple[int, ...]


# --- normalization


@given(
    st.sampled_from((((6, 40), 0), ((1, 5, 4, 12), 3), ((1, 5, 4, 12), 12), ((3, 1), 0),
                     ((1, 2000), 1))),
    st.floats(-14, 3), st.sampled_from((1e-5, 1e-3, 1e-12)), st.integers(-128, 127), st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(max_examples=examples(120))
def test_integers_normalize_within_a_step_of_the_formula_in_float64(
    how: tuple[Shape, int], octaves: float, epsilon: float, zero: int, seed: int
) -> None:
    (shape, groups), rng = how, np.random.default_rng(seed)
    x = np.clip(rng.normal(0, rng.choice([0.3, 5, 60]), shape) + rng.integers(-99, 99), -128, 127).astype(np.int8)
    scale, shift = (rng.normal(0, 1, shape[-1]) for _ in range(2))
    q, y = QParams.per_tensor(2.0**octaves, zero), QParams.per_tensor(0.03, -5)
    rounded = rounded_constants(scale, shift, y)
    g = Builder("one")
    parts = g.constant("scale", rounded.scale, rounded.q), g.constant("shift", rounded.shift)
    op = ops.Normalize(epsilon, groups)
    (found,) = evaluate(g.graph(g.emit(op, g.input("x", Type(shape, "int8", q)), *parts, q=y)), x)
    split = op.split(Type(shape, "int8", q))
    real = split.apart((x.astype(np.float64) - zero) * q.one)
    z = (real - real.mean(axis=2, keepdims=True)) / np.sqrt(real.var(axis=2, keepdims=True) + epsilon)
    steps = split.together(z * split.channels(scale) + split.channels(shift), shape) / y.one + y.zero
    assert np.abs(found - np.clip(steps, -128, 127)).max() <= 1


def test_more_elements_than_64_bits_take_are_refused_with_the_number_that_fits() -> None:
    with pytest.raises(GraphError, match="over 1,048,576 elements leaves 64 bits; 1,048,575 fit"):
        ops.Normalize(groups=1).infer(
            Type((1, 1024, 1024, 1), "int8", QParams.per_tensor(0.1)),
            Type((1,), "int16", QParams.per_tensor(1.0)), Type((1,), "int32"),
        )  # fmt: skip


@pytest.mark.parametrize(
    "module",
    [
        nn.GroupNorm(3, 6), nn.GroupNorm(1, 6, affine=False), nn.InstanceNorm2d(6, affine=True), nn.InstanceNorm2d(6),
        nn.LayerNorm((6, 5, 7)), nn.LayerNorm(7, elementwise_affine=False),
    ],
    ids=str,
)  # fmt: skip
def test_modules_normalize_as_pytorch(module: nn.Module) -> None:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    x = 3 + 2 * torch.randn(1, 6, 5, 7)
    graph = smidgen.from_torch(nn.Sequential(module, nn.ReLU()).eval(), x)
    with torch.no_grad():
        assert close(run(graph, x.numpy())[0], module(x).relu().numpy())


@pytest.mark.parametrize(
    ("code", "more", "channels"),
    [("InstanceNormalization", {}, 6), ("GroupNormalization", {"num_groups": 3}, 6)],
)
def test_onnx_files_normalize_maps_as_onnx_runtime(
    code: str, more: dict[str, int], channels: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    constants = {name: rng.normal(0, 1, channels).astype(np.float32) for name in ("s", "b")}
    node = helper.make_node(code, ["x", "s", "b"], ["y"], epsilon=0.01, **more)  # type: ignore[arg-type]
    shape = (1, channels, 5, 3)
    agrees(model([node], shape, constants, opset=21), shape, tmp_path)


def test_a_group_of_an_older_opset_has_one_scale(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    constants = {name: rng.normal(0, 1, 3).astype(np.float32) for name in ("s", "b")}
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=3)
    graph = read(model([node], (1, 6, 5, 3), constants, opset=18), tmp_path)
    (normalize,) = (n for n in graph.nodes if isinstance(n.op, ops.Normalize))
    assert np.array_equal(graph.constants[normalize.ins[1]], np.repeat(constants["s"], 2))


def spelled(power: str) -> bytes:
    """(x − mean) / √(variance + ε) · scale + shift as exporters before opset 17 write it."""
    rng = np.random.default_rng(0)
    constants = {
        "two": np.array(2, np.float32), "epsilon": np.array(1e-3, np.float32),
        "scale": rng.normal(0, 1, 7).astype(np.float32), "shift": rng.normal(0, 1, 7).astype(np.float32),
    }  # fmt: skip
    squared = ["d", "two"] if power == "Pow" else ["d", "d"]
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1]), helper.make_node("Sub", ["x", "mean"], ["d"]),
        helper.make_node(power, squared, ["square"]), helper.make_node("ReduceMean", ["square"], ["var"], axes=[-1]),
        helper.make_node("Add", ["var", "epsilon"], ["more"]), helper.make_node("Sqrt", ["more"], ["root"]),
        helper.make_node("Div", ["d", "root"], ["z"]), helper.make_node("Mul", ["z", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["y"]),
    ]  # fmt: skip
    return model(nodes, (1, 5, 7), constants, opset=13)


@pytest.mark.parametrize("power", ["Pow", "Mul"])
def test_a_normalization_that_a_file_spells_out_is_one_node(power: str, tmp_path: Path) -> None:
    graph = agrees(spelled(power), (1, 5, 7), tmp_path)
    (node,) = (n for n in graph.nodes if not n.op.view)
    assert node.op == ops.Normalize(float(np.float32(1e-3)))


# --- products


@quick
@given(st.data())
def test_onnx_files_multiply_two_tensors_as_onnx_runtime(tmp_path: Path, data: st.DataObject) -> None:
    """x · xᵀ by any way of its dimensions, times a constant on the left."""
    rank = data.draw(st.integers(2, 4))
    shape = (1, *data.draw(st.lists(st.integers(1, 5), min_size=rank - 1, max_size=rank - 1)))
    perm = (*range(rank - 2), rank - 1, rank - 2)
    left = np.random.default_rng(0).normal(0, 1, (3, shape[-2])).astype(np.float32)
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Transpose", ["r"], ["t"], perm=perm),
        helper.make_node("MatMul", ["x", "t"], ["p"]), helper.make_node("MatMul", ["left", "p"], ["y"]),
    ]  # fmt: skip
    agrees(model(nodes, shape, {"left": left}), shape, tmp_path)


@pytest.mark.parametrize(
    ("a", "b", "y"),
    [((1, 3, 4, 5), (1, 1, 5, 6), (1, 3, 4, 6)), ((4, 5), (1, 3, 5, 6), (1, 3, 4, 6)), ((2, 4, 5), (5, 6), (2, 4, 6))],
)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_tflite_files_repeat_matrices_as_litert(
    a: Shape, b: Shape, y: Shape, turned: tuple[bool, bool], tmp_path: Path
) -> None:
    shapes = [(*s[:-2], s[-1], s[-2]) if t else s for s, t in zip((a, b), turned, strict=True)]
    tensors = int8("a", *shapes[0]), int8("b", *shapes[1]), replace(int8("y", *y), scales=(9.0,))
    options = TfliteOptions(adj_x=turned[0], adj_y=turned[1])
    made = TfliteModel(tensors, (TfliteOperator("BATCH_MATMUL", (0, 1), (2,), options, 2),), (0, 1), (2,))
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes]
    (ours,), (theirs,) = evaluate(read_file(made, tmp_path), *arrays), run_litert(encode(made), *arrays)
    assert np.array_equal(ours, theirs)


# --- attention


class Seen(nn.Module):
    """Attention in one of the ways that PyTorch has."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.whole = way, nn.MultiheadAttention(8, 2, batch_first=True)
        self.register_buffer("mask", torch.randn(5, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way in ("weights", "first"):
            made: torch.Tensor = self.whole(x, x, x, need_weights=self.way == "weights")[0]
            return made[:, 0] if self.way == "first" else made
        mask = self.get_buffer("mask") if self.way == "mask" else None
        return nn.functional.scaled_dot_product_attention(
            x, x.relu(), x, mask, is_causal=self.way == "causal", scale=0.7 if self.way == "scale" else None
        )


@pytest.mark.parametrize("way", ["plain", "scale", "mask", "weights", "first"])
def test_modules_attend_as_pytorch(way: str) -> None:
    torch.manual_seed(0)
    module, x = Seen(way).eval(), torch.randn(1, 5, 8)
    with torch.no_grad():
        assert close(run(smidgen.from_torch(module, x), x.numpy())[0], module(x).numpy())


def test_what_looks_back_alone_is_refused_with_a_way_out() -> None:
    with pytest.raises(ImportModelError, match=r"attention with a causal or boolean mask.*leave the mask out"):
        smidgen.from_torch(Seen("causal").eval(), torch.randn(1, 5, 8))
