"""Training graphs keep their bytes through every pass, print and parse, and survive what is extreme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import smidgen as sm
from smidgen.errors import GraphError, InputError, TrainingError
from smidgen.ir import Array, Graph, Value, evaluate_step, roles_of, verify
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ir.rewriting import prune
from smidgen.ir.text import parse_graph, print_graph
from smidgen.numerics import stochastic
from smidgen.numerics.stochastic import FIRST_LEVEL, LEVEL_LIMIT
from smidgen.ops.elementwise import Add
from smidgen.ops.gradient import FromFloat
from smidgen.ops.rules import Momentum, Sgd, UpdateRule
from smidgen.ops.state import Gather
from smidgen.ops.update import FusedStep, FusedWeightStep, Step
from smidgen.targets.host import Host
from smidgen.training import HeadDtype, Options, build_training, passes
from smidgen.training.head import layers
from smidgen.training.passes import TRAINING, Pass
from smidgen.training.scheme import Scheme, load_scheme
from tests.support.drawn_heads import drawn_training
from tests.support.networks import CLASSES, NETWORKS, branches, inverted_residual, partly, samples

State = Mapping[Value, Array]
RATE = 0.05
BIAS_LIMIT = 2**30


def steps(
    graph: Graph, count: int, rate: float = RATE, state: State | None = None
) -> Iterator[tuple[list[Array], State]]:
    """Outputs and state after each of some training steps."""
    state = graph.state if state is None else state
    for image, label in samples(graph, count):
        arrays = (image, np.array([label], np.int32), np.array([rate], np.float32))
        with np.errstate(all="raise", under="ignore"):
            outputs, state = evaluate_step(graph, state, *arrays)
        yield list(outputs), state


def assert_same_steps(a: Graph, b: Graph, count: int) -> None:
    for (outs, state), (other_outs, other_state) in zip(steps(a, count), steps(b, count), strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(outs, other_outs, strict=True))
        assert set(state) == set(other_state)
        for value, data in state.items():
            assert np.array_equal(data, other_state[value]), value.name


HEADS: tuple[HeadDtype, ...] = ("float32", "int8")
RULES = (Sgd(), Sgd(accumulate=2), Momentum(0.9), Momentum(0.9, accumulate=2))
OPTIONS = tuple(
    Options(CLASSES, weight_bits=bits, rule=rule, head_dtype=head, qas=qas, seed=3)
    for bits, rule, head, qas in product((8, 10, 12), RULES, HEADS, (True, False))
)


def named(options: Options) -> str:
    return f"{options.weight_bits}-{options.rule}-{options.head_dtype}-{options.qas}"


# --- passes


@pytest.mark.parametrize("options", OPTIONS, ids=named)
def test_the_passes_keep_every_byte_whatever_the_options(options: Options) -> None:
    graph = inverted_residual(0)
    step = build_training(graph, partly(graph), options).step
    assert_same_steps(step, passes.run(step), 3)


@pytest.mark.parametrize("one", TRAINING, ids=[one.__name__ for one in TRAINING])
@pytest.mark.parametrize("network", NETWORKS, ids=[n.__name__ for n in NETWORKS])
def test_each_pass_alone_keeps_every_byte(network: Callable[[int], Graph], one: Pass) -> None:
    graph = network(2)
    step = build_training(graph, partly(graph), Options(CLASSES, rule=Momentum(0.5))).step
    after = one(step)
    verify(after)
    assert_same_steps(step, after, 2)


def test_the_passes_may_run_twice() -> None:
    graph = branches(5)
    once = passes.run(build_training(graph, partly(graph), Options(CLASSES)).step)
    assert_same_steps(once, passes.run(once), 2)


def test_a_step_takes_its_image_as_the_model_does() -> None:
    graph = replace(inverted_residual(0), preprocessing=Preprocessing(mean=(0.4,)))
    training = build_training(graph, partly(graph), Options(CLASSES))
    for made in (training.forward, training.step, passes.run(training.step)):
        assert made.preprocessing == graph.preprocessing


def test_a_first_layer_may_learn_in_part_from_the_image_itself() -> None:
    graph = inverted_residual(4)
    first = Scheme("first", len(layers(graph)), ((0, Fraction(1, 3)),), "random")
    step = build_training(graph, first, Options(CLASSES)).step
    after = passes.run(step)
    assert_same_steps(step, after, 2)
    (taken,) = (i for i, node in enumerate(after.nodes) if isinstance(node.op, Gather) and node.ins == (graph.image,))
    assert taken == 0, "what is kept of the image is taken before anything else runs"


def test_no_weight_gradient_is_stored_and_only_trained_channels_are_saved() -> None:
    graph = inverted_residual(0)
    after = passes.run(build_training(graph, partly(graph), Options(CLASSES, head="new")).step)
    updates = [node for node in after.nodes if isinstance(node.op, Step)]
    assert updates
    assert all(isinstance(node.op, FusedStep) for node in updates)
    for node in updates:
        if isinstance(node.op, FusedWeightStep):
            parts = node.op.parts(node.ins)
            x, _ = parts.sources
            assert x.type.shape[3] == parts.states[0].type.shape[3]


def test_an_update_runs_before_the_gradients_of_earlier_layers() -> None:
    graph = inverted_residual(0)
    after = passes.run(build_training(graph, load_scheme("full", graph), Options(CLASSES)).step)
    kinds = [isinstance(node.op, FusedStep) for node in after.nodes]
    first, last = kinds.index(True), len(kinds) - 1 - kinds[::-1].index(True)
    assert kinds[first:last].count(False) > len(layers(graph))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("network", NETWORKS, ids=[n.__name__ for n in NETWORKS])
def test_the_host_takes_the_same_steps(network: Callable[[int], Graph], head: HeadDtype, host: Host) -> None:
    graph = network(2)
    program = sm.compile(graph, partly(graph), host, options=Options(CLASSES, rule=Momentum(0.5), head_dtype=head))
    with program.start() as device:
        pairs = zip(samples(graph, 5), steps(program.graph, 5), strict=True)
        for (image, label), ((_, logits), state) in pairs:
            device.train(image, label, RATE)
            _, found = device.outputs()
            assert np.array_equal(found, logits)
            kept = device.state()
            for value, data in state.items():
                assert np.array_equal(kept[value.name], data), value.name


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("network", NETWORKS, ids=[n.__name__ for n in NETWORKS])
def test_no_random_bits_are_drawn_twice_in_a_step(
    network: Callable[[int], Graph], rule: UpdateRule, head: HeadDtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = network(2)
    step = build_training(graph, partly(graph), Options(CLASSES, rule=rule, head_dtype=head)).step
    drawn: list[int] = []
    draw = stochastic.random_words

    def recorded(key: int, count: int) -> Array:
        drawn.append(key)
        return draw(key, count)

    monkeypatch.setattr(stochastic, "random_words", recorded)
    list(steps(step, 2))
    rounded = sum(isinstance(node.op, FromFloat) or getattr(node.op, "lowered", False) for node in step.nodes)
    updates = sum(isinstance(node.op, Step) for node in step.nodes)
    assert len(drawn) == 2 * (rounded + updates * (1 + rule.buffered))
    assert len(set(drawn)) == len(drawn)


# --- text


@pytest.mark.parametrize("network", NETWORKS, ids=[n.__name__ for n in NETWORKS])
def test_parsing_a_printed_training_graph_gives_it_back(network: Callable[[int], Graph]) -> None:
    graph = network(0)
    options = Options(CLASSES, rule=Momentum(0.9, accumulate=2), head_dtype="int8")
    training = build_training(graph, partly(graph), options)
    for each in (training.step, passes.run(training.step), training.reference.graph, training.forward):
        assert parse_graph(print_graph(each), {**each.constants, **each.state}) == each


# --- roles


@pytest.mark.parametrize("network", NETWORKS, ids=[n.__name__ for n in NETWORKS])
def test_passes_keep_the_roles_of_a_step(network: Callable[[int], Graph]) -> None:
    graph = network(0)
    step = build_training(graph, partly(graph), Options(CLASSES)).step
    roles = roles_of(step)
    assert passes.run(step).roles == roles
    assert step.prediction_inputs == (roles.image,)
    assert step.scores == roles.logits
    assert replace(step, roles=None) != step


@pytest.mark.parametrize(
    ("role", "other", "what"),
    [
        ("image", "loss", "an input"), ("label", "logits", "an input"), ("rate", "step_state", "an input"),
        ("loss", "label", "an output"), ("logits", "image", "an output"), ("step_state", "loss", "state"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_have_its_role_is_refused(role: str, other: str, what: str) -> None:
    graph = inverted_residual(0)
    step = build_training(graph, load_scheme("head", graph), Options(CLASSES)).step
    roles = roles_of(step)
    wrong = replace(step, roles=replace(roles, **{role: getattr(roles, other)}))
    with pytest.raises(GraphError, match=f"is the {role} of the training step net0, but not {what} of it"):
        verify(wrong)


def test_a_graph_without_roles_is_no_training_step() -> None:
    graph = inverted_residual(0)
    assert graph.prediction_inputs == graph.inputs
    assert (graph.scores,) == graph.outputs
    with pytest.raises(GraphError, match="net0 is not a training step"):
        roles_of(graph)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("roles image=%image", "does not name image, label, rate, loss, logits, step_state"),
        ("roles image=%nothing label=%label rate=%r loss=%l logits=%k step_state=%c", "%nothing is read before"),
        (
            "roles image= label=%label rate=%label loss=%loss logits=%loss step_state=%step_state",
            "leaves a role without",
        ),
        ("roles", "does not name image"),
    ],
)
def test_a_line_of_roles_that_says_nothing_is_refused(line: str, message: str) -> None:
    graph = inverted_residual(0)
    step = build_training(graph, load_scheme("head", graph), Options(CLASSES)).step
    lines = [line if one.startswith("roles") else one for one in print_graph(step).splitlines()]
    with pytest.raises(GraphError, match=message):
        parse_graph("\n".join(lines), {**step.constants, **step.state})


# --- extremes


def assert_sound(graph: Graph, state: State) -> None:
    """Nothing left its range: weights within ±127, biases within int32, floats finite."""
    step_state = roles_of(graph).step_state
    for value, data in state.items():
        if data.dtype == np.int8:
            assert np.abs(data.astype(int)).max() <= 127, value.name
        if data.dtype == np.int32 and value != step_state:
            assert np.abs(data.astype(np.int64)).max() <= BIAS_LIMIT, value.name
        if data.dtype == np.float32:
            assert np.isfinite(data).all(), value.name
        if value == step_state:
            assert np.abs(data[FIRST_LEVEL:]).max() <= LEVEL_LIMIT


def with_levels(graph: Graph, level: int) -> State:
    """The graph's state with every exponent as far off as it can be."""
    moved = {value: data.copy() for value, data in graph.state.items()}
    moved[roles_of(graph).step_state][FIRST_LEVEL:] = level
    return moved


