"""Update rules are their textbook formulas: integers on average over many random bits, the float32 head outright."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from smidgen.errors import GraphError, InputError
from smidgen.ir import ATTRIBUTES, Array, Builder, Graph, QParams, Type, evaluate_step
from smidgen.ir.text import parse_graph, print_graph
from smidgen.numerics import stochastic
from smidgen.ops import BiasStep, DenseStep, Rate, WeightStep
from smidgen.ops.rules import Momentum, Sgd, UpdateRule
from smidgen.ops.state import units
from smidgen.ops.update import initial_fraction, unpack

RULES = (Sgd(), Sgd(accumulate=3), Momentum(0.9), Momentum(0.6, accumulate=2))
KINDS = {"8": 8, "10": 10, "12": 12, "bias": None, "difference": 16}  # bits of a weight
STEPS, SEEDS, COPIES = 7, 40, 512  # each gradient is rounded SEEDS * COPIES times
FACTORS = (0.7, 1.0, 3.3, 0.021, 1.9)  # one a channel
SHIFTS = (-7, -8) * (len(FACTORS) * COPIES // 2)  # of layers' multipliers: differences count 1 or 2
BOUND = 10_000  # of the sums a gradient is
LEVEL = 5 << stochastic.LEVEL_BITS
RATE = np.array([0.0003], np.float32)  # steps of up to about two int8: a buffer holds eight
SIGMAS = 5.0  # a mean may be off by, in standard errors
FIXED_POINT = 1e-5  # of a step: factors have 31 bits, decays 16


def gradients() -> Array:
    """Sums by step and channel."""
    return np.random.default_rng(7).integers(-BOUND, BOUND, (STEPS, len(FACTORS)), np.int32)


def deltas() -> Array:
    """Learning rate times gradient times factor, in float64."""
    power = 2.0 ** stochastic.exponent(np.array([0, 0, LEVEL], np.int32), 0)
    delta: Array = gradients() * np.array(FACTORS) * float(RATE[0]) * power
    return delta


def textbook(deltas: Array, rule: UpdateRule) -> Array:
    """Weights after each sample, from 0: v = momentum · v + the gradients added up, w −= v."""
    momentum = rule.momentum if isinstance(rule, Momentum) else 0.0
    w, v, total = (np.zeros(deltas.shape[1]) for _ in range(3))
    after = []
    for sample, delta in enumerate(deltas, start=1):
        total = total + delta
        if sample % rule.accumulate == 0:
            v = momentum * v + total
            w, total = w - v, np.zeros_like(total)
        after.append(w)
    return np.array(after)


def by_torch(deltas: Array, rule: UpdateRule) -> Array:
    """The same by torch.optim.SGD, whose gradients add up until it steps."""
    w = torch.zeros(deltas.shape[1], dtype=torch.float64, requires_grad=True)
    sgd = torch.optim.SGD([w], lr=1.0, momentum=rule.momentum if isinstance(rule, Momentum) else 0.0)
    after = []
    for sample, delta in enumerate(deltas, start=1):
        (w * torch.from_numpy(delta)).sum().backward()  # type: ignore[no-untyped-call]
        if sample % rule.accumulate == 0:
            sgd.step()
            sgd.zero_grad()
        after.append(w.detach().numpy().copy())
    return np.array(after)


def one_tensor(rule: UpdateRule, bits: int | None) -> Graph:
    """A step of one tensor that is 0: COPIES of each channel."""
    size = len(FACTORS) * COPIES
    factors = tuple(float(f) for f in np.repeat(FACTORS, COPIES))
    g = Builder("step")
    if bits == 16:
        states = [g.persistent("w", np.zeros(size, np.int16))]
        op: BiasStep | WeightStep = BiasStep(factors, 0, 6, BOUND, rule, SHIFTS)
    elif bits is None:
        states = [g.persistent("w", np.zeros(size, np.int32))]
        op = BiasStep(factors, 0, 6, BOUND, rule)
    else:
        states = [g.persistent("w", np.zeros((size, 1), np.int8), QParams.per_tensor(0.01))]
        op = WeightStep(factors, 0, 6, BOUND, rule, bits=bits)
        if bits > 8:
            states.append(g.persistent("fraction", initial_fraction(size, bits - 8)))
    w = states[0].type
    if rule.buffered:
        buffer = rule.buffer(w)
        states.append(g.persistent("buffer", np.zeros(buffer.shape, buffer.dtype)))
    inputs = [g.input("sums", Type(w.shape, "int32")), g.input("rate", Type((2,), "int32"))]
    after = g.emit_all(op, *states, *inputs, g.input("step_state", Type((3,), "int32")), name="after")
    g.update(states, after)
    return g.graph(*after)


def drawn(rule: UpdateRule, bits: int | None) -> Iterator[Array]:
    """What the tensor is after each step, in int8 steps or units of a bias, by channel and copy; one run per seed."""
    graph = one_tensor(rule, bits)
    rate = Rate().ref(graph.nodes[0], RATE, np.ones(1, np.float32))
    for seed in range(SEEDS):
        state, run = dict(graph.state), []
        for step, sums in enumerate(gradients()):
            step_state = np.array([step, seed, LEVEL], np.int32)
            given = np.repeat(sums, COPIES).reshape(graph.inputs[0].type.shape)
            outs, state = evaluate_step(graph, state, given, rate, step_state)
            run.append(_numbers(outs, bits).reshape(len(FACTORS), COPIES))
        yield np.array(run)


def _numbers(outs: tuple[Array, ...], bits: int | None) -> Array:
    whole: Array = outs[0].ravel().astype(np.float64)
    if bits == 16:
        return whole * 2.0 ** units(SHIFTS)
    if bits is None or bits == 8:
        return whole
    f = bits - 8
    return whole + (unpack(outs[1], f, whole.size).astype(np.float64) - (1 << f) / 2) / (1 << f)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_textbook_is_what_torch_does(rule: UpdateRule) -> None:
    np.testing.assert_allclose(textbook(deltas(), rule), by_torch(deltas(), rule), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bits", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_integers_take_the_textbooks_steps_on_average(rule: UpdateRule, bits: int | None) -> None:
    runs = np.concatenate(list(drawn(rule, bits)), axis=2)
    wanted = textbook(deltas(), rule)
    error = runs.std(axis=2) / np.sqrt(runs.shape[2])
    off = np.abs(runs.mean(axis=2) - wanted)
    assert (off <= SIGMAS * error + FIXED_POINT * np.abs(wanted)).all(), (off / np.maximum(error, 1e-12)).max()
    assert error.max() < 0.05 * np.abs(wanted).max()  # so that steps of another size would show


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_float_head_takes_the_textbooks_steps(rule: UpdateRule) -> None:
    rng = np.random.default_rng(3)
    x, dy = rng.normal(0, 1, (STEPS, 1, 4)).astype(np.float32), rng.normal(0, 1, (STEPS, 1, 3)).astype(np.float32)
    g = Builder("head")
    states = [g.persistent("w", np.zeros((3, 4), np.float32)), g.persistent("b", np.zeros(3, np.float32))]
    if rule.buffered:
        states += [g.persistent(f"{v.name}.buffer", np.zeros(v.type.shape, np.float32)) for v in states]
    shapes = {"x": (1, 4), "dy": (1, 3), "rate": (1,)}
    inputs = [g.input(name, Type(shape, "float32")) for name, shape in shapes.items()]
    after = g.emit_all(DenseStep(rule), *states, *inputs, g.input("step_state", Type((2,), "int32")))
    g.update(states, after)
    graph = g.graph(*after)
    state, found = dict(graph.state), []
    for step in range(STEPS):
        outs, state = evaluate_step(graph, state, x[step], dy[step], RATE, np.array([step, 0], np.int32))
        found.append(np.concatenate([outs[0].ravel(), outs[1]]))
    outer = np.concatenate([(dy.transpose(0, 2, 1) * x).reshape(STEPS, -1), dy[:, 0]], axis=1)
    wanted = textbook(outer.astype(np.float64) * float(RATE[0]), rule)
    np.testing.assert_allclose(np.array(found), wanted, rtol=1e-4, atol=1e-7)


def one_sample(rule: UpdateRule, bits: int | None, sums: int, held: int, seed: int) -> tuple[Array, Array]:
    """What the tensor and its buffer are after one sample, from 0 and from `held`: copies of the first channel."""
    graph = one_tensor(rule, bits)
    buffer = next(v for v in graph.state if v.name == "buffer")
    state = {**graph.state, buffer: np.full_like(graph.state[buffer], held)}
    given = np.full(graph.inputs[0].type.shape, sums, np.int32)
    rate = Rate().ref(graph.nodes[0], RATE, np.ones(1, np.float32))
    outs, after = evaluate_step(graph, state, given, rate, np.array([0, seed, LEVEL], np.int32))
    return _numbers(outs, bits)[:COPIES], after[buffer].ravel()[:COPIES].astype(np.float64)


@pytest.mark.parametrize("held", [-1001, -3, 1, 2, 777])
@pytest.mark.parametrize("bits", KINDS.values(), ids=KINDS)
def test_what_stays_in_a_buffer_is_its_decay_on_average_and_a_coin_decides_the_rest(
    bits: int | None, held: int
) -> None:
    momentum = 0.7
    stays = np.array([one_sample(Momentum(momentum), bits, 0, held, seed)[1] for seed in range(SEEDS)])
    exact = momentum * held
    p = exact - np.floor(exact)
    assert set(np.unique(stays)) <= {np.floor(exact), np.floor(exact) + 1}
    assert abs(stays.mean() - exact) < SIGMAS * np.sqrt(p * (1 - p) / stays.size) + 2.0**-15 * abs(held)
    assert abs(stays.var() - p * (1 - p)) < 0.02


@pytest.mark.parametrize("bits", [8, 10, 12, None])  # a difference's buffer is a bias's, in other units
def test_what_is_rounded_into_a_buffer_says_nothing_of_what_is_rounded_out_of_it(bits: int | None) -> None:
    """A buffer's roundings draw from a stream of their own: errors of the delta, of what stays and of what moves."""
    sums, decay, unit = 9526, 0.7, 1.0 if bits is None else 2.0**12  # a delta of n + ½ units, half an int8 step
    errors = []
    for seed in range(SEEDS):
        _, delta = one_sample(Sgd(accumulate=2), bits, sums, 0, seed)  # not yet due: the buffer is the delta
        moved, stays = one_sample(Momentum(decay), bits, sums, 0, seed)
        errors.append([delta, stays - decay * delta, -moved * unit - delta])
    into, stay, move = np.concatenate(errors, axis=1)
    assert into.std() > 0.3
    assert stay.std() > 0.3
    limit = SIGMAS / np.sqrt(into.size)
    if bits is not None:
        assert move.std() > 0.3
        assert abs(np.corrcoef(into, move)[0, 1]) < limit
        assert abs(np.corrcoef(stay, move)[0, 1]) < limit
    assert len(np.unique(into)) == 2
    for delta in np.unique(into):  # what stays is a coin of another chance for each delta
        where = into == delta
        assert abs(stay[where].mean()) < SIGMAS * 0.5 / np.sqrt(where.sum())


