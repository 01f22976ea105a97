"""ONNX in and out: random layers against ONNX Runtime, and quantized models both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from smidgen import ops
from smidgen.errors import ExportError, SmidgenError
from smidgen.frontends import export_model, import_model
from smidgen.frontends.onnx import read_onnx, write_onnx, write_plain
from smidgen.ir import Array, Builder, Graph, QParams, Type, evaluate
from smidgen.learning import learned_graph
from smidgen.training import Options, build_training
from smidgen.training.head import layers
from smidgen.training.scheme import load_scheme
from smidgen.zoo import NAMES, build_zoo
from tests.support.float_models import close, run, runtime
from tests.support.graphs import int8_graphs, random_inputs
from tests.support.networks import CLASSES, NETWORKS, inverted_residual, samples
from tests.support.release_files import SHARED
from tests.support.tiers import examples
from tests.zoo.test_zoo import smooth_image

Constants = dict[str, Array]
Nodes = list[onnx.NodeProto]
quick = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])


def model(nodes: Nodes, shape: tuple[int | str, ...], constants: Constants, out: str = "y", opset: int = 18) -> bytes:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(data, name) for name, data in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    data: bytes = made.SerializeToString()
    return data


def read(data: bytes, folder: Path) -> Graph:
    path = folder / "model.onnx"
    path.write_bytes(data)
    return read_onnx(path)


def agrees(data: bytes, shape: tuple[int, ...], folder: Path, seed: int = 0) -> Graph:
    """The graph of a model, which computes what ONNX Runtime computes."""
    x = np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)
    graph, (theirs,) = read(data, folder), runtime(data, x)
    assert close(run(graph, x)[0], theirs)
    return graph


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, object]]:
    """A map's shape, odd where channels are even so that no two orders look alike, and a window over it."""
    rank = draw(st.integers(1, 2))
    shape = (1, 2 * draw(st.integers(1, 4)), *(draw(st.sampled_from((3, 5, 7, 9))) for _ in range(rank)))
    k = tuple(draw(st.integers(1, min(4, n))) for n in shape[2:])
    attributes: dict[str, object] = {"kernel_shape": k, "strides": tuple(draw(st.integers(1, 3)) for _ in k)}
    kind = draw(st.sampled_from(("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")))
    if kind == "NOTSET":
        attributes["pads"] = tuple(draw(st.integers(0, (n - 1) // 2)) for n in (*k, *k))
    else:
        attributes["auto_pad"] = kind
    return shape, attributes


@quick
@given(windows(), st.sampled_from((1, 2, "all")), st.integers(1, 2), st.booleans(), st.data())
def test_convolutions_of_any_kind_are_onnx_runtimes(
    tmp_path: Path, window: tuple[tuple[int, ...], dict[str, object]], group: int | str, times: int, bias: bool,
    data: st.DataObject,
) -> None:  # fmt: skip
    shape, attributes = window
    groups = shape[1] if isinstance(group, str) else group
    if attributes.get("auto_pad", "NOTSET") == "NOTSET":
        attributes["dilations"] = tuple(data.draw(st.integers(1, 2)) for _ in shape[2:])
    size = attributes["kernel_shape"]
    assert isinstance(size, tuple)
    reach = [(k - 1) * d + 1 for k, d in zip(size, attributes.get("dilations", size), strict=True)]  # type: ignore[call-overload]
    assume("dilations" not in attributes or all(r <= n for r, n in zip(reach, shape[2:], strict=True)))
    rng = np.random.default_rng(1)
    w = rng.normal(0, 0.5, (groups * times, shape[1] // groups, *size)).astype(np.float32)
    constants = {"w": w} | ({"b": rng.normal(0, 1, len(w)).astype(np.float32)} if bias else {})
    node = helper.make_node("Conv", ["x", *constants], ["y"], group=groups, **attributes)  # type: ignore[arg-type]
    graph = agrees(model([node], shape, constants), shape, tmp_path)
    assert Counter(type(n.op) for n in graph.nodes) == {ops.Depthwise if groups == shape[1] > 1 else ops.Conv2D: 1}


@quick
@given(windows(), st.sampled_from(("MaxPool", "AveragePool")), st.booleans(), st.booleans())
def test_pools_of_any_kind_are_onnx_runtimes(
    tmp_path: Path, window: tuple[tuple[int, ...], dict[str, object]], code: str, ceil: bool, counts: bool
) -> None:
    shape, attributes = window
    # Windows that leave gaps and are to cover the map all the same make ONNX Runtime pad by negative numbers.
    gaps = any(s > k for s, k in zip(attributes["strides"], attributes["kernel_shape"], strict=True))  # type: ignore[call-overload]
    assume(not gaps or not str(attributes.get("auto_pad")).startswith("SAME"))
    if code == "AveragePool":
        attributes["count_include_pad"] = int(counts)
    if ceil and "auto_pad" not in attributes:
        attributes["ceil_mode"] = 1
    node = helper.make_node(code, ["x"], ["y"], **attributes)  # type: ignore[arg-type]
    agrees(model([node], shape, {}, opset=19), shape, tmp_path)


@quick
@given(
    st.integers(1, 5), st.integers(1, 4), st.booleans(), st.booleans(), st.floats(0.5, 2),
    st.sampled_from(("", "n", "1")),
)  # fmt: skip
def test_products_of_any_kind_are_onnx_runtimes(
    tmp_path: Path, k: int, n: int, a_turned: bool, b_turned: bool, alpha: float, bias: str
) -> None:
    rng = np.random.default_rng(0)
    shape = (1, k)
    constants: Constants = {"w": rng.normal(0, 1, (n, k) if b_turned else (k, n)).astype(np.float32)}
    if bias:
        constants["b"] = rng.normal(0, 1, n if bias == "n" else 1).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["t", *constants], ["y"], transA=int(a_turned), transB=int(b_turned), alpha=alpha)
    ]
    turn = helper.make_node("Transpose" if a_turned else "Identity", ["x"], ["t"])
    agrees(model([turn, *nodes], shape, constants), shape, tmp_path)


@quick
@given(st.permutations((0, 1, 2, 3)), st.sampled_from(("Add", "Mul", "Sub", "Div")), st.data())
def test_transposes_reshapes_and_broadcasts_give_what_onnx_runtime_gives(
    tmp_path: Path, perm: list[int], code: str, data: st.DataObject
) -> None:
    shape, rng = (1, 4, 3, 6), np.random.default_rng(0)
    moved = tuple(shape[p] for p in perm)
    other = tuple(d if data.draw(st.booleans()) else 1 for d in moved)[data.draw(st.integers(0, 3)) :]
    target = data.draw(st.sampled_from(((72,), (1, 72), (8, 9), (2, 6, 6), (1, 3, 24), (4, 3, 3, 2), (12, 1, 6))))
    w = rng.normal(0, 1, (target[-1], 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"]),
        helper.make_node("Transpose", ["c"], ["t"], perm=perm),
        helper.make_node(code, ["t", "o"], ["s"]),
        helper.make_node("Reshape", ["s", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]) if len(target) > 1 else helper.make_node("Relu", ["r"], ["y"]),
    ]  # fmt: skip
    constants: Constants = {
        "k": rng.normal(0, 1, (4, 4, 1, 1)).astype(np.float32), "o": rng.uniform(0.5, 2, other).astype(np.float32),
        "shape": np.array(target, np.int64), "w": w,
    }  # fmt: skip
    agrees(model(nodes, shape, constants), shape, tmp_path)


@quick
@given(st.permutations((0, 1, 2, 3)), st.integers(-4, 3), st.integers(1, 3), st.integers(0, 2))
def test_joins_pads_means_and_softmax_along_any_dimension(
    tmp_path: Path, perm: list[int], axis: int, count: int, pad: int
) -> None:
    shape = (1, 3, 4, 2)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=perm),
        helper.make_node("Concat", ["t"] * count, ["c"], axis=axis),
        helper.make_node("Pad", ["c", "pads"], ["p"]),
        helper.make_node("Softmax", ["p"], ["s"], axis=axis),
        helper.make_node("ReduceMean", ["s", "axes"], ["y"], keepdims=pad % 2),
    ]
    pads = np.zeros((2, 4), np.int64)
    pads[:, axis] = pad, 1
    constants = {"pads": pads.reshape(-1), "axes": np.array([(axis + 1) % 4, (axis + 2) % 4], np.int64)}
    agrees(model(nodes, shape, constants), shape, tmp_path)


def test_shapes_computed_in_the_file_are_folded(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axis"], ["u"]),
        helper.make_node("Concat", ["u", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    constants: Constants = {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([-1])}
    graph = read(model(nodes, ("batch", 2, 3, 4), constants), tmp_path)
    assert graph.outputs[0].type.shape == (1, 24)


# --- quantized models


@settings(max_examples=examples(60), derandomize=True)
@given(int8_graphs(max_nodes=1, recurrent=False), st.integers(0, 2**31))
def test_a_plainly_exported_layer_is_within_a_step_in_onnx_runtime(graph: Graph, seed: int) -> None:
    arrays = random_inputs(graph, np.random.default_rng(seed))
    for ours, theirs in zip(evaluate(graph, *arrays), runtime(write_plain(graph), *arrays), strict=True):
        assert np.abs(ours.astype(int) - theirs).max() <= 1


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_an_exported_network_comes_back_as_it_was(network: Callable[[int], Graph], plain: bool, tmp_path: Path) -> None:
    graph = network(3)
    export_model(graph, tmp_path / "network.onnx", plain)
    back = import_model(tmp_path / "network.onnx")
    assert [layer.out.name for layer in layers(back)] == [layer.out.name for layer in layers(graph)]
    for image, _ in samples(graph, 5):
        np.testing.assert_array_equal(evaluate(back, image)[0], evaluate(graph, image)[0])


@pytest.mark.parametrize("name", NAMES)
def test_an_exported_backbone_is_the_same_in_onnx_runtime_and_plainly_nearly_the_same(name: str) -> None:
    path = SHARED / "models" / f"{name}.npz"
    graph = import_model(path) if path.exists() else build_zoo(name)
    apart = 1 if path.exists() else 2  # steps; the zoo's networks score drawn images almost alike
    size = graph.inputs[0].type.shape[1]
    data, plain = write_onnx(graph), write_plain(graph)
    images = [smooth_image(size), smooth_image(size)[:, ::-1], smooth_image(size)[:, :, ::-1]]
    for image in map(np.ascontiguousarray, images):
        ours, (same,), (near,) = evaluate(graph, image)[0], runtime(data, image), runtime(plain, image)
        np.testing.assert_array_equal(same, ours)
        assert ours[0, near.argmax()] >= ours.max() - apart
        assert np.mean(np.abs(ours.astype(int) - near)) < 2


@pytest.mark.parametrize(("plain", "tolerance"), [(False, 1e-5), (True, 0.05)])
def test_a_learned_model_with_a_float_head_is_exported(plain: bool, tolerance: float, tmp_path: Path) -> None:
    graph = inverted_residual(1)
    training = build_training(graph, load_scheme("full", graph), Options(CLASSES))
    learned = learned_graph(training, {v.name: data for v, data in training.step.state.items()})
    export_model(learned, tmp_path / "learned.onnx", plain)
    back = import_model(tmp_path / "learned.onnx")
    for image, _ in samples(graph, 4):
        (ours,), (theirs,) = evaluate(learned, image), runtime(tmp_path / "learned.onnx", image)
        assert ours.dtype == theirs.dtype == np.float32
        assert np.abs(ours - theirs).max() < tolerance * np.abs(ours).max()
        np.testing.assert_array_equal(evaluate(back, image)[0], ours)


def test_uint8_activations_become_int8(tmp_path: Path) -> None:
    constants: Constants = {
        "s": np.array(0.05, np.float32), "z": np.array(100, np.uint8), "t": np.array(0.02, np.float32),
        "u": np.array(0, np.uint8), "w": np.array([[[[3]], [[-5]]]], np.int8), "v": np.array([0.1], np.float32),
        "o": np.zeros(1, np.int8),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "v", "o"], ["wr"], axis=0),
        helper.make_node("Conv", ["xr", "wr"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "t", "u"], ["rq"]),
        helper.make_node("DequantizeLinear", ["rq", "t", "u"], ["y"]),
    ]
    data = model(nodes, (1, 2, 3, 3), constants)
    graph = read(data, tmp_path)
    assert [type(node.op) for node in graph.nodes] == [ops.Quantize, ops.Conv2D, ops.Dequantize]
    assert graph.nodes[0].out.type.q == QParams.per_tensor(0.05, -28)
    x = np.random.default_rng(0).normal(0, 2, (1, 2, 3, 3)).astype(np.float32)
    assert np.abs(run(graph, x)[0].transpose(0, 3, 1, 2) - runtime(data, x)[0]).max() <= 0.0201


def test_what_trains_or_has_no_counterpart_is_not_exported() -> None:
    training = build_training(inverted_residual(0), load_scheme("last:1", inverted_residual(0)), Options(CLASSES))
    with pytest.raises(ExportError, match="ONNX only infers"):
        write_onnx(training.step)
    g = Builder("model")
    x = g.input("x", Type((1, 4), "float32"))
    with pytest.raises(ExportError, match="ONNX has no tanh slope"):
        write_onnx(g.graph(g.emit(ops.Lookup("tanh", slope=True), x)))
    with pytest.raises(SmidgenError, match=r"should end in \.smg, \.tflite or \.onnx"):
        export_model(g.graph(x), "model.pt2")
