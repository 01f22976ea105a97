"""Networks that end in other ways than a Dense: their classifier is found, replaced, and what is before it learns."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import smidgen as sm
from floats import FloatNet
from smidgen.ir import Array, Graph, evaluate_step, roles_of
from smidgen.ops import Activate, AvgPool, Conv2D, Dense, MaxPool, Mean, Reshape, Softmax
from smidgen.quantization import quantize
from smidgen.targets.host import Host
from smidgen.training.head import TrainingError, features_of, layers
from smidgen.training.scheme import Scheme, SchemeError, resolve


def squeezed(pool: str = "mean") -> Graph:
    """Convolution, ReLU, global mean: SqueezeNet's end."""
    n = FloatNet(3, (1, 8, 8, 3))
    x = n.conv(n.conv(n.x, 6, k=3, pad=1, activation="relu"), 8, activation="relu")
    x = n.g.emit(Activate("relu"), n.conv(x, 5))
    y = n.g.emit(Mean(), x) if pool == "mean" else n.g.emit(AvgPool((8, 8), (8, 8)), x)
    return n.g.graph(n.g.emit(Softmax(), n.g.emit(Reshape((1, 5)), y)))


def pixel() -> Graph:
    """Global mean, then a 1×1 convolution as the classifier."""
    n = FloatNet(4, (1, 8, 8, 3))
    x = n.conv(n.conv(n.x, 6, k=3, pad=1, activation="relu"), 8, activation="relu")
    y = n.conv(n.g.emit(Mean(keep_dims=True), x), 5)
    return n.g.graph(n.g.emit(Reshape((1, 5)), y))


def autoencoder() -> Graph:
    """Dense layers alone; the last gives the input back."""
    n = FloatNet(5, (1, 20))
    x = n.x
    for k, out in ((20, 16), (16, 12), (12, 4), (4, 12), (12, 16), (16, 20)):
        x = n.g.emit(Dense("relu" if out != 20 else "none"), x, n.constant(out, k), n.constant(out))
    return n.g.graph(x)


def int8(graph: Graph) -> Graph:
    rng = np.random.default_rng(0)
    return quantize(graph, [rng.normal(size=graph.inputs[0].type.shape).astype(np.float32) for _ in range(16)]).graph


NETWORKS: tuple[Callable[[], Graph], ...] = (squeezed, lambda: squeezed("pool"), pixel, autoencoder)
NAMES = ["squeezed", "squeezed-pool", "pixel", "autoencoder"]


ENDS = list(zip(NETWORKS, [(1, 8, 8, 8), (1, 8, 8, 8), (1, 1, 1, 8), (1, 16)], [2, 2, 2, 5], strict=True))


@pytest.mark.parametrize(("network", "shape", "count"), ENDS, ids=NAMES)
def test_the_classifier_is_the_last_layer_and_the_others_are_numbered(
    network: Callable[[], Graph], shape: tuple[int, ...], count: int
) -> None:
    graph = int8(network())
    features, classifier = features_of(graph)
    assert features.type.shape == shape
    assert isinstance(classifier.op, Conv2D | Dense)
    assert len(layers(graph)) == count
    assert classifier not in layers(graph)


@pytest.mark.parametrize("network", NETWORKS, ids=NAMES)
def test_the_host_learns_what_the_reference_learns(network: Callable[[], Graph], host: Host) -> None:
    graph = int8(network())
    program = sm.compile(graph, f"last:{min(6, len(layers(graph)))}", host, options=sm.Options(classes=3))
    state, rng = program.graph.state, np.random.default_rng(1)
    moved = {v.name: data.copy() for v, data in state.items()}
    with program.start() as device:
        for step in range(10):
            image = rng.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
            loss = device.train(image, step % 3, 0.05)
            arrays: tuple[Array, ...] = (image, np.array([step % 3], np.int32), np.array([0.05], np.float32))
            (expected, _), state = evaluate_step(program.graph, state, *arrays)
            assert loss == expected[0]
        after = device.state()
    assert all(np.array_equal(after[v.name], data) for v, data in state.items())
    learned = [name for name, data in moved.items() if not np.array_equal(after[name], data)]
    assert any(name not in ("head.w", "head.b", roles_of(program.graph).step_state.name) for name in learned)


def test_a_map_that_is_not_averaged_is_no_classifier() -> None:
    n = FloatNet(3)
    graph = int8(n.g.graph(n.g.emit(MaxPool((6, 6), (6, 6)), n.conv(n.x, 6))))
    with pytest.raises(TrainingError, match="nor in a convolution and a global mean"):
        features_of(graph)
    assert len(layers(graph)) == 1


def test_a_dense_layer_learns_whole_or_not_at_all() -> None:
    graph = int8(autoencoder())
    with pytest.raises(SchemeError, match="layer 4, which is dense and learns only as a whole; give 1"):
        resolve(Scheme("s", 5, ((4, Fraction(1, 2)),)), graph)
