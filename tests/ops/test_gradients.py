"""Every gradient rule against finite differences and PyTorch's autograd; int8 gradients against the fp32 ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.baselines import RULES, Simulator
from smidgen.errors import GraphError
from smidgen.ir import OPS, Array, Builder, Graph, Node, Op, QParams, Value, evaluate, evaluate_all, roles_of
from smidgen.numerics import activation_limits
from smidgen.numerics.stochastic import exponent
from smidgen.ops import LearnedBias, Quantize, SumGrads
from smidgen.ops.update import Step
from smidgen.training import HeadDtype, HeadStart, Options, Training, autodiff, build_training
from smidgen.training.autodiff import differentiate
from smidgen.training.scheme import load_scheme
from tests.support.drawn_heads import drawn_training
from tests.support.gradient_cases import CASES, SEVERAL_READERS, GradientCase
from tests.support.graphs import int8_graphs, random_inputs
from tests.support.networks import CLASSES, NETWORKS, branches, inverted_residual, samples
from tests.support.tiers import examples

torch.set_num_threads(1)  # pytest's workers share the cores
STEP = 2.0**-6  # of a float; int8 values move by one
NEAR = 0.01  # of the largest gradient: what float32 and curvature leave of a finite difference
ALL = (*CASES, *SEVERAL_READERS)
ids = [case.name for case in ALL]


def has_gradient(op: type[Op]) -> bool:
    return op.grad is not Op.grad


def gradients(graph: Graph, wanted: tuple[Value, ...]) -> list[Array]:
    (loss,) = graph.outputs
    found = differentiate(graph, loss, wanted)
    values = evaluate_all(found.graph, {})
    return [values[found.gradients[v]] for v in wanted]


def side(graph: Graph) -> tuple[float, bytes]:
    """The loss, and on which side of every kink it was computed."""
    values = evaluate_all(graph, {})
    kinks = b""
    for node in graph.nodes:
        low, high = activation_limits(getattr(node.op, "activation", "none"))
        y = values[node.outs[0]]
        kinks += ((y <= low) * 1 + (y >= high) * 2).astype(np.uint8).tobytes()
    (loss,) = graph.outputs
    return float(values[loss][0]), kinks


def difference(graph: Graph, value: Value, at: int) -> float | None:
    """The central difference of the loss; None where a kink lies between."""
    data = graph.constants[value]
    step = STEP if data.dtype == np.float32 else 1
    ends = []
    for sign in (1, -1):
        moved = data.copy()
        moved.reshape(-1)[at] += data.dtype.type(sign * step)
        ends.append(side(replace(graph, constants={**graph.constants, value: moved})))
    if ends[0][1] != ends[1][1]:
        return None
    return (ends[0][0] - ends[1][0]) / (2 * step)


def agree(found: Array, expected: Array, tolerance: float) -> bool:
    """Whether two tensors differ by a small part of the larger one's largest element."""
    return bool(np.abs(found - expected).max() <= tolerance * np.abs(expected).max())


def agree_with_differences(graph: Graph, wanted: tuple[Value, ...], found: list[Array]) -> bool:
    for value, gradient in zip(wanted, found, strict=True):
        differences = [difference(graph, value, i) for i in range(value.type.size)]
        smooth = [i for i, d in enumerate(differences) if d is not None]
        assert len(smooth) > 0.7 * len(differences), f"%{value.name} lies too near its kinks to be tested"
        expected = np.array([differences[i] for i in smooth])
        if not agree(gradient.reshape(-1)[smooth], expected, NEAR):
            return False
    return True


def test_every_op_with_a_gradient_has_a_case_and_a_rule_in_pytorch() -> None:
    differentiable = {op for op in OPS.values() if has_gradient(op)}
    assert differentiable == {case.op for case in CASES}
    assert differentiable | {LearnedBias} == set(RULES)  # whose bias is what the gradient is taken of


@pytest.mark.parametrize("case", ALL, ids=ids)
def test_gradients_are_what_finite_differences_say(case: GradientCase) -> None:
    graph, wanted = case.build(0)
    assert agree_with_differences(graph, wanted, gradients(graph, wanted))


@pytest.mark.parametrize("case", ALL, ids=ids)
def test_gradients_are_those_of_pytorch(case: GradientCase) -> None:
    for seed in range(5):
        graph, wanted = case.build(seed)
        for ours, theirs in zip(gradients(graph, wanted), Simulator(graph).gradients(wanted), strict=True):
            assert agree(ours, theirs, 1e-5), f"seed {seed}"


class LastOne(SumGrads):
    """What a compiler does that overwrites where it should add."""

    def sums(self, node: Node, *operands: Array) -> Array:
        return operands[1]


