"""Small networks with every kind of output, and data for them, for tests of `predict` and `test`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smidgen.data import Data, Samples, centre, pixel_encoding
from smidgen.frontends import export_model
from smidgen.ir import Array, Builder, Graph, QParams, Type, Value, evaluate
from smidgen.ops import Conv2D, Dense, Softmax
from smidgen.ops.lookup import Lookup
from tests.support.shapes import SHAPES, draw_shapes
from tests.support.small_network import small_network

STEP = QParams.per_tensor(1 / 16, 0)


def dense(g: Builder, x: Value, outputs: int, name: str, seed: int = 0) -> Value:
    """A Dense layer of random int8 weights."""
    rng = np.random.default_rng(seed)
    w = g.constant(
        f"{name}.w", rng.integers(-127, 128, (outputs, x.type.size)).astype(np.int8), QParams.per_tensor(1 / 64)
    )
    b = g.constant(f"{name}.b", rng.integers(-200, 200, outputs).astype(np.int32))
    return g.emit(Dense(), x, w, b, q=STEP, name=name)


def of_rows(outputs: int, name: str = "rows", inputs: int = 6, ending: str = "") -> Graph:
    """Return an int8 network of one dense layer, and perhaps a function behind it."""
    g = Builder(name)
    y = dense(g, g.input("x", Type((1, inputs), "int8", STEP)), outputs, "y")
    if ending == "softmax":
        y = g.emit(Softmax(), y, q=QParams.per_tensor(1 / 256, -128), name="shares")
    elif ending:
        y = g.emit(Lookup(ending), y, q=QParams.per_tensor(1 / 256, -128), name="shares")
    return g.graph(y)


def of_cells(classes: int = 3) -> Graph:
    """A map of 4×4 cells over pictures of 16×16 pixels."""
    g, rng = Builder("cells"), np.random.default_rng(1)
    x = g.input("image", Type((1, 16, 16, 3), "int8", QParams.per_tensor(2 / 255, 0)))
    w = g.constant(
        "w", rng.integers(-127, 128, (classes, 4, 4, 3)).astype(np.int8), QParams.per_channel([1 / 64] * classes, 0)
    )
    b = g.constant("b", np.zeros(classes, np.int32))
    return g.graph(g.emit(Conv2D(stride=(4, 4)), x, w, b, q=STEP, name="y"))


def named_network(classes: tuple[str, ...] = SHAPES) -> Graph:
    """A network that scores the shapes, by name where they have names."""
    graph = small_network("shapes_net")
    head = graph.nodes[-1]
    g = Builder(graph.name)
    values = {v: g.input(v.name, v.type) for v in graph.inputs}
    for node in graph.nodes:
        for value in node.ins:
            if value in graph.constants:
                kept = graph.constants[value][: len(SHAPES)] if node is head else graph.constants[value]
                q = value.type.q
                if node is head and q is not None:
                    q = QParams.per_channel(q.scale[: len(SHAPES)], 0)
                values[value] = g.constant(value.name, kept, q)
        values[node.out] = g.emit(node.op, *(values[v] for v in node.ins), q=node.out.type.q, name=node.out.name)
    return replace(g.graph(values[graph.scores]), classes=classes)


def shapes(count: int = 6) -> Data:
    return draw_shapes(1, count, seed=4)


def rows(count: int, size: int = 6, seed: int = 0) -> tuple[Array, ...]:
    return tuple(np.random.default_rng(seed).normal(0, 2, (count, size)).astype(np.float32))


def labelled(images: tuple[Array, ...], targets: tuple[Array, ...] = ()) -> Data:
    """Return data with vectors, maps or nothing as labels, the same to train and to test with."""
    samples = Samples(images, (0,) * len(images), targets)
    return Data("told", (), samples, samples)


def in_a_folder_of_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a network that names the shapes, and photographs of them."""
    monkeypatch.chdir(tmp_path)
    export_model(named_network(), "net.smg")
    data = shapes()
    for split, samples in (("train", data.train), ("test", data.test)):
        for number, (image, label) in enumerate(zip(samples.images, samples.labels, strict=True)):
            file = tmp_path / "photos" / split / SHAPES[label] / f"{number:02}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)
    return tmp_path


def scores(model: Graph, sample: Array) -> Array:
    """Return what the definition computes for a picture, in real numbers."""
    (raw,) = evaluate(model, centre(sample, pixel_encoding(model)))
    q = model.scores.type.q
    assert q is not None
    real: Array = q.one * (raw[0].astype(np.float64) - q.zero)
    return real


def softmax(x: Array) -> Array:
    shares: Array = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    return shares
