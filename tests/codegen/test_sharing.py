"""Factors of steps are told by their layers' multipliers: exactly, or they are listed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smidgen as sm
from smidgen.codegen.constants import derive, shared_factors
from smidgen.ir import Array, Graph, QParams, Value, evaluate_step
from smidgen.numerics import quantize_multiplier, stochastic
from smidgen.ops.update import Step
from smidgen.targets import find
from smidgen.targets.device import Target
from smidgen.targets.host import Host
from smidgen.training import Options, build_training, passes
from smidgen.training.scheme import Scheme
from tests.support.networks import CLASSES, inverted_residual, samples

SOME = Scheme("some", 4, ((4, Fraction(1, 2)), (6, Fraction(1, 1))))


def trained(scheme: Scheme = SOME, qas: bool = True, model: Graph | None = None) -> Graph:
    options = Options(CLASSES, weight_bits=12, qas=qas)
    return passes.run(build_training(model or inverted_residual(7), scheme, options).step)


def told(graph: Graph, name: str) -> tuple[Array, Array]:
    """A step's factors as the C kernels compute them from its layer's."""
    (value,) = (v for v in shared_factors(graph) if v.name == name)
    shared = shared_factors(graph)[value]
    params = shared.layer.op.params(shared.layer)
    multiplier, shift = np.asarray(params["multiplier"]), np.asarray(params["shift"])
    mantissa, power = derive(multiplier, shift, shared.scale, shared.exponent)
    return mantissa + shared.correction, power


@pytest.mark.parametrize("dead", [0, 2])
def test_every_factor_that_is_told_by_a_layer_is_the_one_that_would_be_listed(dead: int) -> None:
    graph = trained(model=inverted_residual(7, dead))
    steps = {node.outs[0].name: node.op for node in graph.nodes if isinstance(node.op, Step)}
    names = {value.name for value in shared_factors(graph)}
    assert len(names) >= 4
    for name in names:
        multiplier, shift = stochastic.mantissas(np.array(steps[name].factors))
        mantissa, power = told(graph, name)
        assert np.array_equal(mantissa, multiplier)
        assert np.array_equal(power, shift)


@given(st.lists(st.floats(-30, -1), min_size=1, max_size=40), st.floats(-12, 12))
def test_a_factor_differs_from_its_layers_by_a_few_units_of_the_last_bit(powers: list[float], shared: float) -> None:
    ratios = 2.0 ** np.array(powers)
    pairs = [quantize_multiplier(float(r)) for r in ratios]
    own = np.array([m for m, _ in pairs], np.int32), np.array([s for _, s in pairs], np.int8)
    fraction, exponent = np.frexp(2.0**shared)
    mantissa, shift = derive(*own, int(fraction * 2**31), int(exponent))
    exact = np.minimum(2.0**shared / ratios**2, 2.0**60)
    found = np.ldexp(mantissa.astype(np.float64), shift - 31)
    assert (np.abs(found / exact - 1) < 8 / 2**30).all()


def test_without_qas_factors_are_listed() -> None:
    assert shared_factors(trained(qas=False)) == {}


def test_a_layer_with_a_channel_that_rounds_to_nothing_has_its_factors_listed() -> None:
    model = inverted_residual(7)
    layer = next(node for node in reversed(model.nodes) if len(node.ins) == 3 and len(node.ins[1].type.shape) == 4)
    w = layer.ins[1]
    assert w.type.q is not None
    scales = np.broadcast_to(np.array(w.type.q.scale), (w.type.shape[0],)).copy()
    scales[0] = 2.0**-60
    dead = Value(w.name, replace(w.type, q=QParams.per_channel(scales, 0)))

    def now(value: Value) -> Value:
        return dead if value == w else value

    nodes = tuple(replace(node, ins=tuple(map(now, node.ins))) for node in model.nodes)
    changed = replace(model, nodes=nodes, constants={now(v): data for v, data in model.constants.items()})
    whole = Scheme("whole", 6, ((6, Fraction(1, 1)),))
    before = {value.name for value in shared_factors(trained(whole))}
    after = {value.name for value in shared_factors(trained(whole, model=changed))}
    assert before - after
    assert after < before


def test_steps_so_large_that_the_last_bit_of_a_factor_shows_are_those_of_the_reference(host: Host) -> None:
    assert largest_step(host) > 1 << 29


def test_on_a_board_they_are_the_same() -> None:
    assert largest_step(find("cortex-m7")) > 1 << 29


def largest_step(target: Target) -> int:
    """Compare first steps at rising rates with the reference; the largest by which a bias moved, short of the limit."""
    model = inverted_residual(7)
    program = sm.compile(model, SOME, target, options=Options(CLASSES, weight_bits=12))
    assert program.training is not None
    assert shared_factors(program.graph)
    step, largest = program.training.step, 0
    ((image, label),) = samples(model, 1)
    with program.start() as device:
        for power in range(24):
            rate = 2.0**power
            told = image, np.array([label], np.int32), np.array([rate], np.float32)
            _, after = evaluate_step(step, step.state, *told)
            device.restore({value.name: array for value, array in step.state.items()})
            device.train(image, label, rate)
            kept = device.state()
            for value, array in after.items():
                assert kept[value.name].tobytes() == array.tobytes(), f"%{value.name} at a rate of {rate}"
                if value.name.endswith("b") and value.type.dtype == "int32":
                    moved = np.abs(array.astype(np.int64) - step.state[value])
                    largest = max(largest, int(moved[np.abs(array.astype(np.int64)) < 1 << 30].max(initial=0)))
    return largest
