"""Small files that would unfold to gigabytes are refused before they do: in little memory, in little time."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from smidgen.cli.options import MEMORY as MEMORY_TEXT
from smidgen.cli.shared import memory_bytes
from smidgen.data import DataError, load_data, load_images
from smidgen.data.files import MEMORY, Budget
from smidgen.errors import ImportModelError
from smidgen.frontends import import_model
from smidgen.frontends.native import write_smg
from smidgen.frontends.network import build
from smidgen.ir import Array
from smidgen.zoo import load
from tests.support.release_files import tiny_network

BIG = 2**31 + 2**29
ALLOWED = 2**28  # bytes that each bomb may take
LIMIT = 2**31 - 2**28  # bytes of address space for the process that reads the bombs; each would take 2 GB or more
SECONDS = 10.0  # for one bomb, on a busy machine
SCRIPT = """
import resource, sys, time
import smidgen, onnx.reference, PIL.Image
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
for path in sys.argv[3:]:
    began = time.monotonic()
    try:
        read = smidgen.load_data if "data" in path else smidgen.import_model
        read(path, memory=int(sys.argv[2]))
    except smidgen.SmidgenError as error:
        print(round(time.monotonic() - began, 3), error)
"""


def model(path: Path, nodes: list[onnx.NodeProto], constants: dict[str, Array]) -> Path:
    """An ONNX file of these nodes beside one that gives y."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 3, 8, 8)) for name in "xy")
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([*nodes, helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(made.SerializeToString())
    return path


def shaped(folder: Path) -> Path:
    value = numpy_helper.from_array(np.ones(1))
    nodes = [helper.make_node("ConstantOfShape", ["s"], [f"c{i}"], value=value) for i in range(60)]
    return model(folder / "m.onnx", nodes, {"s": np.array([2**25 - 1])})


def joined(folder: Path) -> Path:
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["c0"])]
    nodes += [helper.make_node("Concat", [f"c{i}"] * 32, [f"c{i + 1}"], axis=0) for i in range(3)]
    return model(folder / "m.onnx", nodes, {"s": np.array([2**20])})


def gathered(folder: Path) -> Path:
    nodes = [helper.make_node("Gather", ["a", "i"], ["c"], axis=0)]
    return model(folder / "m.onnx", nodes, {"a": np.zeros((1, 2**17)), "i": np.zeros(2**17, np.int64)})


def widened(folder: Path) -> Path:
    nodes = [helper.make_node("Expand", ["a", "s"], [f"c{i}"]) for i in range(40)]
    return model(folder / "m.onnx", nodes, {"a": np.zeros((1, 64)), "s": np.array([2**18, 64])})


def matched(folder: Path) -> Path:
    nodes = [helper.make_node("Add", ["a", "b"], ["c"])]
    return model(folder / "m.onnx", nodes, {"a": np.zeros((2**15, 1)), "b": np.zeros((1, 2**15))})


def beside(folder: Path) -> Path:
    size, nodes = 2**28 - 64, []
    with (folder / "big.bin").open("wb") as file:
        file.truncate(size)
    for number in range(30):
        tensor = TensorProto(data_type=TensorProto.INT8, dims=[size], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="big.bin")
        nodes.append(helper.make_node("Constant", [], [f"c{number}"], value=tensor))
    return model(folder / "m.onnx", nodes, {})


def dequantized(folder: Path) -> Path:
    size = 2**26
    with (folder / "big.bin").open("wb") as file:
        file.truncate(size)
    tensor = TensorProto(data_type=TensorProto.INT8, dims=[size], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="big.bin")
    nodes = [helper.make_node("Constant", [], ["c"], value=tensor)]
    nodes += [helper.make_node("DequantizeLinear", ["c", "s"], [f"d{i}"]) for i in range(30)]
    return model(folder / "m.onnx", nodes, {"s": np.array(0.5, np.float32)})


