"""One pass on every kind of core: the bytes of numpy after each call, and as many bytes of SRAM as were planned."""

from __future__ import annotations

from pathlib import Path

import pytest

import smidgen as sm
from smidgen.data import as_input, pixel_encoding
from smidgen.pipeline import compile
from smidgen.targets import find_board
from smidgen.training import Options
from tests.support.networks import inverted_residual
from tests.support.one_pass_reference import Reference
from tests.targets.test_one_pass import CLASSES, check_distances, images, same

CORES = ("cortex-m0plus", "cortex-m4", "cortex-m7", "cortex-m55", "riscv32")


@pytest.mark.parametrize(("scheme", "project"), [(None, None), ("last:2", None), ("last:2", 7)])
@pytest.mark.parametrize("board", CORES)
def test_each_core_observes_solves_and_steps_as_numpy_does(
    board: str, scheme: str | None, project: int | None, cache: Path
) -> None:
    options = Options(CLASSES, project=project)
    program = compile(
        inverted_residual(0), scheme, find_board(board), options=options, streamed_input=True, one_pass=True
    )  # fmt: skip
    reference = Reference(program.graph)
    with program.start() as device:
        for image, label in images(6):
            device.observe(image, label)
            assert reference.count(image, label) == 0
        device.forget(*images(6)[0])
        assert reference.count(*images(6)[0], -1) == 0
        assert same(device.state(), reference.named())
        device.solve()
        assert reference.solve() == 0
        assert same(device.state(), reference.named())
        assert check_distances(device, reference) > (0 if project else 1)
        for image, label in images(2):
            assert device.train(image, label, 0.001) == reference.train(image, label, 0.001)
        assert same(device.state(), reference.named())


@pytest.mark.slow
def test_a_hundred_photographs_taught_to_a_board_are_the_bytes_that_this_machine_learns(cache: Path) -> None:
    model, data = sm.load("mcunet-5fps"), sm.load_data("cifar10")
    samples, encoding = data.train.spread(100), pixel_encoding(model)
    states = []
    for target in (find_board("cortex-m7"), "host"):
        program = compile(
            model, "99kb", target, options=Options(10), streamed_input=target != "host", one_pass=True
        )  # fmt: skip
        with program.start() as device:
            for image, label in zip(samples.images, samples.labels, strict=True):
                device.observe(as_input(image, encoding), label)
            device.solve()
            states.append(device.state())
            right = sum(
                device.predict(as_input(image, encoding)) == label
                for image, label in zip(samples.images[:10], samples.labels[:10], strict=True)
            )
            assert right >= 7
    assert same(*states)
