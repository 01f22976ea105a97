"""Which channels learn: chosen by squared gradients, named by a share of layers, or drawn anew each epoch."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import smidgen as sm
from experiments.paper import rotating
from experiments.paper.channels import by_gradient, named, squared_gradients
from experiments.paper.runs import Run
from smidgen.data import centre, pixel_encoding
from smidgen.ir import Array
from smidgen.ir.rewriting import prune
from smidgen.learning import learned_graph
from smidgen.ops.state import Overlay
from smidgen.training import build_training
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, resolve
from tests.support.drawn_heads import drawn_training
from tests.support.networks import inverted_residual
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network

RUN = Run("small", "shapes", "last:3", "device", 0.4, 12, channels="rotating")


def test_the_channels_of_the_largest_squared_gradients_learn() -> None:
    graph, data = small_network(), draw_shapes(4, 1)
    last = len(layers(graph)) - 1
    scheme = Scheme("s", 3, ((last - 2, Fraction(1, 4)), (last, Fraction(1, 2))))
    chosen, found = by_gradient(scheme, graph, data, 0), squared_gradients(scheme, graph, data, 0)
    ranked = resolve(scheme, graph)
    for trained in resolve(chosen, graph):
        count = {t.layer: len(t.channels) for t in ranked}[trained.layer]
        assert len(trained.channels) == count
        if count:
            kept = set(trained.channels)
            others = [g for c, g in enumerate(found[trained.layer]) if c not in kept]
            assert min(found[trained.layer][list(kept)]) >= max(others)


def test_squared_gradients_are_those_of_the_reference_in_real_units() -> None:
    graph, data = inverted_residual(0), draw_shapes(2, 1)
    last = len(layers(graph)) - 1
    scheme = Scheme("s", 1, ((last, Fraction(1)),))
    reference = drawn_training(build_training(graph, scheme, sm.Options(len(data.classes)))).reference
    (w,) = (v for v in reference.gradients if v.type.dtype == "int8")
    gradient = prune(replace(reference.graph, outputs=(reference.gradients[w],)))
    expected = np.zeros(w.type.shape[-1])
    for image, label in zip(data.train.images, data.train.labels, strict=True):
        (found,) = sm.evaluate(gradient, centre(image, pixel_encoding(graph)), np.array([label], np.int32))
        assert w.type.q is not None
        real = found / np.array(w.type.q.scale).reshape(-1, 1, 1, 1)
        expected += (real.astype(np.float64) ** 2).sum(axis=(0, 1, 2))
    assert expected.any()
    np.testing.assert_allclose(squared_gradients(scheme, graph, data, 0)[last], expected, rtol=1e-4)


def test_rotating_channels_begin_where_the_last_epoch_ended() -> None:
    graph = small_network()
    last = len(layers(graph)) - 1
    scheme = Scheme("s", 3, ((last - 2, Fraction(1, 2)), (last, Fraction(1))), "random")
    run = replace(RUN, epochs=4)
    first = sm.compile(graph, scheme, options=sm.Options(4, seed=rotating.epoch_seed(run, 0)))
    state = _moved(first)
    assert first.training is not None
    learned = rotating.next_graph(first, state)
    fresh = sm.compile(learned, scheme, options=sm.Options(4, seed=rotating.epoch_seed(run, 1)))
    second = rotating.carried_on(fresh, state)
    assert second.training is not None
    image = np.random.default_rng(1).integers(-128, 128, graph.image.type.shape).astype(np.int8)
    begun = learned_graph(second.training, {v.name: a for v, a in second.graph.state.items()})
    assert np.array_equal(sm.evaluate(learned, image)[0], sm.evaluate(begun, image)[0])
    assert _channels(first) != _channels(second)
    carried = {v.name: array for v, array in second.graph.state.items()}
    for name in ("head.w", "head.b", "step_state"):
        assert np.array_equal(carried[name], state[name])
    whole = next(name for name in state if name.endswith(".fraction") and ".trained" not in name)
    assert np.array_equal(carried[whole], state[whole])


def _moved(program: sm.Program) -> dict[str, Array]:
    """The state after some steps."""
    rng = np.random.default_rng(0)
    with program.start() as device:
        for label in range(4):
            image = rng.integers(-128, 128, program.graph.image.type.shape).astype(np.int8)
            device.train(image, label, 0.05)
        return device.state()


def _channels(program: sm.Program) -> list[tuple[int, ...]]:
    assert program.training is not None
    return [node.op.channels for node in program.training.forward.nodes if isinstance(node.op, Overlay)]


def test_the_rates_of_rotating_epochs_are_the_cosines_in_their_middles() -> None:
    run = replace(RUN, epochs=8)
    course = sm.Course(8, run.step_rate)
    for epoch in range(8):
        assert rotating.epoch_rate(run, epoch) == pytest.approx(course.rate(epoch, 50, 100))
    assert len({rotating.epoch_course(run, epoch).seed for epoch in range(8)}) == 8


def test_a_quarter_of_the_last_layers_is_a_scheme_of_its_own() -> None:
    graph = small_network()
    trained = resolve(named("quarter:2", graph), graph)
    assert [t.layer for t in trained] == [len(layers(graph)) - 2, len(layers(graph)) - 1]
    assert all(len(t.channels) == round(t.node.ins[1].type.shape[-1] / 4) for t in trained)