@pytest.mark.parametrize("rule", [Sgd(), Momentum(0.9)], ids=str)
@pytest.mark.parametrize("level", [-LEVEL_LIMIT, LEVEL_LIMIT, -(2**31), 2**31 - 1])
def test_gradients_that_all_saturate_or_all_vanish_do_no_harm(level: int, rule: UpdateRule) -> None:
    graph = inverted_residual(1)
    step = build_training(graph, load_scheme("full", graph), Options(CLASSES, rule=rule)).step
    for _, state in steps(step, 8, state=with_levels(step, level)):
        assert_sound(step, state)


def test_an_exponent_that_was_far_too_small_is_right_again_after_a_few_steps() -> None:
    graph = inverted_residual(1)
    step = drawn_training(build_training(graph, load_scheme("full", graph), Options(CLASSES, head="new"))).step
    *_, (_, usual) = steps(step, 12, rate=0.0)
    *_, (_, found) = steps(step, 12, rate=0.0, state=with_levels(step, -20 << 8))
    step_state = roles_of(step).step_state
    assert np.abs(found[step_state][FIRST_LEVEL:] - usual[step_state][FIRST_LEVEL:]).max() <= 2 << 8


@pytest.mark.parametrize("head", HEADS)
def test_dead_channels_stay_numbers(head: HeadDtype) -> None:
    graph = inverted_residual(2, dead=2)
    step = build_training(graph, load_scheme("full", graph), Options(CLASSES, head_dtype=head)).step
    for (loss, _), state in steps(step, 6):
        assert_sound(step, state)
        assert np.isfinite(loss).all()


