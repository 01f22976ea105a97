"""Device d of a fleet learns what it would learn alone: every byte of state equals numpy's and the host's C."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import smidgen as sm
from smidgen import numerics
from smidgen.data import Augment
from smidgen.errors import InputError, TargetError
from smidgen.ir import Array, Graph, evaluate_step, roles_of
from smidgen.learning import Course, LearningProgress, learn
from smidgen.numerics import stochastic
from smidgen.numerics.float32 import exp_f32, log_f32
from smidgen.ops.dense import LANES, dot_f32
from smidgen.ops.rules import Momentum, Sgd
from smidgen.ops.update import BiasStep
from smidgen.pipeline import Program, compile
from smidgen.simulation import FleetProgress, Simulation, backward, courses, integers, simulate, sums
from smidgen.simulation.device import Simulator
from smidgen.simulation.forward import lanes_dot
from smidgen.simulation.steps import IntegerStep
from smidgen.targets.host import Host
from smidgen.training import Options, build_training, passes
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, load_scheme
from tests.support.drawn_heads import drawn_training
from tests.support.networks import CLASSES, branches, gates, inverted_residual, one_scale, pools_and_moves, samples
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network
from tests.support.tiers import examples

torch.set_num_threads(1)  # pytest's workers share the cores
STEPS = 4
OPTIONS = (
    Options(CLASSES, seed=1),
    Options(CLASSES, weight_bits=8, seed=2),
    Options(CLASSES, rule=Momentum(0.9), seed=3),
    Options(CLASSES, weight_bits=10, rule=Sgd(accumulate=3)),
    Options(CLASSES, head_dtype="int8", seed=5),
    Options(CLASSES, qas=False),
    Options(CLASSES, project=3, seed=6),
)


def schemes(graph: Graph) -> tuple[Scheme, ...]:
    """All, the last layers, biases, the head alone, and some channels of some layers: two choices of them."""
    count = len(layers(graph))
    named = [load_scheme(name, graph) for name in ("full", "last:2", f"bias:{count}", "head")]
    halves = Scheme("halves", count, tuple((i, Fraction(1, 2)) for i in range(count)))
    others = Scheme("others", count - 1, tuple((i, Fraction(1, 3)) for i in range(1, count)), "smallest")
    return (*named, halves, others)


def device_graphs(graph: Graph) -> list[Graph]:
    """Each scheme under two options, so that all options occur and no two devices are alike."""
    pairs = [(s, OPTIONS[(2 * i + j) % len(OPTIONS)]) for i, s in enumerate(schemes(graph)) for j in (0, 1)]
    return [passes.run(build_training(graph, scheme, options).step) for scheme, options in pairs]


def feed(fleet: Simulation, image: Array, label: int, rates: Array) -> Array:
    found = fleet.train(fleet.front(torch.from_numpy(image)), torch.tensor([label]), torch.from_numpy(rates[None]))
    losses: Array = found[0].numpy()
    return losses


def differing(graph: Graph, ours: dict[str, Array], theirs: dict[str, Array]) -> list[str]:
    return [v.name for v in graph.state if ours[v.name].tobytes() != theirs[v.name].tobytes()]


def check_lockstep(graph: Graph, graphs: list[Graph]) -> Simulation:
    """Every loss, all logits and in the end all state of a fleet are numpy's, device by device."""
    rates = np.array([0.003 * (1 + d % 4) for d in range(len(graphs))], np.float32)
    fleet, states = Simulation(graphs), [g.state for g in graphs]
    for image, label in samples(graph, STEPS):
        losses = feed(fleet, image, label, rates)
        for d, own in enumerate(graphs):
            arrays = (image, np.array([label], np.int32), rates[d : d + 1])
            (loss, logits), states[d] = evaluate_step(own, states[d], *arrays)
            assert loss[0] == losses[d], f"device {d}"
            assert np.array_equal(logits[0], fleet.logits[d].numpy()), f"device {d}"
    moved = 0
    for d, own in enumerate(graphs):
        expected = {v.name: a for v, a in states[d].items()}
        assert differing(own, fleet.state(d), expected) == [], f"device {d}"
        moved += len(differing(own, expected, {v.name: a for v, a in own.state.items()}))
    assert moved > len(graphs)  # they learned something
    return fleet


