"""Sums over a link: any partition merged in any order is everything at once, and what was forgotten left no trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.lines import Faulty
from smidgen.ir import Array
from smidgen.link import Line, LinkedDevice, open_port
from smidgen.pipeline import compile
from smidgen.targets.device import Device
from smidgen.targets.host import Host
from smidgen.training import Options
from tests.link.test_replay_link import built
from tests.support.networks import inverted_residual
from tests.support.tiers import examples
from tests.targets.test_one_pass import CLASSES, same

SEEDS = st.integers(0, 2**32 - 1)
Sample = tuple[Array, int]


@dataclass(frozen=True)
class Boards:
    """Programs at the end of lines, one of which is bad, and a device without a line that sees everything."""

    linked: tuple[LinkedDevice, ...]
    alone: Device

    def start(self, rng: np.random.Generator, most: int) -> list[Sample]:
        """Empty all sums, and draw samples: any images."""
        for device in (*self.linked, self.alone):
            device.collect()
        return samples(rng, int(rng.integers(1, most)), self.alone)


def samples(rng: np.random.Generator, count: int, device: Device) -> list[Sample]:
    shape = device.graph.image.type.shape
    images = rng.integers(-128, 128, (count, *shape)).astype(np.int8)
    return list(zip(images, rng.integers(0, CLASSES, count).tolist(), strict=True))


@pytest.fixture(scope="module")
def boards(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boards]:
    program = compile(inverted_residual(0), None, host, options=Options(CLASSES), one_pass=True)
    port = built(program, tmp_path_factory.mktemp("boards") / "out")
    good, other, bad = (open_port(f"{port}-{number}") for number in range(3))
    linked = tuple(LinkedDevice(program.graph, Line(stream)) for stream in (good, other, Faulty(bad, share=1e-4)))
    with program.start() as alone:
        yield Boards(linked, alone)
    for device in linked:
        device.close()


@settings(max_examples=examples(1000, 30), deadline=None)
@given(SEEDS)
def test_any_partition_merged_over_links_in_any_order_is_everything_at_once(boards: Boards, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for image, label in boards.start(rng, 10):
        boards.alone.observe(image, label)
        boards.linked[int(rng.integers(0, len(boards.linked)))].observe(image, label)
    order = [boards.linked[i] for i in rng.permutation(len(boards.linked))]
    if rng.integers(0, 2):
        order[1].merge(order[2].sums())
        order[0].merge(order[1].sums())
    else:
        order[0].merge(order[1].sums())
        order[0].merge(order[2].sums())
    for device in (order[0], boards.alone):
        device.solve()
    assert same(order[0].state(), boards.alone.state())


@settings(max_examples=examples(1000, 30), deadline=None)
@given(SEEDS)
def test_what_was_observed_and_forgotten_over_a_link_left_no_trace(boards: Boards, seed: int) -> None:
    rng = np.random.default_rng(seed)
    device = boards.linked[int(rng.integers(0, len(boards.linked)))]
    for image, label in boards.start(rng, 5):
        device.observe(image, label)
        boards.alone.observe(image, label)
    before, more = device.state(), samples(rng, int(rng.integers(1, 5)), boards.alone)
    for image, label in more:
        device.observe(image, label)
    assert device.sums() != boards.alone.sums()
    for i in rng.permutation(len(more)):
        device.forget(*more[i])
    assert same(device.state(), before)
    for one in (device, boards.alone):
        one.solve()
    assert same(device.state(), boards.alone.state())
