"""The paper's three backbones give the same bytes in numpy, in C on the host, and in LiteRT's reference kernels."""

from __future__ import annotations

import io
import zipfile
from functools import cache

import numpy as np
import pytest
from PIL import Image

import smidgen as sm
from smidgen.data import PixelEncoding, from_pixels
from smidgen.frontends.network import IMAGE_SCALE
from smidgen.frontends.tflite import write_tflite
from smidgen.ir import Array, Graph, QParams, Type
from tests.support.litert import LiteRT
from tests.support.release_files import SHARED
from tests.support.tiers import first

NAMES = ("mbv2-w0.35", "proxyless-w0.3", "mcunet-5fps")
FLOWERS = SHARED / "data" / "flowers102.zip"
IMAGE = Type((1, 128, 128, 3), "int8", QParams.per_tensor(IMAGE_SCALE, 0))
COUNT = 50


def released(name: str) -> Graph:
    path = SHARED / "models" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"the released networks are not beside the checkout: no {path.name}")
    return sm.import_model(path)


def noise() -> list[Array]:
    rng = np.random.default_rng(2)
    return [rng.integers(-128, 128, (1, 128, 128, 3)).astype(np.int8) for _ in range(COUNT)]


@cache
def flowers() -> list[Array]:
    """Test images spread over the classes, as the backbones take them."""
    if not FLOWERS.exists():
        pytest.skip(f"the photographs are not beside the checkout: no {FLOWERS.name}")
    with zipfile.ZipFile(FLOWERS) as archive:
        names = sorted(n for n in archive.namelist() if n.startswith("test/") and not n.endswith("/"))
        chosen = names[:: len(names) // COUNT][:COUNT]
        photographs = [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in chosen]
    return [from_pixels(np.asarray(image), PixelEncoding(IMAGE)) for image in photographs]


@pytest.mark.parametrize("kind", ["noise", "flowers"])
@pytest.mark.parametrize("name", first(*NAMES))
def test_numpy_host_c_and_litert_agree_byte_for_byte(name: str, kind: str) -> None:
    graph = released(name)
    images = noise() if kind == "noise" else flowers()
    oracle = LiteRT(write_tflite(graph))
    assert len(images) == COUNT
    with sm.compile(graph, target="host").start() as device:
        for index, image in enumerate(images):
            (expected,) = oracle.run(image)
            (reference,), (host,) = sm.evaluate(graph, image), device.run(image)
            assert np.array_equal(reference, expected), f"numpy and LiteRT differ on image {index}"
            assert np.array_equal(host, expected), f"C and LiteRT differ on image {index}"


@pytest.mark.parametrize("name", first(*NAMES))
def test_a_backbone_survives_the_way_through_tflite(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    graph, file = released(name), tmp_path_factory.mktemp("models") / f"{name}.tflite"
    file.write_bytes(write_tflite(graph))
    back = sm.import_model(file)
    (image,) = noise()[:1]
    assert np.array_equal(sm.evaluate(graph, image)[0], sm.evaluate(back, image)[0])


def test_flowers_look_different_to_the_backbones() -> None:
    graph = released("mcunet-5fps")
    with sm.compile(graph, target="host").start() as device:
        assert len({device.predict(image) for image in flowers()}) > COUNT // 5