@pytest.mark.parametrize("network", [inverted_residual, branches, pools_and_moves, gates, one_scale])
def test_devices_of_other_schemes_rules_and_seeds_equal_numpy_in_lockstep(network: Callable[[int], Graph]) -> None:
    graph = network(3)
    check_lockstep(graph, device_graphs(graph))


@pytest.mark.parametrize("network", [inverted_residual, branches, pools_and_moves, gates])
def test_devices_with_samples_of_their_own_equal_numpy_in_lockstep(network: Callable[[int], Graph]) -> None:
    graph = network(3)
    graphs, given = device_graphs(graph)[::2], samples(graph, STEPS)
    fleet, states = Simulation(graphs, own_samples=True), [g.state for g in graphs]
    rates = np.array([0.003 * (1 + d % 4) for d in range(len(graphs))], np.float32)
    for step in range(STEPS):
        own = [given[(step + d) % STEPS] for d in range(len(graphs))]  # each in an order of its own
        images, labels = np.stack([image for image, _ in own], axis=1), np.array([[label for _, label in own]])
        shown = fleet.front(torch.from_numpy(images))
        losses = fleet.train(shown, torch.from_numpy(labels), torch.from_numpy(rates[None]))[0].numpy()
        for d, ((image, label), graph) in enumerate(zip(own, graphs, strict=True)):
            arrays = (image, np.array([label], np.int32), rates[d : d + 1])
            (loss, logits), states[d] = evaluate_step(graph, states[d], *arrays)
            assert loss[0] == losses[d], f"device {d}"
            assert np.array_equal(logits[0], fleet.logits[d].numpy()), f"device {d}"
    for d, graph in enumerate(graphs):
        assert differing(graph, fleet.state(d), {v.name: a for v, a in states[d].items()}) == [], f"device {d}"


def test_a_step_is_computed_for_the_devices_that_take_it_alone() -> None:
    graph = inverted_residual(3)
    count = len(layers(graph))
    single = [Scheme(f"layer {i}", count, ((i, part),)) for i in range(count) for part in (Fraction(1, 2), Fraction(1))]
    options = (Options(CLASSES, seed=1, head="new"), Options(CLASSES, rule=Momentum(0.9), seed=2, head="new"))
    pairs = [(scheme, option) for option in options for scheme in single]
    fleet = check_lockstep(graph, [passes.run(drawn_training(build_training(graph, *pair)).step) for pair in pairs])
    weights = [step for step in fleet._steps if isinstance(step, IntegerStep) and step.is_weight]
    assert len(weights) == len(options) * count
    assert {step.devices for step in weights} == {2}


@pytest.mark.slow
def test_a_backbone_learns_on_the_cpu_what_the_hosts_c_learns(host: Host) -> None:
    model = sm.load("mcunet-5fps")
    programs = [
        compile(model, scheme, host, options=Options(10, weight_bits=bits, seed=bits))
        for scheme, bits in (("49kb", 12), ("99kb", 8), ("148kb", 10))
    ]
    fleet, rates = Simulation([p.graph for p in programs]), np.array([1e-3, 4e-3, 4e-4], np.float32)
    shown = samples(model, 3)
    for image, label in shown:
        feed(fleet, image, label, rates)
    for d, program in enumerate(programs):
        with program.start() as device:
            for image, label in shown:
                device.train(image, label, float(rates[d]))
            assert differing(program.graph, fleet.state(d), device.state()) == []


def test_what_two_devices_share_is_computed_once() -> None:
    graph = inverted_residual(3)
    one, many = ([passes.run(build_training(graph, load_scheme(name, graph), OPTIONS[0]).step) for name in names]
                 for names in (["full"], ["full", "last:2", "bias:3", "head"]))  # fmt: skip
    alone, together = Simulation(one), Simulation(many)
    assert len(together.merged.nodes) <= len(alone.merged.nodes) + 4  # where gradients end, nodes differ
    assert Simulation(many[3:]).merged.parameters.keys() != together.merged.parameters.keys()