def test_a_loss_without_gradient_changes_nothing_that_learns() -> None:
    graph = inverted_residual(3)
    training = drawn_training(build_training(graph, load_scheme("full", graph), Options(CLASSES, head="new")))
    ((image, label),) = samples(graph, 1)
    state = {v: data.copy() for v, data in training.step.state.items()}
    bias = next(v for v in state if v.name == "head.b")
    state[bias][label] = 1e6
    arrays = (image, np.array([label], np.int32), np.array([RATE], np.float32))
    with np.errstate(all="raise", under="ignore"):
        (loss, _), after = evaluate_step(training.step, state, *arrays)
    assert loss[0] == 0
    changed = {v for v, data in after.items() if not np.array_equal(data, state[v])}
    assert changed == {roles_of(training.step).step_state}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("rate", [1e3, 1e12, 1e30, 3e38])
def test_a_huge_learning_rate_saturates_and_goes_on(rate: float, head: HeadDtype) -> None:
    graph = inverted_residual(3, dead=1)
    for options in (
        Options(CLASSES, head_dtype=head),
        Options(CLASSES, head_dtype=head, rule=Momentum(0.9, accumulate=2)),
    ):
        step = build_training(graph, load_scheme("full", graph), options).step
        for (loss, _), state in steps(step, 6, rate=rate):
            assert_sound(step, state)
            assert np.isfinite(loss).all()


