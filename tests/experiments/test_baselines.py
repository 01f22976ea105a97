"""The float baselines: PyTorch's optimizers on the simulator's networks, many runs at once and each as if alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.baselines import Baseline, BaselineProgress, FloatTraining, Simulator, train_baselines
from experiments.baselines.copies import Front, units
from experiments.baselines.optimizers import corrections
from experiments.baselines.runs import Runs
from experiments.baselines.train import _batches
from smidgen.data import Data, Samples, pixel_encoding
from smidgen.errors import InputError
from smidgen.ir import Array, Graph, evaluate
from smidgen.learning.course import Course
from smidgen.training import HeadDtype, HeadStart, Options, Scheme, Training, build_training, load_scheme
from tests.support.drawn_heads import drawn_training
from tests.support.networks import CLASSES, NETWORKS, SIZE, inverted_residual, one_scale, samples

torch.set_num_threads(1)  # pytest's workers share the cores
CPU = torch.device("cpu")
RATE = 0.003
STEADY = torch.tensor([RATE, 1.0, 1.0])


def built(
    graph: Graph, scheme: str = "full", qas: bool = True, head: HeadStart = "new", dtype: HeadDtype = "float32"
) -> Training:
    options = Options(CLASSES, qas=qas, head=head, head_dtype=dtype)
    return drawn_training(build_training(graph, load_scheme(scheme, graph), options))


def some_channels(graph: Graph) -> Training:
    """A training of single input channels of three layers, and of the biases from the first of them on."""
    weights = ((2, Fraction(1, 2)), (3, Fraction(1, 2)), (5, Fraction(1, 4)))
    return drawn_training(build_training(graph, Scheme("some", 6, weights), Options(CLASSES, head="new")))


def pictures(count: int, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    images = tuple(rng.integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8) for _ in range(count))
    return Samples(images, tuple(int(label) for label in rng.integers(0, CLASSES, count)))


def some_data(train: int = 10, test: int = 12) -> Data:
    return Data("noise", tuple("abcde"), pictures(train), pictures(test, 1))


class Trained:
    """Runs of one precision, fed by hand."""

    def __init__(self, training: Training, runs: list[Baseline], batch: int = 1) -> None:
        rounded = runs[0].precision == "int8"
        self.front = Front(training.forward, rounded=rounded, device=CPU)
        self.runs = Runs(training.forward, runs, batch, rounded, CPU)

    def train(self, drawn: list[tuple[Array, int]], clock: torch.Tensor = STEADY) -> None:
        images = torch.from_numpy(np.concatenate([image for image, _ in drawn]))
        labels = torch.tensor([label for _, label in drawn])
        self.runs.step(self.front.run(images), labels, torch.full((len(drawn),), 1 / len(drawn)), clock)

    def logits(self, drawn: list[tuple[Array, int]]) -> Array:
        found = self.front.run(torch.from_numpy(np.concatenate([image for image, _ in drawn])))
        with torch.no_grad():
            return self.runs._logits(found).numpy()

    def weights(self, run: int = 0) -> list[torch.Tensor]:
        return [w.detach()[run] for w in self.runs.weights]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("head", get_args(HeadStart))
@pytest.mark.parametrize("dtype", get_args(HeadDtype))
@pytest.mark.parametrize("scheme", ["full", "last:2", "bias:2", "head"])
def test_the_first_logits_are_those_of_the_int8_forward_pass(
    network: Callable[[int], Graph], scheme: str, dtype: HeadDtype, head: HeadStart
) -> None:
    graph = network(7)
    training, drawn = built(graph, scheme, head=head, dtype=dtype), samples(graph, 8)
    expected = np.concatenate([evaluate(training.forward, image)[0] for image, _ in drawn])
    found = Trained(training, [Baseline("int8", "sgd", 1.0)] * 2).logits(drawn)
    assert np.allclose(found, expected[None], rtol=1e-6, atol=1e-5 * np.abs(expected).max())


def test_the_first_logits_of_fp32_are_those_of_the_network_without_rounding() -> None:
    graph = inverted_residual(3)
    training, drawn = built(graph), samples(graph, 8)
    simulator = Simulator(training.forward, rounded=False)
    expected = simulator.run(np.concatenate([image for image, _ in drawn]))[training.forward.scores].numpy()
    found = Trained(training, [Baseline("fp32", "adam", 1.0)]).logits(drawn)[0]
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)
    rounded = Trained(training, [Baseline("int8", "adam", 1.0)]).logits(drawn)[0]
    assert not np.allclose(rounded, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("qas", [True, False])
@pytest.mark.parametrize("network", [inverted_residual, one_scale])
def test_sgd_at_batch_1_is_the_float_training_of_the_simulator(network: Callable[[int], Graph], qas: bool) -> None:
    graph = network(7)
    for training in (built(graph, qas=qas), built(graph, "last:2", qas=qas), built(graph, qas=qas, dtype="int8")):
        single, ours = FloatTraining(training), Trained(training, [Baseline("int8", "sgd", 1.0, qas=qas)])
        first = [w.clone() for w in ours.weights()]
        for image, label in samples(graph, 6):
            single.train(image, label, RATE)
            ours.train([(image, label)])
        for before, after, expected in zip(first, ours.weights(), single.weights.values(), strict=True):
            moved, resolution = (expected.detach() - before).abs().max(), before.abs().max() * 2.0**-22
            assert moved > (10 * resolution if qas else 0)
            assert (after - expected.detach()).abs().max() < 1e-3 * moved + resolution


def test_of_single_channels_those_alone_learn_as_in_the_simulator() -> None:
    graph = inverted_residual(7)
    training = some_channels(graph)
    assert any(value.name.endswith(".trained") for value in training.forward.state)
    single, ours = FloatTraining(training), Trained(training, [Baseline("int8", "sgd", 1.0)] * 2)
    for image, label in samples(graph, 4):
        single.train(image, label, RATE)
        ours.train([(image, label)])
    for after, expected in zip(ours.weights(1), single.weights.values(), strict=True):
        assert torch.allclose(after.double(), expected.detach().double(), rtol=1e-4, atol=1e-4)


def test_a_course_at_batch_1_goes_as_the_simulators() -> None:
    graph, data = inverted_residual(5), some_data()
    training, encoding = built(graph), pixel_encoding(inverted_residual(5))
    course = Course(epochs=3, learning_rate=RATE, warmup=1.0, seed=3)
    single, losses = FloatTraining(training), []
    for epoch in range(course.epochs):
        total = 0.0
        for step, i in enumerate(course.order(epoch, len(data.train))):
            image = course.image(data.train.images[i], encoding, epoch, i)
            total += single.train(image, data.train.labels[i], course.rate(epoch, step, len(data.train)))
        losses.append(total / len(data.train))
    seen: list[BaselineProgress] = []
    (result,) = train_baselines(
        training, [Baseline("int8", "sgd", 256 * RATE)], data, course, batch=1, device="cpu", on_progress=seen.append
    )
    assert result.losses == pytest.approx(losses, rel=1e-4)
    assert [(p.epoch, p.epochs, p.losses) for p in seen] == [(i + 1, 3, (result.losses[i],)) for i in range(3)]
    correct = 0
    for picture, label in zip(data.test.images, data.test.labels, strict=True):
        plain = replace(course, augment=None).image(picture, encoding, 0, 0)
        correct += int(single.predict(plain)[0]) == label
    assert result.accuracy == correct / len(data.test)


def test_adam_counts_the_steps_of_all_epochs_and_rates_are_those_of_256_samples() -> None:
    graph, data = inverted_residual(5), some_data(8)
    training, encoding, course = built(graph), pixel_encoding(graph), Course(3, 1.0, "constant")
    run = Baseline("int8", "adam", 0.4)
    (result,) = train_baselines(training, [run], data, course, batch=4, device="cpu")
    by_hand, losses = Trained(training, [run], batch=4), []
    for epoch in range(3):
        order = course.order(epoch, 8)
        for step in range(2):
            some = order[4 * step : 4 * step + 4]
            drawn = [(course.image(data.train.images[i], encoding, epoch, i), data.train.labels[i]) for i in some]
            by_hand.train(drawn, torch.tensor([4 / 256, *corrections(2 * epoch + step + 1)]))
        losses.append(float(by_hand.runs.losses(8)))
    assert result.losses == pytest.approx(losses, rel=1e-5)


VARIANTS = [
    Baseline("int8", "sgd", 0.5),
    Baseline("fp32", "momentum", 0.3, seed=2),
    Baseline("int8", "adam", 0.8, qas=False, seed=1),
    Baseline("int8", "sgd", 0.9, qas=False),
    Baseline("fp32", "adam", 0.1),
    Baseline("int8", "lars", 5.0, weight_decay=0.01),
    Baseline("int8", "momentum", 0.2, seed=3),
]


@pytest.mark.parametrize("together", [1, 2, 128])
def test_runs_at_once_go_as_each_alone(together: int) -> None:
    training, data, course = built(inverted_residual(5), "last:3"), some_data(), Course(2, 0.0, warmup=0.5)
    results = train_baselines(training, VARIANTS, data, course, batch=4, device="cpu", together=together)
    assert [result.run for result in results] == VARIANTS
    assert len({result.losses for result in results}) == len(VARIANTS)
    for run, result in list(zip(VARIANTS, results, strict=True))[:: 1 if together > 2 else 3]:
        (alone,) = train_baselines(training, [run], data, course, batch=4, device="cpu")
        assert result.losses == pytest.approx(alone.losses, rel=1e-4)
        assert result.accuracy == pytest.approx(alone.accuracy, abs=1.01 / len(data.test))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("scheme", ["full", "last:3", "bias:2"])
def test_on_cuda_recorded_steps_go_as_on_this_machine(scheme: str) -> None:
    training, data, course = built(inverted_residual(5), scheme), some_data(), Course(3, 0.0, warmup=0.5)
    here, there = (
        train_baselines(training, VARIANTS, data, course, batch=4, device=device, together=3)
        for device in ("cpu", "cuda")
    )
    for a, b in zip(here, there, strict=True):
        assert b.losses == pytest.approx(a.losses, rel=1e-2), a.run


def test_seeds_change_how_stored_weights_are_rounded_and_nothing_else() -> None:
    graph = inverted_residual(5)
    training, (sample,) = built(graph), samples(graph, 1)

    def learned(seed: int, bits: int | None) -> torch.Tensor:
        trained = Trained(training, [Baseline("int8", "sgd", 0.5, seed=seed, stored_bits=bits)])
        trained.train([sample])
        return torch.cat([w.flatten() for w in trained.weights()])

    assert torch.equal(learned(4, 8), learned(4, 8))
    assert not torch.equal(learned(0, 8), learned(4, 8))
    assert torch.equal(learned(0, None), learned(4, None))


def test_with_qas_a_step_of_the_int8_graph_is_about_that_of_the_real_network() -> None:
    graph = inverted_residual(4)
    training, drawn = built(graph), samples(graph, 16)
    scales = units(training.forward)
    steps: list[list[torch.Tensor]] = []
    for run in (Baseline("fp32", "sgd", 1.0), Baseline("int8", "sgd", 1.0), Baseline("int8", "sgd", 1.0, qas=False)):
        trained = Trained(training, [run], batch=len(drawn))
        before = [w.clone() for w in trained.weights()]
        trained.train(drawn)
        moved = zip(trained.weights(), before, training.forward.state, strict=True)
        steps.append([(after - w) * (1 if run.precision == "fp32" else scales[v]) for after, w, v in moved])
    for value, real, scaled, plain in zip(training.forward.state, *steps, strict=True):
        if value.type.dtype != "float32":
            near = torch.cosine_similarity(real.double().flatten(), scaled.double().flatten(), dim=0)
            assert near > 0.9, value.name
            assert float(scaled.norm() / real.norm()) == pytest.approx(1, abs=0.2), value.name
            assert float(plain.norm() / real.norm()) < 0.01, value.name


@given(count=st.integers(1, 40), batch=st.integers(1, 12))
def test_the_batches_of_an_epoch_hold_every_sample_once_and_share_each_mean(count: int, batch: int) -> None:
    places, shares = _batches(count, batch)
    counted = [places[i, j] for i, j in shares.nonzero().tolist()]
    assert [int(place) for place in counted] == list(range(count))
    assert shares.sum(dim=1).tolist() == pytest.approx([1.0] * len(shares))
    assert all(len({share for share in row if share}) == 1 for row in shares.tolist())
    assert all(set(row) <= set(range(i * batch, min(count, (i + 1) * batch))) for i, row in enumerate(places.tolist()))


def test_a_batch_that_is_filled_up_moves_as_one_of_the_samples_that_count() -> None:
    graph = inverted_residual(6)
    training, drawn = built(graph), samples(graph, 2)
    full, half = (Trained(training, [Baseline("int8", "momentum", 1.0)], batch=batch) for batch in (4, 2))
    images = torch.from_numpy(np.concatenate([image for image, _ in drawn * 2]))
    labels = torch.tensor([label for _, label in drawn * 2])
    full.runs.step(full.front.run(images), labels, torch.tensor([0.5, 0.5, 0.0, 0.0]), STEADY)
    half.train(drawn)
    assert torch.equal(full.runs.losses(2), half.runs.losses(2))
    for a, b in zip(full.weights(), half.weights(), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-5)


def test_the_mean_of_a_batch_is_that_of_its_samples_steps() -> None:
    graph = inverted_residual(6)
    training, drawn = built(graph), samples(graph, 3)
    whole = Trained(training, [Baseline("int8", "sgd", 1.0)], batch=3)
    first = [w.clone() for w in whole.weights()]
    whole.train(drawn)
    singles = [Trained(training, [Baseline("int8", "sgd", 1.0)]) for _ in drawn]
    for single, sample in zip(singles, drawn, strict=True):
        single.train([sample])
    for i, (before, after) in enumerate(zip(first, whole.weights(), strict=True)):
        mean = torch.stack([single.weights()[i] - before for single in singles]).mean(dim=0)
        assert torch.allclose(after - before, mean, rtol=1e-3, atol=1e-4 * float(mean.abs().max()))


def test_limited_weights_stay_where_the_devices_do_and_others_go_on() -> None:
    graph = inverted_residual(6)
    training, (sample,) = built(graph), samples(graph, 1)
    runs = [Baseline("int8", "sgd", 40.0, limited=limited) for limited in (True, False)]
    both, alone = Trained(training, runs), Trained(training, runs[1:])
    both.train([sample])
    alone.train([sample])
    learned = [i for i, v in enumerate(training.forward.state) if v.type.dtype == "int8"]
    limited, free = ([both.weights(run)[i] for i in learned] for run in (0, 1))
    assert max(float(w.abs().max()) for w in limited) == 127.0
    assert max(float(w.abs().max()) for w in free) > 127.0
    for together, single in zip(both.weights(1), alone.weights(), strict=True):
        assert torch.allclose(together, single, rtol=1e-3, atol=1e-2)


def test_weights_stored_in_bits_lie_on_their_steps_beside_what_was_to_be_stored() -> None:
    graph = inverted_residual(6)
    training, (sample,) = built(graph), samples(graph, 1)
    bits = (8, 10, 12, None)
    runs = [Baseline("int8", "sgd", 0.5, stored_bits=some) for some in bits]
    trained = Trained(training, runs)
    trained.train([sample])
    for i, v in enumerate(training.forward.state):
        exact = trained.weights(3)[i]
        for run, some in enumerate(bits[:3]):
            found = trained.weights(run)[i]
            if v.type.dtype != "int8":
                assert torch.allclose(found, exact, rtol=1e-3, atol=1e-2)
                continue
            step = 2.0 ** (8 - (some or 0))
            assert torch.equal(found / step, (found / step).round())
            assert float((found - exact).abs().max()) < step + 1e-2
            assert not torch.equal(found, exact)


def test_stored_weights_are_read_as_the_nearest_int8() -> None:
    graph = inverted_residual(6)
    training, drawn = built(graph), samples(graph, 4)
    stored = Trained(training, [Baseline("int8", "sgd", 0.5, stored_bits=12)])
    stored.train(drawn[:1])
    free = Trained(training, [Baseline("int8", "sgd", 0.5)])
    for v, ours, theirs in zip(training.forward.state, free.weights(), stored.weights(), strict=True):
        ours.copy_((theirs + 0.5).floor() if v.type.dtype == "int8" else theirs)
    assert np.array_equal(stored.logits(drawn), free.logits(drawn))


def test_what_is_stored_is_in_the_mean_what_was_to_be_stored() -> None:
    graph = inverted_residual(6)
    training, (sample,) = built(graph), samples(graph, 1)
    many = Trained(training, [Baseline("int8", "sgd", 0.05, stored_bits=8)] * 400)
    free = Trained(training, [Baseline("int8", "sgd", 0.05)])
    many.train([sample])
    free.train([sample])
    for i, v in enumerate(training.forward.state):
        if v.type.dtype == "int8":
            mean = torch.stack([many.weights(run)[i] for run in range(400)]).mean(dim=0)
            assert float((mean - free.weights()[i]).abs().max()) < 6 * 0.5 / 400**0.5


def test_a_run_that_diverges_predicts_nothing_and_leaves_the_others_alone() -> None:
    training, data, course = built(inverted_residual(5)), some_data(), Course(2, 0.0, warmup=0.5)
    calm = Baseline("int8", "sgd", 0.5)
    wild = Baseline("int8", "sgd", 3e38)
    results = train_baselines(training, [calm, wild, calm], data, course, batch=4, device="cpu")
    (alone,) = train_baselines(training, [calm], data, course, batch=4, device="cpu")
    assert not np.isfinite(results[1].losses[-1])
    assert results[1].accuracy == 0.0
    for result in (results[0], results[2]):
        assert result.losses == pytest.approx(alone.losses, rel=1e-4)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (Baseline("int4", "sgd", 0.1), "no precision 'int4'; known are fp32, int8"),  # type: ignore[arg-type]
        (Baseline("int8", "sdg", 0.1), "no optimizer 'sdg'; known are sgd, momentum"),  # type: ignore[arg-type]
        (Baseline("int8", "sgd", -0.1), "a learning rate of -0.1"),
        (Baseline("int8", "sgd", 0.1, weight_decay=float("nan")), "a weight decay of nan"),
        (Baseline("int8", "lars", 0.1, trust=-1.0), "a trust coefficient of -1.0"),
        (Baseline("int8", "sgd", 0.1, seed=-1), "a seed of -1"),
    ],
)
def test_runs_that_cannot_be_are_refused(run: Baseline, said: str) -> None:
    with pytest.raises(InputError, match=said):
        train_baselines(built(inverted_residual(5), "head"), [run], some_data(), Course(1, 0.1), batch=1, device="cpu")


def test_what_cannot_be_trained_is_refused() -> None:
    graph, data, course, run = inverted_residual(5), some_data(), Course(1, 0.1), Baseline("int8", "sgd", 0.1)
    training = built(graph, "head")
    few = build_training(graph, load_scheme("head", graph), Options(2))
    for made, runs, batch, together, said in (
        (training, [], 1, 1, "no runs"),
        (training, [run], 0, 1, "a batch of 0"),
        (training, [run], 1, 0, "a group of runs of 0"),
        (few, [run], 1, 1, "holds label 4, .* learns the 2 classes 0 to 1"),
    ):
        with pytest.raises(InputError, match=said):
            train_baselines(made, runs, data, course, batch=batch, device="cpu", together=together)
