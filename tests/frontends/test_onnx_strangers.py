"""ONNX files as strangers export them: without an opset, with constants repeated, branches decided, a class chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from smidgen.errors import ImportModelError
from smidgen.frontends.onnx import read_onnx
from smidgen.ir import Array
from tests.cli.test_cli import invoke
from tests.frontends.test_onnx import Nodes, agrees, model, read
from tests.support.float_models import close, run, runtime

RNG = np.random.default_rng(6)
W = RNG.normal(0, 1, (5, 12)).astype(np.float32)


def without_opset(data: bytes, ir_version: int, stated: str | None = None) -> bytes:
    """A file whose opset import is empty, or names another domain, or no version."""
    proto = onnx.load_from_string(data)
    del proto.opset_import[:]
    if stated is not None:
        proto.opset_import.append(onnx.OperatorSetIdProto(domain=stated))
    proto.ir_version = ir_version
    changed: bytes = proto.SerializeToString()
    return changed


@pytest.mark.parametrize("stated", [None, "", "ai.onnx.ml"])
@pytest.mark.parametrize(
    ("ir_version", "opset", "node"),
    [
        (8, 18, helper.make_node("Softmax", ["x"], ["y"], axis=1)),
        (7, 12, helper.make_node("Squeeze", ["x"], ["y"], axes=[0])),
        (7, 14, helper.make_node("Squeeze", ["x", "first"], ["y"])),
        (3, 6, helper.make_node("Clip", ["x"], ["y"], min=-0.5, max=0.25)),
    ],
)
def test_a_file_without_an_opset_has_that_of_its_ir_version(
    ir_version: int, opset: int, node: onnx.NodeProto, stated: str | None, tmp_path: Path
) -> None:
    data = model([node], (1, 4, 3), {"first": np.array([0])}, opset=opset)
    (path := tmp_path / "old.onnx").write_bytes(without_opset(data, ir_version, stated))
    x = np.random.default_rng(1).normal(0, 1, (1, 4, 3)).astype(np.float32)
    assert close(run(read_onnx(path), x)[0], runtime(data, x)[0])


def test_the_first_ir_versions_mean_opset_1(tmp_path: Path) -> None:
    """Their operators have attributes that no later opset knows."""
    old = model([helper.make_node("Dropout", ["x"], ["y"], is_test=1, consumed_inputs=[0])], (1, 4), {}, opset=1)
    (path := tmp_path / "old.onnx").write_bytes(without_opset(old, 2))
    x = RNG.normal(0, 1, (1, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(read_onnx(path), x)[0], x)


def test_a_file_that_fits_no_opset_is_refused(tmp_path: Path) -> None:
    data = without_opset(model([helper.make_node("Swirl", ["x"], ["y"])], (1, 4), {}), 8)
    with pytest.raises(
        ImportModelError, match="it states no opset, and no opset of its IR version 8 has all its nodes"
    ):
        read(data, tmp_path)


@pytest.mark.parametrize("times", [(1, 2, 3), (2, 1, 1)])
def test_a_constant_that_is_repeated_is_one_constant(times: tuple[int, ...], tmp_path: Path) -> None:
    nodes = [helper.make_node("Tile", ["code", "times"], ["codes"]), helper.make_node("Add", ["x", "codes"], ["y"])]
    code = RNG.normal(0, 1, (1, 2, 4)).astype(np.float32)
    shape = np.tile(code, times).shape
    graph = agrees(model(nodes, shape, {"code": code, "times": np.array(times)}), shape, tmp_path)
    assert [type(node.op).__name__ for node in graph.nodes] == ["Add"]


def test_a_constant_repeated_beyond_memory_or_sense_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("Tile", ["code", "times"], ["y"])
    for times, why in (([2**30, 2**30], "its result"), ([-1, 1], "it repeats"), ([2], "it repeats")):
        held = {"code": np.ones((1, 2), np.float32), "times": np.array(times)}
        with pytest.raises(ImportModelError, match=why):
            read(model([node, helper.make_node("Add", ["x", "y"], ["z"])], (1, 2), held, "z"), tmp_path)


def branch(name: str, *nodes: onnx.NodeProto, out: str, constants: dict[str, Array] | None = None) -> onnx.GraphProto:
    held = [numpy_helper.from_array(data, key) for key, data in (constants or {}).items()]
    return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)], held)


def squeezed_if_one() -> Nodes:
    """As torch exports a squeeze: it compares a size with 1, then squeezes or does not."""
    squeeze = helper.make_node("Squeeze", ["x", "axis"], ["inner"])
    same = helper.make_node("Identity", ["x"], ["inner"])
    return [
        helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Gather", ["shape", "axis"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["is_one"]),
        helper.make_node(
            "If", ["is_one"], ["maybe"], then_branch=branch("then", squeeze, out="inner"),
            else_branch=branch("else", same, out="inner"),
        ),
        helper.make_node("Gemm", ["maybe", "w"], ["y"], transB=1),
    ]  # fmt: skip


def test_an_if_decided_by_a_shape_is_the_branch_it_takes(tmp_path: Path) -> None:
    held = {"axis": np.array([1]), "one": np.array([1]), "w": W}
    graph = agrees(model(squeezed_if_one(), (1, 1, 12), held), (1, 1, 12), tmp_path)
    assert {type(node.op).__name__ for node in graph.nodes} <= {"Conv2D", "Dense", "Reshape"}
    other, x = read(model(squeezed_if_one(), (1, 12), held), tmp_path), RNG.normal(0, 1, (1, 12)).astype(np.float32)
    assert close(run(other, x)[0], x @ W.T)  # ONNX Runtime refuses the branch that is not taken


@pytest.mark.parametrize("taken", [True, False])
def test_branches_have_names_constants_and_branches_of_their_own(taken: bool, tmp_path: Path) -> None:
    """Both branches call what they make `v` and hold a constant `k`; one has an If inside."""
    k = {"k": np.array([3.0], np.float32)}
    deepest = branch("deepest", helper.make_node("Mul", ["v", "k"], ["u"]), out="u")
    other = branch("other", helper.make_node("Sub", ["v", "k"], ["u"]), out="u")
    inner = helper.make_node("If", ["yes"], ["w"], then_branch=deepest, else_branch=other)
    first = branch("then", helper.make_node("Add", ["x", "k"], ["v"]), inner, out="w", constants=k)
    second = branch("else", helper.make_node("Mul", ["x", "k"], ["v"]), out="v", constants=k)
    nodes = [
        helper.make_node("If", ["which"], ["z"], then_branch=first, else_branch=second),
        helper.make_node("Relu", ["z"], ["y"]),
    ]
    agrees(model(nodes, (1, 6), {"which": np.array(taken), "yes": np.array(True)}), (1, 6), tmp_path)


def test_an_if_decided_by_the_input_is_refused_in_a_sentence(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], keepdims=0),
        helper.make_node(
            "If", ["mean"], ["y"], then_branch=branch("t", helper.make_node("Relu", ["x"], ["v"]), out="v"),
            else_branch=branch("e", helper.make_node("Neg", ["x"], ["v"]), out="v"),
        ),
    ]  # fmt: skip
    with pytest.raises(ImportModelError, match="condition is computed from the input; export the model for one fixed"):
        read(model(nodes, (1, 4), {}), tmp_path)


CHOICES: dict[str, tuple[Nodes, tuple[int, ...]]] = {
    "of classes": ([helper.make_node("ArgMax", ["s"], ["y"], axis=1)], (1, 12)),
    "after softmax, without dimension, as int32": (
        [
            helper.make_node("Softmax", ["s"], ["p"], axis=-1),
            helper.make_node("ArgMax", ["p"], ["n"], axis=-1, keepdims=0),
            helper.make_node("Cast", ["n"], ["y"], to=TensorProto.INT32),
        ],
        (1, 12),
    ),
    "of each column": ([helper.make_node("ArgMax", ["s"], ["y"], axis=1)], (1, 3, 12)),
    "of each step": ([helper.make_node("ArgMax", ["s"], ["y"], axis=2)], (1, 3, 12)),
}


@pytest.mark.parametrize("how", CHOICES)
def test_a_chosen_class_is_the_largest_score_of_the_output(how: str, tmp_path: Path) -> None:
    ends, shape = CHOICES[how]
    data = model([helper.make_node("MatMul", ["x", "w"], ["s"]), *ends], shape, {"w": W.T.copy()})
    proto = onnx.load_from_string(data)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32 if "int32" in how else TensorProto.INT64
    graph = read(data := proto.SerializeToString(), tmp_path)
    assert graph.notes == (
        f"ArgMax at the end is left out: the output is the scores %{graph.scores.name}, and the class their largest",
    )
    for seed in range(20):
        x = np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)
        (theirs,) = runtime(data, x)
        np.testing.assert_array_equal(run(graph, x)[0].argmax(axis=-1).ravel(), theirs.ravel())


def test_the_class_of_each_pixel_is_the_largest_of_its_scores(tmp_path: Path) -> None:
    """Channels are dimension 1 in the file and the last one here."""
    w = RNG.normal(0, 1, (4, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["s"]), helper.make_node("ArgMax", ["s"], ["y"], axis=1, keepdims=0)]
    proto = onnx.load_from_string(model(nodes, (1, 3, 8, 9), {"w": w}))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    graph = read(data := proto.SerializeToString(), tmp_path)
    assert graph.scores.type.shape == (1, 6, 7, 4)
    x = RNG.normal(0, 1, (1, 3, 8, 9)).astype(np.float32)
    np.testing.assert_array_equal(run(graph, x)[0].argmax(axis=-1), runtime(data, x)[0])


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (helper.make_node("ArgMax", ["s"], ["n"], axis=1, select_last_index=1), "select_last_index = 1"),
        (helper.make_node("ArgMax", ["s"], ["n"], axis=3), "axis 3 does not fit"),
        (helper.make_node("ArgMax", ["s"], ["n"], axis=1), "'n' is the class that ArgMax chose, and more is computed"),
    ],
)
def test_a_choice_that_is_not_the_end_is_refused(node: onnx.NodeProto, why: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), node, helper.make_node("Mul", ["n", "n"], ["y"])]
    with pytest.raises(ImportModelError, match=why):
        read(model(nodes, (1, 12), {"w": W.T.copy()}), tmp_path)


def test_info_says_that_the_choice_is_left_out(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("ArgMax", ["s"], ["y"], axis=1)]
    (path := tmp_path / "net.onnx").write_bytes(model(nodes, (1, 12), {"w": W.T.copy()}))
    assert "ArgMax at the end is left out" in invoke("info", str(path))