@pytest.mark.parametrize("case", SEVERAL_READERS, ids=[case.name for case in SEVERAL_READERS])
def test_forgetting_to_add_would_show(case: GradientCase, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, wanted = case.build(0)
    monkeypatch.setattr(autodiff, "SumGrads", LastOne)
    wrong = gradients(graph, wanted)
    assert not agree_with_differences(graph, wanted, wrong)
    right = Simulator(graph).gradients(wanted)
    assert not all(agree(a, b, 0.1) for a, b in zip(wrong, right, strict=True))


@pytest.mark.parametrize("factor", [0.97, 1.03])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_wrong_factor_would_show(case: GradientCase, factor: float) -> None:
    graph, wanted = case.build(0)
    assert not agree_with_differences(graph, wanted, [g * factor for g in gradients(graph, wanted)])


def test_a_value_the_loss_does_not_read_is_refused_by_name() -> None:
    graph, wanted = CASES[0].build(0)
    g = Builder.upon(graph)
    stranger = g.constant("stranger", np.zeros(3, np.float32))
    (loss,) = graph.outputs
    with pytest.raises(GraphError, match="does not depend on %stranger"):
        differentiate(replace(graph, constants={**graph.constants, stranger: np.zeros(3)}), loss, (*wanted, stranger))


def test_an_op_without_a_gradient_is_refused_by_name() -> None:
    g = Builder("model")
    x = g.constant("x", np.zeros((1, 4), np.float32))
    loss = g.emit(Quantize(), x, q=QParams.per_tensor(1.0), name="odds")
    with pytest.raises(GraphError, match="Quantize, which gives %odds, has no gradient"):
        differentiate(g.graph(loss), loss, (x,))


# --- int8 forward passes


# A kept int8 head is none of them: its gradient passes where PyTorch's stops, at the limits of its scores.
BEGUN: tuple[tuple[HeadStart, HeadDtype], ...] = (("new", "float32"), ("new", "int8"), ("keep", "float32"))


def train_all(graph: Graph, options: Options | None = None) -> Training:
    """All of a network learns, behind it a drawn head: one at zero sends no gradient to the layers before it."""
    return drawn_training(build_training(graph, load_scheme("full", graph), options or Options(CLASSES, head="new")))


def feed(image: Array, label: int) -> tuple[Array, ...]:
    return image, np.array([label], np.int32)


networks = pytest.mark.parametrize("network", NETWORKS, ids=[n.__name__ for n in NETWORKS])


@networks
@given(seed=st.integers(0, 10**6), begun=st.sampled_from(BEGUN))
@settings(max_examples=examples(8))
def test_pytorch_computes_the_same_bytes_and_gradients(
    network: Callable[[int], Graph], seed: int, begun: tuple[HeadStart, HeadDtype]
) -> None:
    start, head = begun
    graph = network(seed)
    training = train_all(graph, Options(CLASSES, head=start, head_dtype=head))
    reference, simulator = training.reference, Simulator(training.reference.loss_graph())
    wanted = tuple(v for v in reference.gradients if v in reference.graph.state)
    for image, label in samples(graph, 2, seed):
        values = evaluate_all(reference.graph, reference.graph.state, *feed(image, label))
        for value, tensor in simulator.run(*feed(image, label)).items():
            if value.type.dtype == "int8":
                assert np.array_equal(tensor.detach().numpy(), values[value]), value.name
        autograd = simulator.gradients(wanted, *feed(image, label))
        for value, theirs in zip(wanted, autograd, strict=True):
            assert agree(values[reference.gradients[value]], theirs, 2e-4), value.name


def test_a_batch_gives_the_sum_of_its_samples_gradients() -> None:
    graph = branches(3)
    training = train_all(graph)
    simulator, wanted = Simulator(training.reference.loss_graph()), tuple(training.reference.graph.state)
    drawn = samples(graph, 3)
    batch = np.concatenate([image for image, _ in drawn]), np.array([label for _, label in drawn], np.int32)
    apart = [simulator.gradients(wanted, *feed(*sample)) for sample in drawn]
    for together, *each in zip(simulator.gradients(wanted, *batch), *apart, strict=True):
        assert agree(together, np.sum(each, axis=0), 1e-4)


@given(int8_graphs(beyond=True), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60))
def test_pytorch_computes_the_bytes_of_any_graph(graph: Graph, seed: int) -> None:
    arrays = random_inputs(graph, np.random.default_rng(seed))
    found = Simulator(graph).run(*arrays)
    for value, expected in zip(graph.outputs, evaluate(graph, *arrays), strict=True):
        assert np.array_equal(found[value].numpy().astype(expected.dtype), expected)


# --- int8 gradients


def int8_gradients(training: Training, image: Array, label: int, draws: int) -> list[Array]:
    """What each tensor learns from, as real numbers: the mean over steps that change nothing but the step state."""
    step, state, total = training.step, training.step.state, []
    steps = [(node.op, node.op.parts(node.ins)) for node in step.nodes if isinstance(node.op, Step)]
    arrays = (*feed(image, label), np.zeros(1, np.float32))
    for _ in range(draws):
        values = evaluate_all(step, state, *arrays)
        unit, step_state = float(values[training.unit][0]), values[roles_of(step).step_state]
        total.append([values[parts.sources[0]] * 2.0 ** exponent(step_state, op.slot) * unit for op, parts in steps])
        state = {v: values[step.updates.get(v, v)] for v in step.state}
    return [np.mean(each, axis=0) for each in zip(*total, strict=True)]


def fp32_gradients(training: Training, image: Array, label: int) -> list[Array]:
    reference = training.reference
    values = evaluate_all(reference.graph, reference.graph.state, *feed(image, label))
    return [values[gradient] for value, gradient in reference.gradients.items() if value != reference.logits]


def cosine(a: Array, b: Array) -> float:
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_one_int8_gradient_points_where_the_fp32_gradient_does() -> None:
    for seed in range(3):
        graph = inverted_residual(seed)
        training = train_all(graph)
        (sample,) = samples(graph, 1, seed)
        pairs = zip(int8_gradients(training, *sample, draws=1), fp32_gradients(training, *sample), strict=True)
        for index, (found, expected) in enumerate(pairs):
            assert cosine(found, expected) > 0.9, f"tensor {index} of {graph.name}"


@networks
def test_rounding_at_random_leaves_int8_gradients_without_bias(network: Callable[[int], Graph]) -> None:
    graph = network(1)
    training = train_all(graph)
    (sample,) = samples(graph, 1)
    pairs = zip(int8_gradients(training, *sample, draws=60), fp32_gradients(training, *sample), strict=True)
    for index, (found, expected) in enumerate(pairs):
        assert np.linalg.norm(found - expected) < 0.1 * np.linalg.norm(expected), f"tensor {index}"