def test_the_largest_learning_rate_there_is_saturates_int8_and_goes_on() -> None:
    graph = inverted_residual(3)
    step = build_training(graph, load_scheme("full", graph), Options(CLASSES, head_dtype="int8")).step
    for (loss, _), state in steps(step, 4, rate=3e38):
        assert_sound(step, state)
        assert np.isfinite(loss).all()


@pytest.mark.parametrize(
    ("head", "rate"),
    [("int8", 1e-45), *((head, rate) for head in HEADS for rate in (-1.0, float("nan"), float("inf")))],
)
def test_a_rate_that_is_no_rate_leaves_weights_alone(rate: float, head: HeadDtype) -> None:
    graph = inverted_residual(3)
    step = build_training(graph, load_scheme("full", graph), Options(CLASSES, head_dtype=head)).step
    for _, state in steps(step, 2, rate=rate):
        learned = {v: data for v, data in state.items() if v != roles_of(step).step_state}
        assert all(np.array_equal(data, step.state[v]) for v, data in learned.items())


@pytest.mark.parametrize("bits", [8, 10, 12])
def test_learning_lowers_the_loss_of_what_is_learned(bits: int) -> None:
    graph = inverted_residual(6)
    step = build_training(graph, load_scheme("full", graph), Options(CLASSES, weight_bits=bits)).step
    ((image, label),) = samples(graph, 1)
    arrays = (image, np.array([label], np.int32), np.array([0.02], np.float32))
    state: State = step.state
    losses = []
    for _ in range(30):
        (loss, _), state = evaluate_step(step, state, *arrays)
        losses.append(float(loss[0]))
    assert losses[-1] < 0.5 * losses[0]


# --- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(0), "0 classes"),
        (Options(1), "1 classes"),
        (Options(5000), "5000 classes"),
        (Options(CLASSES, weight_bits=9), "9 bits"),
        (Options(CLASSES, rule=Momentum(1.0)), r"momentum is 1\.0"),
        (Options(CLASSES, rule=Momentum(0.0)), r"momentum is 0\.0"),
        (Options(CLASSES, rule=Momentum(float("nan"))), "momentum is nan"),
        (Options(CLASSES, rule=Sgd(accumulate=0)), "0 samples"),
        (Options(CLASSES, rule=Momentum(0.5, accumulate=1025)), "1025 samples"),
    ],
)
def test_options_out_of_range_are_refused_with_the_number(options: Options, message: str) -> None:
    graph = inverted_residual(0)
    with pytest.raises(InputError, match=message):
        build_training(graph, load_scheme("head", graph), options)


def test_a_model_without_a_classifier_is_refused_with_the_reason() -> None:
    graph = inverted_residual(0)
    added = next(node.out for node in graph.nodes if isinstance(node.op, Add))
    headless = prune(replace(graph, outputs=(added,)))
    with pytest.raises(TrainingError, match="does not end in a Dense layer"):
        build_training(headless, Scheme("head", 0), Options(CLASSES))