def test_every_rule_is_held_to_its_formula() -> None:
    entered = {name for name, cls in ATTRIBUTES.items() if issubclass(cls, UpdateRule)}
    assert {type(rule).__name__ for rule in RULES} == entered


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_rule_survives_the_graphs_text(rule: UpdateRule) -> None:
    graph = one_tensor(rule, 12)
    text = print_graph(graph)
    assert ("rule=" in text) == (rule != Sgd())  # what is as it is by default is left out
    assert parse_graph(text, graph.state) == graph


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("Conv2D()", "rule is Conv2D, expected UpdateRule"),
        ("Nothing()", "rule is Nothing, expected UpdateRule"),
        ("abs.abs()", "rule is a call, expected UpdateRule"),
        ("Momentum()", "Momentum lacks its attribute momentum"),
        ("Momentum(0.9)", "not named"),
        ("Momentum(momentum=1)", "Momentum's momentum is 1, expected float"),
        ("Momentum(momentum=nan)", "not a literal"),
        ("Momentum(speed=0.9)", "Momentum has no attribute speed"),
        ("Momentum(momentum=0.9,**{})", "not named"),
        ("3", "WeightStep's rule is 3, expected"),
        ("Momentum(momentum=0.9", "not a literal"),
    ],
)
def test_a_damaged_rule_in_a_text_is_refused(rule: str, message: str) -> None:
    graph = one_tensor(Momentum(0.9), 8)
    text = print_graph(graph).replace("rule=Momentum(momentum=0.9)", f"rule={rule}")
    with pytest.raises(GraphError, match=message):
        parse_graph(text, graph.state)


@pytest.mark.parametrize(
    ("rule", "message"),
    [(Momentum(2.0), r"momentum is 2\.0"), (Momentum(-0.1), r"momentum is -0\.1"), (Sgd(accumulate=0), "0 samples")],
    ids=str,
)
def test_a_rule_that_cannot_be_followed_is_refused_where_it_is_used(rule: UpdateRule, message: str) -> None:
    with pytest.raises(InputError, match=message):
        one_tensor(rule, 8)


def test_a_buffer_of_another_type_is_refused() -> None:
    graph = one_tensor(Momentum(0.9), 8)
    text = print_graph(graph).replace("int16[", "int32[")
    with pytest.raises(GraphError, match="has a buffer of int32"):
        parse_graph(text, {v.name: a.astype(np.int32) if v.name == "buffer" else a for v, a in graph.state.items()})
