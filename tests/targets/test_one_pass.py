"""Learning in one pass on a device: the bytes of numpy, in any order, and forgotten without a trace."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from smidgen.errors import InputError
from smidgen.ir import Array
from smidgen.numerics.one_pass import MOST_SAMPLES, Sums
from smidgen.pipeline import Program, compile
from smidgen.targets.device import Device
from smidgen.targets.host import Host
from smidgen.training import Options
from tests.support.networks import inverted_residual, single_layer
from tests.support.one_pass_reference import Reference

CLASSES = 4


def images(count: int, seed: int = 0) -> list[tuple[Array, int]]:
    """Samples of three of the four classes: patterns that differ, and noise."""
    rng = np.random.default_rng(seed)
    shape = inverted_residual(0).image.type.shape
    bases = rng.integers(-100, 101, (3, *shape))
    labels = rng.integers(0, 3, count)
    noise = rng.normal(0, 8, (count, *shape))
    return [(np.clip(bases[c] + noise[i], -128, 127).astype(np.int8), int(c)) for i, c in enumerate(labels)]


@pytest.fixture(scope="module", params=[(None, False, None), ("last:2", False, None), ("last:2", True, 7)])
def program(request: pytest.FixtureRequest, host: Host) -> Program:
    scheme, streamed, project = request.param
    options = Options(CLASSES, project=project)
    return compile(inverted_residual(0), scheme, host, options=options, streamed_input=streamed, one_pass=True)


def same(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


def test_a_device_observes_solves_and_then_steps_as_numpy_does(program: Program) -> None:
    reference = Reference(program.graph)
    with program.start() as device:
        assert same(device.state(), reference.named())
        for image, label in images(12):
            device.observe(image, label)
            assert reference.count(image, label) == 0
            assert same(device.state(), reference.named())
        device.solve()
        assert reference.solve() == 0
        assert same(device.state(), reference.named())
        right = [device.predict(image) == label for image, label in images(30)]
        assert same(device.state(), reference.named())  # a prediction changes nothing
        assert check_distances(device, reference) > 1
        assert np.mean(right) > 0.8  # of three classes, by a network of random weights
        for image, label in images(3):
            assert device.train(image, label, 0.001) == reference.train(image, label, 0.001)
            assert same(device.state(), reference.named())
        device.predict(images(1)[0][0])
        assert device.distance() == 0  # steps change the layers that it was measured by


def test_a_network_of_one_layer_observes_its_image(host: Host) -> None:
    program = compile(single_layer(0), "head", host, options=Options(CLASSES), one_pass=True)
    reference, rng = Reference(program.graph), np.random.default_rng(0)
    samples = [(rng.integers(-128, 128, (1, 24)).astype(np.int8), i % CLASSES) for i in range(10)]
    with program.start() as device:
        for image, label in samples:
            device.observe(image, label)
            assert reference.count(image, label) == 0
        device.solve()
        assert reference.solve() == 0
        assert same(device.state(), reference.named())
        assert [device.predict(image) for image, _ in samples] == [label for _, label in samples]
        for image, label in samples:
            assert device.train(image, label, 0.001) == reference.train(image, label, 0.001)
        assert same(device.state(), reference.named())


def check_distances(device: Device, reference: Reference) -> float:
    """Compare distances with those of numpy: of images like those observed, and of another, which is returned."""
    known, other = [image for image, _ in images(30)[12:15]], images(1, 5)[0][0]
    for image in (*known, other):
        device.predict(image)
        assert device.distance() == device.distance() == reference.distance(image)
    return device.distance()


def test_what_was_forgotten_left_no_trace(program: Program) -> None:
    first, second = images(5), images(7, 1)
    with program.start() as device:
        for image, label in first:
            device.observe(image, label)
        before = device.sums()
        for image, label in second:
            device.observe(image, label)
        assert device.sums() != before
        for image, label in reversed(second):
            device.forget(image, label)
        assert device.sums() == before


def test_merged_sums_are_those_of_one_device_that_saw_everything(program: Program) -> None:
    samples = images(9)
    with program.start() as alone, program.start() as first, program.start() as second:
        for index, (image, label) in enumerate(samples):
            alone.observe(image, label)
            (first if index % 3 else second).observe(image, label)
        first.merge(second.sums())
        for device in (alone, first):
            device.solve()
        assert same(alone.state(), first.state())
        first.merge(second.sums(), -1)
        first.merge(first.sums(), -1)
        assert first.sums() == Sums.empty(CLASSES, first.sums().m.shape[1])


def test_refusals_change_nothing(program: Program) -> None:
    (image, label), other = images(1)[0], images(2, 3)[1][0]
    with program.start() as device:
        empty = device.state()
        with pytest.raises(InputError, match="no sample was observed yet; nothing has changed"):
            device.solve()
        with pytest.raises(InputError, match="none of the classes"):
            device.observe(image, CLASSES)
        with pytest.raises(InputError, match="is not in the sums"):
            device.forget(image, label)
        assert same(device.state(), empty)
        device.observe(image, label)
        one = device.state()
        with pytest.raises(InputError, match="is not in the sums"):
            device.forget(other, label)  # it was never seen, and of one sample nothing else can be left
        with pytest.raises(InputError, match="is not in the sums"):
            device.forget_class(3)
        assert same(device.state(), one)
        full = device.sums()
        full.n[label] = MOST_SAMPLES
        with pytest.raises(InputError, match="more than 33,025 samples"):
            device.merge(Sums(full.n, full.m * 0, full.g * 0))
        damaged = Sums(full.n * 0, full.m + 1, full.g)
        with pytest.raises(InputError, match="damaged"):
            device.merge(damaged)
        with pytest.raises(InputError, match="4 classes by"):
            device.merge(Sums.empty(CLASSES + 1, full.m.shape[1]))
        assert same(device.state(), one)
        device.train(image, label, 0.0)
        stepped = device.state()
        for refused in (device.solve, lambda: device.observe(image, label), device.sums):
            with pytest.raises(InputError, match="the sums are gone"):
                refused()
        assert same(device.state(), stepped)
        device.collect()
        assert device.sums().samples == 0
        device.observe(image, label)


def test_a_class_forgotten_by_number_is_never_predicted_and_can_come_back(program: Program) -> None:
    samples = images(12)
    gone = samples[0][1]
    with program.start() as device:
        for image, label in samples:
            device.observe(image, label)
        device.forget_class(gone)
        device.solve()
        assert all(device.predict(image) not in (gone, 3) for image, _ in samples)
        device.observe(samples[0][0], 3)  # a class that the device adds by itself
        device.solve()
        assert device.predict(samples[0][0]) == 3


def test_one_sample_and_one_class_make_a_head(program: Program) -> None:
    (image, label), *_ = images(1)
    with program.start() as device:
        device.observe(image, label)
        assert device.distance() == 0
        device.solve()
        assert device.predict(image) == label
        assert device.distance() == 0
        device.observe(image, label)  # features all alike
        device.solve()
        assert device.predict(image) == label
        assert device.distance() == 0


def test_a_program_without_one_pass_says_so(host: Host) -> None:
    with compile(inverted_residual(0), "head", host, options=Options(CLASSES)).start() as device:
        for refused in (device.solve, device.sums, device.distance, lambda: device.observe(images(1)[0][0], 0)):
            with pytest.raises(InputError, match="without one pass"):
                refused()