def test_ops_that_only_numpy_computes_are_known_so_that_no_recording_is_tried() -> None:
    through, around = (
        passes.run(build_training(g, load_scheme("full", g), OPTIONS[0]).step)
        for g in (pools_and_moves(3), inverted_residual(3))
    )
    assert "AvgPoolGrad" in Simulation([through]).s.by_reference
    assert Simulation([around]).s.by_reference == []
    assert not Simulation([around]).recordable  # there is no CUDA graph on this machine's processor


def test_a_fleet_starts_from_whatever_state_its_programs_hold() -> None:
    graph = inverted_residual(3)
    rates, drawn = np.full(12, 0.01, np.float32), samples(graph, 4)
    begun, states = [], []
    for own in device_graphs(graph):
        state = own.state
        for image, label in drawn[:2]:
            _, state = evaluate_step(own, state, image, np.array([label], np.int32), rates[:1])
        begun.append(replace(own, state=state))
    fleet = Simulation(begun)
    for d, own in enumerate(begun):
        assert differing(own, fleet.state(d), {v.name: a for v, a in own.state.items()}) == [], f"device {d}"
    states = [own.state for own in begun]
    for image, label in drawn[2:]:
        feed(fleet, image, label, rates)
        for d, own in enumerate(begun):
            _, states[d] = evaluate_step(own, states[d], image, np.array([label], np.int32), rates[:1])
    for d, own in enumerate(begun):
        assert differing(own, fleet.state(d), {v.name: a for v, a in states[d].items()}) == [], f"device {d}"


def test_a_device_goes_on_from_a_state() -> None:
    graph = inverted_residual(3)
    graphs = device_graphs(graph)
    rates = np.full(len(graphs), 0.01, np.float32)
    drawn = samples(graph, 6)
    whole, first, second = (Simulation(graphs) for _ in range(3))
    for image, label in drawn:
        feed(whole, image, label, rates)
    for image, label in drawn[:3]:
        feed(first, image, label, rates)
    for d in range(len(graphs)):
        second.restore(d, first.state(d))
    for image, label in drawn[3:]:
        feed(second, image, label, rates)
    for d, own in enumerate(graphs):
        assert differing(own, second.state(d), whole.state(d)) == []


def small_programs(host: Host, count: int = 3) -> list[Program]:
    graph = small_network()
    return [
        compile(graph, scheme, host, options=Options(4, seed=seed))
        for seed, scheme in zip(range(count), ("last:4", "full", "bias:3"), strict=True)
    ]


@pytest.mark.parametrize("augment", [Augment(), None], ids=["crops", "whole"])
def test_a_course_for_a_fleet_ends_as_on_the_host(host: Host, augment: Augment | None) -> None:
    data, course, rates = draw_shapes(8, 5), Course(2, 0.01, warmup=0.5, augment=augment), [0.01, 0.002, 0.05]
    programs = small_programs(host)
    said: list[FleetProgress] = []
    found = simulate(programs, data, course, learning_rates=rates, device="cpu", on_progress=said.append)
    in_c = simulate(programs, data, course, learning_rates=rates, device="host", on_progress=said.append)
    assert (in_c.accuracies, in_c.tests, in_c.losses) == (found.accuracies, found.tests, found.losses)
    for d, program in enumerate(programs):
        alone = learn(program, data, Course(2, rates[d], warmup=0.5, augment=augment))
        assert differing(program.graph, dict(found.states[d]), dict(alone.state)) == []
        assert differing(program.graph, dict(in_c.states[d]), dict(alone.state)) == []
        assert found.accuracies[d] == alone.accuracy
        assert [tested[d] if tested else None for tested in found.tests] == [e.accuracy for e in alone.record]
        assert [epoch[d] for epoch in found.losses] == [e.loss for e in alone.record]
    assert (said[-1].epoch, said[-1].step, said[-1].devices) == (2, len(data.train), 3)
    assert found.fleets == (3,)
    assert found.diverged == (False, False, False)


