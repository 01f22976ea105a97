"""Resizes, slices, splits, packs and repeats: what LiteRT, ONNX Runtime and PyTorch take of a tensor, and no more."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from torch import nn

import smidgen
from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.tflite import read_tflite
from smidgen.frontends.tflite.codec import encode
from smidgen.frontends.tflite.flatbuffer import TfliteModel, TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.ir import Array, Graph, evaluate
from smidgen.ops.resize import Repeated, nearest
from smidgen.pipeline import compile
from smidgen.targets.host import Host
from tests.frontends.test_onnx import agrees, model, quick, read
from tests.support.float_models import close, run, runtime
from tests.support.litert import run_litert
from tests.support.tiers import examples

SHAPE = (1, 4, 6, 3)
Sizes = tuple[int, ...]


def int8(name: str, *shape: int) -> TfliteTensor:
    return TfliteTensor(name, shape, "int8", (0.5,), (3,))


def integers(name: str, *numbers: int) -> TfliteTensor:
    data = np.array(numbers, "<i4")
    return TfliteTensor(name, data.shape, "int32", data=data.tobytes())


def whole(number: int) -> TfliteTensor:
    """One integer that is no list."""
    return TfliteTensor("n", (), "int32", data=np.array(number, "<i4").tobytes())


def operator(
    code: str, outs: tuple[Sizes, ...], *more: TfliteTensor, before: bool = False, version: int = 2, **options: Any
) -> TfliteModel:
    """A file of one operator on x, whose other inputs stand behind it or before it."""
    made = [int8(f"y{i}", *shape) for i, shape in enumerate(outs)]
    tensors = (int8("x", *SHAPE), *more, *made)
    places, results = tuple(range(1, 1 + len(more))), tuple(range(1 + len(more), len(tensors)))
    ins = (*places, 0) if before else (0, *places)
    return TfliteModel(tensors, (TfliteOperator(code, ins, results, TfliteOptions(**options), version),), (0,), results)


TAKEN: dict[str, TfliteModel] = {
    "slice": operator("SLICE", ((1, 2, 6, 2),), integers("begin", 0, 1, 0, 1), integers("size", 1, 2, -1, 2)),
    "strided slice": operator(
        "STRIDED_SLICE", ((1, 2, 2, 3),), integers("b", 0, 0, 1, 0), integers("e", 1, 4, 6, 3),
        integers("s", 1, 2, 3, 1),
    ),
    "backward slice": operator(
        "STRIDED_SLICE", ((1, 4, 6, 2),), integers("b", 0, -1, 0, -1), integers("e", 1, 0, 6, 0),
        integers("s", 1, -1, 1, -2), begin_mask=1, end_mask=0b1111,
    ),
    "slice without a dimension": operator(
        "STRIDED_SLICE", ((1, 6, 3),), integers("b", 0, -2), integers("e", 0, 0), integers("s", 1, 1),
        begin_mask=1, end_mask=1, shrink_axis_mask=2,
    ),
    "split": operator("SPLIT", ((1, 4, 2, 3),) * 3, whole(2), before=True, num_splits=3),
    "sizes split": operator("SPLIT_V", ((1, 1, 6, 3), (1, 3, 6, 3)), integers("sizes", 1, -1), whole(1), num_splits=2),
    "unpack": operator("UNPACK", ((1, 6, 3),) * 4, num=4, axis=1),
    "tile": operator("TILE", ((1, 8, 6, 6),), integers("times", 1, 2, 1, 2), version=1),
    "gather": operator("GATHER", ((1, 4, 3, 3),), integers("at", 5, 0, 0), axis=2),
    "gather channels": operator("GATHER", ((1, 4, 6, 2),), integers("at", 2, 0), axis=3),
    "gather one": operator("GATHER", ((1, 6, 3),), whole(3), axis=1),
}  # fmt: skip


def read_file(made: TfliteModel, folder: Path) -> Graph:
    (path := folder / "net.tflite").write_bytes(encode(made))
    return read_tflite(path)


@pytest.mark.parametrize("what", TAKEN)
def test_what_tflite_files_take_of_a_tensor_is_what_litert_takes(what: str, host: Host, tmp_path: Path) -> None:
    graph = read_file(TAKEN[what], tmp_path)
    x = np.random.default_rng(0).integers(-128, 128, SHAPE).astype(np.int8)
    theirs = run_litert(encode(TAKEN[what]), x)
    with compile(graph, target=host).start() as device:
        for found in (evaluate(graph, x), device.run(x)):
            for one, other in zip(found, theirs, strict=True):
                assert np.array_equal(one, other)


def test_what_is_packed_is_litert_s(tmp_path: Path) -> None:
    tensors = (int8("a", 1, 4, 3), int8("b", 1, 4, 3), int8("y", 1, 4, 2, 3))
    options = TfliteOptions(values_count=2, axis=-2)
    made = TfliteModel(tensors, (TfliteOperator("PACK", (0, 1), (2,), options, 2),), (0, 1), (2,))
    a, b = np.random.default_rng(0).integers(-128, 128, (2, 1, 4, 3)).astype(np.int8)
    assert np.array_equal(evaluate(read_file(made, tmp_path), a, b)[0], run_litert(encode(made), a, b)[0])


def sizes_computed() -> TfliteModel:
    """A map flattened by sizes that the file computes, as converters write it for a batch left open."""
    tensors = (
        int8("x", *SHAPE), TfliteTensor("sizes", (4,), "int32"), integers("b", 0), integers("e", 1), integers("s", 1),
        TfliteTensor("n", (), "int32"), whole(-1), TfliteTensor("shape", (2,), "int32"),
        replace(int8("y", 1, 1), signature=(-1, -1)),
    )  # fmt: skip
    operators = (
        TfliteOperator("SHAPE", (0,), (1,)),
        TfliteOperator("STRIDED_SLICE", (1, 2, 3, 4), (5,), TfliteOptions(shrink_axis_mask=1)),
        TfliteOperator("PACK", (5, 6), (7,), TfliteOptions(values_count=2)),
        TfliteOperator("RESHAPE", (0, 7), (8,)),
    )
    return TfliteModel(tensors, operators, (0,), (8,))


def test_what_is_computed_from_sizes_is_folded_as_litert_computes_it(tmp_path: Path) -> None:
    graph = read_file(sizes_computed(), tmp_path)
    x = np.random.default_rng(0).integers(-128, 128, SHAPE).astype(np.int8)
    (ours,), (theirs,) = evaluate(graph, x), run_litert(encode(sizes_computed()), x)
    assert np.array_equal(ours, theirs)
    assert [type(node.op) for node in graph.nodes] == [ops.Reshape]


BAD: dict[str, tuple[TfliteModel, str]] = {
    "outside": (
        operator("SLICE", ((1, 2, 6, 3),), integers("begin", 0, 3, 0, 0), integers("size", 1, 2, 6, 3)),
        r"it takes places 3 to 4 of dimension 1 of \[1, 4, 6, 3\]",
    ),
    "no step": (
        operator("STRIDED_SLICE", (SHAPE,), *(integers(n, 0, 0, 0, 0) for n in "bes")), "a slice with a step of 0"
    ),
    "uneven": (
        operator("SPLIT", ((1, 1, 6, 3),) * 3, whole(1), before=True), r"splits dimension 1 .* into \[1, 1, 1\]"
    ),
    "axis": (operator("SPLIT", ((1, 1, 6, 3),) * 4, whole(7), before=True), "axis 7 does not fit .1, 4, 6, 3."),
    "nothing": (operator("SLICE", (SHAPE,), integers("b", 0, 4, 0, 0), integers("s", -1, -1, -1, -1)), "takes nothing"),
    "many": (operator("TILE", (SHAPE,), integers("t", 1, 2**30, 1, 1)), r"repeats \[1, 4, 6, 3\] \[1, 1073741824"),
    "no size": (operator("RESIZE_NEAREST_NEIGHBOR", (SHAPE,), integers("s", 0, 9)), "it resizes"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_parts_that_are_not_there_are_refused_in_a_sentence(what: str, tmp_path: Path) -> None:
    made, sentence = BAD[what]
    with pytest.raises(ImportModelError, match=sentence) as caught:
        read_file(made, tmp_path)
    assert "\n" not in str(caught.value)


@given(st.integers(1, 30), st.integers(1, 60), st.booleans(), st.booleans())
def test_places_that_repeat_say_the_same(size: int, count: int, corners: bool, half: bool) -> None:
    places = nearest(size, count, corners, half)
    short = Repeated.from_places(places, size)
    blocks = len(places) // len(short.taken)
    assert tuple(b * short.of + place for b in range(blocks) for place in short.taken) == places
    assert blocks * short.of == size


def test_a_map_twice_as_large_takes_two_numbers_for_its_rows() -> None:
    assert Repeated.from_places(nearest(40, 80), 40) == Repeated(1, (0, 0))


COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")


@quick
@given(
    st.sampled_from(COORDINATES),
    st.sampled_from(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.tuples(st.integers(1, 15), st.integers(1, 15)),
)
def test_onnx_resizes_to_the_nearest_as_onnx_runtime(
    tmp_path: Path, kind: str, rounding: str, sizes: Sizes, wanted: Sizes
) -> None:
    shape = (1, 16, *sizes)  # more channels than rows: no two orders look alike
    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], coordinate_transformation_mode=kind, nearest_mode=rounding
    )
    agrees(model([node], shape, {"sizes": np.array([1, 16, *wanted])}), shape, tmp_path)


@quick
@given(
    st.sampled_from(("half_pixel", "asymmetric", "align_corners")),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.tuples(st.integers(1, 15), st.integers(1, 15)),
)
def test_onnx_resizes_linearly_as_onnx_runtime(tmp_path: Path, kind: str, sizes: Sizes, wanted: Sizes) -> None:
    shape = (1, 16, *sizes)  # more channels than rows: no two orders look alike
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", coordinate_transformation_mode=kind)
    agrees(model([node], shape, {"sizes": np.array([1, 16, *wanted])}), shape, tmp_path)


ONNX: dict[str, tuple[list[Any], dict[str, Array]]] = {
    "slice": (
        [helper.make_node("Slice", ["x", "b", "e", "a", "s"], ["y"])],
        {"b": np.array([1, -1]), "e": np.array([4, -9]), "a": np.array([1, 3]), "s": np.array([2, -1])},
    ),
    "slice of all": ([helper.make_node("Slice", ["x", "b", "e"], ["y"])],
                     {"b": np.array([0, 1, 0, 2]), "e": np.array([1, 2**31, 2, -1])}),
    "parts": (
        [helper.make_node("Split", ["x", "n"], ["p", "q"], axis=1),
         helper.make_node("Concat", ["q", "p"], ["y"], axis=1)],
        {"n": np.array([1, 3])},
    ),
    "even parts": ([helper.make_node("Split", ["x"], ["p", "q"], axis=2, num_outputs=2),
                    helper.make_node("Mul", ["p", "q"], ["y"])], {}),
    "repeats": ([helper.make_node("Tile", ["x", "n"], ["y"])], {"n": np.array([1, 2, 1, 3])}),
    "places": ([helper.make_node("Gather", ["x", "n"], ["y"], axis=3)], {"n": np.array([-1, 0, 0])}),
    "one place": ([helper.make_node("Gather", ["x", "n"], ["y"], axis=1)], {"n": np.array(2)}),
    "twice": ([helper.make_node("Resize", ["x", "", "f"], ["y"])], {"f": np.array([1, 1, 2, 3], np.float32)}),
}  # fmt: skip


@pytest.mark.parametrize("what", ONNX)
def test_what_onnx_files_take_of_a_tensor_is_what_onnx_runtime_takes(what: str, tmp_path: Path) -> None:
    nodes, constants = ONNX[what]
    agrees(model(nodes, (1, 4, 4, 5), constants), (1, 4, 4, 5), tmp_path)


def test_the_upsample_of_older_files_is_read(tmp_path: Path) -> None:
    node = helper.make_node("Upsample", ["x", "f"], ["y"], mode="nearest")
    data = model([node], (1, 3, 2, 5), {"f": np.array([1, 1, 2, 2], np.float32)}, opset=9)
    graph = read(data, tmp_path)
    x = np.random.default_rng(1).normal(0, 1, (1, 3, 2, 5)).astype(np.float32)
    assert close(run(graph, x)[0], runtime(data, x)[0])
    assert [type(node.op) for node in graph.nodes] == [ops.Pick]


class Takes(nn.Module):
    """What people write to take parts of a map, after a convolution."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.before = what, nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.before(x)
        made: torch.Tensor
        if self.what == "upsampled":
            made = F.interpolate(y, scale_factor=2, mode="nearest")
        elif self.what == "to a size":
            made = F.interpolate(y, size=(7, 11), mode="nearest")
        elif self.what == "bilinear":
            made = F.interpolate(y, scale_factor=2, mode="bilinear")
        elif self.what == "bilinear corners":
            made = F.interpolate(y, size=(7, 11), mode="bilinear", align_corners=True)
        elif self.what == "slices":
            made = y[:, 2:7:2, 1:, -3:-1]
        elif self.what == "chunks":
            a, b = y.chunk(2, dim=1)
            made = a * torch.sigmoid(b)
        elif self.what == "uneven parts":
            a, b = torch.split(y, [3, 5], dim=1)
            made = torch.cat([b, a], dim=1)
        elif self.what == "focus":
            made = torch.cat([y[..., ::2, ::2], y[..., 1::2, ::2], y[..., ::2, 1::2], y[..., 1::2, 1::2]], 1)
        elif self.what == "repeated":
            made = y.repeat(1, 2, 1, 1).flip(3)
        else:
            made = F.pixel_shuffle(y, 2)
        return made


@pytest.mark.parametrize(
    "what",
    [
        "upsampled",
        "to a size",
        "bilinear",
        "bilinear corners",
        "slices",
        "chunks",
        "uneven parts",
        "focus",
        "repeated",
        "pixel shuffle",
    ],
)
def test_what_modules_take_of_a_tensor_is_what_pytorch_takes(what: str) -> None:
    module, x = Takes(what).eval(), torch.randn(1, 3, 4, 6)
    graph = smidgen.from_torch(module, x)
    with torch.no_grad():
        assert close(run(graph, x.numpy())[0], module(x).numpy())
    most = 2 if what == "pixel shuffle" else 0
    assert Counter(type(node.op) for node in graph.nodes)[ops.Transpose] <= most


@settings(max_examples=examples(20))
@given(st.integers(2, 5), st.integers(1, 3))
def test_a_channel_shuffle_of_any_number_of_groups_is_pytorch_s(groups: int, each: int) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(F.channel_shuffle(x, groups))

    module, x = Net(), torch.randn(1, groups * each, 3, 4)
    assert close(run(smidgen.from_torch(module, x), x.numpy())[0], module(x).numpy())
