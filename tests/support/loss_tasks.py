"""Small networks with something to learn by each loss, made in code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import smidgen as sm
from smidgen.data import Data, Samples, as_input, examples, pixel_encoding
from smidgen.ir import Array, Builder, Graph, QParams, Type, Value, evaluate_step
from smidgen.ops import AvgPool, Conv2D, Dense, Mean, Reshape
from smidgen.ops.losses import loss_of
from smidgen.pipeline import Program
from smidgen.targets.device import Device, Target
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network

INPUT = QParams.per_tensor(1 / 32, -10)
Label = int | Array | None


@dataclass(frozen=True, eq=False)
class Task:
    """A network, how it learns, and data to learn from."""

    model: Graph
    options: sm.Options
    data: Data
    rate: float
    scheme: str = "last:2"

    def compile(self, target: str | Target) -> Program:
        images = examples(self.data.train, pixel_encoding(self.model))
        return sm.compile(self.model, self.scheme, target, options=self.options, images=images)

    def sample(self, place: int) -> tuple[Array, Label]:
        """A sample as the model takes it, and what is known of it."""
        image = as_input(self.data.train.images[place], pixel_encoding(self.model))
        return image, None if self.data.label_kind == "nothing" else self.data.train.target(place)


class Int8Net:
    """Layers with random weights on an int8 input."""

    def __init__(self, seed: int, *shape: int) -> None:
        self.g, self.rng = Builder(f"net{seed}"), np.random.default_rng(seed)
        self.x = self.g.input("x", Type((1, *shape), "int8", INPUT))

    def conv(self, x: Value, out: int, k: int = 1, zero: int = -128, scale: float = 0.05) -> Value:
        w, b = self._weights(out, k, k, x.type.shape[-1]), self.g.constant("b", np.zeros(out, np.int32))
        q = QParams.per_tensor(scale, zero)
        return self.g.emit(Conv2D(pad=(k // 2,) * 4), x, w, b, q=q)

    def dense(self, x: Value, out: int, zero: int = -128, scale: float = 0.05) -> Value:
        w, b = self._weights(out, x.type.size), self.g.constant("b", np.zeros(out, np.int32))
        return self.g.emit(Dense(), x, w, b, q=QParams.per_tensor(scale, zero))

    def _weights(self, out: int, *shape: int) -> Value:
        scale = 1.7 / np.prod(shape) ** 0.5 / 64
        data = self.rng.normal(0, 40, (out, *shape)).clip(-127, 127).astype(np.int8)
        return self.g.constant("w", data, QParams.per_channel([scale] * out, 0))


def squares(count: int, side: int, seed: int) -> tuple[list[Array], list[tuple[int, int]]]:
    """Dark noise with one bright square of four by four, as int8 tensors, and where it is."""
    rng, images, places = np.random.default_rng(seed), [], []
    for _ in range(count):
        image = rng.integers(-60, 0, (side, side, 3)).astype(np.int8)
        row, column = (int(i) for i in rng.integers(0, side // 4, 2))
        image[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = 100
        images.append(image)
        places.append((row, column))
    return images, places


def _data(name: str, images: list[Array], targets: list[Array]) -> Data:
    every, train = Samples(tuple(images), (0,) * len(images), tuple(targets)), 3 * len(images) // 4
    return Data(name, (), every.at(range(train)), every.at(range(train, len(images))))


def yes_or_no() -> Task:
    """A cross or a disc, by one output."""
    shapes = draw_shapes(24, 8)
    parts = (s.at(i for i, kind in enumerate(s.labels) if kind < 2) for s in (shapes.train, shapes.test))
    data = Data("crosses", ("cross", "disc"), *parts)
    return Task(small_network(), sm.Options(1, loss="sigmoid"), data, 0.05, "last:4")


def several() -> Task:
    """Two yes-or-no questions at once: is the square in the lower half, is it in the right half?"""
    model, (images, places) = _pooled(21), squares(64, 16, 1)
    targets = [np.array([row >= 2, column >= 2], np.float32) for row, column in places]
    return Task(model, sm.Options(2, loss="sigmoid"), _data("halves", images, targets), 0.05)


def _pooled(seed: int) -> Graph:
    """Convolutions whose map a Dense layer reads whole."""
    n = Int8Net(seed, 16, 16, 3)
    x = n.conv(n.x, 6, 3)
    x = n.g.emit(AvgPool((4, 4), (4, 4)), x, q=x.type.q)
    x = n.g.emit(Reshape((1, x.type.size)), x)
    return n.g.graph(n.dense(n.dense(x, 24), 5, 0))


def position() -> Task:
    """Where the square is, as two numbers."""
    images, places = squares(64, 16, 2)
    targets = [np.array([row / 3, column / 3], np.float32) for row, column in places]
    return Task(_pooled(22), sm.Options(2, loss="mse"), _data("positions", images, targets), 0.02)


def brightness() -> Task:
    """A single number, by a head in int8."""
    n = Int8Net(23, 8, 8, 3)
    x = n.conv(n.conv(n.x, 6, 3), 8)
    model = n.g.graph(n.dense(n.g.emit(Mean(), x, q=x.type.q), 4, 0))
    rng = np.random.default_rng(3)
    levels = rng.uniform(0, 1, 64)
    images = [np.clip(rng.normal(200 * level - 100, 20, (8, 8, 3)), -128, 127).astype(np.int8) for level in levels]
    targets = [np.array([level], np.float32) for level in levels]
    return Task(model, sm.Options(1, loss="mse", head_dtype="int8"), _data("levels", images, targets), 0.02)


def spectra() -> Task:
    """An autoencoder of dense layers, whose input is one of two curves and some noise."""
    n = Int8Net(24, 20)
    x = n.x
    for out in (16, 6, 16):
        x = n.dense(x, out)
    model = n.g.graph(n.dense(x, 20, INPUT.zero, 1 / 32))
    rng = np.random.default_rng(4)
    curves = np.sin(np.arange(20) * np.array([[0.3], [0.8]])) * 60
    images = [np.clip(curves[i % 2] + rng.normal(0, 4, 20), -128, 127).astype(np.int8) for i in range(64)]
    return Task(model, sm.Options(loss="reconstruction", head_dtype="int8"), _data("spectra", images, []), 0.02)


def pictures() -> Task:
    """An autoencoder of convolutions, whose last map has the size of the picture."""
    n = Int8Net(25, 8, 8, 3)
    model = n.g.graph(n.conv(n.conv(n.conv(n.x, 6, 3), 6), 3, zero=INPUT.zero, scale=1 / 32))
    images, _ = squares(48, 8, 5)
    return Task(model, sm.Options(loss="reconstruction"), _data("pictures", images, []), 0.05)


def cells() -> Task:
    """Return which cells of a map the square covers; the border of the map has no labels."""
    n = Int8Net(26, 16, 16, 3)
    x = n.conv(n.x, 6, 3)
    x = n.conv(n.g.emit(AvgPool((4, 4), (4, 4)), x, q=x.type.q), 8)
    model = n.g.graph(n.conv(x, 2, zero=0, scale=0.06))
    images, places = squares(64, 16, 6)
    targets = []
    for row, column in places:
        labels = np.zeros((4, 4), np.uint8)
        labels[0, 0] = 255
        labels[row, column] = 1
        targets.append(labels)
    return Task(model, sm.Options(loss="cells"), _data("cells", images, targets), 0.1)


TASKS = (yes_or_no, several, position, brightness, spectra, pictures, cells)


def compare(program: Program, device: Device, steps: list[tuple[Array, Label]], rate: float) -> list[float]:
    """Losses of steps on a device, each the same bytes as numpy's; so are the logits and all state afterwards."""
    graph, state, losses = program.graph, program.graph.state, []
    for image, label in steps:
        target = loss_of(graph).label(label, graph)
        arrays = (image, *(() if target is None else (target,)), np.array([rate], np.float32))
        outputs, state = evaluate_step(graph, state, *arrays)
        losses.append(device.train(image, label, rate))
        assert np.float32(losses[-1]).tobytes() == outputs[0].tobytes()
        assert all(a.tobytes() == b.tobytes() for a, b in zip(device.outputs(), outputs, strict=True))
    kept = device.state()
    assert all(kept[v.name].tobytes() == data.tobytes() for v, data in state.items())
    return losses
