"""One pass on every kind of core: the bytes of numpy after each call, and as many bytes of SRAM as were planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from smidgen.pipeline import compile
from smidgen.targets import find_board
from smidgen.training import Options
from tests.support.networks import inverted_residual
from tests.support.one_pass_reference import Reference
from tests.targets.test_one_pass import CLASSES, images, same

CORES = ("cortex-m0plus", "cortex-m4", "cortex-m7", "cortex-m55", "riscv32")


@pytest.mark.parametrize("scheme", [None, "last:2"])
@pytest.mark.parametrize("board", CORES)
def test_each_core_observes_solves_and_steps_as_numpy_does(board: str, scheme: str | None, cache: Path) -> None:
    program = compile(inverted_residual(0), scheme, find_board(board), options=Options(CLASSES), one_pass=True)
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
        for image, label in images(2):
            assert device.train(image, label, 0.001) == reference.train(image, label, 0.001)
        assert same(device.state(), reference.named())
