"""Damage that leaves a file's structure whole: other operators, other numbers, other types, names that lead astray."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from smidgen.data import load_data, load_images
from smidgen.errors import SmidgenError
from smidgen.frontends import import_model
from smidgen.frontends.network import build
from smidgen.frontends.onnx import write_onnx, write_plain
from smidgen.ir import Array
from tests.frontends.test_fuzz import mutate
from tests.support.release_files import tiny_network

OPERATORS = (
    "Add", "Mul", "Sub", "Div", "Pow", "Concat", "Reshape", "Transpose", "Slice", "Gather", "Cast", "ConstantOfShape",
    "Expand", "Squeeze", "Unsqueeze", "Clip", "Gemm", "MatMul", "Conv", "AveragePool", "MaxPool", "ReduceMean", "Pad",
    "Flatten", "Shape", "Identity", "Constant", "QuantizeLinear", "DequantizeLinear", "BatchNormalization", "PRelu",
    "LeakyRelu", "Softmax", "HardSigmoid", "Where", "Size", "Range", "GlobalAveragePool", "Elu", "Dropout",
)  # fmt: skip
ATTRIBUTES = (
    "axis", "to", "axes", "keepdims", "alpha", "beta", "group", "pads", "strides", "kernel_shape", "dilations",
    "auto_pad", "perm", "value", "ceil_mode", "epsilon", "transB", "transA", "start", "end", "allowzero",
)  # fmt: skip
NUMBERS = (-(2**63), -1, 0, 1, 2, 3, 7, 2**31, 2**40, 2**62)
TYPES = (np.float32, np.int64, np.int8, np.uint8, np.int32, np.float64, np.bool_, np.float16)


@cache
def onnx_files() -> tuple[bytes, ...]:
    """A float network whose exporter computed a shape, and an int8 one in both its forms."""
    rng = np.random.default_rng(0)
    shapes = {
        "w": (4, 3, 3, 3),
        "b": (4,),
        "s": (4,),
        "h": (4,),
        "m": (4,),
        "k": (1, 4, 1, 1),
        "fw": (5, 4),
        "fb": (5,),
    }
    held: dict[str, Array] = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    held |= {"v": np.ones(4, np.float32), "g": np.array(0), "z": np.array([0]), "rest": np.array([-1])}
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("BatchNormalization", ["c", "s", "h", "m", "v"], ["n"]), node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]), node("Mul", ["p", "k"], ["q"]),
        node("Shape", ["q"], ["shape"]), node("Gather", ["shape", "g"], ["first"], axis=0),
        node("Unsqueeze", ["first", "z"], ["u"]), node("Concat", ["u", "rest"], ["flat"], axis=0),
        node("GlobalAveragePool", ["q"], ["mean"]), node("Reshape", ["mean", "flat"], ["f"]),
        node("Gemm", ["f", "fw", "fb"], ["y"], transB=1), node("Softmax", ["y"], ["o"], axis=1),
    ]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))
    o = helper.make_tensor_value_info("o", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [o], [numpy_helper.from_array(a, n) for n, a in held.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    tiny = build(tiny_network(), "tiny")
    return made, write_onnx(tiny), write_plain(tiny)


def damage_node(graph: onnx.GraphProto, rng: random.Random) -> None:
    """Another operator, other inputs, other attributes, or a node more or less."""
    node = rng.choice(graph.node)
    names = [name for n in graph.node for name in (*n.input, *n.output)] + [t.name for t in graph.initializer] + [""]
    match rng.randrange(7):
        case 0:
            node.op_type = rng.choice(OPERATORS)
        case 1 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(names)
        case 2 if node.input:
            del node.input[rng.randrange(len(node.input))]
        case 3:
            node.input.append(rng.choice(names))
        case 4 if node.attribute:
            del node.attribute[rng.randrange(len(node.attribute))]
        case 5:
            tensor = numpy_helper.from_array(np.array([rng.choice((1.0, 0.0))]).astype(rng.choice(TYPES)))
            value = rng.choice(
                (rng.choice(NUMBERS), [rng.choice(NUMBERS)] * rng.randrange(1, 5), 1.5, "SAME_UPPER", tensor)
            )
            node.attribute.append(helper.make_attribute(rng.choice(ATTRIBUTES), value))
        case _:
            inputs = [rng.choice(names) for _ in range(rng.randrange(4))]
            made = helper.make_node(rng.choice(OPERATORS), inputs, [rng.choice((*names, "new"))])
            graph.node.insert(rng.randrange(len(graph.node)), made)


def damage_constant(graph: onnx.GraphProto, rng: random.Random) -> None:
    """Other types, sizes and places, or another shape of the input."""
    tensor, dims = rng.choice(graph.initializer), graph.input[0].type.tensor_type.shape.dim
    match rng.randrange(4):
        case 0:
            array = numpy_helper.to_array(tensor).astype(rng.choice(TYPES)).reshape(-1)
            tensor.CopyFrom(numpy_helper.from_array(array[: rng.randrange(array.size + 1)], tensor.name))
        case 1 if tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
        case 2:
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            place = rng.choice(("a\0b", "a" * 5000, "../x", "/dev/zero", ".", "", "loop", "pipe", "f.onnx"))
            tensor.external_data.add(key="location", value=place)
            tensor.external_data.add(key=rng.choice(("offset", "length")), value=rng.choice(("-1", "x", "9" * 30, "0")))
        case _:
            dims[rng.randrange(len(dims))].dim_value = rng.choice(NUMBERS)


def damaged_onnx(folder: Path, rng: random.Random) -> Path:
    proto = onnx.ModelProto()
    proto.ParseFromString(rng.choice(onnx_files()))
    damage = rng.choice((damage_node, damage_node, damage_constant))
    for _ in range(rng.randrange(1, 3) if damage is damage_node else 1):
        damage(proto.graph, rng)
    path = folder / "f.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@cache
def pt2_members(folder: Path) -> dict[str, bytes]:
    path = folder / "whole.pt2"
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3))
    torch.export.save(torch.export.export(net.eval(), (torch.zeros(1, 3, 8, 8),)), path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def damaged_pt2(folder: Path, rng: random.Random) -> Path:
    """An archive with one entry of a description changed or gone."""
    members = dict(pt2_members(folder))
    name = rng.choice([name for name in members if name.endswith(".json")])
    root = at = json.loads(members[name])
    while True:
        key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
        if not isinstance(at[key], dict | list) or not at[key] or not rng.randrange(8):
            break
        at = at[key]
    if rng.randrange(3):
        at[key] = rng.choice((None, True, *NUMBERS, 2**70, 1.5, float("nan"), "", "x", [], {}, [[]], {"as_none": True}))
    else:
        del at[key]
    members[name] = json.dumps(root).encode()
    with zipfile.ZipFile(folder / "f.pt2", "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return folder / "f.pt2"


def damaged_images(folder: Path, rng: random.Random) -> Path:
    """A zip of small images of many kinds, some of them damaged."""
    path = folder / "f.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(6):
            data = io.BytesIO()
            image = Image.new(rng.choice(("L", "RGB")), (6, 5))
            image.save(data, rng.choice(("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")))
            held = data.getvalue() if rng.randrange(3) else mutate(data.getvalue(), rng)
            suffix = rng.choice(("png", "jpg", "gif", "tif"))
            archive.writestr(f"{rng.choice(('train', 'test'))}/{'ab'[number % 2]}/{number}.{suffix}", held)
    if not rng.randrange(3):
        path.write_bytes(mutate(path.read_bytes(), rng))
    return path


def damaged_arrays(folder: Path, rng: random.Random) -> Path:
    """An .npz of images and labels, of right and wrong types, with a damaged array or archive."""
    path = folder / "f.npz"
    x, y = np.arange(10 * 4 * 4 * 3).reshape(10, 4, 4, 3), np.arange(-rng.randrange(2), 10 - rng.randrange(1, 2)) % 3
    np.savez(path, x=x.astype(rng.choice((np.uint8, *TYPES))), y=y.astype(rng.choice((np.int64, *TYPES))))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, mutate(data, rng) if member == name and rng.randrange(3) else data)
    if not rng.randrange(3):
        path.write_bytes(mutate(path.read_bytes(), rng))
    return path


def read_images(path: Path) -> object:
    return load_images(path, 3)


@pytest.mark.parametrize(
    ("damaged", "read", "count"),
    [
        (damaged_onnx, import_model, 300),
        (damaged_pt2, import_model, 12),
        (damaged_images, load_data, 60),
        (damaged_images, read_images, 60),
        (damaged_arrays, load_data, 150),
        (damaged_arrays, read_images, 150),
    ],
)
def test_files_damaged_in_their_structure_raise_nothing_but_smidgen_errors(
    damaged: Callable[[Path, random.Random], Path], read: Callable[[Path], object], count: int, tmp_path: Path
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    said = []
    for seed in range(count):
        path = damaged(tmp_path, random.Random(seed))
        try:
            read(path)
        except SmidgenError as error:
            said.append(str(error))
    assert len(said) > count / 4
    assert not any("\n" in sentence for sentence in said)