def test_a_fleet_that_does_not_fit_is_split_and_goes_on(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    data, course = draw_shapes(4, 2), Course(1, 0.01)
    programs = small_programs(host)
    expected = simulate(programs, data, course, device="cpu")
    run = courses._run

    def cramped(graphs, *rest):  # type: ignore[no-untyped-def]
        if len(graphs) > 2:
            raise torch.OutOfMemoryError("no room")
        return run(graphs, *rest)

    monkeypatch.setattr(courses, "_run", cramped)
    found = simulate(programs, data, course, device="cpu")
    assert found.fleets == (2, 1)
    assert (found.accuracies, found.losses, found.tests) == (expected.accuracies, expected.losses, expected.tests)
    monkeypatch.setattr(courses, "_run", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("none")))
    with pytest.raises(InputError, match="too little memory for one device"):
        simulate(programs, data, course, device="cpu")


def test_one_simulated_device_learns_and_resumes_as_the_host_does(host: Host, tmp_path: Path) -> None:
    graph, data, course = small_network(), draw_shapes(4, 3), Course(2, 0.01)
    options = Options(4, rule=Momentum(0.9))
    on_host = learn(compile(graph, "last:4", host, options=options), data, course)
    program = compile(graph, "last:4", Simulator(name="cpu"), options=options)
    file = tmp_path / "run.ckpt"

    def pull_the_plug(progress: LearningProgress) -> None:
        if progress.doing == "learning" and progress.epoch == 2 and progress.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(program, data, course, checkpoint=file, save_steps=3, on_progress=pull_the_plug)
    simulated = learn(program, data, course, resume=file)
    assert differing(program.graph, dict(simulated.state), dict(on_host.state)) == []
    assert (simulated.before, simulated.record, simulated.model) == (on_host.before, on_host.record, on_host.model)
    with program.start() as device, compile(graph, "last:4", host, options=options).start() as other:
        (image, label), *_ = samples(graph, 1)
        assert device.train(image, label % 4, 0.01) == other.train(image, label % 4, 0.01)
        for ours, theirs in zip(device.outputs(), other.outputs(), strict=True):
            assert np.array_equal(ours, theirs)
    with pytest.raises(TargetError, match="is closed"):
        device.train(image, 0, 0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "cuda"}, "finds no CUDA device"),
        ({"device": "tpu9"}, "is not a device of PyTorch"),
        ({"device": "meta"}, "fleets run on cuda or cpu"),
        ({"learning_rates": [0.1]}, "1 learning rates do not fit 3 programs"),
        ({"learning_rates": [0.1, -1, 0.1]}, "learning rate of -1"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_told_in_one_sentence(host: Host, change: dict[str, object], message: str) -> None:
    if change.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    settings_: dict[str, object] = {"device": "cpu", **change}
    with pytest.raises(InputError, match=message):
        simulate(small_programs(host), draw_shapes(4, 2), Course(1, 0.01), **settings_)  # type: ignore[arg-type]


def test_programs_that_do_not_belong_together_are_told(host: Host) -> None:
    data, course = draw_shapes(4, 2), Course(1, 0.01)
    with pytest.raises(InputError, match="no devices"):
        simulate([], data, course, device="cpu")
    with pytest.raises(InputError, match="compiled without a scheme"):
        simulate([compile(small_network(), target=host)], data, course, device="cpu")
    one, other = (build_training(g, load_scheme("head", g), Options(4)).step for g in (small_network(), branches(1)))
    with pytest.raises(InputError, match="another device of the fleet"):
        Simulation([one, other])
    with pytest.raises(TargetError, match="does not learn"):
        compile(small_network(), target=Simulator(name="cpu"))


# The arithmetic by itself, at numbers that networks seldom reach.


@given(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=8), st.integers(0, 2**31 - 1), st.integers(-31, 20)
)
@settings(max_examples=examples(200))
def test_requantization_is_numerics(xs: list[int], multiplier: int, shift: int) -> None:
    x = np.array(xs, np.int64)
    ours = integers.scaled(torch.from_numpy(x), torch.tensor(multiplier), torch.tensor(shift))
    assert np.array_equal(ours.numpy(), numerics.multiply(x, multiplier, shift))


