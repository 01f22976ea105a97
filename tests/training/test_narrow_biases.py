"""Biases that learn in 16 bits: what a difference counts, how far it reaches, and that all who train agree."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import smidgen as sm
from experiments.baselines.simulator import FloatTraining
from smidgen.errors import InputError
from smidgen.ir import Graph, evaluate, evaluate_step
from smidgen.learning.models import learned_graph
from smidgen.memory import state_bytes
from smidgen.numerics import quantize_multiplier
from smidgen.ops import LearnedBias
from smidgen.ops.rules import SGD, Momentum, UpdateRule
from smidgen.ops.state import MOST_DIFFERENCE, MOST_UNIT, units
from smidgen.simulation import Simulation
from smidgen.targets import find
from smidgen.targets.device import Target
from smidgen.targets.host import Host
from smidgen.training import Options, Training, build_training, passes
from smidgen.training.scheme import Scheme
from tests.support.networks import CLASSES, inverted_residual, samples

SOME = Scheme("some", 5, ((4, Fraction(1, 2)), (6, Fraction(1, 1))))


def narrow(rule: UpdateRule = SGD, bias_bits: int = 16, dead: int = 0) -> Training:
    return build_training(inverted_residual(7, dead), SOME, Options(CLASSES, rule=rule, bias_bits=bias_bits))


@given(st.floats(-30, 3))
def test_sixteen_bits_reach_over_half_the_outputs_range_and_resolve_a_hundredth_of_its_step(power: float) -> None:
    ratio = 2.0**power
    _, shift = quantize_multiplier(ratio)
    unit = 2.0 ** int(units((shift,))[0])
    assert unit == 1 or unit * ratio <= 2.0**-7, "a step of the output is resolved"
    assert MOST_DIFFERENCE * unit * ratio > 127 or unit == 2.0**MOST_UNIT, "half of its range is reached"


@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(-32767, 32767), st.integers(-31, 8))))
def test_a_learned_bias_is_its_formula(channels: list[tuple[int, int, int]]) -> None:
    base, difference, shifts = zip(*channels, strict=True) if channels else ((0,), (1,), (0,))
    op = LearnedBias(tuple(shifts))
    given_ = np.array(base, np.int32), np.array(difference, np.int16)
    g = sm.ir.Builder("bias")
    node = g.graph(g.emit(op, g.input("base", _type(given_[0])), g.input("difference", _type(given_[1])))).nodes[0]
    wanted = [
        max(-(2**31), min(2**31 - 1, b + d * 2 ** max(0, min(15, -7 - s))))
        for b, d, s in zip(base, difference, shifts, strict=True)
    ]
    assert op.ref(node, *given_).tolist() == wanted


def _type(array: sm.ir.Array) -> sm.ir.Type:
    return sm.ir.Type(array.shape, array.dtype.name)


def differences(graph: Graph) -> list[str]:
    return [value.name for value in graph.state if value.name.endswith(".difference")]


def test_a_model_begins_as_it_is_and_each_bias_takes_half_the_bytes() -> None:
    training, wide = narrow(), narrow(bias_bits=32)
    names = differences(training.step)
    assert len(names) == 5
    saved = sum(2 * value.type.size for value in training.step.state if value.name in names)
    assert state_bytes(wide.step) - state_bytes(training.step) == pytest.approx(saved, abs=2 * len(names))
    ((image, _),) = samples(training.forward, 1)
    assert np.array_equal(evaluate(training.forward, image)[0], evaluate(wide.forward, image)[0])


@pytest.mark.parametrize("rule", [SGD, Momentum(0.9, accumulate=2)], ids=str)
def test_host_and_fleet_take_the_references_steps_up_to_the_limits(host: Host, rule: UpdateRule) -> None:
    training = narrow(rule, dead=1)
    fleet = Simulation([passes.run(training.step)])
    assert reached(training, host, rule, fleet) == MOST_DIFFERENCE


def test_the_board_takes_the_references_steps() -> None:
    assert reached(narrow(dead=1), find("cortex-m7"), SGD, None) == MOST_DIFFERENCE


def reached(training: Training, target: Target, rule: UpdateRule, fleet: Simulation | None) -> int:
    """Compare steps at rising rates; the largest difference on the way."""
    program = sm.compile(inverted_residual(7, 1), SOME, target, options=Options(CLASSES, rule=rule, bias_bits=16))
    state, largest = training.step.state, 0
    with program.start() as device:
        for i, (image, label) in enumerate(samples(training.forward, 10)):
            rate = 0.01 * 3.0**i
            told = image, np.array([label], np.int32), np.array([rate], np.float32)
            _, state = evaluate_step(training.step, state, *told)
            device.train(image, label, rate)
            found = [device.state()]
            if fleet is not None:
                fleet.train(fleet.front(torch.from_numpy(image)), torch.tensor([label]), torch.tensor([[rate]]))
                found.append(fleet.state(0))
            for value, array in state.items():
                for kept in found:
                    assert kept[value.name].tobytes() == array.tobytes(), f"%{value.name} at step {i + 1}"
                if value.name.endswith(".difference"):
                    largest = max(largest, int(np.abs(array.astype(int)).max()))
    return largest


def test_a_learned_model_scores_as_the_program_that_learned_it() -> None:
    training = narrow()
    state = training.step.state
    shown = samples(training.forward, 6)
    for image, label in shown:
        told = image, np.array([label], np.int32), np.array([0.1], np.float32)
        _, state = evaluate_step(training.step, state, *told)
    assert any(state[v].any() for v in state if v.name.endswith(".difference"))
    learned = learned_graph(training, {value.name: array for value, array in state.items()})
    assert not any(isinstance(node.op, LearnedBias) for node in learned.nodes)
    for image, label in shown:
        told = image, np.array([label], np.int32), np.array([0.0], np.float32)
        (_, logits), _ = evaluate_step(training.step, state, *told)
        assert np.array_equal(evaluate(learned, image)[0], logits)


def test_in_float32_a_difference_moves_as_its_bias_would() -> None:
    narrowed, wide = FloatTraining(narrow()), FloatTraining(narrow(bias_bits=32))
    for image, label in samples(inverted_residual(7), 5):
        first, second = (one.train(image, label, 0.01) for one in (narrowed, wide))
        assert first == pytest.approx(second, rel=1e-3)


def test_other_widths_are_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="biases of 24 bits are not supported; choose 16 or 32"):
        narrow(bias_bits=24)
