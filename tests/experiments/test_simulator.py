"""PyTorch as the yardstick: fp32 training is SGD on real weights, and int8 training keeps up with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.baselines import FloatTraining, Simulator
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, QParams, Type, evaluate, evaluate_all, evaluate_step
from smidgen.ops import Conv2D, Dequantize, Mean
from smidgen.training import Options, build_training
from smidgen.training.scheme import load_scheme
from tests.support.networks import CLASSES, branches, inverted_residual, pools_and_moves, samples

torch.set_num_threads(1)  # pytest's workers share the cores
RATE = 0.01


def test_the_first_predictions_are_those_of_the_int8_forward_pass() -> None:
    for network in (branches, inverted_residual, pools_and_moves):
        graph = network(7)
        training = build_training(graph, load_scheme("full", graph), Options(CLASSES, head_dtype="float32"))
        images = [image for image, _ in samples(graph, 12)]
        expected = [int(evaluate(training.forward, image)[0].argmax()) for image in images]
        assert FloatTraining(training).predict(np.concatenate(images)).tolist() == expected


@pytest.mark.parametrize("qas", [True, False])
def test_a_step_is_gradient_descent_scaled_as_on_the_device(qas: bool) -> None:
    graph = inverted_residual(2)
    training = build_training(graph, load_scheme("full", graph), Options(CLASSES, qas=qas, head_dtype="float32"))
    ((image, label),) = samples(graph, 1)
    reference = training.reference
    values = evaluate_all(reference.graph, reference.graph.state, image, np.array([label], np.int32))
    trainer = FloatTraining(training)
    before = {v: w.detach().numpy().copy() for v, w in trainer.weights.items()}
    trainer.train(image, label, RATE)
    layers = {node.ins[i].name: node for node in training.forward.nodes for i in (1, 2) if len(node.ins) == 3}
    for value in training.forward.state.keys() & reference.gradients.keys():
        x, w, _ = layers[value.name].ins
        assert w.type.q is not None
        scale = np.array(w.type.q.scale) * (1.0 if value == w else x.type.scale)
        along = [-1 if value != w or i == w.type.q.axis else 1 for i in range(len(value.type.shape))]
        step = RATE * values[reference.gradients[value]] / (scale.reshape(along) ** 2 if qas else 1.0)
        moved = before[value] - trainer.weights[value].detach().numpy()
        assert np.allclose(moved, step, rtol=1e-3, atol=1e-5 * max(1.0, float(np.abs(before[value]).max()))), value.name


def test_int8_training_at_12_bits_keeps_up_with_fp32_training() -> None:
    graph = inverted_residual(5)
    training = build_training(graph, load_scheme("full", graph), Options(CLASSES, head="new"))
    drawn = samples(graph, 5)
    trainer, state = FloatTraining(training), training.step.state
    ours: list[float] = []
    theirs: list[float] = []
    for image, label in drawn * 16:
        arrays: tuple[Array, ...] = image, np.array([label], np.int32), np.array([RATE], np.float32)
        (loss, _), state = evaluate_step(training.step, state, *arrays)
        ours.append(float(loss[0]))
        theirs.append(trainer.train(image, label, RATE))
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5)
    assert np.mean(theirs[-5:]) < 0.7 * np.mean(theirs[:5])
    assert np.mean(ours[-5:]) == pytest.approx(np.mean(theirs[-5:]), rel=0.15)


def test_without_rounding_a_layer_is_within_a_step_of_the_rounded_one() -> None:
    g, rng = Builder("layer"), np.random.default_rng(0)
    x = g.input("x", Type((1, 5, 5, 4), "int8", QParams.per_tensor(0.05, -3)))
    w = g.constant("w", rng.integers(-127, 128, (6, 3, 3, 4)).astype(np.int8), QParams.per_channel([0.01] * 6, 0))
    b = g.constant("b", rng.integers(-500, 501, 6).astype(np.int32))
    y = g.emit(Conv2D(pad=(1, 1, 1, 1)), x, w, b, q=QParams.per_tensor(0.15, 4))
    graph = g.graph(y)
    image = rng.integers(-128, 128, x.type.shape).astype(np.int8)
    exact, real = (Simulator(graph, rounded=rounded).run(image)[y].numpy() for rounded in (True, False))
    assert np.array_equal(exact, evaluate(graph, image)[0])
    assert 0.1 < np.abs(exact - real).max() <= 0.5 + 1e-6


def test_inputs_that_are_missing_are_told_with_both_numbers() -> None:
    g = Builder("two")
    x = g.input("x", Type((1, 2, 2, 1), "int8", QParams.per_tensor(0.1)))
    graph = g.graph(g.emit(Dequantize(), g.emit(Mean(), x, q=QParams.per_tensor(0.1))))
    with pytest.raises(GraphError, match="two takes 1 inputs, 0 were given"):
        Simulator(graph).run()