def unfolding(path: Path, name: str, size: int, before: bytes = b"") -> Path:
    """An archive of one member that declares and holds so many bytes, zeros after the first few."""
    packer, step = zlib.compressobj(9, zlib.DEFLATED, -15), 2**20
    data = packer.compress(before) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(step)) + packer.flush(zlib.Z_FULL_FLUSH)
    data += block * (size // step) + packer.flush()
    total, raw = len(before) + size, name.encode()
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0x21, 0, len(data), total, len(raw), 0)
    local = b"PK\x03\x04" + fields + raw + data
    central = b"PK\x01\x02" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, 0) + raw
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
    path.write_bytes(local + central + end)
    return path


def header(*shape: int) -> bytes:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def image_member(folder: Path) -> Path:
    return unfolding(folder / "data.zip", "a/1.png", BIG)


def arrays(folder: Path) -> Path:
    path = unfolding(folder / "data.npz", "x.npy", BIG, header(BIG // 2**14, 64, 64, 4))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("y.npy", b"")
    return path


def listed(folder: Path) -> Path:
    return unfolding(folder / "m.npz", "c0_w.npy", BIG, header(BIG))


def pictures(folder: Path) -> Path:
    data = io.BytesIO()
    Image.new("L", (2**16, 512)).save(data, "PNG")
    with zipfile.ZipFile(folder / "data.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(80):
            archive.writestr(f"{'ab'[number % 2]}/{number}.png", data.getvalue())
    return folder / "data.zip"


BOMBS: tuple[Callable[[Path], Path], ...] = (
    shaped, joined, gathered, widened, matched, beside, dequantized, image_member, arrays, pictures, listed,
)  # fmt: skip


def test_a_small_file_cannot_take_gigabytes(tmp_path: Path) -> None:
    paths = []
    for bomb in BOMBS:
        (tmp_path / bomb.__name__).mkdir()
        paths.append(bomb(tmp_path / bomb.__name__))
        assert paths[-1].stat().st_size < 2**23
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(LIMIT), str(ALLOWED), *map(str, paths)],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    said = ran.stdout.splitlines()
    assert len(said) == len(BOMBS), ran.stderr[-400:]
    for bomb, line in zip(BOMBS, said, strict=True):
        seconds, _, sentence = line.partition(" ")
        assert f"the limit for one file is {ALLOWED:,}; where you trust the file, raise" in sentence, bomb.__name__
        assert float(seconds) < SECONDS, bomb.__name__


def test_no_file_may_take_more_than_a_gigabyte_unless_one_says_so() -> None:
    assert Budget().limit == MEMORY == 2**30
    assert memory_bytes(MEMORY_TEXT) == MEMORY


def test_a_member_that_holds_more_than_it_declares_unfolds_no_further(tmp_path: Path) -> None:
    path = unfolding(tmp_path / "m.npz", "c0_w.npy", BIG)
    path.write_bytes(path.read_bytes().replace(struct.pack("<I", BIG), struct.pack("<I", 2**10)))
    tracemalloc.start()
    try:
        with pytest.raises(ImportModelError, match=r"is not a complete archive|is not a \.npy file"):
            import_model(path)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


def test_the_limit_can_be_raised_and_lowered(tmp_path: Path) -> None:
    path = tmp_path / "tiny.smg"
    write_smg(build(tiny_network(), "tiny"), path)
    size = path.stat().st_size
    for read in (import_model, load):
        assert read(path, memory=size).name == "tiny"
        with pytest.raises(ImportModelError, match=f"would take {size:,} bytes of memory, the limit for one file is"):
            read(path, memory=size - 1)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (10, 4, 4, 3)).astype(np.uint8), np.arange(10) % 2
    np.savez(tmp_path / "d.npz", x=x, y=y)
    assert len(load_data(tmp_path / "d.npz", memory=2**12).train) == 8
    for refused in (lambda: load_data(tmp_path / "d.npz", 500), lambda: load_images(tmp_path / "d.npz", 3, 400)):
        with pytest.raises(DataError, match="raise the limit with --memory, or memory= in Python"):
            refused()


def test_what_one_file_takes_adds_up() -> None:
    budget = Budget(100)
    budget.take("a", 60)
    apart = budget.copy()
    apart.take("b", 40)
    budget.take("c", 40)
    with pytest.raises(ImportModelError, match="d would take 1 bytes of memory beside 100 before, the limit"):
        budget.take("d", 1)
