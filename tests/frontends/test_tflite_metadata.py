"""The preprocessing in a TFLite model's metadata is read, and unsound metadata is ignored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import flatbuffers
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings
from hypothesis import strategies as st

import smidgen as sm
from smidgen.frontends.tflite import write_tflite
from smidgen.frontends.tflite.metadata import stated_preprocessing
from smidgen.ir.preprocessing import Preprocessing
from tests.support.float_graphs import FloatNet, dequantized
from tests.support.small_network import small_network
from tests.support.tiers import examples

# Numbers of the fields in TensorFlow's metadata_schema.fbs, counted from 0, and how many each table has.
MODEL, SUBGRAPH, TENSOR, UNIT, OPTIONS = (8, 3), (7, 2), (7, 4), (2, 1), (2, 0)


def metadata(mean: Sequence[float], std: Sequence[float], kind: int = 1, identifier: bytes = b"M001") -> bytes:
    """A model's metadata that normalizes its first input, as flatbuffers' own builder writes it."""
    b = flatbuffers.Builder(256)

    def table(size: int, fields: dict[int, int]) -> int:
        b.StartObject(size)
        for field, offset in fields.items():
            b.PrependUOffsetTRelativeSlot(field, offset, 0)
        return int(b.EndObject())

    def vector(tables: Sequence[int]) -> int:
        b.StartVector(4, len(tables), 4)
        for offset in reversed(tables):
            b.PrependUOffsetTRelative(offset)
        return int(b.EndVector())

    def floats(numbers: Sequence[float]) -> int:
        b.StartVector(4, len(numbers), 4)
        for number in reversed(numbers):
            b.PrependFloat32(number)
        return int(b.EndVector())

    options = table(OPTIONS[0], {0: floats(mean), 1: floats(std)})
    b.StartObject(UNIT[0])
    b.PrependUint8Slot(0, kind, 0)
    b.PrependUOffsetTRelativeSlot(UNIT[1], options, 0)
    unit = int(b.EndObject())
    tensor = table(TENSOR[0], {0: int(b.CreateString("image")), TENSOR[1]: vector([unit])})
    subgraph = table(SUBGRAPH[0], {SUBGRAPH[1]: vector([tensor])})
    b.Finish(table(MODEL[0], {0: int(b.CreateString("net")), MODEL[1]: vector([subgraph])}), identifier)
    return bytes(b.Output())


def with_metadata(model: bytes, data: bytes, name: str = "TFLITE_METADATA") -> bytes:
    """The model with a buffer of metadata, packed by LiteRT's own schema."""
    held = schema.ModelT.InitFromPackedBuf(model)
    entry, buffer = schema.MetadataT(), schema.BufferT()
    buffer.data, entry.name, entry.buffer = list(data), name, len(held.buffers)
    held.buffers.append(buffer)
    held.metadata = [entry]
    builder = flatbuffers.Builder(len(model))
    builder.Finish(held.Pack(builder), b"TFL3")
    return bytes(builder.Output())


FLOAT = write_tflite(dequantized(small_network()))
MEAN, STD = (123.5, 116.25, 103.5), (58.5, 57.25, 57.5)


def normalized_tflite() -> bytes:
    """A small float model whose metadata normalizes its pixels."""
    n = FloatNet(0)
    return with_metadata(write_tflite(n.g.graph(n.conv(n.x, 2))), metadata(MEAN, STD))


def read(data: bytes, folder: Path) -> sm.Graph:
    (folder / "net.tflite").write_bytes(data)
    return sm.import_model(folder / "net.tflite")


@pytest.mark.parametrize(("mean", "std"), [((127.5,), (127.5,)), (MEAN, STD)])
def test_the_mean_and_deviation_of_a_float_image_become_its_preprocessing(
    mean: tuple[float, ...], std: tuple[float, ...], tmp_path: Path
) -> None:
    graph = read(with_metadata(FLOAT, metadata(mean, std)), tmp_path)
    assert graph.preprocessing == Preprocessing(mean, std, range=(0.0, 255.0))


def test_an_int8_image_goes_by_its_quantization_and_another_entry_says_nothing(tmp_path: Path) -> None:
    int8 = write_tflite(small_network())
    assert read(with_metadata(int8, metadata(MEAN, STD)), tmp_path).preprocessing is None
    assert read(with_metadata(FLOAT, metadata(MEAN, STD), "min_runtime_version"), tmp_path).preprocessing is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"M001",
        metadata(MEAN, STD, identifier=b"M002"),
        metadata(MEAN, STD, kind=2),
        metadata(MEAN[:2], STD),
        metadata(MEAN, (1.0, 0.0, 1.0)),
        metadata(MEAN, (1.0, float("nan"), 1.0)),
        metadata((), STD),
        metadata([1.0] * 99, [1.0]),
    ],
)
def test_metadata_that_says_nothing_sound_leaves_the_model_readable(data: bytes, tmp_path: Path) -> None:
    assert read(with_metadata(FLOAT, data), tmp_path).preprocessing is None


@given(st.data())
@settings(max_examples=examples(300))
def test_damaged_metadata_says_something_sound_or_nothing(data: st.DataObject) -> None:
    damaged = bytearray(metadata(MEAN, STD))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    found = stated_preprocessing(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]), 3)
    if found is not None:
        found.check(3)
