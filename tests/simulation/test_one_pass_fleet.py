"""One pass on every device of a fleet: sums, heads and the steps behind them are those of the host's C, to the byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from smidgen.errors import InputError
from smidgen.learning import Course
from smidgen.ops.rules import Momentum
from smidgen.pipeline import Program, compile
from smidgen.simulation import Simulated, Simulation, simulate
from smidgen.simulation.device import Simulator
from smidgen.targets.host import Host
from smidgen.training import Options
from tests.learning.test_one_pass import NAMES, data
from tests.support.networks import inverted_residual, single_layer
from tests.support.one_pass_reference import Reference
from tests.targets.test_one_pass import CLASSES, check_distances, images, same

COURSE = Course(2, 0.002, augment=None)


def programs(host: Host) -> list[Program]:
    """Of several schemes and rules, with and without one pass, and one whose head reads a projection."""
    plain, ruled = Options(3, head="new"), Options(3, rule=Momentum(0.9), seed=4, bias_bits=16)
    given = (
        ("head", plain, True), ("last:2", plain, True), ("last:3", ruled, True), ("last:2", plain, False),
        ("last:2", replace(plain, project=7, seed=2), True), ("head", Options(3, project=5), True),
    )  # fmt: skip
    return [
        compile(inverted_residual(0), scheme, host, options=options, one_pass=once, class_names=NAMES)
        for scheme, options, once in given
    ]


def check_equal(found: Simulated, in_c: Simulated) -> None:
    assert (found.accuracies, found.losses, found.tests) == (in_c.accuracies, in_c.losses, in_c.tests)
    assert found.taught == in_c.taught
    assert found.sums == in_c.sums
    for ours, theirs in zip(found.states, in_c.states, strict=True):
        assert same(ours, theirs)


def test_a_fleet_observes_solves_and_goes_on_by_steps_as_the_host_does(host: Host) -> None:
    fleet, learned = programs(host), data()
    found, in_c = (simulate(fleet, learned, COURSE, device=device) for device in ("cpu", "host"))
    check_equal(found, in_c)
    assert [one is None for one in found.taught] == [program.graph.one_pass is None for program in fleet]
    sums = [one for one in found.sums if one is not None]
    assert {one.samples for one in sums} == {len(learned.train)}
    assert sorted({one.m.shape[1] for one in sums}) == [5, 7, 12]
    assert max(one for one in found.taught if one is not None) > 0.8
    assert not any("sums.n" in state for state in found.states)


def test_without_a_course_one_pass_is_all(host: Host) -> None:
    fleet, learned = [one for one in programs(host) if one.graph.one_pass], data()
    found, in_c = (simulate(fleet, learned, None, device=device) for device in ("cpu", "host"))
    check_equal(found, in_c)
    assert found.accuracies == found.taught
    assert found.tests == found.losses == ()
    for program, state in zip(fleet, found.states, strict=True):
        with program.start() as device:
            device.restore(state)
            assert same(device.state(), state)
            assert device.sums().samples == len(learned.train)
    with pytest.raises(InputError, match="a fleet without a course learns in one pass"):
        simulate(programs(host), learned, None, device="cpu")


def test_a_network_of_one_layer_is_taught_in_a_fleet(host: Host) -> None:
    program = compile(single_layer(0), "head", host, options=Options(3), one_pass=True, class_names=NAMES)
    rng, learned = np.random.default_rng(0), data()
    arrays = tuple(rng.integers(-128, 128, 24).astype(np.int8) for _ in learned.train.images)
    learned = replace(learned, train=replace(learned.train, images=arrays), test=replace(learned.test, images=arrays))
    check_equal(*(simulate([program], learned, COURSE, device=device) for device in ("cpu", "host")))


def test_a_simulated_device_observes_forgets_and_solves_as_numpy_does() -> None:
    program = compile(inverted_residual(0), "last:2", Simulator(name="cpu"), options=Options(CLASSES), one_pass=True)
    reference = Reference(program.graph)
    with program.start() as device:
        for image, label in images(7):
            device.observe(image, label)
            assert reference.count(image, label) == 0
        device.forget(*images(7)[0])
        assert reference.count(*images(7)[0], -1) == 0
        for label, said in ((CLASSES, "none of the classes"), (3, "is not in the sums")):
            with pytest.raises(InputError, match=said):
                device.count(images(1)[0][0], label, -1 if label == 3 else 1)
        device.solve()
        assert reference.solve() == 0
        assert same(device.state(), reference.named())
        assert check_distances(device, reference) > 1
        for image, label in images(2):
            assert device.train(image, label, 0.001) == reference.train(image, label, 0.001)
        assert same(device.state(), reference.named())
        assert device.distance() == 0
        for refused in (device.solve, lambda: device.observe(*images(1)[0])):
            with pytest.raises(InputError, match="the sums are gone"):
                refused()


def test_a_fleet_takes_back_what_it_was_in_either_phase(host: Host) -> None:
    fleet = [one for one in programs(host) if one.graph.one_pass]
    for steps in (0, 2):
        simulation = Simulation([program.graph for program in fleet])
        for number, program in enumerate(fleet):
            with program.start() as device:
                for image, label in images(5):
                    device.observe(image, label)
                device.solve()
                for image, label in images(steps, 2):
                    device.train(image, label, 0.01)
                simulation.restore(number, device.state())
                assert same(simulation.state(number), device.state())
