"""ONNX files that cannot be read: each is refused in one sentence with what, where and the way out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from smidgen.errors import ImportModelError
from tests.frontends.test_onnx import Constants, model, read
from tests.support.tiers import examples


def relu(shape: tuple[int | str, ...] = (1, 3, 4, 4)) -> bytes:
    return model([helper.make_node("Relu", ["x"], ["y"])], shape, {})


def one(code: str, *inputs: str, constants: Constants | None = None, **attributes: object) -> bytes:
    """A model of one operator on a small map."""
    node = helper.make_node(code, ["x", *inputs], ["y"], name="it", **attributes)  # type: ignore[arg-type]
    return model([node], (1, 3, 4, 4), constants or {})


def changed(data: bytes, change: Callable[[onnx.ModelProto], object]) -> bytes:
    proto = onnx.ModelProto.FromString(data)
    change(proto)
    made: bytes = proto.SerializeToString()
    return made


def loop(proto: onnx.ModelProto) -> None:
    inner = helper.make_graph([], "inner", [], [])
    proto.graph.node.append(helper.make_node("Loop", ["", "x"], ["z"], name="again", body=inner))


def branch(proto: onnx.ModelProto) -> None:
    inner = helper.make_graph([], "inner", [], [])
    proto.graph.node.append(helper.make_node("If", ["x"], ["z"], name="choice", then_branch=inner, else_branch=inner))


def hostile(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(
        TensorProto(name="huge", data_type=TensorProto.FLOAT, dims=[2**40, 2**20], raw_data=b"1234")
    )


def short(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(TensorProto(name="short", data_type=TensorProto.FLOAT, dims=[5], raw_data=b"1234"))


def elsewhere(location: str) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        proto.graph.initializer.append(tensor)

    return change


W = np.ones((2, 3, 3, 3), np.float32)
SEVERAL = model(
    [
        helper.make_node("TopK", ["x", "k"], ["a", "b"], name="it"),
        helper.make_node("Sin", ["k"], ["c"]),  # of a constant, which is no obstacle
        helper.make_node("RNN", ["a"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("RNN", ["e"], ["y"]),
    ],
    (1, 3, 4, 4),
    {"k": np.ones(1, np.float32)},
)
BAD: dict[str, tuple[bytes, str]] = {
    "truncated": (relu()[:40], "it is not a complete ONNX file"),
    "no model": (b"PK" + bytes(100), "it is not a complete ONNX file"),
    "empty": (b"", "it computes nothing; fix the model or export it again"),
    "future": (changed(relu(), lambda p: setattr(p.opset_import[0], "version", 99)), "it uses opset 99"),
    "open height": (relu((1, 3, "height", 4)), r"input 'x' leaves dimension 2 \('height'\) open"),
    "control flow": (changed(relu(), loop), r"node 'again' \(Loop\) is control flow"),
    "branches without results": (changed(relu(), branch), r"node 'choice' \(If\): it lacks a branch, or a branch has"),
    "enlarging": (one("ConvTranspose", "w", constants={"w": W}), r"\(ConvTranspose\): input .* takes one group"),
    "several": (
        SEVERAL,
        r"not supported are 2 × RNN, 1 × TopK; the first is node 'it' \(TopK\): .*logits \(docs",
    ),
    "near": (one("ReduceMax"), r"node 'it' \(ReduceMax\) is not supported; nearest is ReduceMean"),
    "normalized": (one("LayerNormalization", "w", constants={"w": W}), r"shapes \[2, 3, 3, 3\] and \[4\] do not"),
    "scales": (
        one("LayerNormalization", "w", constants={"w": W[:, 0, 0, :1]}),
        r"scales or shifts \[2, 1\] do not fit",
    ),
    "groups": (
        one("GroupNormalization", "w", "w", constants={"w": W[0, 0, 0]}, num_groups=2),
        "2 groups and 3 scales do not",
    ),
    "attention": (one("Attention", "x", "x", is_causal=1), "is_causal = 1 is not supported; use 0"),
    "matrices": (one("MatMul", "w", constants={"w": W[0, 0, 0]}), r"a product of \[1, 3, 4, 4\] and \[3\]"),
    "not a number": (one("Conv", "w", constants={"w": W * np.nan}), r"'it' \(Conv\): 54 of the 54 numbers .* are NaN"),
    "rank": (one("Conv", "w", constants={"w": W[0]}), r"window \[3\], strides \[1, 1\]"),
    "channels": (one("Conv", "w", constants={"w": W[:, :2]}), r"input \[1, 3, 4, 4\] and weights \[2, 2, 3, 3\]"),
    "window": (one("MaxPool", kernel_shape=(9, 9)), "larger than its padded input"),
    "reshape": (one("Reshape", "s", constants={"s": np.array([7, 7])}), r"reshapes \[1, 3, 4, 4\] to \[7, 7\]"),
    "repeated": (one("Add", "b", constants={"b": np.ones((5, 1, 1, 1, 1), np.float32)}), "would both be repeated"),
    "mismatch": (one("Add", "b", constants={"b": np.ones(5, np.float32)}), "do not broadcast together"),
    "reflecting": (one("Pad", "p", constants={"p": np.zeros(8, np.int64)}, mode="reflect"), "pad with zeros"),
    "unwritten": (one("Add", "nowhere"), "'nowhere' is read before anything writes it"),
    "huge": (changed(relu(), hostile), "constant 'huge', .* would take .* bytes of memory, the limit"),
    "short": (changed(relu(), short), "constant 'short' does not hold its 20 bytes"),
    "missing weights": (changed(relu(), elsewhere("weights.bin")), "'weights.bin', which is not next to the model"),
    "weights outside": (changed(relu(), elsewhere("../../secret")), "outside the model's folder"),
    "foreign": (changed(relu(), lambda p: setattr(p.graph.node[0], "domain", "com.microsoft")), "com.microsoft"),
    "no output": (changed(relu(), lambda p: p.graph.ClearField("output")), "it computes nothing"),
    "quantized operators": (one("QLinearConv", "w", constants={"w": W}), "quantize the model in QDQ format"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_refused_in_one_sentence(what: str, tmp_path: Path) -> None:
    data, sentence = BAD[what]
    with pytest.raises(ImportModelError, match=sentence) as caught:
        read(data, tmp_path)
    assert str(caught.value).startswith("model.onnx: ")
    assert "\n" not in str(caught.value)


def test_a_batch_is_refused_with_its_number(tmp_path: Path) -> None:
    data = model([helper.make_node("Conv", ["x", "w"], ["y"])], (8, 3, 4, 4), {"w": W})
    with pytest.raises(ImportModelError, match=r"'x' is a batch of 8, \[8, 3, 4, 4\]; export it with a batch of 1"):
        read(data, tmp_path)


def test_constants_are_not_grown_beyond_all_bounds(tmp_path: Path) -> None:
    nodes = [helper.make_node("Expand", ["one", "shape"], ["big"]), helper.make_node("Add", ["x", "big"], ["y"])]
    constants: Constants = {"one": np.ones(1, np.float32), "shape": np.array([2**30, 2**30])}
    with pytest.raises(ImportModelError, match="would take 9,223,372,036,854,775,808 bytes of memory"):
        read(model(nodes, (1, 3), constants), tmp_path)


def test_an_attribute_that_lost_its_type_is_refused(tmp_path: Path) -> None:
    model = onnx.load_from_string(one("Conv", "w", constants={"w": W}, pads=(1, 1, 1, 1)))
    model.graph.node[0].attribute[0].ClearField("type")
    with pytest.raises(ImportModelError, match=r"Conv\): its attribute 'pads' has an unsupported type"):
        read(model.SerializeToString(), tmp_path)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_anywhere_is_no_worse_than_a_sentence(tmp_path: Path, data: st.DataObject) -> None:
    sound = bytearray(one("Conv", "w", constants={"w": W}, pads=(1, 1, 1, 1)))
    for _ in range(data.draw(st.integers(1, 4))):
        sound[data.draw(st.integers(0, len(sound) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ImportModelError):  # and nothing else
        read(bytes(sound), tmp_path)
