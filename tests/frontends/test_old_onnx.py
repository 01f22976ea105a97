"""ONNX files of older opsets, and of open sizes: read as those of today, to ONNX Runtime's numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from smidgen.errors import ImportModelError, InputError
from smidgen.frontends import import_model
from smidgen.frontends.onnx import read_onnx
from smidgen.zoo import load
from tests.cli.test_cli import fail, invoke
from tests.frontends.test_onnx import model
from tests.frontends.test_wild import wild
from tests.support.float_models import close, run, runtime


@pytest.mark.parametrize("name", ["ort-mnist.onnx", "ultraface-slim320.onnx"])
def test_a_wild_file_of_an_older_opset_is_onnx_runtimes(name: str) -> None:
    path = Path(wild(name))
    graph = read_onnx(path)
    stored = {tensor.name for tensor in onnx.load(path).graph.initializer}
    (value,) = (v for v in onnx.load(path).graph.input if v.name not in stored)
    x = np.random.default_rng(0).normal(0, 1, [d.dim_value for d in value.type.tensor_type.shape.dim])
    theirs = runtime(path.read_bytes(), x.astype(np.float32))
    for one, other in zip(run(graph, x.astype(np.float32)), theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(other).max())


OLD: dict[str, tuple[int, list[onnx.NodeProto]]] = {
    "softmax of all that follows": (11, [helper.make_node("Softmax", ["x"], ["y"], axis=1)]),
    "limits as attributes": (6, [helper.make_node("Clip", ["x"], ["y"], min=-0.5, max=0.25)]),
    "axes as attributes": (11, [helper.make_node("Unsqueeze", ["x"], ["u"], axes=[0]),
                                helper.make_node("Squeeze", ["u"], ["y"], axes=[0])]),
    "pads as attributes": (10, [helper.make_node("Pad", ["x"], ["y"], pads=[0, 0, 1, 0, 0, 0, 0, 2])]),
    "dropout of two results": (9, [helper.make_node("Dropout", ["x"], ["y", "m"], ratio=0.5)]),
}  # fmt: skip


@pytest.mark.parametrize("what", OLD)
def test_what_operators_meant_in_their_opset_is_kept(what: str, tmp_path: Path) -> None:
    opset, nodes = OLD[what]
    data = model(nodes, (1, 4, 3, 5), {}, opset=opset)
    (path := tmp_path / "old.onnx").write_bytes(data)
    x = np.random.default_rng(1).normal(0, 1, (1, 4, 3, 5)).astype(np.float32)
    assert close(run(read_onnx(path), x)[0], runtime(data, x)[0])


def test_weights_are_not_what_is_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    w = np.random.default_rng(0).normal(0, 1, (8, 3, 3, 3)).astype(np.float32)
    data = model([helper.make_node("Conv", ["x", "w"], ["y"])], (1, 3, 6, 6), {"w": w}, opset=9)
    (path := tmp_path / "old.onnx").write_bytes(data)
    seen = []
    convert = onnx.version_converter.convert_version

    def recorded(proto: onnx.ModelProto, to: int) -> onnx.ModelProto:
        seen.append(proto.ByteSize())
        return convert(proto, to)

    monkeypatch.setattr("onnx.version_converter.convert_version", recorded)
    x = np.random.default_rng(1).normal(0, 1, (1, 3, 6, 6)).astype(np.float32)
    assert close(run(read_onnx(path), x)[0], runtime(data, x)[0])
    assert seen
    assert max(seen) < w.nbytes


def test_an_old_file_that_cannot_be_converted_is_refused_in_a_sentence(tmp_path: Path) -> None:
    data = model([helper.make_node("NoSuchThing", ["x"], ["y"])], (1, 4), {}, opset=8)
    (path := tmp_path / "old.onnx").write_bytes(data)
    with pytest.raises(ImportModelError, match="it uses opset 8, which ONNX's converter cannot bring to 13: ") as e:
        read_onnx(path)
    assert "\n" not in str(e.value)


def open_file(folder: Path) -> Path:
    """Flattens by sizes that it computes: what exporters write for sizes that are not known."""
    ids = {"zero": np.array(0), "minus": np.array([-1])}
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n"], ["n1"], axes=[0]),
        helper.make_node("Concat", ["n1", "minus"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "open", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 3, "rows", "columns"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(data, name) for name, data in ids.items()],
    )  # fmt: skip
    path = folder / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8), path)
    return path


def test_open_sizes_are_given_and_what_is_computed_of_them_is_folded(tmp_path: Path) -> None:
    path = open_file(tmp_path)
    graph = import_model(path, shapes={"x": (1, 3, 4, 6)})
    x = np.random.default_rng(1).normal(0, 1, (1, 3, 4, 6)).astype(np.float32)
    assert close(run(graph, x)[0], runtime(path.read_bytes(), x)[0])


@pytest.mark.parametrize(
    ("shapes", "sentence"),
    [
        ({}, r"leaves dimension 2 \('rows'\) open; give its sizes as in --shape x=1,3,N,N with numbers for N"),
        ({"x": (1, 4, 4, 4)}, r"input 'x' is \[\?, 3, \?, \?\], which the shape \[1, 4, 4, 4\] does not fit"),
        ({"x": (3, 4, 4)}, "which the shape .* does not fit"),
        ({"z": (1, 3, 4, 4)}, "it has no input 'z' to give a shape to; its inputs are x"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(shapes: dict[str, tuple[int, ...]], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match=sentence):
        import_model(open_file(tmp_path), shapes=shapes)


def test_the_command_line_takes_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(open_file(tmp_path))
    invoke("info", path, "--shape", "x=1,3,4,6")
    invoke("import", path, "-o", str(tmp_path / "fixed.smg"), "--shape", "x=1,3,4,6")
    assert import_model(tmp_path / "fixed.smg").inputs[0].type.size == 72
    assert "--shape x=1,a is not an input's name" in fail(capsys, monkeypatch, "info", path, "--shape", "x=1,a")
    message = fail(capsys, monkeypatch, "info", str(tmp_path / "fixed.smg"), "--shape", "x=1,3,4,6")
    assert "only .onnx files leave sizes open" in message
    with pytest.raises(InputError, match="has fixed sizes"):
        load("mbv2-w0.35", shapes={"x": (1,)})
