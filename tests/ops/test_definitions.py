"""Steps of integers are, on average, SGD's steps of the real numbers they stand for: layer by layer, head by head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from smidgen.ir import Array, Graph, Value, evaluate_step, roles_of
from smidgen.numerics.stochastic import SEED
from smidgen.ops.rules import Momentum, Sgd, UpdateRule
from smidgen.ops.update import unpack
from smidgen.training import Options, Training, build_training
from smidgen.training.options import HeadDtype, HeadStart
from smidgen.training.scheme import Scheme
from tests.support.drawn_heads import drawn_training
from tests.support.networks import CHANNELS, CLASSES, Drawn
from tests.support.real_steps import RealStep, scale_of

LABEL, SEEDS, SIGMAS = 0, 100, 5.0
RATE = 0.015  # steps of up to about six int8, of a few dozen units of a bias
RATES_WITHOUT_QAS = (60.0, 30_000.0)  # for weights, for biases
BIAS = 0.01  # of the largest step: what int8 gradients may lose to saturation and to factors of one exponent


@cache
def network() -> Graph:
    """Convolutions and depthwise layers, one of each to learn in part and one as a whole."""
    n = Drawn(11)
    x = n.conv(n.x, CHANNELS, 3, stride=2, activation="relu6")
    x = n.depthwise(n.conv(x, 2 * CHANNELS, activation="relu6"), activation="relu6")
    return n.end(n.depthwise(n.conv(x, CHANNELS)))


SCHEME = Scheme("mixed", 5, ((1, Fraction(1, 2)), (2, Fraction(1, 2)), (3, Fraction(1)), (4, Fraction(1))), "random")


@dataclass(frozen=True)
class How:
    """How a network learns, and after how many samples its weights move by all their gradients."""

    options: Options
    samples: int = 1

    def rates(self, graph: Graph) -> tuple[tuple[float, list[Value]], ...]:
        """Learning rates that make steps of a few integers, and what is held to them."""
        if self.options.qas:
            return ((RATE / self.samples, list(graph.state)),)
        kinds = ([v for v in graph.state if v.type.dtype == dtype] for dtype in ("int8", "int32"))
        return tuple(zip(RATES_WITHOUT_QAS, kinds, strict=True))

    def __str__(self) -> str:
        o = self.options
        return f"{o.weight_bits}-{o.rule}-{o.head_dtype}{'' if o.qas else '-no-qas'}"


def how(
    head: HeadDtype, bits: int = 12, rule: UpdateRule | None = None, qas: bool = True, start: HeadStart = "new"
) -> How:
    rule = rule or Sgd()
    return How(Options(CLASSES, weight_bits=bits, rule=rule, head_dtype=head, qas=qas, head=start), rule.accumulate)


HOWS = (
    how("float32"), how("int8"), how("int8", bits=8), how("float32", bits=10),
    how("int8", rule=Momentum(0.9)), how("float32", rule=Sgd(accumulate=2)),
    how("int8", bits=8, rule=Momentum(0.9, accumulate=2)), how("int8", qas=False),
)  # fmt: skip


def image() -> Array:
    return np.random.default_rng(5).integers(-128, 128, network().image.type.shape).astype(np.int8)


def numbers(state: Mapping[Value, Array], value: Value, bits: int) -> Array:
    """What a tensor that learns is in integer steps, with the bits below one."""
    whole: Array = state[value].astype(np.float64)
    fraction = next((v for v in state if v.name == f"{value.name}.fraction"), None)
    if fraction is None:
        return whole
    f = bits - 8
    below = unpack(state[fraction], f, whole.size).astype(np.float64) - (1 << f) / 2
    return whole + below.reshape(whole.shape) / (1 << f)


def moved(training: Training, how: How, learn: list[Value], rate: float) -> dict[Value, Array]:
    """By how many integer steps each tensor moved, seed after seed."""
    step, bits = training.step, how.options.weight_bits or 12
    step_state = roles_of(step).step_state
    arrays = (image(), np.array([LABEL], np.int32), np.array([rate], np.float32))
    runs: dict[Value, list[Array]] = {v: [] for v in learn}
    for seed in range(SEEDS):
        state = {**step.state, step_state: step.state[step_state].copy()}
        state[step_state][SEED] = seed
        for _ in range(how.samples):
            _, state = evaluate_step(step, state, *arrays)
        for v in learn:
            runs[v].append(numbers(state, v, bits) - step.state[v])
    return {v: np.array(run) for v, run in runs.items()}


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_real_parameters_take_sgds_steps_on_average(how: How) -> None:
    """Δreal = −rate · dL/dreal for weights of scale s_w and biases of s_x·s_w; without QAS s² times that."""
    training = drawn_training(build_training(network(), SCHEME, how.options, (image(),)))
    forward = training.forward
    gradients = RealStep(forward, image(), LABEL).gradients()
    assert len(gradients) == SCHEME.biases + len(SCHEME.weights) + 2
    for rate, learn in how.rates(forward):
        for value, runs in moved(training, how, learn, rate).items():
            scale = scale_of(forward, value)
            wanted = -rate * how.samples * gradients[value] * (1 / scale if how.options.qas else scale)
            assert_mean(value, runs, wanted)


def assert_mean(value: Value, runs: Array, wanted: Array) -> None:
    """The mean of the runs is what is wanted, as far as their number can tell, and it can tell a tenth."""
    error = runs.std(axis=0).max() / np.sqrt(len(runs))
    largest = np.abs(wanted).max()
    off = np.abs(runs.mean(axis=0) - wanted)
    assert off.max() <= SIGMAS * error + BIAS * largest, f"%{value.name} is off by {off.max() / largest:.1%} of a step"
    slope = float((runs.mean(axis=0) * wanted).sum() / (wanted**2).sum())
    assert abs(slope - 1) < 0.1, f"%{value.name} takes {slope:.2f} of its step"
    assert error < 0.1 * largest, "too noisy to tell"