@given(st.integers(-20, 40), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(200))
def test_gradients_are_rounded_as_numerics_says(t: int, key: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    v = rng.integers(-(2**30), 2**30, (5, 3)) >> rng.integers(0, 31, (5, 3))  # positions, channels
    expected, bits = stochastic.round_gradient(v, t, key)
    signed = torch.tensor([key], dtype=torch.int64).to(torch.int32)
    ours, peak = integers._at_random(torch.from_numpy(v.T.copy())[None], torch.tensor([t]), signed)
    assert np.array_equal(ours[0].numpy().T, expected)
    assert int(peak.max()).bit_length() == bits.bit_length()


@given(st.integers(-60, 60), st.integers(-80 << 8, 80 << 8), st.integers(0, 12), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(200))
def test_steps_are_scaled_and_rounded_as_the_op_says(power: int, level: int, fraction_bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    factors = tuple(float(f) for f in np.exp(rng.normal(size=7) * 20))
    op = BiasStep(factors, slot=0, stream=int(rng.integers(1000)), bound=127 * 64)
    sums_ = rng.integers(-127 * 64, 127 * 64 + 1, 7).astype(np.int32)
    rate = np.array([rng.integers(2**30, 2**31), power], np.int32)
    state = np.array([rng.integers(2**31), rng.integers(2**31), level], np.int32)
    expected = op.delta(sums_, rate, state, fraction_bits, (7,))
    multiplier, shift = (
        torch.from_numpy(m.astype(np.int64)).reshape(1, 7, 1, 1) for m in stochastic.mantissas(np.array(factors))
    )
    t = op.lift - power - stochastic.exponent(state, 0) - fraction_bits
    key = integers.keys(*(torch.tensor([[int(n)]], dtype=torch.int32) for n in (state[0], state[1], op.stream)))
    ours = integers.delta(
        torch.from_numpy(sums_).reshape(1, 7, 1, 1), torch.tensor(op.lift), multiplier, shift,
        torch.tensor([int(rate[0])]), torch.tensor([t]), key[:, 0], torch.zeros((1, 1), dtype=torch.int32),
        torch.ones(1, dtype=torch.int32),
    )  # fmt: skip
    assert np.array_equal(ours.flatten().numpy(), expected)


@given(st.integers(-(70 << 8), 70 << 8), st.integers(0, 2**31 - 1))
@settings(max_examples=examples(200))
def test_levels_move_as_numerics_says(level: int, peak: int) -> None:
    ours = integers.next_levels(torch.tensor([level]), torch.tensor([peak]))
    assert int(ours[0]) == stochastic.next_level(level, peak)
    assert int(integers.exponents(torch.tensor([level]))[0]) == stochastic.exponent_of(stochastic.limit_level(level))


def test_long_sums_are_split_and_exact() -> None:
    rng = np.random.default_rng(0)
    w, x = rng.choice([-128, 127], (2, 3, 1500)), rng.choice([-255, 255], (2, 1500, 4))
    ours = sums.product(torch.from_numpy(w).float(), torch.from_numpy(x).float(), 128 * 255)
    assert np.array_equal(ours.numpy(), w @ x)
    assert np.abs(w @ x).max() < sums.EXACT  # this draw would fit; the bound is for the worst
    largest = sums.product(torch.full((1, 1, 1500), 128.0), torch.full((1, 1500, 1), 255.0), 128 * 255)
    assert int(largest) == 128 * 255 * 1500


def test_the_float_head_adds_and_exponentiates_as_the_device_does() -> None:
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(1, 37)).astype(np.float32), rng.normal(size=(5, 37)).astype(np.float32)
    ours = lanes_dot(torch.from_numpy(x.T.copy())[None], torch.from_numpy(w)[None], LANES)
    assert np.array_equal(ours[0, :, 0].numpy(), dot_f32(x, w)[0])
    numbers = -np.abs(rng.normal(size=1000) * 30).astype(np.float32)
    assert np.array_equal(backward.exp_f32(torch.from_numpy(numbers)).numpy(), exp_f32(numbers))
    positive = np.exp(rng.normal(size=1000) * 10).astype(np.float32)
    assert np.array_equal(backward.log_f32(torch.from_numpy(positive)).numpy(), log_f32(positive))


def test_state_is_told_by_the_names_of_the_program() -> None:
    (graph, *_) = device_graphs(inverted_residual(3))
    fleet = Simulation([graph])
    assert list(fleet.state(0)) == [v.name for v in graph.state]
    assert roles_of(graph).step_state.name in fleet.state(0)
